#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Guests that are told to save by a signal, a hook and the API, on real daemons: when a save is due, and at a notice,
with its deadline; what they saved goes on on another machine. And guests that abuse what they are told by, which harms
nobody else."""
import pathlib
import re
import shutil
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
from guests import GUESTS  # noqa: E402
from rn_site import python_image  # noqa: E402
from stories import Site  # noqa: E402

SMALL = ["--detach", "--cpus", "0.2", "--cpus-min", "0.1", "--memory", "64MB", "--disk", "64MB"]
# Each of these goes on as long as it may.
ABUSES = {
    "hook that never ends": [
        "--tell-hook", "trap '' TERM HUP; echo begun; while :; do sleep 1; done", "--", "sleep", "10000"],
    "hook that forks": [
        "--tell-hook", "for i in 1 2 3 4 5 6; do setsid sh -c 'while :; do sh -c true; done' & done; echo begun",
        "--", "sleep", "10000"],
    "told file that is something else": [
        "--tell-hook", "echo begun", "--", "sh", "-c",
        "while :; do rm -rf /reclaim/told; mkdir /reclaim/told /reclaim/.hook.new; sleep 1; done"],
    "socket that is something else": [
        "--tell-api", "--", "sh", "-c", "rm /reclaim/api.sock; ln -s /proc/1/mem /reclaim/api.sock; sleep 10000"]}
FLOOD = """
import os, socket
for _ in range(8):
    if os.fork() == 0:
        while True:
            try:
                end = socket.socket(socket.AF_UNIX)
                end.connect("/reclaim/api.sock")
                end.send(os.urandom(5000))
                end.close()
            except OSError:
                pass
