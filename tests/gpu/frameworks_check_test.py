#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/frameworks-check.sh where the frameworks are not: with programs that behave as they do, good and not good,
under the real reclaim-init; and the torchrun of the base image for real.

    tests/gpu/frameworks_check_test.py INIT CATCHERS       root; the image is unpacked into memory"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SCRIPT = ROOT / "scripts" / "frameworks-check.sh"
BUILD = pathlib.Path(sys.argv[1]).parents[2] if len(sys.argv) > 1 else ROOT / "build" / "ci"
ALL = ["lightning_requeue", "lightning_srun", "lightning_callback", "trainer_jit", "trainer_default", "accelerate",
       "torchrun", "orbax", "submitit"]


class Frameworks(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="rn-frameworks-test-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.out = self.folder / "result"

    def run_script(self, *words, script=SCRIPT, **variables):
        return subprocess.run([script, *words], env={**os.environ, "RN_BUILD": str(BUILD), **variables},
                              capture_output=True, text=True, timeout=560)

    def check(self, *words, **more):
        done = self.run_script("--out", str(self.out), *words, **more)
        file = self.out.with_suffix(".json")
        return done, json.loads(file.read_text()) if file.exists() else None

    def assert_not_good(self, mode, name, words):
        done, result = self.check("--fake", mode, "--only", name)

        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertFalse(result["is_good"])
        self.assertEqual(result["checks"][name]["state"], "NOT GOOD")
        self.assertIn(words, " ".join(result["checks"][name]["findings"]))
        return result["checks"][name]

    def test_each_that_saves_on_its_signal_and_goes_on_is_good(self):
        done, result = self.check("--fake", "good", "--jobs", "3")

        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertTrue(result["is_good"])
        self.assertEqual(list(result["checks"]), ALL)
        for name, one in result["checks"].items():
            figures = one["figures"]
            self.assertEqual(one["state"], "good", name)
            self.assertEqual(figures["begun_at_step"], [figures["saved_at_step"]], name)
            self.assertGreaterEqual(figures["saved_at_step"], 20 if name != "trainer_default" else 15, name)
            self.assertEqual(figures["resumed"], figures["undisturbed"], name)
        signals = {name: one["figures"]["signal"] for name, one in result["checks"].items()}
        self.assertEqual([signals[name] for name in ("lightning_requeue", "lightning_callback", "trainer_default")],
                         ["SIGUSR1", "SIGTERM", None])
        self.assertEqual(result["checks"]["lightning_requeue"]["figures"]["first_attempt_ended_with"], 99)
        self.assertNotIn("unfinished", self.out.with_suffix(".txt").read_text())

    def test_without_the_wardens_program_the_same_rule_finds_the_same(self):
        done, result = self.check("--fake", "good", "--only", "lightning_srun", "orbax", RN_CATCHERS="none")

        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(result["about"]["signalled_by"], "the same rule, in Python")
        self.assertEqual(len(result["checks"]["lightning_srun"]["figures"]["signalled"]), 2)

    def test_where_mpi_is_in_it_which_catches_everything_it_is_told_by_sigterm(self):
        for catchers in ("", "none"):
            done, result = self.check("--fake", "mpi", "--only", "lightning_callback", RN_CATCHERS=catchers)

            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            figures = result["checks"]["lightning_callback"]["figures"]
            self.assertEqual((figures["signal"], len(figures["signalled"])), ("SIGTERM", 1))

    def test_a_guest_that_ignores_the_notice_is_not_good_and_its_last_lines_are_kept(self):
        for name in ("lightning_requeue", "trainer_jit"):
            one = self.assert_not_good("deaf", name, "it ignored the notice and trained to its end")
            self.assertIn("done step=100", one["tails"]["first attempt"][-1])
            self.assertLessEqual(len(one["tails"]["first attempt"]), 60)

    def test_one_that_begins_anew_is_not_good(self):
        self.assert_not_good("forgets", "torchrun", "it began at step [0], and step ")

    def test_one_that_goes_on_with_other_weights_is_not_good(self):
        self.assert_not_good("other", "accelerate", "the weights are not those of the undisturbed run")

    def test_a_save_that_the_framework_says_nothing_of_is_not_good(self):
        self.assert_not_good("mute", "trainer_jit", "the framework did not say ['SIGTERM received']")

    def test_one_that_breaks_is_not_good_and_says_why(self):
        one = self.assert_not_good("crashes", "orbax", "it ended with 1 before step 20")
        self.assertIn("ValueError: it breaks at step 10", "\n".join(one["tails"]["first attempt"]))

    def test_frameworks_that_are_not_there_are_named_and_nothing_is_checked(self):
        done, result = self.check("--only", "submitit", "lightning_requeue", RN_PYTHON="/usr/bin/python3")

        self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
        self.assertIn("none of these frameworks is there", done.stderr)
        self.assertIn("next: ", done.stderr)
        self.assertEqual({one["state"] for one in result["checks"].values()}, {"not there"})
        self.assertFalse(result["is_good"])

    def test_wrong_words_are_errors(self):
        for words in (["--frob"], ["--only", "keras"], ["--jobs", "0"], ["--root", "/nowhere"], ["--pack"],
                      ["--pack", "a.tgz", "b.tgz"]):
            done = self.run_script(*words)
            self.assertEqual((done.returncode, done.stdout), (2, ""), f"{words}: {done.stderr}")
            self.assertIn("next: scripts/frameworks-check.sh", done.stderr, words)

    def test_what_is_packed_runs_where_nothing_is_built(self):
        archive = self.folder / "check.tgz"
        packed = self.run_script("--pack", str(archive))
        self.assertEqual((packed.returncode, packed.stderr), (0, ""))
        subprocess.run(["tar", "-C", self.folder, "-xzf", archive], check=True)
        there = self.folder / "frameworks-check"
        shutil.copy(HERE / "frameworks_fake.py", there / "tests" / "gpu")

        done, result = self.check("--fake", "good", "--only", "accelerate", RN_BUILD="/nonexistent",
                                  script=there / "scripts" / "frameworks-check.sh")

        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(result["about"]["signalled_by"], "the warden's own choice (catchers)")

    def test_the_torchrun_of_the_base_image_is_told_leaves_and_goes_on(self):
        sys.path.insert(0, str(ROOT / "tests" / "system" / "lib"))
        from rn_site import base_image
        in_memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        image = tempfile.mkdtemp(dir=in_memory)
        self.addCleanup(shutil.rmtree, image, ignore_errors=True)
        subprocess.run(["tar", "-C", image, "-xf", base_image()], check=True)

        done, result = self.check("--only", "torchrun", "orbax", "--root", image, "--limit-s", "540", "--each-s", "240")

        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(result["checks"]["orbax"]["state"], "not there")
        figures = result["checks"]["torchrun"]["figures"]
        self.assertEqual((figures["signal"], len(figures["signalled"])), ("SIGUSR1", 2))
        self.assertEqual(figures["begun_at_step"], [figures["saved_at_step"]])
        self.assertEqual(figures["resumed"], figures["undisturbed"])

    def tearDown(self):
        left = [pathlib.Path(top) / name for top, names, _ in os.walk("/sys/fs/cgroup") for name in names
                if name.startswith("reclaim-frameworks-")]
        self.assertEqual(left, [])


def can_make_namespaces():
    return os.geteuid() == 0 and subprocess.run(
        ["unshare", "--mount", "--pid", "--net", "--fork", "true"], capture_output=True).returncode == 0


if __name__ == "__main__":
    if not can_make_namespaces():
        print("skipped: needs root and the right to make namespaces")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1], verbosity=2)
