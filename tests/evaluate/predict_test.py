# SPDX-License-Identifier: Apache-2.0
"""The simulator against the testbed (scripts/testbed/predict.py), on a record of one migration.

    predict_test.py RECLAIM-SIM"""
import copy
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "testbed"))
import predict  # noqa: E402
import prediction_page  # noqa: E402
import replayed  # noqa: E402
from lines import Bad  # noqa: E402

PROGRAM = sys.argv.pop(1)
RECORD = pathlib.Path(__file__).resolve().parent / "tiny_record.json"


def a_record():
    return json.loads(RECORD.read_text())


class Told(unittest.TestCase):
    """What the simulator is told of a run."""

    def test_saves_after_the_owners_word_and_what_transfers_took_are_not_told(self):
        told, begin = replayed.replay(a_record(), dict(predict.UNFITTED))
        stay = told["guests"][0]["stays"][0]
        act = a_record()["acts"][0]
        self.assertLess(max(save["at_s"] for save in stay["saves"]), act["begun"] - begin)
        changed = a_record()
        changed["acts"][0]["sent"] = 1
        for one in changed["jobs"]["g0"]["generations"]:
            one["committed"] += 5
            one["new_bytes"] = 1
        self.assertEqual(replayed.replay(changed, dict(predict.UNFITTED))[0], told)

    def test_others_at_a_fixed_rate_leave_copies_the_rest_of_each_line_that_they_cross(self):
        record = a_record()
        before = {one["link"]: one["bytes_per_s"] for one in replayed.carries(record)}
        record["traffic"] = [{"kind": "bulk", "from": "a", "to": "b", "rate": "40mbit"}]
        after = {one["link"]: one["bytes_per_s"] for one in replayed.carries(record)}
        self.assertAlmostEqual(before["b down"] - after["b down"], 40e6 / 8, delta=1)
        self.assertEqual(before["b up"], after["b up"])
        record["traffic"][0]["rate"] = None
        with self.assertRaisesRegex(Bad, "has no rate"):
            replayed.carries(record)


class Compared(unittest.TestCase):
    def test_a_migration_stands_beside_the_simulators(self):
        found = predict.predict(PROGRAM, a_record(), dict(predict.UNFITTED))["given"]
        one = found["migrations"][0]
        self.assertEqual((one["real"]["to"], one["simulated"]["to"]), ("c", "c"))
        self.assertAlmostEqual(one["real"]["total_s"], 6.2, places=3)
        self.assertAlmostEqual(one["simulated"]["total_s"], 6.2, delta=1.5)
        self.assertEqual((found["summary"]["total_s"]["n"], found["summary"]["bytes"]["n"]), (1, 1))

    def test_errors_are_of_the_simulated_against_the_real(self):
        found = predict.errors([(10, 11), (10, 8), (10, 10)])
        self.assertAlmostEqual(found["median"], 0.1)
        self.assertAlmostEqual(found["p90"], 0.2)
        self.assertAlmostEqual(found["bias"], 0)

    def test_fitted_times_make_the_parts_of_that_run_agree(self):
        machine = predict.fit(PROGRAM, a_record())
        one = predict.predict(PROGRAM, a_record(), machine)["given"]["migrations"][0]
        self.assertAlmostEqual(one["simulated"]["total_s"], one["real"]["total_s"], delta=0.3)

    def test_the_page_has_a_point_for_each_migration_and_nothing_from_elsewhere(self):
        result = {"machine": predict.UNFITTED, "fitted_on": "", "runs": {"<r>": {
            "about": a_record()["about"], **predict.predict(PROGRAM, a_record(), dict(predict.UNFITTED))}}}
        page = prediction_page.page(result)
        self.assertIn("<circle", page)
        self.assertIn("&lt;r&gt;", page)
        for word in ("http", "src=", "<script", "@import", "url("):
            self.assertNotIn(word, page)


class Refused(unittest.TestCase):
    def refusal(self, text):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "record.json"
            path.write_text(text)
            found = subprocess.run(["bash", ROOT / "scripts" / "compare-sim.sh", path, "--sim", PROGRAM, "--out",
                                    pathlib.Path(folder) / "out"], capture_output=True, text=True)
        self.assertEqual(found.returncode, 2, found.stderr)
        self.assertNotIn("Traceback", found.stderr)
        return found.stderr

    def test_a_torn_record(self):
        self.assertIn("record.json", self.refusal(RECORD.read_text()[:2000]))
        self.assertIn("it is no record", self.refusal("[]"))

    def test_a_part_that_is_missing(self):
        record = a_record()
        del record["acts"]
        self.assertIn("'acts' is missing", self.refusal(json.dumps(record)))
        record = a_record()
        del record["jobs"]["g0"]["attempts"][0]["log"]
        self.assertIn("no whole record", self.refusal(json.dumps(record)))

    def test_a_node_that_is_none(self):
        record = a_record()
        record["acts"][0]["node"] = "z"
        self.assertIn("'z', which is no node", self.refusal(json.dumps(record)))
        record = a_record()
        record["nodes"] = {**copy.copy(record["nodes"]), "d": "10.0.0.9"}
        self.assertIn("'d' is no node of its topology", self.refusal(json.dumps(record)))


if __name__ == "__main__":
    unittest.main()