os.wait()
"""


class Telling(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        lends = {"guest_disk_mib": 1024, "guest_memory_mib": 1024}
        cls.site = Site({"lab-a": lends, "lab-b": lends, "lab-c": lends}, disk="4G")
        cls.addClassCleanup(cls.site.down)
        cls.site.cli("image", "add", "python", python_image(), timeout_s=300)
        cls.jobs = {
            "signal": cls.run_in("signal", "told_signal.sh", "--checkpoint", "state.ckpt", "--signal", "USR1", "--tell",
                                 "--", "sh", "told_signal.sh", "0.2"),
            "hook": cls.run_in("hook", "told_hook.sh", "--checkpoint", "state.ckpt", "--tell-hook",
                               "sh told_hook.sh save", "--", "sh", "told_hook.sh", "train", "0.2"),
            "api": cls.run_in("api", "told_api.py", "--image", "python", "--checkpoint", "state.ckpt", "--tell-api",
                              "--", "python3", "told_api.py", "0.2")}
        # They are told for the first time after half a minute, while others are looked at.
        cls.bad = {name: cls.run_bad(*words) for name, words in ABUSES.items()}
        cls.bad["flood"] = cls.run_bad("--image", "python", "--tell-api", "--", "python3", "-c", FLOOD)
        cls.failing = cls.run_bad("--tell-hook", "echo no room >&2; exit 3", "--", "sleep", "10000")
        cls.site.submit("plain", 100000, 10, 0.1, flags=["--lab", "lab-c"])

    @classmethod
    def run_in(cls, name, script, *words):
        folder = cls.site.labs.dir / f"student-{name}"
        folder.mkdir()
        shutil.copy(GUESTS / script, folder)
        return cls.site.cli("run", "--name", name, "--lab", "lab-a", "--lab", "lab-b", *SMALL, *words, cwd=folder
                            ).stdout.strip()

    @classmethod
    def run_bad(cls, *words):
        return cls.site.cli("run", "--no-upload", "--lab", "lab-c", *SMALL, *words).stdout.strip()

    def durable(self, job):
        return self.site.rest.job(job)["durable"]["generation"]

    def lab_of(self, job):
        job = self.site.rest.job(job)
        return self.site.lab_of_node(job["node"]) if job["state"] == "running" else ""

    def steps_of(self, what, job, attempt):
        log = self.site.rest.log_of(job, attempt).decode()
        return [int(step) for step in re.findall(rf"^{what} step=(\d+)", log, re.MULTILINE)]

    def test_a_each_is_told_when_a_save_is_due_and_goes_on(self):
        site = self.site
        for name, job in self.jobs.items():
            site.wait(f"a durable generation by the {name}", lambda: self.durable(job) > 0, 120)
            self.assertEqual(len(site.rest.ran(job)), 1, "it ended when it was told")
            words = b"on USR1" if name == "signal" else b"a save is due"
            site.wait("its words", lambda: words in site.rest.log(job), 60)
            told = f"attempt.told_to_save job={job} " + {"signal": "processes=1", "hook": 'by="its hook"',
                                                         "api": 'by="the API"'}[name]
            self.assertIn(told, site.nodes[self.lab_of(job)].agent.output(), "it was not the planner who told it")
            self.assertNotIn("told to save", site.cli("why", job).stdout, "nothing is wrong")
        self.assertRegex(site.rest.log(self.jobs["hook"]).decode(), r"reason=a save is due deadline= grace=\n")
        self.assertRegex(
            site.rest.log(self.jobs["api"]).decode(), r'told=\{"reason":"a save is due","told_unix":[\d.]+\}\n')

    def test_b_each_is_told_at_a_notice_by_when_and_goes_on_elsewhere_from_that_save(self):
        site = self.site
        told = {"signal": r"saves step=\d+ on USR1\n(.*\n)*saves step=\d+ on USR1\n",
                "hook": r"reason=a lecture deadline=[\d.]+ grace=\d+\n",
                "api": r'told=\{"deadline_unix":[\d.]+,"grace_s":\d+,"reason":"a lecture","told_unix":[\d.]+\}'}
        for name, job in self.jobs.items():
            site.wait(f"the {name}'s job to run", lambda: self.lab_of(job), 60)
            lab, before, attempt = self.lab_of(job), self.durable(job), len(site.rest.ran(job))
            site.nodes[lab].owner("reclaim", "-m", "a lecture")
            site.wait("it to have left", lambda: site.rest.ran(job)[attempt - 1]["end"] == "reclaimed", 90)
            self.assertRegex(site.rest.log_of(job, attempt).decode(), told[name])
            self.assertGreater(self.durable(job), before)

            site.wait("it to run elsewhere", lambda: self.lab_of(job) not in ("", lab), 90)
            site.wait("it to go on", lambda: self.steps_of("begin", job, attempt + 1), 60)
            self.assertGreaterEqual(  # its last words may be lost
                self.steps_of("begin", job, attempt + 1)[0], self.steps_of("saves", job, attempt)[-1],
                "not from what it saved at the notice")
            site.nodes[lab].owner("release")

    def test_c_a_hook_that_fails_is_said_in_the_history_and_in_why(self):
        site, job = self.site, self.failing
        site.wait("the trouble", lambda: "checkpoint.trouble" in [one["kind"] for one in site.rest.events(job)], 90)
        self.assertIn("its hook ended with exit code 3; next: ", site.cli("why", job).stdout)
        self.assertIn("no room\n[reclaimnet] the hook ended: exit code 3\n", site.rest.log(job).decode())
        self.assertEqual(site.rest.job(job)["state"], "running")
        site.cli("stop", job)

    def test_d_who_abuses_what_it_is_told_by_harms_nobody_else(self):
        site = self.site
        for name in ("hook that never ends", "hook that forks"):
            site.wait("its hook", lambda: b"begun" in site.rest.log(self.bad[name]), 90)
        for name, job in self.bad.items():
            self.assertEqual(site.rest.job(job)["state"], "running", name)
        before = site.generation("plain")
        site.wait("another guest to be saved meanwhile", lambda: site.generation("plain") > before + 1, 60)

        site.nodes["lab-c"].owner("reclaim", "-m", "a lecture")  # its owner has it back in time, whatever they do
        for name, job in self.bad.items():
            site.wait(f"the end of the {name}", lambda: site.rest.ran(job)[0]["end"] == "reclaimed", 120)
        site.wait("nothing to be left", lambda: not site.nodes["lab-c"].guest_containers(), 30)
        site.wait("all nodes to be up", lambda: {node["state"] for node in site.rest.nodes().values()} == {"up"})


if __name__ == "__main__":
    unittest.main(verbosity=2)
