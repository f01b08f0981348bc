# SPDX-License-Identifier: Apache-2.0
"""What a peer sees of the guests' packets: tcpdump in the peer's namespace, read by a small parser of its file."""
import dataclasses
import itertools
import struct
import sys

from labs import wait_until

PORT = 9900
SINK = """
import socket, sys
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("0.0.0.0", int(sys.argv[1])))
while True:
    data, sender = server.recvfrom(2048)
    if data == b"hostile":
        server.sendto(data, sender)
"""


@dataclasses.dataclass(frozen=True)
class Packet:
    time: float  # wall clock of the machine, seconds
    source: str
    text: str  # "cnn STEP SEQUENCE"

    @property
    def guest(self):
        return self.text.split(" ", 1)[0]


class Reader:
    """Takes the UDP over IPv4 packets out of a pcap file that grows."""

    FORMATS = {b"\xd4\xc3\xb2\xa1": ("<", 1e-6), b"\x4d\x3c\xb2\xa1": ("<", 1e-9)}

    def __init__(self):
        self.order, self.unit, self.rest, self.packets = None, None, b"", []

    def feed(self, data):
        """What follows what was fed before; a torn end waits for the rest. ValueError if it is no capture."""
        data = self.rest + data
        position = 0
        if self.order is None:
            if len(data) >= 4 and data[:4] not in self.FORMATS:
                raise ValueError("not a capture file")
            if len(data) < 24:
                self.rest = data
                return self.packets
            self.order, self.unit = self.FORMATS[data[:4]]
            position = 24
        while position + 16 <= len(data):
            seconds, fraction, length, _ = struct.unpack_from(self.order + "IIII", data, position)
            if position + 16 + length > len(data):
                break
            self._take(seconds + fraction * self.unit, data[position + 16:position + 16 + length])
            position += 16 + length
        self.rest = data[position:]
        return self.packets

    def _take(self, time, frame):
        if frame[12:14] != b"\x08\x00" or frame[23:24] != b"\x11":
            return
        start = 14 + (frame[14] & 15) * 4
        text = frame[start + 8:].rstrip(b"\0").decode(errors="replace")
        self.packets.append(Packet(time, ".".join(map(str, frame[26:30])), text))


class Capture:
    """From now until stop(): every packet to the peer's port, stamped by the kernel."""

    numbers = itertools.count()

    def __init__(self, labs, peer="peer", port=PORT):
        # A file and a log of its own: what an earlier capture left there is not read for this one's.
        number = next(self.numbers)
        self.file, self.position, self.reader = labs.dir / peer / f"packets-{number}.pcap", 0, Reader()
        self.sink = labs.spawn(peer, "sink", [sys.executable, "-c", SINK, port])
        self.tcpdump = labs.spawn(peer, f"tcpdump-{number}", [
            "tcpdump", "-n", "-U", "--immediate-mode", "-Z", "root", "-i", "eth0", "-w", self.file, "udp", "dst",
            "port", port])
        wait_until("tcpdump to listen", lambda: "listening on" in self.tcpdump.output(), 10)

    def packets(self, guest=None):
        """All so far, in order of time. Reads only what is new in the file."""
        if self.file.exists():
            with open(self.file, "rb") as file:
                file.seek(self.position)
                data = file.read()
            self.position += len(data)
            self.reader.feed(data)
        if guest is None:
            return self.reader.packets
        return [packet for packet in self.reader.packets if packet.guest == guest]

    def last_before_silence(self, guest, since, silence_s=0.5):
        """Time of the guest's last packet that follows `since` (or precedes it) without a gap of silence_s."""
        last = None
        for packet in self.packets(guest):
            if last is not None and packet.time > since and packet.time - last > silence_s:
                break
            last = packet.time
        return last

    def stop(self):
        self.tcpdump.stop()
        self.sink.stop()
