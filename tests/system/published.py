#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Scripts in the shape of PyTorch's published examples, submitted as docs/guests.md says, on a real site with the base
image: the machines are taken back with notice and then at once while they train; each job succeeds all the same, and
what its author wants to have comes home.

    tests/system/published.py        by hand (four minutes and more): the base image alone takes one to bring

Root; needs the programs of RN_BUILD (by default build/dev)."""
import pathlib
import re
import shutil
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
from labs import ROOT  # noqa: E402
from rn_site import base_image  # noqa: E402
from stories import Site  # noqa: E402

NOTICE_S = 20
EPOCHS, EPOCHS_RESUMED = "25", "80"  # an epoch takes two seconds, so that the second outlives both reclaims
STEP = ("--step-ms", "150")
COMMANDS = {
    "classify": ["python", "classify.py", "--save-model", "--epochs", EPOCHS, *STEP],
    "resumable": ["python", "resumable.py", "--resume", "checkpoint.pth.tar", "--epochs", EPOCHS_RESUMED, *STEP],
    "language": ["python", "language.py", "--epochs", EPOCHS, *STEP],
    "generate": ["sh", "-c", 'n=$(ls -t out/netG_*.pth 2>/dev/null | head -n 1); exec python generate.py --outf out '
                 f'--epochs {EPOCHS} {" ".join(STEP)} ${{n:+--netG "$n"}}'],
    "reinforce": ["python", "reinforce.py", "--episodes", "400", "--step-ms", "100"]}
STARTS_OVER = ("classify", "reinforce")  # nothing to save before the end


class Published(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        lends = {"notice_s": NOTICE_S, "guest_disk_mib": 3000, "guest_memory_mib": 3500, "guest_cpu_milli": 2000}
        cls.site = Site({"lab-a": lends, "lab-b": lends, "storage": {"lends": False}}, disk="8G")
        cls.addClassCleanup(cls.site.down)
        cls.site.cli("image", "add", "torch", base_image(), timeout_s=300)

    def submit(self, name):
        folder = self.site.labs.dir / f"student-{name}"
        folder.mkdir()
        for file in (f"{name}.py", "common.py"):
            shutil.copy(ROOT / "tests" / "guests" / "published" / file, folder)
        told = self.site.cli(
            "run", "--detach", "--name", name, "--image", "torch", "--cpus", "0.4", "--cpus-min", "0.1",
            "--memory", "512MB", "--disk", "256MB", "--", *COMMANDS[name], cwd=folder)
        return folder, told.stdout.strip(), told.stderr

    def where(self, job):
        one = self.site.rest.job(job)
        return self.site.lab_of_node(one["node"]) if one["state"] == "running" else ""

    def wait_until_all_tell(self, jobs, attempt_after):
        """Every job that is not over runs in a newer attempt than its one before, and has said something in it."""
        def tells(job):
            if self.site.rest.job(job)["state"] == "succeeded":
                return True
            newest = self.site.rest.attempts(job)[-1]
            number = int(newest["epoch"].split(".")[1])
            is_new = self.where(job) and number > attempt_after.get(job, 0)
            return is_new and self.site.rest.log(job, number).count(b"\n") >= 2
        self.site.wait("all to train", lambda: all(tells(job) for job in jobs), 300)
        for job in jobs:
            name = self.site.rest.job(job)["spec"]["name"]
            print(f"  {name}: {self.site.cli('why', job).stdout.strip()}", flush=True)

    def attempt_numbers(self, jobs):
        return {job: int(self.site.rest.job(job)["epoch"].split(".")[1]) for job in jobs}

    def files(self, folder):
        return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}

    def test_each_comes_home_whole_after_a_notice_and_an_emergency(self):
        site = self.site
        submitted = {name: self.submit(name) for name in COMMANDS}
        self.assertIn("none shows a sign of reading it back", submitted["classify"][2])
        self.assertIn("no script here shows a sign of saving", submitted["reinforce"][2])
        self.assertNotIn("sign of", submitted["resumable"][2])
        jobs = {name: job for name, (_, job, _) in submitted.items()}
        savers = [job for name, job in jobs.items() if name not in STARTS_OVER]

        self.wait_until_all_tell(jobs.values(), {})
        site.wait("generations", lambda: all(site.rest.job(job)["durable"]["generation"] for job in savers), 60)
        before = self.attempt_numbers(jobs.values())
        for lab in {self.where(job) for job in jobs.values()} - {""}:
            site.nodes[lab].owner("reclaim", "-m", "a lecture")
            site.wait(f"{lab} to be cleared", lambda: site.last_reclaim(lab)["cleared_ns"], NOTICE_S + 20)
            site.nodes[lab].owner("release")
        self.wait_until_all_tell(jobs.values(), before)
        before = self.attempt_numbers(jobs.values())
        for lab in {self.where(job) for job in jobs.values()} - {""}:
            site.nodes[lab].owner("reclaim", "--now")
            site.nodes[lab].owner("release")
        self.wait_until_all_tell(jobs.values(), before)
        site.wait("all to succeed", lambda: all(
            site.rest.job(job)["state"] == "succeeded" for job in jobs.values()), 300)

        for name, (folder, job, _) in submitted.items():
            copied = site.cli("cp", f"{job}:", "home", cwd=folder, check=False)
            if name == "reinforce":
                self.assertIn("has published no outputs", copied.stderr)
            else:
                self.assertEqual(copied.returncode, 0, copied.stderr)
        homes = {name: self.files(folder / "home") for name, (folder, _, _) in submitted.items()}
        self.assertIn("model.pt", homes["classify"])
        self.assertLessEqual({"checkpoint.pth.tar", "model_best.pth.tar"}, homes["resumable"])
        self.assertIn("model.pt", homes["language"])
        for epoch in range(int(EPOCHS)):
            self.assertLessEqual({f"out/netG_epoch_{epoch}.pth", f"out/netD_epoch_{epoch}.pth",
                                  f"out/fake_samples_epoch_{epoch:03d}.pgm"}, homes["generate"])
        self.check_it_went_on(jobs["resumable"])
        self.assertIn("began with out/netG_epoch_", self.log(jobs["generate"]))

    def log(self, job):
        return site_log(self.site, job)[-1]

    def check_it_went_on(self, job):
        """Each attempt began where a whole epoch of the one before had ended; only few were trained twice."""
        logs = site_log(self.site, job)
        self.assertGreaterEqual(len(logs), 3)
        self.assertIn("nothing to resume", logs[0])
        for old, new in zip(logs, logs[1:]):
            done = [int(epoch) for epoch in re.findall(r"^epoch (\d+) right", old, re.MULTILINE)]
            begun = re.search(r"resumed from checkpoint.pth.tar after epoch (\d+)", new)
            self.assertIsNotNone(begun, new)
            self.assertLessEqual(max(done) - int(begun[1]), 3, "more than three epochs were lost")
        self.assertIn(f"epoch {EPOCHS_RESUMED} right", logs[-1])


def site_log(site, job):
    """What each attempt printed, oldest first."""
    numbers = [int(attempt["epoch"].split(".")[1]) for attempt in site.rest.attempts(job)]
    return [site.rest.log(job, number).decode() for number in numbers]


if __name__ == "__main__":
    unittest.main(verbosity=2)
