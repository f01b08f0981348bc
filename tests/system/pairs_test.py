#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Scripts that save into several files, or slowly into one, and know nothing of us: after a notice they go on with
files that belong together, and with a whole file."""
import pathlib
import random
import re
import shutil
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
from stories import Site  # noqa: E402

SCRIPT = pathlib.Path(__file__).resolve().parents[1] / "guests" / "pair.sh"
LENDS = {"guest_disk_mib": 128, "guest_memory_mib": 512, "notice_s": 12}
JOBS = {  # name: arguments, flags
    "two files": (["model.safetensors", "optimizer.safetensors"], []),
    "a folder": (["checkpoint/model.pt", "checkpoint/optimizer.pt"], []),
    "slowly into one": (["slow", "weights.bin"], ["--checkpoint", "weights.bin"]),
}


class Pairs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.site = Site({"lab-a": LENDS, "storage": {"lends": False}})
        cls.addClassCleanup(cls.site.down)
        cls.jobs = {}
        for name, (arguments, flags) in JOBS.items():
            folder = cls.site.labs.dir / f"student-{len(cls.jobs)}"
            folder.mkdir()
            shutil.copy(SCRIPT, folder)
            cls.jobs[name] = cls.site.cli(
                "run", "--detach", "--cpus", "0.2", "--memory", "64MB", "--disk", "64MB", *flags, "--", "sh", "pair.sh",
                *arguments, cwd=folder).stdout.strip()

    def attempt(self, job):
        return int(self.site.rest.job(job)["epoch"].split(".")[1])

    def log(self, job, attempt=None):
        return self.site.rest.log(job, attempt).decode()

    def durable(self, job):
        return self.site.rest.job(job)["durable"]["generation"]

    def take_back_and_lend_again(self, *how):
        """With a notice after the first save of each, or at once when the first save of `two files` is durable."""
        if how:
            before = self.durable(self.jobs["two files"])
            self.site.wait(
                "a first save of this attempt", lambda: self.durable(self.jobs["two files"]) > before, 60, 0.05)
        else:
            self.site.wait("each to save in this attempt", lambda: all(
                "saved" in self.log(job, self.attempt(job)) for job in self.jobs.values()), 60)
            time.sleep(random.uniform(0, 4))
        self.site.nodes["lab-a"].owner("reclaim", *how)
        self.site.wait("all to be displaced", lambda: all(
            self.site.rest.job(job)["state"] == "queued" for job in self.jobs.values()), 60)
        before = {name: self.attempt(job) for name, job in self.jobs.items()}
        self.site.nodes["lab-a"].owner("release")
        self.site.wait("all to go on", lambda: all(
            self.attempt(job) > before[name] and "resumed" in self.log(job, self.attempt(job))
            for name, job in self.jobs.items()), 60)

    def test_after_each_notice_they_go_on_with_what_belongs_together(self):
        for round_, how in enumerate([[], ["--now"], []]):
            self.take_back_and_lend_again(*how)
            for name, job in self.jobs.items():
                said = re.search(r"resumed .*", self.log(job, self.attempt(job)))[0]
                with self.subTest(name, round=round_, said=said):
                    if name == "slowly into one":
                        self.assertRegex(said, "resumed 20 lines of")
                    else:
                        self.assertRegex(said, r"resumed (\d+) \1$")


if __name__ == "__main__":
    unittest.main(verbosity=2)
