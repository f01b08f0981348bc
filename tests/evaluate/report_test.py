#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""report_test.py RECLAIM_SIM: scripts/evaluate.sh on a tiny site. Its page is whole and says what its tables say,
scripts/evaluate/check.py finds what somebody planted in it, and what goes wrong leaves nothing behind."""
import csv
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "evaluate.sh"
sys.path.insert(0, str(ROOT / "scripts" / "evaluate"))
import check  # noqa: E402
import figures  # noqa: E402
import goals  # noqa: E402
import paired  # noqa: E402
import plots  # noqa: E402
import settings  # noqa: E402

SIM = None
TINY = ["--quick", "--nodes", "5", "--days", "1.5", "--seeds", "2", "--minutes", "10"]


def evaluate(*words, **environment):
    return subprocess.run([SCRIPT, *map(str, words)], capture_output=True, text=True, check=False, cwd="/",
                          env={**os.environ, "RN_BUILD": str(SIM.parents[2]), **environment})


def run(section, policy, seed, **values):
    base = {"section": section, "policy": policy, "seed": seed, "notices": "mixed", "nodes": 54, "gpus": 10,
            "simulated_h": 10, "useful_gpu_h": 50, "paused_gpu_h": 1, "lent_gpu_h": 60, "used_gpu_h": 54,
            "displaced": 3, "resumed": 3}
    return {**base, **values}


class Statistics(unittest.TestCase):
    def test_the_interval_of_few_seeds_is_their_range_and_of_one_nothing(self):
        self.assertEqual(paired.interval([3, 1, 2]), (1, 3))
        self.assertEqual(paired.interval([3]), (None, None))

    def test_the_interval_of_many_holds_the_median_and_is_the_same_each_time(self):
        values = [float(value) for value in range(1, 21)]
        low, high = paired.interval(values)
        self.assertEqual((low, high), paired.interval(values))
        self.assertLess(low, 10.5)
        self.assertGreater(high, 10.5)
        self.assertGreaterEqual(low, 4)  # of 20, 95 % of the resampled medians lie well inside
        self.assertLessEqual(high, 17)

    def test_ratios_are_of_the_same_seed(self):
        self.assertEqual(paired.ratios({1: 2.0, 2: 3.0, 4: 1.0}, {1: 4.0, 2: 0.0, 3: 1.0, 4: 2.0}), {1: 0.5, 4: 0.5})


class Goals(unittest.TestCase):
    @staticmethod
    def table(ours, theirs):
        policies = ["reclaimnet", "slurm-s1-600", "slurm-s1-1800"]
        section = settings.Section("mixed", "", [], policies, [1, 2, 3])
        rows = []
        for seed in (1, 2, 3):
            rows += [run("mixed", "reclaimnet", seed, loss_gpu_h=ours * seed, downtime_s_mean=40.0),
                     run("mixed", "slurm-s1-600", seed, loss_gpu_h=theirs * seed, downtime_s_mean=100.0),
                     run("mixed", "slurm-s1-1800", seed, loss_gpu_h=theirs * seed * 3, downtime_s_mean=90.0)]
        return figures.Table(rows, [section])

    def state(self, name, *losses):
        return next(goal for goal in goals.goals(self.table(*losses)) if goal.name == name)

    def test_are_met_at_their_bound_and_missed_beyond_it(self):
        self.assertEqual(self.state("loss-s1", 0.2, 1).state, "met")
        self.assertEqual(self.state("loss-s1", 0.21, 1).state, "missed")

    def test_of_downtime_are_against_the_interval_that_is_best_for_it(self):
        goal = self.state("downtime", 0.2, 1)
        self.assertEqual(goal.figure.key, "mixed/reclaimnet/slurm-s1-1800/downtime_mean")
        self.assertEqual(goal.state, "missed")  # 40 of 90 s, and not of 100

    def test_are_against_the_interval_that_loses_least(self):
        goal = self.state("loss-s1", 0.2, 1)
        self.assertEqual(goal.figure.key, "mixed/reclaimnet/slurm-s1-600/loss")
        self.assertIn("10 min", goal.words)

    def test_are_not_sure_with_few_seeds(self):
        goal = self.state("loss-s1", 0.1, 1)
        self.assertEqual((goal.figure.n, goal.is_sure), (3, False))
        goal.figure.values.update({4: 0.1, 5: 0.1, 6: 0.1})
        self.assertTrue(goal.is_sure)

    def test_are_not_measured_where_nobody_played(self):
        self.assertEqual(self.state("loss-pipeline", 0.2, 1).state, "not measured")
        self.assertEqual(self.state("background", 0.2, 1).state, "not measured")


class Plots(unittest.TestCase):
    def test_what_an_axis_places_it_finds_again(self):
        for axis in (plots.Axis([3, 70]), plots.Axis([3, 7000], is_log=True)):
            for value in (4.0, 33.0, 69.0):
                self.assertAlmostEqual(axis.at(axis.place(value)), value)

    def test_ticks_lie_on_the_axis(self):
        for axis in (plots.Axis([3, 70]), plots.Axis([0.01, 7000], is_log=True), plots.Axis([5]), plots.Axis([0, 0])):
            ticks = axis.ticks()
            self.assertTrue(2 <= len(ticks) <= 8, ticks)
            self.assertTrue(all(axis.low - 1e-9 <= tick <= axis.high + 1e-9 for tick in ticks), ticks)


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.scratch.name) / "report"
        cls.made = evaluate(*TINY, "--out", cls.folder)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def setUp(self):
        self.assertEqual(self.made.returncode, 0, self.made.stdout + self.made.stderr)

    def test_is_whole_and_says_what_its_tables_say(self):
        self.assertEqual(list(check.problems(self.folder)), [])
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), [
            "distributions.csv", "figures.csv", "figures.json", "index.html", "runs.csv", "runs.json"])
        self.assertEqual([path.name for path in self.folder.parent.iterdir()], ["report"])

    def test_has_plots_and_every_goal(self):
        text = (self.folder / "index.html").read_text()
        self.assertGreater(text.count("<svg"), 15)
        told = json.loads((self.folder / "figures.json").read_text())
        self.assertGreaterEqual(len(told["goals"]), 12)
        for goal in told["goals"]:
            self.assertIn(goal["state"], ("met", "missed", "not measured", "reported"))
            self.assertEqual(goal["state"] == "not measured", goal["why"] != "")

    def test_every_number_has_seeds_commit_and_n(self):
        for row in check.read(self.folder / "figures.csv"):
            self.assertEqual(len(row["seeds"].split()), int(row["n"]))
            self.assertTrue(row["commit"])
            self.assertEqual(row["low"] == "", int(row["n"]) == 1)

    def test_every_policy_of_the_program_is_in_it(self):
        plain, swept, _ = settings.known_policies(SIM)
        there = {row["policy"] for row in check.read(self.folder / "runs.csv")}
        self.assertIn("reclaimnet", there)
        self.assertEqual({name for name in plain if name != settings.DAEMONS} - there, set())
        self.assertEqual(set(swept) - {settings.family(name)[0] for name in there}, set())

    def test_all_runs_of_the_main_comparison_were_counted_again(self):
        rows = [row for row in check.read(self.folder / "runs.csv") if row["section"] == "mixed"]
        told = json.loads((self.folder / "figures.json").read_text())
        self.assertEqual(told["failures"]["recounted"], len(rows))
        self.assertEqual(told["failures"]["failed"], [])

    def planted(self, name, change):
        """What check.py says of a copy in which somebody changed a file."""
        folder = pathlib.Path(self.scratch.name) / "planted"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.folder, folder)
        before = (folder / name).read_text()
        after = change(before)
        self.assertNotEqual(before, after)
        (folder / name).write_text(after)
        found = "\n".join(check.problems(folder))
        shutil.rmtree(folder)
        return found

    def test_a_wrong_number_on_the_page_is_found(self):
        def other_value(text):
            return re.sub(r'<data value="([^"]+)"', lambda found: f'<data value="{float(found[1]) + 1}"', text, count=1)

        def other_words(text):
            return re.sub(r'(<data [^>]*data-is="median">)[^<]+', r"\g<1>12.3×", text, count=1)

        self.assertIn("in figures.csv", self.planted("index.html", other_value))
        self.assertIn("is written 12.3", self.planted("index.html", other_words))

    def test_a_mark_that_lies_elsewhere_is_found(self):
        def moved(text):
            return re.sub(r'<circle cx="([0-9.]+)"( [^>]*data-is="median")',
                          lambda found: f'<circle cx="{float(found[1]) + 3}"{found[2]}', text, count=1)

        def longer(text):
            return re.sub(r'(<line x1="[0-9.]+" x2=)"([0-9.]+)"( [^>]*data-is="interval")',
                          lambda found: f'{found[1]}"{float(found[2]) + 3}"{found[3]}', text, count=1)

        self.assertIn("its median does not lie where", self.planted("index.html", moved))
        self.assertIn("its interval does not lie where", self.planted("index.html", longer))

    def test_tables_that_differ_are_found(self):
        def other_median(text):
            rows = list(csv.reader(text.splitlines()))
            place = rows[0].index("median")
            number = next(number for number, row in enumerate(rows) if row[0] == "mixed/reclaimnet/used" or number == 5)
            rows[number][place] = repr(float(rows[number][place]) + 1)
            return "\n".join(",".join(row) for row in rows) + "\n"

        def other_run(text):
            rows = list(csv.reader(text.splitlines()))
            place = rows[0].index("useful_gpu_h")
            rows[1][place] = repr(float(rows[1][place]) * 2)
            return "\n".join(",".join(row) for row in rows) + "\n"

        self.assertIn("from runs.csv", self.planted("figures.csv", other_median))
        self.assertIn("from runs.csv", self.planted("runs.csv", other_run))

    def test_a_page_that_is_not_whole_is_found(self):
        self.assertIn("section sweep is missing", self.planted(
            "index.html", lambda text: text.replace('<section id="sweep">', "<section>")))
        self.assertIn("does not parse", self.planted("index.html", lambda text: text.replace("</section>", "", 1)))
        self.assertIn("elsewhere", self.planted(
            "index.html", lambda text: text.replace("</body>", '<p>http://example.org</p></body>')))


class WhatGoesWrong(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.addCleanup(self.scratch.cleanup)
        self.folder = pathlib.Path(self.scratch.name)
        self.out = self.folder / "report"

    def test_a_bad_file_is_named_with_its_line(self):
        jobs = self.folder / "jobs.csv"
        jobs.write_text("submit_time,duration_s,gpus\n2020-05-01 00:00:00,60,1\n2020-05-01 00:00:00,sixty,1\n")

        found = evaluate(*TINY, "--out", self.out, "--jobs", jobs)

        self.assertEqual(found.returncode, 2)
        self.assertIn("jobs.csv:3: duration_s is \"sixty\", which is no number", found.stderr)
        self.assertEqual([path.name for path in self.folder.iterdir()], ["jobs.csv"])

    def test_without_a_build_it_says_what_to_run(self):
        found = evaluate(*TINY, "--out", self.out, RN_BUILD=str(self.folder))

        self.assertEqual(found.returncode, 2)
        self.assertIn("cmake --build build/release --target reclaim-sim", found.stderr)

    def test_a_folder_of_somebody_else_stays(self):
        self.out.mkdir()
        (self.out / "thesis.txt").write_text("mine")

        found = evaluate(*TINY, "--out", self.out)

        self.assertEqual(found.returncode, 2)
        self.assertIn("has files that no evaluation made", found.stderr)
        self.assertEqual((self.out / "thesis.txt").read_text(), "mine")

    def test_wrong_words_are_refused(self):
        for words, what in ((["--seeds", "none"], "is no whole number"), (["--days", "-1"], "is no number from 0.1"),
                            (["--fast"], "unrecognized arguments"), (["--jobs"], "expected at least one argument")):
            found = evaluate(*words, "--out", self.out)
            self.assertEqual(found.returncode, 2)
            self.assertIn(what, found.stderr)

    def test_interrupted_it_leaves_no_file_and_no_process(self):
        began = subprocess.Popen(
            [SCRIPT, "--nodes", "40", "--days", "50", "--out", self.out], stderr=subprocess.PIPE, text=True,
            env={**os.environ, "RN_BUILD": str(SIM.parents[2])})
        self.addCleanup(began.kill)
        until = time.monotonic() + 120
        while len(self.of_this_run()) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        self.assertEqual(len(self.of_this_run()), 2, "two simulations at a time")

        began.send_signal(signal.SIGTERM)
        said = began.communicate(timeout=60)[1]

        self.assertEqual(began.returncode, 130)
        self.assertIn("interrupted; nothing was changed", said)
        self.assertEqual(self.of_this_run(), [])
        self.assertEqual(list(self.folder.iterdir()), [])

    def of_this_run(self):
        """Simulations that write into this test's folder."""
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().split(b"\0")
            except OSError:
                continue
            if words[0].endswith(b"reclaim-sim") and any(str(self.folder).encode() in word for word in words):
                found.append(path.parent.name)
        return found


if __name__ == "__main__":
    SIM = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
