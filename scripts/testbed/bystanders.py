# SPDX-License-Identifier: Apache-2.0
"""Other people on the network: bulk transfers by iperf3 and small request-response flows, from host to host of a bed,
with what each of them got."""
import pathlib
import re

from labs import wait_until

FLOWS = pathlib.Path(__file__).resolve().parent / "flows.py"
FIRST_PORT = 5201
BULK = re.compile(r"^(\d+)\[ *\d+\] +(\d+\.\d+)-(\d+\.\d+) +sec +\S+ \S+ +([\d.]+) Kbits/sec", re.MULTILINE)
SMALL = re.compile(r"^(\d+\.\d+) (\d+\.\d+|failed)$", re.MULTILINE)


def bulk_samples(output):
    """[(time, bits per second)] of an iperf3 server's lines, a second each; sums over a whole test are left out."""
    return [(int(time), float(rate) * 1e3) for time, begin, end, rate in BULK.findall(output)
            if 0.5 < float(end) - float(begin) < 1.5]


def small_samples(output):
    """[(time, seconds or None for one that failed)]."""
    return [(float(time), None if took == "failed" else float(took)) for time, took in SMALL.findall(output)]


class Bystander:
    def __init__(self, labs, flow, number, seed):
        self.flow, port = flow, FIRST_PORT + number
        source, destination = flow["from"], flow["to"]
        address, name = labs.addresses[destination], f"{flow['kind']}-{number}"
        if flow["kind"] == "bulk":
            self.server = labs.spawn(destination, f"{name}-server", [
                "iperf3", "-s", "-p", port, "-i", "1", "--forceflush", "--timestamps=%s", "-f", "k"])
            wait_until("iperf3 to listen", lambda: "listening" in self.server.output(), 20)
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


def start_all(labs, flows, seed):
    return [Bystander(labs, flow, number, seed) for number, flow in enumerate(flows)]
