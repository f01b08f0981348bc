#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What goes wrong quietly is said to whom it concerns, with what to do: a job that is never saved or nowhere copied,
logs and outputs that were removed, a machine that was off for longer than its certificate lives and joins again as
itself. And what a job says itself: that it has saved. And that a save is due, to one that is told by a file."""
import pathlib
import re
import shutil
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
import lan  # noqa: E402
from guests import GUESTS  # noqa: E402
from rest import Refused  # noqa: E402
from stories import Site  # noqa: E402

LIFE_S = 12  # of certificates; renewed each second or two
KEEP_S = 4
KEEP_OUTPUTS_S = 8
QUIET_MS = 250


class Told(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        lends = {"guest_disk_mib": 128, "guest_memory_mib": 512}
        cls.site = Site({"lab-a": lends, "storage": {"lends": False}}, flags=[
            "--certificate-s", LIFE_S, "--keep-ended-s", KEEP_S, "--keep-outputs-s", KEEP_OUTPUTS_S])
        cls.addClassCleanup(cls.site.down)
        folder = cls.site.labs.dir / "student-listener"  # it is told after half a minute, while others are looked at
        folder.mkdir()
        shutil.copy(GUESTS / "told.sh", folder)
        cls.listener = cls.site.cli(
            "run", "--detach", "--cpus", "0.5", "--cpus-min", "0.1", "--memory", "64MB", "--disk", "64MB",
            "--checkpoint", "state.ckpt", "--tell-file", "ctl/SAVE", "--", "sh", "told.sh", "0.2",
            cwd=folder).stdout.strip()

    def kinds(self, job):
        return [event["kind"] for event in self.site.rest.events(job)]

    def test_a_a_job_whose_checkpoint_never_holds_still_says_so(self):
        spec = {
            "name": "restless", "image": "base",
            "command": ["sh", "-c", "while true; do echo x >> model.bin; sleep 0.1; done"],
            "resources": {"cpu_milli": 200, "cpu_milli_min": 100, "memory_mib": 64, "disk_mib": 64},
            "checkpoint": {"paths": ["model.bin"], "quiet_ms": QUIET_MS}}
        job = self.site.rest.post("/v1/jobs", spec)["job"]["id"]
        self.site.wait("the trouble to be in the history", lambda: "checkpoint.trouble" in self.kinds(job), 60)

        why = self.site.cli("why", job).stdout
        self.assertIn("model.bin is not saved: it never holds still; next: write it under another name", why)
        self.assertEqual(self.kinds(job).count("checkpoint.trouble"), 1)
        self.site.cli("stop", job)

    def test_ab_a_job_says_by_a_line_of_its_output_that_it_has_saved(self):
        spec = {
            "name": "sayer", "image": "base",  # the file's name is nobody's idea of a checkpoint
            "command": ["sh", "-c", "echo 1 > weights; echo not ::reclaimnet checkpoint-complete::; "
                        "until [ -e /tmp/go ]; do sleep 0.2; done; echo 2 > weights; "
                        "echo ::reclaimnet checkpoint-complete::; sleep 1000"],
            "resources": {"cpu_milli": 200, "cpu_milli_min": 100, "memory_mib": 64, "disk_mib": 64}}
        job = self.site.rest.post("/v1/jobs", spec)["job"]["id"]
        self.site.wait("its first words", lambda: b"not ::" in self.site.rest.log(job), 60)
        time.sleep(3)  # in which a generation would be made, if that line counted
        self.assertEqual(self.site.rest.job(job)["durable"]["generation"], 0)

        self.site.cli("exec", job, "--", "touch", "/tmp/go")
        self.site.wait("a generation", lambda: self.site.rest.job(job)["durable"]["generation"] > 0, 60)

        self.assertEqual(len(self.site.rest.generations(job)), 1, "one line, one generation")
        self.site.cli("stop", job)

    def test_b_who_asks_for_removed_logs_and_outputs_is_told_when_they_went(self):
        folder = self.site.labs.dir / "silent"
        folder.mkdir()
        job = self.site.cli(
            "run", "--detach", "--disk", "64MB", "--memory", "64MB", "--stateless", "--", "sh", "-c",
            "echo hello; echo 42 > answer; until [ -e /tmp/go ]; do sleep 0.2; done", cwd=folder).stdout.strip()
        self.site.wait("its log", lambda: self.site.rest.log(job) == b"hello\n", 60)  # soon it will be removed
        self.site.cli("exec", job, "--", "touch", "/tmp/go")
        self.site.wait("its end", lambda: self.site.rest.job(job)["state"] == "succeeded", 60)

        self.site.wait("the warning", lambda: "outputs.expire" in self.kinds(job), 30)
        self.site.wait("the end of what nobody fetched", lambda: "outputs.removed" in self.kinds(job), 30)
        with self.assertRaises(Refused) as refused:
            self.site.rest.log(job)
        self.assertEqual(refused.exception.status, 404)
        self.assertRegex(refused.exception.error["message"], r"^the logs of job \d+ were removed at \d{4}-")
        self.assertIn("keep_ended_s", refused.exception.error["hint"])

    def test_c_a_machine_that_was_off_for_too_long_is_told_how_it_joins_again_as_itself(self):
        site, node = self.site, self.site.nodes["storage"]
        site.submit("plain", 100000, 10, 0.1)
        site.wait("a durable generation", lambda: site.generation("plain") > 0, 60)
        before = site.rest.nodes()["storage"]["id"]
        node.agent.stop()
        held = sorted(path.name for path in (node.state / "agent" / "chunks" / "manifests").rglob("*"))
        self.assertTrue(held)
        old = lan.node_certificate(node)
        site.wait("the end of its certificate", lambda: old.expires_within(0), LIFE_S + 10)

        node.start_agent()
        why = node.owner("status", "--why").stdout
        self.assertIn("this machine's certificate has expired", why)
        self.assertIn(f"reclaim-agent join {site.coordinator.url} --token T", why)
        self.assertIn("certificate.expired", node.agent.output())
        node.agent.stop()
        node.join(site.coordinator)
        node.start_agent()

        site.wait("the node", lambda: site.rest.nodes()["storage"]["is_connected"], 30)
        self.assertEqual(site.rest.nodes()["storage"]["id"], before)
        now = {path.name for path in (node.state / "agent" / "chunks" / "manifests").rglob("*")}
        self.assertTrue(now & set(held), "it has lost what it kept for others")
        durable = site.generation("plain")
        site.wait("the next durable generation", lambda: site.generation("plain") > durable, 60)
        self.assertEqual(len(site.rest.ran(site.guests["plain"].job)), 1, "the job was displaced")

    def test_d_copies_that_fail_everywhere_are_told_until_one_succeeds(self):
        site = self.site
        if "plain" not in site.guests:
            site.submit("plain", 100000, 10, 0.1)
        job = site.guests["plain"].job
        site.wait("a durable generation", lambda: site.generation("plain") > 0, 60)
        told = self.kinds(job).count("checkpoint.trouble")
        deaf = "add table inet deaf; add chain inet deaf in { type filter hook input priority 0; }; " \
            "add rule inet deaf in tcp dport 7445 reject with tcp reset"
        site.labs.call("storage", ["nft", deaf])
        self.addCleanup(site.labs.call, "storage", ["nft", "delete table inet deaf"], check=False)

        site.wait("the trouble to be in the history", lambda: self.kinds(job).count("checkpoint.trouble") > told, 120)
        why = site.cli("why", job).stdout
        holder = site.rest.nodes()["storage"]["id"]
        self.assertRegex(
            why, f"no copy of what it saves can be made, .*: {holder} says: .*; next: .*reclaim-agent doctor")
        self.assertEqual(site.job("plain")["state"], "running")

        site.labs.call("storage", ["nft", "delete table inet deaf"])
        durable = site.generation("plain")
        site.wait("the next durable generation", lambda: site.generation("plain") > durable, 60)
        site.wait("the trouble to be gone", lambda: "no copy" not in site.cli("why", job).stdout, 30)
        self.assertEqual(self.kinds(job).count("checkpoint.trouble"), told + 1)

    def test_e_one_who_is_told_by_a_file_saves_and_goes_on_and_at_a_notice_is_told_by_when(self):
        site, job = self.site, self.listener
        site.wait("a durable generation", lambda: site.rest.job(job)["durable"]["generation"] > 0, 90)
        saves = r'saves step=\d+ told=\{"reason":"a save is due","told_unix":[\d.]+\}\n'
        site.wait("its words", lambda: re.search(saves, site.rest.log(job).decode()), 60)
        self.assertEqual(len(site.rest.ran(job)), 1, "it ended when it was told")
        self.assertNotIn("ctl/SAVE", site.cli("why", job).stdout, "it is told, and nothing is wrong")
        durable = site.rest.job(job)["durable"]["generation"]

        site.nodes["lab-a"].owner("reclaim", "-m", "a lecture")
        site.wait("it to have left", lambda: site.rest.ran(job)[0]["end"] == "reclaimed", 90)
        told = r'told=\{"deadline_unix":[\d.]+,"grace_s":\d+,"reason":"a lecture","told_unix"'
        self.assertRegex(site.rest.log_of(job, 1).decode(), told)
        self.assertGreater(site.rest.job(job)["durable"]["generation"], durable)

        site.nodes["lab-a"].owner("release")
        site.wait("its next attempt", lambda: len(site.rest.ran(job)) > 1, 60)
        site.wait("it to go on", lambda: b"begin" in site.rest.log_of(job, 2), 60)
        self.assertNotIn(b"begin step=0\n", site.rest.log_of(job, 2))
        site.cli("stop", job)

    def test_f_who_finds_its_state_torn_goes_on_once_from_the_generation_before(self):
        spec = {
            "name": "torn", "image": "base",
            "command": ["sh", "-c", "if [ -e state.ckpt ]; then "
                        "grep -q bad state.ckpt && { echo torn > why; exit 9; }; echo resumed; "
                        "[ $RECLAIM_ATTEMPT = 3 ] && exit 85; exit 0; fi; "
                        "for s in good bad; do echo $s > t; mv t state.ckpt; "
                        "until [ -e /tmp/$s-is-safe ]; do sleep 0.2; done; done"],
            "resources": {"cpu_milli": 200, "cpu_milli_min": 100, "memory_mib": 64, "disk_mib": 64},
            "checkpoint": {"paths": ["state.ckpt"], "quiet_ms": QUIET_MS}}
        site = self.site
        job = site.rest.post("/v1/jobs", spec)["job"]["id"]
        site.wait("the first to be durable", lambda: site.rest.job(job)["durable"]["generation"] == 1, 60)
        site.cli("exec", job, "--", "touch", "/tmp/good-is-safe")
        site.wait("both to be durable", lambda: site.rest.job(job)["durable"]["generation"] == 2, 60)
        site.nodes["lab-a"].owner("reclaim", "--now")
        site.wait("it to be displaced", lambda: site.rest.job(job)["state"] == "queued", 60)
        site.nodes["lab-a"].owner("release")
        site.wait("its end", lambda: site.rest.job(job)["state"] in ("succeeded", "failed"), 60)

        self.assertEqual(site.rest.job(job)["state"], "succeeded", self.kinds(job))
        self.assertEqual(self.kinds(job).count("generation.condemned"), 1)
        self.assertEqual(
            [one["end"] for one in site.rest.ran(job)], ["reclaimed", "crashed", "migrated", "succeeded"])
        self.assertEqual(site.rest.log_of(job, 3) + site.rest.log_of(job, 4), b"resumed\n" * 2)
        self.assertEqual(
            site.rest.job(job)["durable"]["generation"], 1, "one that wrote nothing has made a generation")


if __name__ == "__main__":
    unittest.main(verbosity=2)
