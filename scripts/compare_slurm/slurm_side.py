# SPDX-License-Identifier: Apache-2.0
"""The plan through Slurm: scripts/testbed's loop of play with other hands. An owner's reclaim is a job of the partition
of high priority on that machine; a guest is a job of the low one, whose folder is on the shared file system."""
import concurrent.futures
import pathlib
import re
import subprocess
import tempfile
import threading
import time

import conf
import play
from capture import Capture
from displacements import Starts
from labs import wait_until
from slurm_site import SlurmSite, version
from students import Students, difference, read_log

ATTEMPT = re.compile(r"^attempt restart=(\d+) node=(\S*) time=(\d+\.\d+)$", re.MULTILINE)
FAILED = ("FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY")
START_LIMIT_S = 180  # until an owner's job must have begun


def word_of(state):
    """Ours for Slurm's. A job that was preempted is queued again, whatever it is called on the way."""
    if state == "COMPLETED":
        return "succeeded"
    return "failed" if state in FAILED else "running"


def attempts_of(text):
    """Of a guest's log, to which each attempt appends, as the judge wants them."""
    heads = list(ATTEMPT.finditer(text))
    found = []
    for head, following in zip(heads, [*heads[1:], None]):
        log = read_log(text[head.end():following.start() if following else len(text)])
        end = "succeeded" if log["done"] else "requeued" if following else ""
        found.append({"epoch": head[1], "node": head[2], "end": end, "resumed": 0, "detail": "", "log": log})
    return found


class SlurmStudents(Students):
    def hand_in(self, name, spec, folder, peer, words):
        home = self.bed.folder / "shared" / name
        folder.rename(home)
        script = self.bed.script(f"{name}.sh", conf.guest_script(words, spec["handles_term"]))
        return self.bed.submit(name, home, script)

    def look(self):
        states = self.bed.states()
        for one in self.jobs.values():
            one["state"] = word_of(states.get(one["job"], "absent"))
            one["reason"] = states.get(one["job"], "not known to Slurm")

    def attempts_of(self, one, names):
        name = next(name for name, job in self.jobs.items() if job is one)
        log = self.bed.folder / "shared" / name / "log"
        return attempts_of(log.read_text(errors="replace") if log.exists() else "")

    def fault_of(self, name, one):
        if one["state"] != "succeeded":
            return f"is {one['state']}: {one.get('reason', '')}"
        with tempfile.TemporaryDirectory(dir=self.bed.dir) as folder:
            return difference(name, one["spec"], self.bed.folder / "shared" / name, folder)


class SlurmRun(play.Run):
    def __init__(self, plan, flags, topology_file):  # instead of the testbed's, which asks for our own programs
        self.scenario, self.flags = {**plan.scenario, "topology": str(topology_file)}, flags
        self.seconds, self.minutes = plan.seconds, plan.seconds / 60
        self.schedule, self.left_out, self.made_of = list(plan.acts), 0, "made up"
        self.faults, self.acts, self.baseline, self.flows = [], [], [], []
        self.lock, self.errands = threading.Lock(), concurrent.futures.ThreadPoolExecutor(32)
        self.bed = SlurmSite(plan.nodes, plan.scenario["peer"], plan.scenario["mix"]["notice_s"]
                             if plan.variant == "s2" else 0)
        self.begun = time.monotonic()

    def set_up(self):
        self.bed.up()
        self.tell(f"Slurm is up: {len(self.bed.names)} nodes, GraceTime {self.bed.grace_s} s")
        self.capture = Capture(self.bed.labs, peer=self.bed.peer)
        self.students = SlurmStudents(self.bed, self.scenario["jobs"], self.flags.seed)

    def owner(self, act):
        about = {"node": act.node, "kind": act.kind, "notice_s": act.notice_s, "report": None, "sent": None}
        try:
            about["begun"] = time.time()
            self.tell(f"{act.node}: {act.kind}" + (f", {act.notice_s:g} s" if act.notice_s else ""))
            job, mark = self.bed.take(act.node)
            about["command_s"] = time.time() - about["begun"]
            wait_until(f"the owner's job on {act.node} to begin", mark.exists, START_LIMIT_S, 0.1)
            about["started"] = float(mark.read_text())
            time.sleep(max(0, about["begun"] + act.notice_s + act.hold_s - time.time()))  # the owner works
            about["given_back"] = time.time()
            self.bed.give_back(job)
        except (OSError, ValueError, subprocess.SubprocessError, AssertionError) as error:
            self.fault(f"{act.node}: {act.kind}: {error} {(getattr(error, 'stderr', '') or '')[-300:]}")
            return
        with self.lock:
            self.acts.append(about)

    def record(self):
        packets = self.capture.packets()
        starts = {name: Starts(name).take(packets) for name in self.students.jobs}
        return {
            "about": {**self.about(), "slurm": version(), "grace_s": self.bed.grace_s,
                      "conf": (self.bed.folder / "slurm.conf").read_text()},
            "topology": pathlib.Path(self.scenario["topology"]).read_text(),
            "nodes": {name: self.bed.labs.addresses[name] for name in self.bed.names}, "traffic": [],
            "baseline": [], "played": self.played, "acts": sorted(self.acts, key=lambda act: act["begun"]),
            "jobs": self.students.record({}, starts), "flows": [], "faults": self.faults, "deadlines": {},
            "daemons": self.bed.logs()}
