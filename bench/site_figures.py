#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Figures of a real site: coordinator, agents, wardens and engines on laboratories of this machine.

    bench/site_figures.py start [--rounds 100]   from `reclaim run` to the guest's first instruction, cached image
    bench/site_figures.py idle [--seconds 60]    processor time and memory of the daemons with nothing to do
    bench/site_figures.py step [--rounds 60]     a training step inside the container's profile against bare

`start` reads the guest's own clock (/proc/uptime, 10 ms steps) as its first act. `step` runs the CNN of tests/guests
inside a guest and bare (a plain chroot of the same image with as many threads: no network or user namespace of its own,
no control group, no filter of system calls, the machine's disk) in turns of 1.5 s, and compares the times between lines
of its own step log. Root; needs the programs of RN_BUILD (by default build/dev)."""
import argparse
import contextlib
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "system" / "lib"))
import figures  # noqa: E402
from labs import ROOT, wait_until  # noqa: E402
from rn_site import base_image  # noqa: E402
from stories import Site, uptime_s  # noqa: E402

LENDS = {"guest_disk_mib": 2048, "guest_memory_mib": 2048, "guest_cpu_milli": 1000}
FLAGS = ("--detach", "--stateless", "--cpus", "0.9", "--memory", "64MB", "--disk", "64MB")


def finish(site, job):
    site.wait(f"job {job} to succeed", lambda: site.rest.job(job)["state"] == "succeeded", 120, 0.05)


def start(site, rounds):
    """One job after another, so that each finds an idle node. One before them waits until the coordinator that has
    just started has heard of everybody (three heartbeats), and brings the image to the node."""
    folder = site.labs.dir / "student"
    folder.mkdir()
    finish(site, site.cli("run", *FLAGS, "--", "true", cwd=folder).stdout.strip())
    samples, answers, jobs = [], [], []
    for _ in range(rounds):
        wall_ms, begun = time.time() * 1000, uptime_s()
        job = site.cli("run", *FLAGS, "--", "sh", "-c", "cat /proc/uptime", cwd=folder).stdout.strip()
        answers.append((uptime_s() - begun) * 1000)
        finish(site, job)
        samples.append((float(site.rest.log(job).split()[0]) - begun) * 1000)
        jobs.append((samples[-1], len(jobs) + 1, job, wall_ms))
    figures.line("command to its answer (queued)", answers, "ms")
    figures.line("command to first instruction", samples, "ms")
    for sample, number, job, wall_ms in sorted(jobs)[-3:]:
        told = "; ".join(f"{event['at_wall_ms'] - wall_ms:.0f} {event['kind']} {event['message']}"
                         for event in site.rest.events() if event["job"] == job)
        print(f"slow: round {number}, {job} from {wall_ms:.0f}, {sample:.0f} ms: {told}")
    if "RN_KEEP_LOGS" in os.environ:
        site.keep_logs(os.environ["RN_KEEP_LOGS"])


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


class Training:
    """The CNN of tests/guests, held by SIGSTOP but for its turns."""

    def __init__(self, find, log, stop):
        self.pid = wait_until("its process", find, 60)
        self.log, self.stop = log, stop
        wait_until("its first steps", lambda: len(self.ends()) > 20, 60)
        os.kill(self.pid, signal.SIGSTOP)

    def ends(self):
        with contextlib.suppress(FileNotFoundError):
            return [float(line.rsplit("time=", 1)[1]) for line in self.log.read_text().splitlines()
                    if line.startswith("step=")]
        return []

    def turn(self, seconds):
        """Milliseconds of the steps that lie wholly in a turn, the first of them left out (it warms the caches up);
        and milliseconds of processor time for each step."""
        begun, usage = time.time(), Usage([self.pid]).cpu_s()
        os.kill(self.pid, signal.SIGCONT)
        time.sleep(seconds)  # a turn is as long as this
        os.kill(self.pid, signal.SIGSTOP)
        ends = [end for end in self.ends() if end >= begun]
        cpu_ms = (Usage([self.pid]).cpu_s() - usage) * 1000 / len(ends)
        return [(after - before) * 1000 for before, after in zip(ends[2:], ends[3:])], cpu_ms


def python_in(pids, is_it=lambda pid: True):
    """The pid of the one that has become the training's Python and passes the test."""
    for pid in pids:
        with contextlib.suppress(OSError):
            command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if command[0] == b"python" and b"train_cnn.py" in command and is_it(pid):
                return pid
    return None


COMMAND = ("python", "train_cnn.py", "--steps", "1000000", "--save-every", "1000000")


def train_bare(root):
    work = pathlib.Path(tempfile.mkdtemp(prefix="rn-bare-"))
    for file in (ROOT / "tests" / "guests").glob("*.py"):
        shutil.copy(file, work)
    os.chown(work, 10001, 10001)
    script = f'source {ROOT}/scripts/lib/image_run.sh; image_run "$@"'
    outer = subprocess.Popen(["bash", "-c", script, "run", str(root), *COMMAND], start_new_session=True,
                             env={**os.environ, "IMAGE_WORK": str(work), "IMAGE_CPUS": "1"}, stdout=subprocess.DEVNULL)

    def stop():
        os.killpg(outer.pid, signal.SIGKILL)
        outer.wait()
        shutil.rmtree(work)

    def pids():
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]

    try:
        return Training(lambda: python_in(pids(), lambda pid: os.readlink(f"/proc/{pid}/root") == str(root)),
                        work / "steps.log", stop)
    except BaseException:
        stop()
        raise


