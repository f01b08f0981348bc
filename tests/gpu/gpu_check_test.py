#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/gpu-check.sh where there is no GPU: what it says then, and, on a library that answers as NVML would with
tenants that need no PyTorch, each check up to its result file, good and not good."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

HERE = pathlib.Path(__file__).resolve().parent
SCRIPT = HERE.parents[1] / "scripts" / "gpu-check.sh"
PROBE, LIBRARY, SCRUB, CUDA = sys.argv[1:5]
BUILD = pathlib.Path(PROBE).parents[2]


class GpuCheck(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="rn-gpu-check-test-")
        self.addCleanup(self.folder.cleanup)
        self.out = pathlib.Path(self.folder.name) / "result"

    def run_script(self, *words, **variables):
        environment = {**os.environ, "RN_BUILD": str(BUILD), **variables}
        return subprocess.run([SCRIPT, *words], env=environment, capture_output=True, text=True, timeout=240)

    def check(self, *words, guest="", **options):
        done = self.run_script(
            "--device", "cpu", "--nvml", LIBRARY, "--confine", "plain", "--hold-mib", "4", "--out", str(self.out),
            "--guest", f"{sys.executable} {HERE / 'guest_fake.py'}", *words,
            RN_FAKE_NVML=str(pathlib.Path(self.folder.name) / "recorded"), RN_FAKE_GUEST=guest)
        file = self.out.with_suffix(".json")
        return done, json.loads(file.read_text()) if file.exists() else None

    def test_without_a_gpu_it_says_so_and_what_to_do(self):
        if pathlib.Path("/dev/nvidiactl").exists():
            self.skipTest("there is a GPU")
        done = self.run_script("--out", str(self.out))

        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("no NVIDIA GPU here", done.stderr)
        self.assertIn("Nothing was checked", done.stderr)
        self.assertIn("next: run this on a machine with an NVIDIA GPU", done.stderr)
        self.assertEqual(list(pathlib.Path(self.folder.name).iterdir()), [])

    def test_a_flag_that_is_wrong_is_usage_also_without_a_gpu(self):
        for words in (["--frob"], ["--rounds", "x"], ["--rounds", "0"], ["--confine", "jail"], ["--pack"],
                      ["--pack", "a.tgz", "b.tgz"]):
            done = self.run_script(*words)
            self.assertEqual((done.returncode, done.stdout), (2, ""), f"{words}: {done.stderr}")
            self.assertIn("next: scripts/gpu-check.sh", done.stderr, words)

    def test_all_checks_leave_one_result(self):
        done, result = self.check("--rounds", "2", "--scrub", "")

        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertTrue(result["is_good"])
        self.assertNotIn("by_reclaim_scrub", result["checks"]["scrub"]["figures"])
        self.assertEqual(list(result["checks"]), ["telemetry", "foreign_processes", "kill_to_free", "scrub", "resume"])
        about = result["about"]
        self.assertFalse(about["is_real_gpu"])
        self.assertIn("NONE", about["gpu"])
        self.assertEqual(about["confined_as"], "plain process, no container")
        for kind in ("idle", "training", "holding", "endless"):
            row = result["checks"]["kill_to_free"]["figures"][kind]
            self.assertEqual((row["vram_verified_free"]["n"], row["wedged"]), (2, 0))
            # The recorded driver lists a process for 30 ms after its end.
            self.assertGreaterEqual(row["vram_verified_free"]["p50_ms"], row["processes_gone"]["p50_ms"])
            self.assertGreaterEqual(row["vram_verified_free"]["p50_ms"], 25)
        self.assertEqual(result["checks"]["foreign_processes"]["figures"], {"guest_and_owner": 1, "guests_alone": 0})
        text = self.out.with_suffix(".txt").read_text()
        self.assertIn("no figure here is a GPU's", text)
        self.assertNotIn("unfinished", text)
        self.assertIn("vram_verified_free", text)

    def test_each_tenant_has_a_control_group_of_its_own(self):
        """The kill path lets nothing start any more where it has killed: one that came there would have no threads."""
        seen = pathlib.Path(self.folder.name) / "groups"
        done, _ = self.check("--rounds", "2", "--only", "kill_to_free", "--ahead", "1", guest=f"groups:{seen}")

        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        groups = seen.read_text().split()
        self.assertEqual(len(groups), 8)
        self.assertEqual(len(set(groups)), 8 if os.geteuid() == 0 else 1, groups)

    def test_memory_that_stays_in_use_is_wedged_and_named(self):
        done, result = self.check("--rounds", "5", "--limit-ms", "200", "--only", "kill_to_free", "--recorded-keeps")

        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        row = result["checks"]["kill_to_free"]
        self.assertEqual(row["figures"]["idle"]["wedged"], 3)
        self.assertEqual(row["figures"]["idle"]["vram_verified_free"], {"n": 0})
        self.assertRegex(row["findings"][0], r"^idle: wedged: \['GPU context of process \d+: GPU 0'\]$")

    def smi(self, *fields):
        """A program with nvidia-smi's words that answers this; $used: what the recorded card has in use."""
        program = pathlib.Path(self.folder.name) / "smi"
        program.write_text("#!/bin/sh\nused=$(cut -d' ' -f6 \"$RN_FAKE_NVML\")\n"
                           f'echo "{", ".join(fields)}"\n')
        program.chmod(0o755)
        return program

    def test_telemetry_is_compared_with_what_nvidia_smi_says(self):
        smi = self.smi("GPU-recorded-0", "recorded-card", "81559", "$used", "41", "70.00", "7")
        done, result = self.check("--only", "telemetry", "--smi", str(smi))

        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        rows = result["checks"]["telemetry"]["figures"]
        for state in ("idle", "training"):
            self.assertEqual(rows[state]["nvidia_smi"]["power.draw"], "70.00")

    def test_telemetry_that_nvidia_smi_contradicts_is_named_and_what_it_lacks_is_not(self):
        smi = self.smi("GPU-recorded-0", "recorded-card", "40960", "$used", "70", "[N/A]", "7")
        done, result = self.check("--only", "telemetry", "--smi", str(smi))

        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        findings = " ".join(result["checks"]["telemetry"]["findings"])
        self.assertIn("idle: memory_mib 81559 is not nvidia-smi's memory.total 40960.0", findings)
        self.assertIn("training: temperature_c 41 is not nvidia-smi's temperature.gpu 70.0", findings)
        self.assertNotIn("power", findings)

    def test_packing_leaves_its_archive_and_nothing_else(self):
        temporary = pathlib.Path(self.folder.name) / "temporary"
        temporary.mkdir()
        packed = self.run_script("--pack", str(self.out), TMPDIR=str(temporary))
        self.assertEqual((packed.returncode, packed.stderr), (0, ""))
        self.assertTrue(self.out.is_file())
        self.assertEqual(list(temporary.iterdir()), [])

        refused = self.run_script("--pack", str(temporary.parent / "absent" / "check.tgz"), TMPDIR=str(temporary))
        self.assertNotEqual(refused.returncode, 0)
        self.assertEqual(list(temporary.iterdir()), [])

    def test_what_is_packed_runs_where_nothing_is_built(self):
        archive = pathlib.Path(self.folder.name) / "check.tgz"
        packed = self.run_script("--pack", str(archive))
        self.assertEqual(packed.returncode, 0, packed.stderr)
        subprocess.run(["tar", "-C", self.folder.name, "-xzf", archive], check=True)
        there = pathlib.Path(self.folder.name) / "gpu-check" / "scripts" / "gpu-check.sh"
        environment = {**os.environ, "RN_BUILD": "/nonexistent",
                       "RN_FAKE_NVML": str(pathlib.Path(self.folder.name) / "recorded")}

        done = subprocess.run(
            [there, "--device", "cpu", "--nvml", LIBRARY, "--confine", "plain", "--only", "kill_to_free", "--rounds",
             "1", "--hold-mib", "4", "--out", str(self.out), "--guest", f"{sys.executable} {HERE / 'guest_fake.py'}"],
            env=environment, capture_output=True, text=True, timeout=240)

        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertTrue(json.loads(self.out.with_suffix(".json").read_text())["is_good"])

    @unittest.skipUnless(os.geteuid() == 0 and shutil.which("runc"), "needs root and runc")
    def test_tenants_in_a_container_of_runcs_are_killed_and_cleared(self):
        done, result = self.check("--only", "kill_to_free", "foreign_processes", "--rounds", "1", "--confine", "runc")

        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(result["about"]["confined_as"], "runc container on the machine's own files, read-only")
        for kind in ("idle", "training", "holding", "endless"):
            self.assertEqual(result["checks"]["kill_to_free"]["figures"][kind]["wedged"], 0)

    def test_what_is_not_good_is_named(self):
        for guest, check, words in (("torn", "resume", "resumed on a new context the weights are other"),
                                    ("leaky", "scrub", "64 bytes of the tenant before were found after a scrub"),
                                    ("blind", "scrub", "of 64 bytes that hold the pattern it found 0"),
                                    ("mute", "foreign_processes", "a tenant did not come up")):
            done, result = self.check("--only", check, "--rounds", "1", guest=guest)

            self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
            self.assertFalse(result["checks"][check]["is_good"])
            self.assertIn(words, " ".join(result["checks"][check]["findings"]))

    def test_our_own_scrub_has_rows_and_one_that_fails_is_named(self):
        card = pathlib.Path(self.folder.name) / "card"
        card.write_bytes(b"a tenant's " * 1_000_000)
        words = ("--only", "scrub", "--rounds", "2", "--scrub", f"{SCRUB} --library {CUDA}")
        environment = {"RN_FAKE_CUDA_MEMORY": str(card), "RN_FAKE_CUDA_GPU": "GPU-recorded-0"}
        with unittest.mock.patch.dict(os.environ, environment):
            done, result = self.check(*words)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            rows = result["checks"]["scrub"]["figures"]
            self.assertEqual(rows["by_reclaim_scrub"]["scrub"]["overwritten_bytes"], 10 << 20)
            self.assertEqual(rows["by_reclaim_scrub"]["scrub_ms"]["n"], 2)
            self.assertIn("n", rows["reclaim_scrub_killed"])
            self.assertNotIn(b"tenant", card.read_bytes()[:10 << 20])  # some that was killed may have written last

            with unittest.mock.patch.dict(os.environ, {"RN_FAKE_CUDA": "zeros"}):
                done, result = self.check(*words)
            self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
            self.assertIn("memory does not hold what was written", " ".join(result["checks"]["scrub"]["findings"]))

    def test_wrong_words_are_errors(self):
        for words in (("--rounds", "0"), ("--only", "nothing"), ("--confine", "jail"), ("--nvml", "x")):
            done = self.run_script("--device", "cpu", *words)

            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("next: ", done.stderr)

    def tearDown(self):
        groups = [pathlib.Path(top) / name for top, names, _ in os.walk("/sys/fs/cgroup") for name in names
                  if name.startswith("reclaim-gpu-check-")]  # others' go while they are walked
        left = [path for path in groups if not self.is_others(path)]
        self.assertEqual(left, [])

    @staticmethod
    def is_others(path):
        """Of a run beside this one: its number is a living process."""
        number = path.name.split("-")[3]
        try:
            os.kill(int(number), 0)
        except (OSError, ValueError):
            return False
        return True


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    unittest.main(argv=sys.argv[:1], verbosity=2)
