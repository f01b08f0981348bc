#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/first_job.py works: from a bare Debian 12 by docs/install.md's words to a lent node and a finished job, with a
real container engine. How long it takes is printed and not judged. Root; 77 where it cannot run."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BENCH = ROOT / "bench" / "first_job.py"
LAB = f"first-{os.getpid()}"


class FirstJob(unittest.TestCase):
    def test_a_bare_machine_lends_and_a_first_job_ends_there(self):
        done = subprocess.run([BENCH, "--lab", LAB], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=580)
        print(done.stdout, flush=True)

        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertRegex(done.stdout, r"(?m)^machine: .*\d+ cores.*; commit \S+$")
        self.assertIn("\nhello\n", done.stdout)
        times = [float(one) for one in re.findall(r"(?m)^[a-z ]+ after ([\d.]+) s$", done.stdout)]
        self.assertEqual(len(times), 4, done.stdout)
        self.assertEqual(times, sorted(times))
        self.assertGreater(times[0], 0)

    def test_nothing_of_it_is_left(self):
        left = [folder for folder, _, _ in os.walk("/sys/fs/cgroup") if f"reclaim-{LAB}" in folder]
        self.assertEqual(left, [])
        self.assertNotIn("rn-first-job.", pathlib.Path("/proc/self/mountinfo").read_text())

    def test_wrong_words_are_errors(self):
        done = subprocess.run([BENCH, "--lab", "../x"], text=True, capture_output=True, timeout=30)
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn("at most 32", done.stderr)


if __name__ == "__main__":
    if os.geteuid() != 0 or os.uname().machine != "x86_64":
        print("skipped: needs root, and the packages' names are those of amd64")
        sys.exit(77)
    for tool in ("mmdebstrap", "dpkg-deb", "dpkg-shlibdeps", "mke2fs", "unshare", "pivot_root"):
        if not shutil.which(tool):
            print(f"skipped: no {tool}: scripts/install-deps.sh")
            sys.exit(77)
    if subprocess.run([ROOT / "scripts" / "build-bare-root.sh", "--engine"], stdout=subprocess.DEVNULL).returncode != 0:
        print("skipped: the bare Debian cannot be made; its reason stands above")
        sys.exit(77)
    unittest.main(verbosity=2)