def train_inside(site, folder):
    job = site.cli("run", "--detach", "--image", "torch", "--cpus", "1", "--memory", "1GB", "--disk", "256MB",
                   "--checkpoint", "*.pt", "--", *COMMAND, cwd=folder).stdout.strip()
    site.wait(f"job {job} to run", lambda: site.rest.job(job)["state"] == "running", 300)
    attempts = pathlib.Path(site.nodes["lab-a"].state) / "warden" / "attempts"
    work = wait_until("its disk", lambda: next(attempts.glob(f"{job}-*/disk/work"), None), 30)
    return Training(lambda: python_in(site.guest_processes("lab-a")), work / "steps.log",
                    lambda: site.cli("stop", job, cwd=folder))


def step(site, rounds, turn_s=1.5):
    """Both trainings live all the time and take turns, because the machine's speed drifts within minutes."""
    folder = site.labs.dir / "student"
    shutil.copytree(ROOT / "tests" / "guests", folder, ignore=shutil.ignore_patterns("hostile", "*.sh", "__*"))
    root = pathlib.Path(tempfile.mkdtemp(prefix="rn-bare-root-"))
    trainings, times, medians, cpus = {}, *({"bare": [], "inside": []} for _ in range(3))
    try:
        image = base_image()
        subprocess.run(["tar", "-C", root, "-xf", image], check=True)
        site.cli("image", "add", "torch", image, timeout_s=600)
        trainings = {"inside": train_inside(site, folder)}
        trainings["bare"] = train_bare(root)
        for number in range(rounds):
            for name in ("bare", "inside") if number % 2 else ("inside", "bare"):
                taken, cpu_ms = trainings[name].turn(turn_s)
                times[name] += taken
                medians[name].append(statistics.median(taken))
                cpus[name].append(cpu_ms)
    finally:
        for training in trainings.values():
            training.stop()
        shutil.rmtree(root)
    figures.line("step, bare", times["bare"], "ms")
    figures.line("step, inside the profile", times["inside"], "ms")
    for what, samples in (("medians", medians), ("processor time", cpus)):
        ratios = [inside / bare for inside, bare in zip(samples["inside"], samples["bare"])]
        figures.line(f"inside / bare, {what} by round", ratios, "times")
        low, middle, high = statistics.quantiles(ratios, n=4)
        print(f"  median of the ratios {middle:.3f}, quartiles {low:.3f} and {high:.3f}")


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
            step(site, arguments.rounds or 60)
    finally:
        site.down()
        for left in site.labs.residue():
            print("LEFT BEHIND:", left)


if __name__ == "__main__":
    main()
