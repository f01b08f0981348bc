# SPDX-License-Identifier: Apache-2.0
"""Other people on the network: bulk transfers by iperf3 and small request-response flows, from host to host of a bed,
and owners who fill their own line; with what each of them got."""
import pathlib
import re

from labs import wait_until

FLOWS = pathlib.Path(__file__).resolve().parent / "flows.py"
FIRST_PORT = 5201
FIRST_OWN_PORT = 5401
BULK = re.compile(r"^(\d+)\[ *\d+\] +(\d+\.\d+)-(\d+\.\d+) +sec +\S+ \S+ +([\d.]+) Kbits/sec", re.MULTILINE)
SMALL = re.compile(r"^(\d+\.\d+) (\d+\.\d+|failed)$", re.MULTILINE)


def bulk_samples(output):
    """[(time, bits per second)] of an iperf3 server's lines, a second each; sums over a whole test are left out."""
    return [(int(time), float(rate) * 1e3) for time, begin, end, rate in BULK.findall(output)
            if 0.5 < float(end) - float(begin) < 1.5]


def small_samples(output):
    """[(time, seconds or None for one that failed)]."""
    return [(float(time), None if took == "failed" else float(took)) for time, took in SMALL.findall(output)]


def listening(labs, host, name, port):
    """iperf3 for one client at a time, which says each second what it got."""
    server = labs.spawn(host, f"{name}-server", [
        "iperf3", "-s", "-p", port, "-i", "1", "--forceflush", "--timestamps=%s", "-f", "k"])
    wait_until("iperf3 to listen", lambda: "listening" in server.output(), 20)
    return server


class Bystander:
    def __init__(self, labs, flow, number, seed):
        self.flow, port = flow, FIRST_PORT + number
        source, destination = flow["from"], flow["to"]
        address, name = labs.addresses[destination], f"{flow['kind']}-{number}"
        if flow["kind"] == "bulk":
            self.server = listening(labs, destination, name, port)
            rate = f"-b {flow['rate'].removesuffix('bit')[:-1]}{flow['rate'].removesuffix('bit')[-1].upper()}" \
                if flow.get("rate") else ""
            # It ends with its connection, which a line that was pulled may break.
            self.client = labs.spawn(source, f"{name}-client", [
                "sh", "-c", f"while :; do iperf3 -c {address} -p {port} -t 86400 -i 0 {rate}; sleep 0.5; done"])
            return
        self.server = labs.spawn(destination, f"{name}-server", [
            "/usr/bin/python3", FLOWS, "serve", port, flow.get("bytes", 20000)])
        wait_until("the small flows' server to listen", lambda: "listening" in self.server.output(), 20)
        self.client = labs.spawn(source, f"{name}-client", [
            "/usr/bin/python3", FLOWS, "ask", address, port, flow.get("every_ms", 100), f"{seed} {number}"])

    def record(self):
        is_bulk = self.flow["kind"] == "bulk"
        samples = bulk_samples(self.server.output()) if is_bulk else small_samples(self.client.output())
        return {"kind": self.flow["kind"], "from": self.flow["from"], "to": self.flow["to"],
                "rate": self.flow.get("rate"), "samples": samples}

    def stop(self):
        self.client.stop()
        self.server.stop()


class OwnTraffic:
    """An owner's own transfer from their machine, as fast as TCP lets it go, as often as they begin one."""

    def __init__(self, labs, node, to, number):
        self.labs, self.node, self.to, self.port = labs, node, to, FIRST_OWN_PORT + number
        self.server = listening(labs, to, f"own-{node}", self.port)
        self.client = None

    def begin(self):
        self.client = self.labs.spawn(self.node, f"own-{self.node}", [
            "iperf3", "-c", self.labs.addresses[self.to], "-p", self.port, "-t", "86400", "-i", "0"])

    def end(self):
        self.client.stop()

    def record(self):
        return {"node": self.node, "to": self.to, "samples": bulk_samples(self.server.output())}

    def stop(self):
        self.server.stop()


def start_all(labs, flows, seed):
    return [Bystander(labs, flow, number, seed) for number, flow in enumerate(flows)]
