#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`kill -9` of every daemon and of the engines at random moments, owners who come and go at random, while jobs of all
kinds run. At the end each job has succeeded with the result of an undisturbed run, its logs are whole, no attempt ran
twice, no guest ran on a machine that its owner had, and nothing is left.

    chaos_test.py [--seconds 45] [--seed N] [--show]     the same seed gives the same schedule; --show prints it
"""
import argparse
import pathlib
import random
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
import rest  # noqa: E402
from chaos import NOTICE_S, Chaos, schedule  # noqa: E402
from outcome import COUNT, Wanted, check_jobs, leftovers  # noqa: E402
from stories import Guest, Site  # noqa: E402

STEP_S = 0.1
LENDS = {"notice_s": NOTICE_S, "guest_disk_mib": 512, "guest_memory_mib": 1024}
CONTRACTS = {"lab-a": {**LENDS, "guest_cpu_milli": 1500}, "lab-b": {**LENDS, "guest_cpu_milli": 1000},
             "lab-c": {**LENDS, "guest_cpu_milli": 500}, "storage": {"lends": False}}
LENDING = [lab for lab, contract in CONTRACTS.items() if contract.get("lends", True)]


class Student:
    """Submits by the command line, and again when that fails, without making two jobs of one."""

    def __init__(self, site):
        self.site = site
        self.wanted = {}  # name: Wanted

    def submit(self, name, kind, steps, save_every):
        self.wanted[name] = Wanted(kind, steps, save_every)
        deadline = time.monotonic() + 60
        while True:
            try:
                return self.try_to(name, kind, steps, save_every)
            except subprocess.CalledProcessError as error:
                if time.monotonic() > deadline:
                    raise AssertionError(f"submit of {name}: {error.stderr}") from None
            time.sleep(1)  # a person's patience
            if self.is_there(name):
                return None

    def try_to(self, name, kind, steps, save_every):
        if kind == "stateless":
            command = ["sh", "-c", COUNT.format(steps=steps, step_s=STEP_S)]
            return self.site.submit_command(name, save_every, command, flags=["--stateless"])
        return self.site.submit(name, steps, save_every, STEP_S, is_in_place=kind.startswith("in-place"),
                                handles_term=kind.endswith("term"))

    def is_there(self, name):
        """A submit whose answer was lost; the student looks at `reclaim ps`."""
        try:
            found = [job["id"] for job in self.site.rest.jobs() if job["spec"]["name"] == name]
        except (OSError, rest.Refused):
            return False
        for job in found:
            self.site.guests[name] = Guest(
                name, job, self.wanted[name].save_every, self.site.labs.dir / f"student-{name}")
        return bool(found)


def settle_and_check(site, chaos, student):
    """After the last fault: all jobs end well, and nothing of them is left."""
    names = list(student.wanted)
    site.wait("all jobs to end", lambda: all(
        site.job(name)["state"] in ("succeeded", "failed", "cancelled") for name in names), 90 + 20 * len(names))
    faults = [f"{name} is {site.job(name)['state']}: {site.job(name)['reason']}"
              for name in names if site.job(name)["state"] != "succeeded"]
    chaos.faults.extend(chaos.daemons.turn(time.monotonic()))
    if not faults:
        faults = check_jobs(site, student.wanted)
    try:
        site.wait("the machines to be clean", lambda: not leftovers(site, LENDING), 60, 1)
    except AssertionError:
        faults += leftovers(site, LENDING)
    return faults


def play(site, acts):
    student = Student(site)
    chaos = Chaos(site, acts, student.submit)
    try:
        chaos.play()
        faults = [] if chaos.faults else settle_and_check(site, chaos, student)
        chaos.watch.stop()
    except AssertionError as error:
        faults = [str(error)]
    print(f"  {chaos.counts}, {chaos.watch.looks} looks, at most {chaos.watch.most} guests at once", flush=True)
    return chaos.faults + faults


def keep(site, faults, seed):
    folder = tempfile.mkdtemp(prefix=f"chaos-{seed}-")
    site.keep_logs(folder)
    pathlib.Path(folder, "faults.txt").write_text("\n".join(faults) + "\n\n" + site.picture() + "\n")
    return folder


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=45, help="how long faults happen")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--show", action="store_true", help="print the schedule and do nothing")
    flags = parser.parse_args()
    again = f"{sys.executable} {__file__} --seconds {flags.seconds:g} --seed {flags.seed}"
    print(f"chaos: {again}", flush=True)
    acts = schedule(flags.seed, flags.seconds, LENDING, "storage")
    if flags.show:
        print("\n".join(str(act) for act in acts))
        return 0
    site = Site(CONTRACTS, heartbeat_ms=1000, flags=["--min-residence-s", 3, "--home-settle-s", 3], disk="4G")
    try:
        faults = play(site, acts)
        if faults:
            print(f"daemons' logs: {keep(site, faults, flags.seed)}")
    finally:
        site.down()
    faults += [f"left behind: {line}" for line in site.labs.residue()]
    for fault in faults:
        print(f"FAULT {fault}")
    print(f"again: {again}" if faults else "chaos: all is well", flush=True)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
