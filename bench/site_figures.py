#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Figures of a real site: coordinator, agents, wardens and engines on laboratories of this machine.

    bench/site_figures.py start [--rounds 100]   from `reclaim run` to the guest's first instruction, cached image
    bench/site_figures.py idle [--seconds 60]    processor time and memory of the daemons with nothing to do
    bench/site_figures.py step [--rounds 5]      a training step inside the container's profile against bare

`start` reads the guest's own clock (/proc/uptime, 10 ms steps) as its first act. `step` runs the CNN of tests/guests
in turns inside a guest and bare (a plain chroot of the same image: no namespaces but a mount's, no control group, no
filter of system calls, the machine's disk), and compares the times between lines of its own step log. Root; needs the
programs of RN_BUILD (build/dev)."""
import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "system" / "lib"))
import figures  # noqa: E402
from labs import ROOT  # noqa: E402
from rn_site import base_image  # noqa: E402
from stories import Site, uptime_s  # noqa: E402

LENDS = {"guest_disk_mib": 2048, "guest_memory_mib": 2048, "guest_cpu_milli": 1000}
FLAGS = ("--detach", "--stateless", "--cpus", "0.9", "--memory", "64MB", "--disk", "64MB")


def finish(site, job):
    site.wait(f"job {job} to succeed", lambda: site.rest.job(job)["state"] == "succeeded", 120, 0.05)


def start(site, rounds):
    """One job after another, so that each finds an idle node."""
    folder = site.labs.dir / "student"
    folder.mkdir()
    samples, answers = [], []
    for _ in range(rounds):
        begun = uptime_s()
        job = site.cli("run", *FLAGS, "--", "sh", "-c", "cat /proc/uptime", cwd=folder).stdout.strip()
        answers.append((uptime_s() - begun) * 1000)
        finish(site, job)
        samples.append((float(site.rest.log(job).split()[0]) - begun) * 1000)
    figures.line("command to its answer (queued)", answers, "ms")
    figures.line("command to first instruction", samples, "ms")


class Usage:
    """Processor seconds so far and resident bytes of a process with all its children."""

    def __init__(self, pids):
        self.pids = pids

    def cpu_s(self):
        ticks = 0
        for pid in self.pids:
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def resident_mib(self):
        return sum(int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1])
                   for pid in self.pids) * os.sysconf("SC_PAGE_SIZE") / 2**20


def idle(site, seconds):
    node = site.nodes["lab-a"]
    time.sleep(5)  # the join's work is over
    parts = {
        "coordinator, two nodes": Usage([site.coordinator.process.pid]), "agent": Usage([node.agent.pid]),
        "warden": Usage([node.warden.pid]), "its container engine": Usage(node.engine_pids())}
    before = {name: usage.cpu_s() for name, usage in parts.items()}
    time.sleep(seconds)  # the figure is what they use in this time
    for name, usage in parts.items():
        share = (usage.cpu_s() - before[name]) / seconds * 100
        print(f"{name:<34} {share:.2f} % of a core, {usage.resident_mib():.1f} MiB resident", flush=True)


def step_times(log):
    """Milliseconds between lines of the step log, without the steps after which a checkpoint was saved."""
    times = [float(line.rsplit("time=", 1)[1]) for line in log.splitlines() if line.startswith("step=")]
    return [(after - before) * 1000 for before, after in zip(times, times[1:])]


def train_bare(root, steps):
    work = tempfile.mkdtemp(prefix="rn-bare-")
    try:
        for file in (ROOT / "tests" / "guests").glob("*.py"):
            shutil.copy(file, work)
        os.chown(work, 10001, 10001)
        command = (f"source {ROOT}/scripts/lib/image_run.sh; "
                   f"image_run {root} python train_cnn.py --steps {steps} --save-every {steps}")
        subprocess.run(["bash", "-c", command], check=True, env={**os.environ, "IMAGE_WORK": work},
                       stdout=subprocess.DEVNULL, timeout=600)
        return step_times((pathlib.Path(work) / "steps.log").read_text())
    finally:
        shutil.rmtree(work)


def train_inside(site, folder, steps):
    job = site.cli(
        "run", "--detach", "--image", "torch", "--cpus", "1", "--memory", "1GB", "--disk", "256MB", "--checkpoint",
        "*.pt", "--output", "steps.log", "--", "python", "train_cnn.py", "--steps", str(steps), "--save-every",
        str(steps), cwd=folder).stdout.strip()
    site.wait(f"job {job} to succeed", lambda: site.rest.job(job)["state"] == "succeeded", 600)
    home = site.labs.dir / f"home-{job}"
    home.mkdir()
    site.cli("cp", f"{job}:steps.log", str(home), cwd=folder)
    return step_times(next(home.rglob("steps.log")).read_text())


def step(site, rounds, steps=300):
    folder = site.labs.dir / "student"
    shutil.copytree(ROOT / "tests" / "guests", folder, ignore=shutil.ignore_patterns("hostile", "*.sh", "__*"))
    root = pathlib.Path(tempfile.mkdtemp(prefix="rn-bare-root-"))
    try:
        image = base_image()
        subprocess.run(["tar", "-C", root, "-xf", image], check=True)
        site.cli("image", "add", "torch", image, timeout_s=600)
        train_inside(site, folder, 20)  # brings and loads the image
        inside, bare = [], []
        for _ in range(rounds):
            bare.append(train_bare(root, steps))
            inside.append(train_inside(site, folder, steps))
            print(f"round: bare {statistics.median(bare[-1]):.3f} ms, inside {statistics.median(inside[-1]):.3f} ms")
    finally:
        shutil.rmtree(root)
    figures.line("step, bare", sum(bare, []), "ms")
    figures.line("step, inside the profile", sum(inside, []), "ms")
    figures.line("inside / bare, medians by round",
                 [statistics.median(one) / statistics.median(other) for one, other in zip(inside, bare)], "times")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("start", "idle", "step"))
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--seconds", type=int, default=60)
    arguments = parser.parse_args()
    figures.heading(f"site: {arguments.what}")
    site = Site({"lab-a": LENDS, "storage": {"lends": False}}, disk="8G")
    try:
        if arguments.what == "start":
            start(site, arguments.rounds or 100)
        elif arguments.what == "idle":
            idle(site, arguments.seconds)
        else:
            step(site, arguments.rounds or 5)
    finally:
        site.down()
        for left in site.labs.residue():
            print("LEFT BEHIND:", left)


if __name__ == "__main__":
    main()
