#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Notifications of jobs that run on a machine that is lent, and to its owner: finished, failed, moved, reclaimed and
returned, by mail to a real SMTP server and by webhook. And that the last checkpoint is old for how often the owner of
the machine comes, in the history and by `reclaim why`, too."""
import json
import pathlib
import re
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
from hooks import Hooks  # noqa: E402
from labs import Labs, wait_until  # noqa: E402
from one_node import CONTRACT  # noqa: E402
from rn_site import Cli, Coordinator, Node, tiny_image  # noqa: E402
from smtp_server import Mailbox  # noqa: E402

PATIENCE_S = 60
NO_SAVE_AFTER_S = 15  # ten minutes by default
OWNERS_HABIT = 4  # times that the owner comes, and goes at once; more than that and nobody guesses
SMALL = ("--disk", "64MB", "--memory", "64MB", "--stateless", "--no-upload")


class NotifyJobs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.labs = Labs("campus", "lab-a", disk="2G")
        cls.addClassCleanup(cls.labs.down)
        cls.mailbox = Mailbox(cls.labs.dir, cls.labs.host)
        cls.addClassCleanup(cls.mailbox.down)
        cls.hooks = Hooks(cls.labs.host)
        cls.addClassCleanup(cls.hooks.down)
        config = cls.labs.dir / "coordinator.yaml"
        config.write_text(json.dumps({
            "smtp": cls.mailbox.settings(cls.labs.dir), "webhooks": {"allow": [cls.hooks.origin]}}))
        cls.coordinator = Coordinator(cls.labs, flags=["--config", config]).start()
        cls.node = Node(cls.labs, "lab-a", CONTRACT, config={"no_save_after_s": NO_SAVE_AFTER_S})
        cls.node.set_up(cls.coordinator)
        admin = Cli(cls.labs, cls.coordinator)
        admin("image", "add", "base", tiny_image())
        tokens = [admin("token", "create", "--user", user, "--role", role, "--lab", "lab-a", "--ttl-s", 0)
                  for user, role in (("ann", "user"), ("oli", "owner"))]
        cls.ann, cls.oli = (Cli(cls.labs, cls.coordinator, token=one.stdout.strip()) for one in tokens)
        cls.rest_of_ann = cls.coordinator.rest().with_token(tokens[0].stdout.strip())
        cls.ann("notify", "add", "--mail", "ann@example.org")
        code = wait_until("the mail with the code", lambda: re.findall(
            r"reclaim (notify confirm \S+ \S+)", "".join(cls.mailbox.texts("ann@example.org"))), PATIENCE_S)
        cls.ann(*code[0].split())

    def waits_for_mail(self, pattern):
        wait_until(f"a mail: {pattern}", lambda: [
            one for one in self.mailbox.subjects("ann@example.org") if re.search(pattern, one)], PATIENCE_S)

    def run_job(self, name, command, *flags):
        self.ann("run", "--detach", "--name", name, *SMALL, *flags, "--", "sh", "-c", command)

    def test_0_an_owner_is_told_by_mail_that_the_machine_is_lent_and_is_back(self):
        """The first guest of all; those that follow are the same time of lending, and told no more."""
        self.oli("notify", "add", "--mail", "oli@example.org", "--on", "lent,returned")
        code = wait_until("the mail with the code", lambda: re.findall(
            r"reclaim (notify confirm \S+ \S+)", "".join(self.mailbox.texts("oli@example.org"))), PATIENCE_S)
        self.oli(*code[0].split())

        def subjects(pattern):
            return [one for one in self.mailbox.subjects("oli@example.org") if re.search(pattern, one)]

        self.run_job("first", "sleep 1000")

        wait_until("the mail that it is lent", lambda: subjects(r"ReclaimNet: \S+ is lent$"), PATIENCE_S)
        self.assertRegex("".join(self.mailbox.texts("oli@example.org")), r"job \d+ of ann \(lab-a\) runs on it")
        self.node.owner("reclaim", "--now")
        self.node.owner("release")
        wait_until("the mail that it is back", lambda: subjects(r"ReclaimNet: \S+ lends again$"), PATIENCE_S)
        wait_until("the job runs again", lambda: any(
            job["spec"]["name"] == "first" and job["state"] == "running" for job in self.ann.json("ps")["jobs"]),
                   PATIENCE_S)
        self.assertEqual(len(subjects("is lent")), 1)
        self.ann("stop", *[job["id"] for job in self.ann.json("ps")["jobs"]])

    def test_a_finished_and_failed_jobs_are_told_by_mail(self):
        self.run_job("good", "true")
        self.run_job("bad", "exit 3", "--max-restarts", 0)

        self.waits_for_mail(r"job \d+ \(good\) has finished")
        self.waits_for_mail(r"job \d+ \(bad\) has failed")

    def test_b_one_that_loses_its_machine_is_told_and_so_is_the_owner(self):
        self.oli("notify", "add", "--webhook", f"{self.hooks.origin}/oli", "--on", "reclaimed,returned")
        self.run_job("long", "sleep 1000")
        wait_until("the job runs", lambda: any(
            job["spec"]["name"] == "long" and job["state"] == "running"
            for job in self.ann.json("ps")["jobs"]), PATIENCE_S)

        self.node.owner("reclaim", "--now")

        self.waits_for_mail(r"job \d+ \(long\) lost its machine")
        told = wait_until("the owner's webhook", lambda: self.hooks.told("/oli"), PATIENCE_S)
        self.assertEqual(told[0]["what"], "reclaimed")
        self.assertIn("is yours again", told[0]["subject"])
        self.node.owner("release")
        wait_until("that it lends again is told", lambda: [
            one for one in self.hooks.told("/oli") if one["what"] == "returned"], PATIENCE_S)

    def test_c_what_keeps_a_job_from_being_saved_is_told_by_mail(self):
        self.ann("stop", *[job["id"] for job in self.ann.json("ps")["jobs"]])
        self.rest_of_ann.post("/v1/jobs", {
            "name": "restless", "image": "base",
            "command": ["sh", "-c", "while true; do echo x >> model.bin; sleep 0.1; done"],
            "resources": {"cpu_milli": 200, "cpu_milli_min": 100, "memory_mib": 64, "disk_mib": 64},
            "checkpoint": {"paths": ["model.bin"], "quiet_ms": 250}})

        self.waits_for_mail(r"job \d+ \(restless\) would lose work with its machine")

        told = "".join(self.mailbox.texts("ann@example.org"))
        self.assertIn("model.bin is not saved: it never holds still; next: write it under another name", told)

    def test_d_that_a_save_is_old_for_how_often_the_owner_comes_is_told_by_why_and_by_mail(self):
        self.ann("stop", *[job["id"] for job in self.ann.json("ps")["jobs"]])
        rest = self.coordinator.rest()
        for _ in range(OWNERS_HABIT):
            self.node.owner("reclaim", "--now")
            wait_until("the owner to have it", lambda: rest.nodes()["lab-a"]["lending"] == "reclaimed", PATIENCE_S)
            self.node.owner("release")
            wait_until("it to be lent", lambda: rest.nodes()["lab-a"]["lending"] == "open", PATIENCE_S)
        begun = time.monotonic()
        job = self.rest_of_ann.post("/v1/jobs", {
            "name": "seldom", "image": "base",
            "command": ["sh", "-c", "echo 1 > new.tmp; mv new.tmp state.ckpt; sleep 1000"],
            "resources": {"cpu_milli": 200, "cpu_milli_min": 100, "memory_mib": 64, "disk_mib": 64},
            "checkpoint": {"paths": ["state.ckpt"], "temporary": ["*.tmp"], "quiet_ms": 250}})["job"]["id"]
        wait_until("it to run", lambda: rest.job(job)["state"] == "running", PATIENCE_S)

        trouble = wait_until("the warning in the history", lambda: [
            event["message"] for event in rest.events(job) if event["kind"] == "checkpoint.trouble"], PATIENCE_S)

        self.assertRegex(trouble[0], r"its last checkpoint is more than \d+ (s|min) old on a node whose owner comes "
                         r"back every \d+ (s|min) on average; next: let it save more often")
        self.assertGreater(time.monotonic() - begun, NO_SAVE_AFTER_S, "sooner than it was set")
        self.assertIn("on a node whose owner comes back every", self.ann("why", job).stdout)
        self.waits_for_mail(r"job \d+ \(seldom\) would lose work with its machine")
        self.assertIn("on a node whose owner comes back every", "".join(self.mailbox.texts("ann@example.org")))


if __name__ == "__main__":
    unittest.main(verbosity=2)
