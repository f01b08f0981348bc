#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long 100 MB of new checkpoint take to become durable over a link of 1 Gbit/s, against the line's own time.

    bench/durable_ack.py [--rounds 10] [--megabytes 100] [--rate 1gbit] [--against BUILD]

A real coordinator, agents, warden and engine on laboratories joined by cables that HTB limits. In each round a guest
writes so many random bytes and renames them into place; durable is when the coordinator has committed the generation
(snapshot, copy, sync and reading back on the other node, receipt, row). The clock runs from the rename, as the file's
change time tells. The line's own time is one plain TCP transfer of as many bytes between the same two laboratories, in
the same round. With --against, a second site of another build's programs stands beside the first one, and rounds take
turns with the order changing: ratios of two versions under one load. Root; needs the programs of RN_BUILD
(build/dev)."""
import argparse
import os
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "system" / "lib"))
import figures  # noqa: E402
from labs import ROOT, wait_until  # noqa: E402
from stories import Site  # noqa: E402

GUEST = """
i=1
while [ $i -le {rounds} ]; do
  while [ ! -e go.$i ]; do sleep 0.1; done
  head -c {size} /dev/urandom >new.tmp && mv new.tmp model.ckpt
  i=$((i + 1))
done
sleep 86400
"""
RECEIVE = """
import socket, sys
server = socket.create_server(("", 5001))
print("ready", flush=True)
while True:
    one, _ = server.accept()
    left = int(sys.argv[1])
    while left > 0:
        left -= len(one.recv(1 << 20))
    one.sendall(b".")
    one.close()
"""
SEND = """
import socket, sys, time
data = bytes(1 << 20)
one = socket.create_connection((sys.argv[1], 5001))
begun, left = time.monotonic(), int(sys.argv[2])
while left > 0:
    left -= one.send(data[:left])
one.recv(1)
print(time.monotonic() - begun)
"""


def cpu_s(process):
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Bench:
    def __init__(self, arguments, build):
        os.environ["RN_BUILD"] = str(build)
        self.build = build
        self.lines, self.durables, self.snapshots = [], [], []
        self.size, self.rounds = arguments.megabytes * 1000 * 1000, arguments.rounds
        lends = {"guest_disk_mib": 2048, "guest_memory_mib": 1024, "guest_cpu_milli": 1000}
        self.site = Site({"lab-a": lends, "storage": {"lends": False}}, disk="8G")
        try:
            self.prepare(arguments.rate)
        except BaseException:
            self.site.down()
            raise

    def prepare(self, rate):
        site = self.site
        for lab in ("lab-a", "storage"):
            site.labs.rate(lab, rate)
        receiver = site.labs.spawn("storage", "receive", [sys.executable, "-c", RECEIVE, self.size])
        wait_until("the receiver", lambda: "ready" in receiver.output(), 10)
        folder = site.labs.dir / "student"
        folder.mkdir()
        script = GUEST.format(rounds=self.rounds, size=self.size)
        self.job = site.cli(
            "run", "--detach", "--cpus", "0.9", "--memory", "512MB", "--disk", "1GB", "--checkpoint", "*.ckpt",
            "--temporary", "*.tmp", "--", "sh", "-c", script, cwd=folder).stdout.strip()
        site.wait("the guest to run", lambda: site.rest.job(self.job)["state"] == "running", 60)
        attempts = pathlib.Path(site.nodes["lab-a"].state) / "warden" / "attempts"
        self.work = wait_until("its disk", lambda: next(attempts.glob(f"{self.job}-*/disk/work"), None), 30)

    def line_s(self):
        address = self.site.labs.addresses["storage"]
        return float(self.site.labs.call("lab-a", [sys.executable, "-c", SEND, address, self.size]).stdout)

    def durable_s(self, number):
        """From the rename to the commit; and what the agent needed for the snapshot."""
        (self.work / f"go.{number}").touch()
        file = self.work / "model.ckpt"
        found = self.site.wait(f"generation {number}", lambda: next(
            (one for one in self.site.rest.generations(self.job) if one["generation"]["generation"] == number), None),
            300)
        assert found["generation"]["new_bytes"] >= self.size, found
        renamed = file.stat().st_ctime_ns / 1e9
        created = found["generation"]["created_wall_ms"] / 1e3
        return found["committed_wall_ms"] / 1e3 - renamed, created - renamed

    def begin(self):
        self.agents = {f"the agent of {lab}": node.agent for lab, node in self.site.nodes.items()}
        self.before = {name: cpu_s(process) for name, process in self.agents.items()}

    def round(self, number):
        self.lines.append(self.line_s())
        durable, snapshot = self.durable_s(number)
        self.durables.append(durable)
        self.snapshots.append(snapshot)

    def report(self):
        print(f"-- {self.build}")
        lines, durables, snapshots = self.lines, self.durables, self.snapshots
        figures.line("the line's own time (plain TCP)", lines)
        figures.line("rename to snapshot begun", snapshots)
        figures.line("rename to durable", durables)
        figures.line("ratio, round by round", [a / b for a, b in zip(durables, lines)], "times")
        print(f"median over median: {statistics.median(durables) / statistics.median(lines):.2f} times")
        for name, process in self.agents.items():
            used = (cpu_s(process) - self.before[name]) / len(lines)
            print(f"{name}: {used:.2f} s of CPU a round, all in all")

    def down(self):
        if "RN_KEEP_LOGS" in os.environ:
            self.site.keep_logs(os.environ["RN_KEEP_LOGS"])
        self.site.down()
        for left in self.site.labs.residue():
            print("LEFT BEHIND:", left)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--against", help="the build folder of the other version, by its whole path")
    arguments = parser.parse_args()
    figures.heading(f"durable acknowledgement of {arguments.megabytes} MB over {arguments.rate}")
    builds = [pathlib.Path(os.environ.get("RN_BUILD", ROOT / "build" / "dev"))]
    if arguments.against:
        builds.append(pathlib.Path(arguments.against))
    benches = []
    try:
        for build in builds:
            benches.append(Bench(arguments, build))
        for bench in benches:
            bench.begin()
        for number in range(1, arguments.rounds + 1):
            for bench in benches if number % 2 == 1 else benches[::-1]:
                bench.round(number)
        for bench in benches:
            bench.report()
        if len(benches) == 2:
            pairs = zip(benches[0].durables, benches[1].durables)
            figures.line("first / second, round by round", [a / b for a, b in pairs], "times")
        print("load:", " ".join(f"{one:.1f}" for one in os.getloadavg()))
    finally:
        for bench in benches:
            bench.down()


if __name__ == "__main__":
    main()
