#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long 100 MB of new checkpoint take to become durable over a link of 1 Gbit/s, against the line's own time.

    bench/durable_ack.py [--rounds 10] [--megabytes 100] [--rate 1gbit]

A real coordinator, agents, warden and engine on laboratories joined by cables that HTB limits. In each round a guest
writes so many random bytes and renames them into place; durable is when the coordinator has committed the generation
(snapshot, copy, sync and reading back on the other node, receipt, row). The clock runs from the rename, as the file's
change time tells. The line's own time is one plain TCP transfer of as many bytes between the same two laboratories, in
the same round. Root; needs the programs of RN_BUILD (build/dev)."""
import argparse
import os
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "system" / "lib"))
import figures  # noqa: E402
from labs import wait_until  # noqa: E402
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
    def __init__(self, arguments):
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

    def run(self):
        lines, durables, snapshots = [], [], []
        agents = {f"the agent of {lab}": node.agent for lab, node in self.site.nodes.items()}
        before = {name: cpu_s(process) for name, process in agents.items()}
        for number in range(1, self.rounds + 1):
            lines.append(self.line_s())
            durable, snapshot = self.durable_s(number)
            durables.append(durable)
            snapshots.append(snapshot)
        figures.line("the line's own time (plain TCP)", lines)
        figures.line("rename to snapshot begun", snapshots)
        figures.line("rename to durable", durables)
        figures.line("ratio, round by round", [a / b for a, b in zip(durables, lines)], "times")
        print(f"median over median: {statistics.median(durables) / statistics.median(lines):.2f} times")
        for name, process in agents.items():
            print(f"{name}: {(cpu_s(process) - before[name]) / self.rounds:.2f} s of CPU a round, all in all")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--rate", default="1gbit")
    arguments = parser.parse_args()
    figures.heading(f"durable acknowledgement of {arguments.megabytes} MB over {arguments.rate}")
    bench = Bench(arguments)
    try:
        bench.run()
    finally:
        if "RN_KEEP_LOGS" in os.environ:
            bench.site.keep_logs(os.environ["RN_KEEP_LOGS"])
        bench.site.down()
        for left in bench.site.labs.residue():
            print("LEFT BEHIND:", left)


if __name__ == "__main__":
    main()
