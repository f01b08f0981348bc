#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Data sets that lie on nodes: a job goes where its data is, reads it, can do nothing else with it, and leaves nothing
mounted; the owner's files are as they were, whatever happens to guests and daemons."""
import pathlib
import re
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
import data_set  # noqa: E402
from labs import Labs, wait_until  # noqa: E402
from rn_site import Cli, Coordinator, Node, program, tiny_image  # noqa: E402

CONTRACT = {"guest_disk_mib": 128, "reserve_disk_mib": 64, "guest_memory_mib": 512}
READS = "cat /data/digits/train /data/digits/more/test; grep ' /data/' /proc/mounts"


class Data(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.labs = Labs("campus", "lab-a", "lab-b", disk="2G")
        cls.addClassCleanup(cls.labs.down)
        cls.coordinator = Coordinator(cls.labs).start()
        cls.owners = cls.labs.disk("lab-b") / "owner"
        cls.digits = data_set.make(cls.owners / "digits")
        cls.before = data_set.picture(cls.digits)
        cls.nodes = {
            "lab-a": Node(cls.labs, "lab-a", CONTRACT),
            "lab-b": Node(cls.labs, "lab-b", CONTRACT, data={"digits": cls.digits})}
        for node in cls.nodes.values():
            node.set_up(cls.coordinator)
        cls.node = cls.nodes["lab-b"]
        cls.cli = Cli(cls.labs, cls.coordinator)
        cls.rest = cls.coordinator.rest()
        cls.cli("image", "add", "base", tiny_image())

    def tearDown(self):
        self.assertEqual(data_set.picture(self.digits), self.before, "the owner's files changed")

    def run_job(self, command, *flags, data="digits", **options):
        return self.cli(
            "run", "--disk", "64MB", "--memory", "64MB", "--stateless", "--no-upload", "--data", data, *flags, "--",
            "sh", "-c", command, cwd=self.labs.dir, **options)

    def submit(self, command, data="digits"):
        done = self.run_job(command, "--detach", data=data)
        return done.stdout.strip(), done.stderr

    def state(self, job):
        return self.rest.job(job)["state"]

    def wait_for(self, job, state, timeout_s=60):
        wait_until(f"{job} to be {state}", lambda: self.state(job) == state, timeout_s)

    def offered(self):
        return {name: node["facts"]["data_sets"] for name, node in self.rest.nodes().items()}

    def mounts(self):
        """Views of data sets, in the namespace of the wardens."""
        text = pathlib.Path("/proc/self/mountinfo").read_text()
        return [line for line in text.splitlines() if f"{self.labs.disk('lab-b')}/state/warden/data/guests/" in line]

    def warden(self, verb):
        return self.labs.call("lab-b", [
            program("reclaim-warden"), verb, "--lab", f"{self.labs.run}-lab-b", "--state", self.node.state, "--run",
            self.node.run], check=False, timeout_s=120)

    def test_a_everybody_sees_which_node_offers_it(self):
        wait_until("lab-b to offer it", lambda: self.offered().get("lab-b") == ["digits"], 30)

        self.assertEqual(self.offered()["lab-a"], [])
        self.assertRegex(self.cli("nodes").stdout, r"(?m) lab-b .* digits$")
        doctor = self.labs.call("lab-b", self.node.agent_program("doctor"), check=False).stdout
        self.assertRegex(doctor, r"(?m)^ok +data set +digits is offered")

    def test_b_a_guest_reads_it_and_nothing_of_it_is_left_mounted(self):
        done = self.run_job(READS)

        self.assertTrue(done.stdout.startswith("0123\n456\n"), done.stdout + done.stderr)
        options = re.search(r" /data/digits \S+ (\S+) ", done.stdout).group(1).split(",")
        self.assertLessEqual({"ro", "nosuid", "nodev"}, set(options))
        self.assertEqual(self.mounts(), [])

    def test_c_a_guest_can_change_nothing_and_become_nobody_else(self):
        done = self.run_job(
            "cd /data/digits; echo x > new; echo x >> everybodys; rm -rf more train; chmod 777 train; ./setuid-id -u;"
            "/bin/busybox id -u; cat private; cat null; ls more")

        self.assertNotIn("0\n", done.stdout.replace("10001\n", ""))
        self.assertTrue(done.stdout.endswith("test\n"), done.stdout)
        self.assertNotIn("of the owner alone", done.stdout)

    def test_d_a_job_waits_for_the_node_that_has_it_though_another_is_free(self):
        self.node.owner("pause")
        wait_until("lab-b to be paused", lambda: self.rest.nodes()["lab-b"]["lending"] == "paused", 30)
        job, _ = self.submit("sleep 1000")
        wait_until("the reason", lambda: "1 of 2 nodes could run it" in self.cli("why", job).stdout, 30)
        self.assertEqual(self.rest.nodes()["lab-a"]["lending"], "open")
        self.assertEqual(self.state(job), "queued")

        self.node.owner("resume")

        self.wait_for(job, "running")
        self.assertEqual(self.rest.job(job)["node"], self.rest.nodes()["lab-b"]["id"])
        self.cli("stop", job)

    def test_e_a_data_set_that_nobody_has_is_said_at_once(self):
        job, told = self.submit("true", data="imagenet")

        self.assertIn("no node offers data set imagenet", told)
        self.assertIn("no node offers data set imagenet", self.cli("why", job).stdout)
        self.cli("stop", job)
        refused = self.run_job("true", "--detach", data="../etc", check=False)
        self.assertIn("is no name of a data set", refused.stderr)

    def test_f_a_folder_that_goes_is_offered_no_more_until_it_is_back(self):
        self.digits.rename(self.owners / "away")
        try:
            wait_until("lab-b to offer nothing", lambda: self.offered()["lab-b"] == [], 30)
            job, told = self.submit(READS)
            self.assertIn("no node offers data set digits", told)
            doctor = self.labs.call("lab-b", self.node.agent_program("doctor"), check=False).stdout
            self.assertRegex(doctor, r"(?m)^MISSING +data set +digits is not offered")
        finally:
            (self.owners / "away").rename(self.digits)

        self.wait_for(job, "succeeded")

    def test_g_the_kill_switch_leaves_no_view(self):
        job, _ = self.submit("cat /data/digits/train; sleep 1000")
        self.wait_for(job, "running")

        done = self.node.kill_switch()

        self.assertRegex(done.stdout, "^cleared")
        self.assertEqual(self.mounts(), [])
        self.node.owner("release")
        self.cli("stop", job)

    def test_h_what_a_killed_warden_left_is_seen_by_verify_and_undone_by_the_next_one(self):
        wait_until("no guest on lab-b", lambda: self.warden("verify").returncode == 0, 60)
        self.node.warden.kill()
        view = self.node.state / "warden/data/guests/j-1-1.1/digits"
        view.mkdir(parents=True)
        subprocess.run(["mount", "--bind", "-o", "ro", self.digits, view], check=True)

        seen = self.warden("verify")

        self.assertEqual(seen.returncode, 3, seen.stdout)
        self.assertIn("not clear: of guests' processes, interfaces, mounts and the like, 1 are there", seen.stdout)
        self.node.start_warden()
        wait_until("the view to be undone", lambda: not self.mounts() and not view.exists(), 30)
        self.assertEqual(self.run_job(READS).returncode, 0)

    def test_i_leaving_undoes_views_and_deletes_nothing_of_the_owners(self):
        self.node.owner("leave", "--purge")
        self.node.warden.kill()
        view = self.node.state / "warden/data/guests/j-1-1.1/digits"
        view.mkdir(parents=True)
        subprocess.run(["mount", "--bind", self.digits, view], check=True)  # writable: the worst case

        left = self.warden("leave")

        self.assertEqual(left.returncode, 0, left.stdout + left.stderr)
        self.assertIn("removed views of data sets of j-1-1.1", left.stdout)
        self.assertFalse((self.node.state / "warden").exists())


if __name__ == "__main__":
    unittest.main(verbosity=2)
