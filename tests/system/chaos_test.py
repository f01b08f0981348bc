#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`kill -9` of every daemon and of the engines at random moments, owners who come and go at random, while jobs of all
kinds run. At the end each job has succeeded with the result of an undisturbed run, its logs are whole, no attempt ran
twice, no guest ran on a machine that its owner had, and nothing is left.

    chaos_test.py [--seconds 45] [--seed N] [--show]     the same seed gives the same schedule; --show prints it

With --all (scripts/chaos.sh) also SIGKILL at named points, SIGSTOP, pulled cables, full disks and I/O errors, and in
the end the invariants by database and disks; --result FILE gets all counts as JSON.
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
import faults as more  # noqa: E402
import invariants  # noqa: E402
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
        site.wait("the machines to be clean", lambda: not leftovers(site, LENDING), 120, 1)
    except AssertionError:
        faults += leftovers(site, LENDING)
    return faults


def play(site, acts, record=None):
    """`record`: with all faults; gets what was done and looked at."""
    student = Student(site)
    chaos = (Chaos if record is None else more.Chaos)(site, acts, student.submit)
    begun = time.monotonic()
    try:
        chaos.play()
        disturbed_s = time.monotonic() - begun
        faults = [] if chaos.faults else settle_and_check(site, chaos, student)
        if record is not None and not faults:
            record["invariants"] = check_at_rest(site, chaos, student, faults)
        chaos.watch.stop()
    except AssertionError as error:
        faults, disturbed_s = [str(error)], time.monotonic() - begun
    print(f"  {chaos.counts}, {chaos.watch.looks} looks, at most {chaos.watch.most} guests at once", flush=True)
    if record is not None:
        record.update({
            "seconds_disturbed": round(disturbed_s), "seconds_to_rest": round(time.monotonic() - begun - disturbed_s),
            "sigkills": sum(chaos.daemons.kills.values()), "sigkills_by_point": dict(chaos.daemons.kills),
            "killed_agents_attempts_by_phase": dict(chaos.daemons.phases), "others": dict(chaos.daemons.counts),
            "owners_commands": chaos.counts.get("owner", 0), "jobs": len(student.wanted),
            "results_as_of_an_undisturbed_run": 0 if chaos.faults or faults else len(student.wanted),
            "looks_at_guests": chaos.watch.looks, "looks_at_stored_chunks": chaos.disks.looks})
    return chaos.faults + faults


def check_at_rest(site, chaos, student, faults):
    """By database and disks, the coordinator ended. Answers {invariant: things looked at}."""
    jobs = [site.guests[name].job for name in student.wanted]
    try:
        site.wait("the nodes to forget finished jobs", lambda: not invariants.stored_generations(site), 120, 1)
    except AssertionError:
        faults += [f"I10: still stored: {line}" for line in invariants.stored_generations(site)]
    chaos.watch.stop()
    site.coordinator.process.stop(30)
    found = invariants.check_database(site.coordinator.state, jobs)
    for _, wrong in found.values():
        faults += wrong
    looks = {name: looks for name, (looks, _) in found.items()}
    return {**looks, "I6": chaos.disks.looks, "I9": chaos.watch.looks, "I10": len(site.nodes), "I14": chaos.disks.looks}


def write_result(path, record, faults):
    """`path`: as JSON, and beside it as text."""
    text = [f"{record['sigkills']} SIGKILLs in {record['seconds_disturbed']} s, {record['jobs']} jobs, "
            f"{record['owners_commands']} owners' commands; {record['seconds_to_rest']} s until all was at rest"]
    for title, key in (("SIGKILLs", "sigkills_by_point"), ("other faults", "others"),
                       ("attempts of killed agents, by phase", "killed_agents_attempts_by_phase"),
                       ("looked at, by invariant", "invariants")):
        text += ["", title, *(f"{count:8}  {name}" for name, count in sorted(record.get(key, {}).items()))]
    text += ["", *(faults or ["all is well: every result is that of an undisturbed run, and nothing is left"])]
    print("\n".join(text), flush=True)
    if path:
        pathlib.Path(path).write_text(json.dumps({**record, "faults": faults}, indent=1) + "\n")
        pathlib.Path(path).with_suffix(".txt").write_text("\n".join(text) + "\n")


def keep(site, faults, seed):
    folder = tempfile.mkdtemp(prefix=f"chaos-{seed}-")
    site.keep_logs(folder)
    pathlib.Path(folder, "faults.txt").write_text("\n".join(faults) + "\n\n" + site.picture() + "\n")
    return folder


def flags_of():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=45, help="how long faults happen")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--show", action="store_true", help="print the schedule and do nothing")
    parser.add_argument("--all", action="store_true", help="all faults")
    parser.add_argument("--kill-every", type=float, default=2, help="with --all: seconds between two kills (2)")
    parser.add_argument("--result", help="with --all: a file for counts and faults")
    return parser.parse_args()


def schedule_of(flags):
    """The acts, and with --all a record to be filled, else None."""
    if not flags.all:
        return schedule(flags.seed, flags.seconds, LENDING, "storage"), None
    why_not = more.is_tracing_possible()
    if why_not:
        print(f"chaos: no named points and no I/O errors: {why_not}", flush=True)
    acts = more.schedule(flags.seed, flags.seconds, LENDING, "storage", flags.kill_every, not why_not)
    return acts, {"seed": flags.seed, "seconds": flags.seconds, "named_points": why_not or "by strace"}


def main():
    flags = flags_of()
    again = f"{sys.executable} {__file__} --seconds {flags.seconds:g} --seed {flags.seed}"
    again += f" --all --kill-every {flags.kill_every:g}" if flags.all else ""
    print(f"chaos: {again}", flush=True)
    acts, record = schedule_of(flags)
    if flags.show:
        print("\n".join(str(act) for act in acts))
        return 0
    site = Site(CONTRACTS, heartbeat_ms=1000, flags=["--min-residence-s", 3, "--home-settle-s", 3], disk="4G")
    try:
        faults = play(site, acts, record)
        if faults:
            print(f"daemons' logs: {keep(site, faults, flags.seed)}")
    finally:
        site.down()
    faults += [f"left behind: {line}" for line in site.labs.residue()]
    if record is not None:
        write_result(flags.result, record, faults)
    else:
        print("".join(f"FAULT {fault}\n" for fault in faults), end="")
    print(f"again: {again}" if faults else "chaos: all is well", flush=True)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
