#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/testbed.sh run: the smallest scenario, half a minute of owners, on real daemons. Both machines are taken
back, one after the other, so that the guest moves wherever it began; the owner with a notice fills the line. What the
figures are is the machine's matter."""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
from labs import ROOT  # noqa: E402

SCRIPT = ROOT / "scripts" / "testbed.sh"
SEED = 22  # a notice on lab-b, then an emergency on lab-a


class TestbedRun(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.out = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory(dir="/tmp")), "out")
        cls.done = subprocess.run(
            [SCRIPT, "run", ROOT / "tests" / "testbed" / "minute.yaml", "--seed", str(SEED), "--out", cls.out],
            capture_output=True, text=True, timeout=500)
        print(cls.done.stdout, flush=True)
        if not (cls.out / "result.json").exists():
            raise AssertionError(f"no result: exit code {cls.done.returncode}, {cls.done.stderr[-3000:]}")
        cls.result = json.loads((cls.out / "result.json").read_text())
        cls.record = json.loads((cls.out / "record.json").read_text())

    def test_every_job_has_the_bytes_of_an_undisturbed_run(self):
        jobs = self.result["jobs"]
        self.assertGreaterEqual(jobs["n"], 1)
        self.assertEqual((jobs["bit_identical"], jobs["wrong"]), (jobs["n"], {}))
        self.assertEqual((self.result["faults"], self.done.returncode), ([], 0), self.done.stderr)

    def test_the_owners_came_as_the_seed_has_it_and_a_guest_moved(self):
        self.assertEqual([(act["node"], act["kind"]) for act in self.record["acts"]],
                         [("lab-b", "notice"), ("lab-a", "emergency")])
        self.assertEqual({kind: one["reclaims"] for kind, one in self.result["kinds"].items()},
                         {"notice": 1, "emergency": 1})
        moved = self.result["displaced"]
        self.assertTrue(moved)
        self.assertTrue(all(one["resumed_at"] and one["restored"] is not None for one in moved), moved)
        attempts = [attempt for job in self.record["jobs"].values() for attempt in job["attempts"]]
        self.assertGreater(len({one["node"] for one in attempts}), 1)
        self.assertTrue(all(act["report"]["cleared_ns"] for act in self.record["acts"]))
        self.assertEqual([act["fills"] for act in self.record["acts"]], [True, False])

    def test_the_result_says_what_docs_testbed_names(self):
        about = self.result["about"]
        self.assertEqual((about["scenario"], about["seed"], about["nodes"]), ("minute", SEED, 2))
        self.assertTrue(about["commit"] and about["machine"] and about["load"] and about["when"], about)
        self.assertEqual(set(self.result), {
            "about", "kinds", "inside", "inside_of_fitting", "moved", "ahead", "again_before_new_work", "deadlines",
            "promised", "lost_without_an_owner", "traffic", "harm", "own", "jobs", "faults", "displaced"})
        for kind, one in self.result["kinds"].items():
            wanted = {"reclaims", "displaced", "last_packet_s", "cut_s", "cleared_s", "packets_after_deadline",
                      "silence_s", "downtime_s", "lost_s", "lost_steps", "never_resumed"}
            self.assertLessEqual(wanted, set(one), kind)
            self.assertEqual(one["cleared_s"]["n"], 1)
        [flow] = self.result["traffic"]
        self.assertEqual((flow["kind"], flow["from"], flow["to"]), ("small", "lab-b", "desk"))
        self.assertTrue(all(flow["phases"][phase]["n"] for phase in ("baseline", "steady")), flow)
        own = self.result["own"]
        self.assertEqual(own["reclaims"], 1)
        self.assertGreater(own["beside"]["n"] + own["alone"]["n"], 0, self.record["own"])
        words = (self.out / "result.txt").read_text()
        self.assertIn("owners who filled their line: 1 reclaims, ", words)
        self.assertIn(f"jobs: {self.result['jobs']['n']}, bit-identical to an undisturbed run: ", words)
        self.assertIn(words.strip(), self.done.stdout)

    def test_nothing_is_left_of_the_bed(self):
        run = re.search(r"\b(tb[0-9a-f]{6}): up in", self.done.stdout)[1]
        left = subprocess.run([SCRIPT, "residue", run], capture_output=True, text=True, timeout=60)
        self.assertEqual((left.returncode, left.stdout), (0, ""))
        self.assertFalse(pathlib.Path(f"/tmp/rn-{run}").exists())


if __name__ == "__main__":
    unittest.main(verbosity=2)
