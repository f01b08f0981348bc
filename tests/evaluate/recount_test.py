#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""recount_test.py RECLAIM_SIM: scripts/evaluate/recount.py finds from raw logs what the program says of them, finds
what somebody changed, and counts logs written by hand as docs/formats/evaluation-log.md says."""
import csv
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
RECOUNT = ROOT / "scripts" / "evaluate" / "recount.py"
sys.path.insert(0, str(RECOUNT.parent))
import recount  # noqa: E402

SIM = None
POLICIES = ["reclaimnet", "slurm-s0", "slurm-s2-1800"]
SITE = ["--nodes", "4", "--labs", "2", "--days", "1.8", "--users", "14", "--seed", "3"]
NAMES = ",".join(recount.COLUMNS)

HOUR_NS = 3600 * 10 ** 9
# One job of one hour on two GPUs. It is saved at 1000 s of its work, standing still for 10 s, is taken back with a
# notice of 30 s at 2010 s, goes on from what was saved 500 s later, catches up after 1000 s, and ends.
BY_HAND = [
    NAMES,
    "0,lent,,,0,4,,",
    "0,lent,,,1,2,,",
    "0,submitted,0,,,2,3600,language",
    "0,started,0,1,0,,0,", "0,speed,0,1,0,,1,",
    "1000000000000,speed,0,1,0,,0,", "1010000000000,speed,0,1,0,,1,",
    "1500000000000,carried,,,,,3000000000,",
    "1980000000000,declared,,,0,,2010000000000,notice",
    "2010000000000,ended,0,1,0,,2000,notice", "2010000000000,taken,,,0,,,notice",
    "2510000000000,started,0,2,1,,1000,", "2510000000000,speed,0,2,1,,1,",
    "5110000000000,ended,0,2,1,,3600,finished",
    f"{2 * HOUR_NS},over,,,,,,",
]


def count_of(lines):
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "log.csv"
        log.write_text("\n".join(lines) + "\n")
        return [count.figures() for count in recount.counts(log)], [count.beside() for count in recount.counts(log)]


class ByHand(unittest.TestCase):
    def test_a_job_that_was_taken_back_once(self):
        (figures,), (beside,) = count_of(BY_HAND)

        self.assertAlmostEqual(figures["loss_gpu_h"], 2 * 1000 / 3600)
        self.assertAlmostEqual(figures["notice_loss_gpu_h"], 2 * 1000 / 3600)
        self.assertAlmostEqual(figures["downtime_s_mean"], 1500)  # 500 s of nothing, 1000 s of doing it again
        self.assertAlmostEqual(figures["useful_gpu_h"], 2 * 3600 / 3600)
        self.assertAlmostEqual(figures["redone_gpu_h"], 2 * 1000 / 3600)
        self.assertAlmostEqual(figures["paused_gpu_h"], 2 * 10 / 3600)
        self.assertAlmostEqual(figures["used_gpu_h"], 2 * 4610 / 3600)
        self.assertAlmostEqual(figures["lent_gpu_h"], (4 * 2010 + 2 * 7200) / 3600)
        self.assertAlmostEqual(figures["moved_gb"], 3)
        for name in ("reclaims", "displaced", "resumed", "caught_up"):
            self.assertEqual(figures[name], 1, name)
        self.assertEqual((figures["scheduled_departures"], figures["clean_departures"]), (1, 0))
        self.assertEqual(beside["provider_returned"], 0)

    def test_one_that_lost_a_minute_has_left_clean(self):
        lines = [line.replace("2510000000000,started,0,2,1,,1000,", "2510000000000,started,0,2,1,,1940,")
                 .replace("5110000000000", "4170000000000") for line in BY_HAND]

        (figures,), _ = count_of(lines)

        self.assertAlmostEqual(figures["loss_gpu_h"], 2 * 60 / 3600)
        self.assertEqual(figures["clean_departures"], 1)

    def test_two_reclaims_before_new_work_are_one_downtime(self):
        lines = [*BY_HAND[:-2], "2810000000000,ended,0,2,1,,1300,emergency", "2810000000000,taken,,,1,,,emergency",
                 "3000000000000,lent,,,0,4,,", "3010000000000,started,0,3,0,,1000,", "3010000000000,speed,0,3,0,,1,",
                 "5610000000000,ended,0,3,0,,3600,finished", BY_HAND[-1]]

        (figures,), (beside,) = count_of(lines)

        self.assertEqual((figures["displaced"], figures["caught_up"], figures["emergency_displaced"]), (2, 1, 1))
        self.assertAlmostEqual(figures["emergency_downtime_s_mean"], 4010 - 2010)
        self.assertAlmostEqual(figures["loss_gpu_h"], 2 * 1000 / 3600)  # what the second had done, it had done again
        self.assertEqual((beside["provider_returned"], beside["home_again"]), (1, 1))
        self.assertEqual(beside["stretched_jobs"], 1)
        self.assertAlmostEqual(beside["stretch_median"], 5610 / 3600)

    def test_a_notice_before_the_node_was_lent_is_none(self):
        lines = [NAMES, "0,declared,,,0,,600000000000,announced", *BY_HAND[1:9], *BY_HAND[10:]]

        (figures,), _ = count_of(lines)

        self.assertEqual((figures["notice_displaced"], figures["scheduled_departures"]), (1, 0))

    def test_a_log_without_its_end_is_refused(self):
        with self.assertRaisesRegex(recount.Bad, "cut off"):
            count_of(BY_HAND[:-1])

    def test_what_is_wrong_is_said_with_its_line(self):
        for line, what in (("5,flown,,,0,,,", r"log\.csv:5: no event is called 'flown'"),
                           ("5,speed,0,9,0,,1,", r"log\.csv:5: names '9'"),
                           ("x,lent,,,0,1,,", r"log\.csv:5: "), ("1,lent", r"log\.csv:5: has 2 fields")):
            with self.subTest(line), self.assertRaisesRegex(recount.Bad, what):
                count_of([*BY_HAND[:4], line])


class OfThePrograms(unittest.TestCase):
    """Logs of the product and of two baselines."""

    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.scratch.name)
        for mix in ("mixed", "gpunion"):
            command = [SIM, "evaluate", "--policy", *POLICIES, *SITE, "--notices", mix,
                       "--csv", cls.folder / f"{mix}.csv", "--log", cls.folder / f"{mix}.log"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def recounted(self, log, table):
        return subprocess.run(["/usr/bin/python3", "-B", RECOUNT, self.folder / log, "--csv", self.folder / table],
                              capture_output=True, text=True, check=False)

    def test_come_to_the_same(self):
        for mix in ("mixed", "gpunion"):
            found = self.recounted(f"{mix}.log", f"{mix}.csv")
            self.assertEqual(found.returncode, 0, found.stdout + found.stderr)
            self.assertEqual(found.stdout.count("all the same"), len(POLICIES))

    def test_have_something_to_count(self):
        for mix in ("mixed", "gpunion"):
            with open(self.folder / f"{mix}.csv", newline="") as file:
                for row in csv.DictReader(file):
                    for name in ("displaced", "resumed", "caught_up", "loss_gpu_h", "downtime_s_mean", "redone_gpu_h",
                                 "scheduled_departures"):
                        self.assertGreater(float(row[name]), 0, f"{mix} {row['policy']} {name}")

    def test_a_number_that_somebody_changed_is_named(self):
        with open(self.folder / "mixed.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        for name in ("loss_gpu_h", "downtime_s_median", "clean_departures", "moved_gb", "used_gpu_h", "overstays"):
            changed = [dict(row) for row in rows]
            changed[0][name] = str(float(changed[0][name]) * 1.001 + 1e-4)
            with open(self.folder / "changed.csv", "w", newline="") as file:
                writer = csv.DictWriter(file, rows[0])
                writer.writeheader()
                writer.writerows(changed)

            found = self.recounted("mixed.log", "changed.csv")

            self.assertEqual(found.returncode, 1, name)
            self.assertIn(f"  {name}: ", found.stdout)
            self.assertEqual(found.stdout.count("all the same"), len(POLICIES) - 1)

    def test_a_row_that_somebody_took_out_or_changed_is_felt(self):
        lines = (self.folder / "mixed.log").read_text().splitlines()

        def resumes(fields):
            return fields[1] == "started" and float(fields[6]) > 100

        def less_far(fields):
            return [",".join([*fields[:6], str(float(fields[6]) - 50), fields[7]])]

        for event, is_it, change in (
                ("carried", lambda fields: fields[1] == "carried", lambda fields: []),
                ("submitted", lambda fields: fields[1] == "submitted", lambda fields: []),
                ("started", resumes, less_far)):
            number = next(number for number, line in enumerate(lines) if is_it(line.split(",")))
            instead = change(lines[number].split(","))
            (self.folder / "changed.log").write_text("\n".join(lines[:number] + instead + lines[number + 1:]) + "\n")

            self.assertNotEqual(self.recounted("changed.log", "mixed.csv").returncode, 0, event)


if __name__ == "__main__":
    SIM = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
