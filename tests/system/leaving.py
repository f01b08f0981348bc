#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A machine that joins, has a guest, loses it in some way and leaves, again and again: every leaving must end by
itself, with nothing left. Counts what did not, and prints how long each part took.

    tests/system/leaving.py [--cycles 30] [--seed 1] [--frozen]     by hand: ten seconds and more for a cycle

--frozen: each guest's engine is stopped (SIGSTOP) instead, which makes a cycle last for more than two minutes.

Root; needs the programs of RN_BUILD (build/dev)."""
import argparse
import contextlib
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
import figures  # noqa: E402
import one_node  # noqa: E402
from labs import Labs, TimedOut, wait_until  # noqa: E402
from rn_site import Cli, Coordinator, Node, program, tiny_image  # noqa: E402

AGENT_LIMIT_S = 240
WARDEN_LIMIT_S = 120
# What the guest does while it is ended: it sleeps, it writes without a pause, it has many processes.
GUESTS = {
    "sleeps": "sleep 1000",
    "writes": "while true; do dd if=/dev/zero of=a.bin bs=64k count=64 2>/dev/null; mv a.bin b.ckpt; done",
    "forks": "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sleep 1000 & done; wait"}
ENDS = ("runs on", "stopped", "kill switch", "reclaim --now", "both killed", "engine killed")
FROZEN = "engine frozen"  # takes two minutes: so long the warden waits for an engine before it kills it


class Cycles:
    def __init__(self, seed, ends):
        self.ends = ends
        self.random = random.Random(seed)
        self.labs = Labs("campus", "lab-a", disk="2G")
        self.took = {"agent leave --purge": [], "warden leave": []}
        self.faults = []

    def begin(self):
        self.coordinator = Coordinator(self.labs).start()
        self.cli = Cli(self.labs, self.coordinator)
        self.cli("image", "add", "base", tiny_image())
        return self

    def lend(self, number, guest):
        node = Node(self.labs, "lab-a", one_node.CONTRACT)
        node.set_up(self.coordinator)
        folder = self.labs.dir / f"student-{number}"
        folder.mkdir()
        job = self.cli(
            "run", "--detach", "--disk", "64MB", "--memory", "64MB", "--stateless", "--max-restarts", "0", "--", "sh",
            "-c", GUESTS[guest], cwd=folder).stdout.strip()
        rest = self.coordinator.rest()
        wait_until("the guest to run", lambda: rest.job(job)["state"] == "running", 90)
        time.sleep(self.random.uniform(0, 1.5))  # the end finds it at some moment of its life
        return node, job

    def end(self, node, job, how):
        if how == "stopped":
            self.cli("stop", job)
        elif how == "kill switch":
            node.kill_switch()
        elif how == "reclaim --now":
            node.owner("reclaim", "--now")
        elif how == "both killed":
            node.agent.kill()
            node.warden.kill()
        elif how in ("engine killed", FROZEN):
            for pid in node.engine_pids():
                with contextlib.suppress(ProcessLookupError):  # some go with another
                    os.kill(pid, signal.SIGSTOP if how == FROZEN else signal.SIGKILL)

    def timed(self, what, command, limit_s):
        begun = time.monotonic()
        try:
            done = self.labs.call("lab-a", command, timeout_s=limit_s, check=False)
        except subprocess.TimeoutExpired as late:
            said = ((late.stdout or b"") + (late.stderr or b"")).decode(errors="replace")
            return f"{what}: not over after {limit_s} s; said: {said}"
        took = time.monotonic() - begun
        self.took[what].append(took)
        print(f"  {what}: {took:.1f} s", flush=True)
        return f"{what}: exit {done.returncode}: {done.stdout}{done.stderr}" if done.returncode else ""

    def leave(self, node):
        """What went wrong, one line each."""
        wrong = [self.timed("agent leave --purge", node.agent_program("leave", "--purge"), AGENT_LIMIT_S)]
        wrong.append(self.timed("warden leave", [
            program("reclaim-warden"), "leave", "--state", node.state, "--run", node.run], WARDEN_LIMIT_S))
        for process in (node.agent, node.warden):
            try:
                wait_until(f"{process.name} to end", lambda process=process: not process.is_running(), 10)
            except TimedOut as late:
                wrong.append(str(late))
                process.kill()
        left = sorted(str(path) for path in node.state.rglob("*") if path.name not in ("agent.yaml", "machine-id"))
        wrong += [f"left behind: {path}" for path in left[:5]]
        wrong += [f"left behind: a process {pid}" for pid in node.engine_pids()]
        wrong += [f"left behind: {line}" for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines()
                  if f"{node.state}/" in line or f"{node.run}/" in line]
        tag = f"reclaim-{self.labs.run}-lab-a"
        wrong += [f"left behind: {path}" for path in pathlib.Path("/sys/fs/cgroup").glob(f"*/{tag}")]
        return [line for line in wrong if line]

    def play(self, number):
        how, guest = self.ends[number % len(self.ends)], self.random.choice(list(GUESTS))
        print(f"cycle {number}: a guest that {guest}; {how}", flush=True)
        node, job = self.lend(number, guest)
        self.end(node, job, how)
        wrong = self.leave(node)
        if how != "stopped":
            self.cli("stop", job, check=False)
        for line in wrong:
            print(f"  WRONG {line}", flush=True)
        if wrong:
            self.faults.append(number)
        return not any("left behind" in line for line in wrong)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cycles", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--frozen", action="store_true")
    flags = parser.parse_args()
    cycles = Cycles(flags.seed, (FROZEN,) if flags.frozen else ENDS)
    played = 0
    try:
        cycles.begin()
        for number in range(flags.cycles):
            played += 1
            if not cycles.play(number):
                print("the next cycle would begin with leftovers: no more")
                break
    finally:
        cycles.labs.down()
    figures.heading(f"joining, a guest, its end, leaving: {played} cycles, seed {flags.seed}")
    for what, samples in cycles.took.items():
        if samples:
            figures.line(what, samples)
    print(f"cycles with a fault: {len(cycles.faults)} {cycles.faults or ''}")
    return 1 if cycles.faults else 0


if __name__ == "__main__":
    sys.exit(main())
