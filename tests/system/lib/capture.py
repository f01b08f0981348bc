# SPDX-License-Identifier: Apache-2.0
"""What a peer sees of the guests' packets: tcpdump in the peer's namespace, read by a small parser of its file."""
import dataclasses
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


def parse(data):
    """UDP over IPv4 packets of a pcap file, as far as it is complete. ValueError if it is none."""
    formats = {b"\xd4\xc3\xb2\xa1": ("<", 1e-6), b"\x4d\x3c\xb2\xa1": ("<", 1e-9)}
    if len(data) < 24 or data[:4] not in formats:
        raise ValueError("not a capture file")
    order, unit = formats[data[:4]]
    position, packets = 24, []
    while position + 16 <= len(data):
        seconds, fraction, length, _ = struct.unpack_from(order + "IIII", data, position)
        frame = data[position + 16:position + 16 + length]
        position += 16 + length
        if len(frame) < length or frame[12:14] != b"\x08\x00" or frame[23:24] != b"\x11":
            continue
        start = 14 + (frame[14] & 15) * 4
        text = frame[start + 8:].rstrip(b"\0").decode(errors="replace")
        packets.append(Packet(seconds + fraction * unit, ".".join(map(str, frame[26:30])), text))
    return packets


class Capture:
    """From now until stop(): every packet to the peer's port, stamped by the kernel."""

    def __init__(self, labs, peer="peer", port=PORT):
        self.file = labs.dir / peer / "packets.pcap"
        self.sink = labs.spawn(peer, "sink", [sys.executable, "-c", SINK, port])
        self.tcpdump = labs.spawn(peer, "tcpdump", [
            "tcpdump", "-n", "-U", "--immediate-mode", "-Z", "root", "-i", "eth0", "-w", self.file, "udp", "dst",
            "port", port])
        wait_until("tcpdump to listen", lambda: "listening on" in self.tcpdump.output(), 10)

    def packets(self, guest=None):
        data = self.file.read_bytes() if self.file.exists() else b""
        found = parse(data) if len(data) >= 24 else []
        return [packet for packet in found if guest is None or packet.guest == guest]

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
