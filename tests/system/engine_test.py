#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A node on a container engine of its owner's (`--engine SOCKET`). With `--engine-floor-strict` one whose version is
below the floor is refused: the owner is told why, and the campus that the node does not lend. One that is upgraded, or
that goes away and comes back, is used without anybody's help. The engine is real; only the version that it tells is the
test's."""
import pathlib
import re
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
from daemon_log import events  # noqa: E402
from labs import Labs, wait_until  # noqa: E402
from machine import Owner  # noqa: E402
from old_engine import OldEngine  # noqa: E402
from rn_site import Cli, Coordinator, Node, tiny_image  # noqa: E402

OLD, NEW = {"engine": "19.3.15", "runc": "99.0.0"}, {"engine": "99.0.0", "runc": "99.0.0"}
SAID = "engine 19.3.15 is below 20.10.24"
ASKED_AGAIN_S = 30  # an engine that was refused or is away is asked at least so often
SMALL = ["--cpus", "0.2", "--cpus-min", "0.1", "--memory", "64MB", "--disk", "64MB", "--stateless", "--no-upload"]


class Engine(unittest.TestCase):
    """The tests build on each other, in their order."""

    @classmethod
    def setUpClass(cls):
        cls.labs = Labs("campus", "lab-a", disk="2G")
        cls.addClassCleanup(cls.labs.down)
        cls.coordinator = Coordinator(cls.labs).start()
        cls.cli, cls.rest = Cli(cls.labs, cls.coordinator), cls.coordinator.rest()
        cls.cli("image", "add", "base", tiny_image())
        owner = Owner(cls.labs, "lab-a", tiny_image())
        owner.start_engine()
        wait_until("the owner's engine", owner.is_engine_up, 60, 0.5)
        cls.engine = OldEngine(cls.labs.dir / "engine.sock", owner.socket.removeprefix("unix://"))
        cls.engine.versions = OLD
        cls.engine.come()
        cls.addClassCleanup(cls.engine.go)
        cls.node = Node(cls.labs, "lab-a", {"guest_disk_mib": 128, "reserve_disk_mib": 64}, warden_flags=[
            "--engine", cls.engine.path, "--engine-floor-strict"])
        cls.node.set_up(cls.coordinator)

    def status(self):
        return self.node.owner("status", "--why").stdout

    def doctor(self):
        return self.labs.call("lab-a", self.node.agent_program("doctor"), check=False)

    def below_floor(self):
        return events(self.node.warden.output(), "engine.below_floor")

    def submit(self, *command):
        return self.cli("run", "--detach", *SMALL, "--", *command).stdout.strip()

    def wait_for(self, job, state, timeout_s=ASKED_AGAIN_S + 30):
        wait_until(f"{job} to be {state}", lambda: self.rest.job(job)["state"] == state, timeout_s, 0.1)

    def test_a_an_engine_below_the_floor_is_refused_and_its_owner_is_told_why(self):
        wait_until("the refusal", lambda: SAID in self.status(), 20)

        why = " ".join(self.status().split())
        self.assertIn(f"its container engine is refused (--engine-floor-strict): {SAID}: no guest can start", why)
        self.assertEqual(why.count(SAID), 1, why)
        self.assertIn("next: upgrade it", why)
        self.assertNotIn("has not answered", why)
        self.assertEqual([line["what"] for line in self.below_floor()], [SAID])
        doctor = self.doctor()
        self.assertEqual(doctor.returncode, 1)
        self.assertRegex(doctor.stdout, rf"(?m)^MISSING +container engine +.*{re.escape(SAID)}\n +next: upgrade it")
        type(self).job = self.submit("echo", "hello")
        wait_until("its author to be told", lambda: re.search(
            rf"lab-a/\S+: its container engine is refused: {re.escape(SAID)}", self.cli("why", self.job).stdout), 20)
        self.assertEqual(self.rest.job(self.job)["state"], "queued")

    def test_b_once_it_is_upgraded_it_is_used_by_itself(self):
        self.engine.versions = NEW

        self.wait_for(self.job, "succeeded")

        self.assertEqual(self.rest.log(self.job), b"hello\n")
        self.assertNotIn("refused", self.status())
        self.assertRegex(self.doctor().stdout, r"(?m)^ok +container engine +docker 99\.0\.0")
        self.assertEqual(len(self.below_floor()), 1, "it was said once, not at each look")

    def test_c_one_that_goes_away_leaves_its_guest_alone_and_is_used_again_when_it_is_back(self):
        guest = self.submit("sh", "-c", "while true; do date +%s; sleep 0.2; done")
        self.wait_for(guest, "running")
        self.engine.go()
        wait_until("it to be missed", lambda: "has not answered for" in self.status(), 30)
        self.assertTrue(events(self.node.warden.output(), "engine.down"))
        self.assertRegex(self.doctor().stdout, r"(?m)^MISSING +container engine +has not answered for \d+ s")
        job = self.submit("echo", "back")
        wait_until("its author to be told", lambda: "1 not lending" in self.cli("why", job).stdout, 20)
        before = len(self.rest.log(guest))
        wait_until("the guest to go on", lambda: len(self.rest.log(guest)) > before, 20)

        self.engine.come()

        self.wait_for(job, "succeeded")
        self.assertEqual([one["state"] for one in self.rest.ran(guest)], ["running"])
        self.cli("stop", guest)
        self.wait_for(guest, "cancelled")

    def test_d_one_that_comes_back_older_is_refused_and_its_guests_are_left_alone(self):
        guest = self.submit("sleep", "1000")
        self.wait_for(guest, "running")
        self.engine.go()
        wait_until("it to be missed", lambda: "has not answered for" in self.status(), 30)

        self.engine.versions = OLD
        self.engine.come()

        wait_until("the refusal", lambda: f"is refused (--engine-floor-strict): {SAID}" in self.status(), 60)
        self.assertEqual([one["state"] for one in self.rest.ran(guest)], ["running"])
        done = self.node.owner("reclaim", "--now")  # which needs no engine
        self.assertIn("verified", done.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
