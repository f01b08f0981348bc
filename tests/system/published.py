#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Scripts in the shape of PyTorch's published examples, submitted as docs/guests.md says, each row of its table once,
on a real site with the base image: the machines are taken back with notice and then at once while they train; each job
succeeds all the same, and what its author wants to have comes home.

    tests/system/published.py        by hand (eight minutes and more): the base image alone takes one to bring

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
RESUMABLE = f"--epochs {EPOCHS_RESUMED} {' '.join(STEP)}"
# Name: script, flags of `reclaim run`, command. In the order of the table of docs/guests.md.
JOBS = {
    "classify": ("classify", [], ["python", "classify.py", "--save-model", "--epochs", EPOCHS, *STEP]),
    "resumable": ("resumable", [], ["python", "resumable.py", "--resume", "checkpoint.pth.tar", *RESUMABLE.split()]),
    "expanded": ("resumable", [], ["sh", "-c", f"exec python resumable.py {RESUMABLE} "
                                   "${RECLAIM_RESUME_FROM:+--resume checkpoint.pth.tar}"]),
    "language": ("language", [], ["python", "language.py", "--epochs", EPOCHS, *STEP]),
    "generate": ("generate", [], [
        "sh", "-c", 'n=$(ls -t out/netG_*.pth 2>/dev/null | head -n 1); exec python generate.py --outf out '
        f'--epochs {EPOCHS} {" ".join(STEP)} ${{n:+--netG "$n"}}']),
    "reinforce": ("reinforce", ["--stateless"], ["python", "reinforce.py", "--episodes", "400", "--step-ms", "100"]),
    "pickled": ("pickled", ["--checkpoint", "run1/*.pkl"], [  # it holds still for longer than three seconds
        "python", "pickled.py", "--generations", "90", "--step-ms", "4500"])}
STARTS_OVER = ("classify", "reinforce")  # nothing to save before the end
LOST_EPOCHS = 10  # an emergency takes what was not yet copied, on a busy machine the epochs of some seconds


class Published(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        lends = {"notice_s": NOTICE_S, "guest_disk_mib": 4000, "guest_memory_mib": 4500, "guest_cpu_milli": 2000}
        cls.site = Site({"lab-a": lends, "lab-b": lends, "storage": {"lends": False}}, disk="10G")
        cls.addClassCleanup(cls.site.down)
        cls.site.cli("image", "add", "torch", base_image(), timeout_s=600)

    def submit(self, name):
        script, flags, command = JOBS[name]
        folder = self.site.labs.dir / f"student-{name}"
        folder.mkdir()
        for file in (f"{script}.py", "common.py"):
            shutil.copy(ROOT / "tests" / "guests" / "published" / file, folder)
        told = self.site.cli(
            "run", "--detach", "--name", name, "--image", "torch", "--cpus", "0.4", "--cpus-min", "0.1",
            "--memory", "512MB", "--disk", "256MB", *flags, "--", *command, cwd=folder)
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
        self.site.wait("all to train", lambda: all(tells(job) for job in jobs), 600)
        for job in jobs:
            name = self.site.rest.job(job)["spec"]["name"]
            print(f"  {name}: {self.site.cli('why', job).stdout.strip()}", flush=True)

    def attempt_numbers(self, jobs):
        return {job: int(self.site.rest.job(job)["epoch"].split(".")[1]) for job in jobs}

    def files(self, folder):
        return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}

    def take_back(self, jobs, *how):
        """Every machine on which one of the jobs runs, one after the other, and each is lent again."""
        for lab in sorted({self.where(job) for job in jobs} - {""}):
            known = self.site.last_reclaim(lab)
            self.site.nodes[lab].owner("reclaim", *how)
            self.site.wait(f"{lab} to be cleared", lambda lab=lab, known=known: (
                self.site.last_reclaim(lab)["cleared_ns"] and self.site.last_reclaim(lab) != known), NOTICE_S + 40)
            self.site.nodes[lab].owner("release")

    def test_each_comes_home_whole_after_a_notice_and_an_emergency(self):
        site = self.site
        submitted = {name: self.submit(name) for name in JOBS}
        self.assertIn("none shows a sign of reading it back", submitted["classify"][2])
        for name in ("resumable", "expanded", "reinforce", "pickled"):
            self.assertNotIn("sign of", submitted[name][2], name)
        jobs = {name: job for name, (_, job, _) in submitted.items()}
        savers = [job for name, job in jobs.items() if name not in STARTS_OVER]

        self.wait_until_all_tell(jobs.values(), {})
        site.wait("generations", lambda: all(site.rest.job(job)["durable"]["generation"] for job in savers), 180)
        before = self.attempt_numbers(jobs.values())
        self.take_back(jobs.values(), "-m", "a lecture")
        self.wait_until_all_tell(jobs.values(), before)
        before = self.attempt_numbers(jobs.values())
        self.take_back(jobs.values(), "--now")
        self.wait_until_all_tell(jobs.values(), before)
        site.wait("all to succeed", lambda: all(
            site.rest.job(job)["state"] == "succeeded" for job in jobs.values()), 900)

        homes = {}
        for name, (folder, job, _) in submitted.items():
            copied = site.cli("cp", f"{job}:", "home", cwd=folder, check=False)
            if name == "reinforce":
                self.assertIn("has published no outputs", copied.stderr)
            else:
                self.assertEqual(copied.returncode, 0, copied.stderr)
            homes[name] = self.files(folder / "home")
            print(f"  {name} is home: {' '.join(sorted(homes[name])[:6])}", flush=True)
        self.check_homes(homes)
        for name in ("resumable", "expanded"):
            self.check_it_went_on(
                jobs[name], r"^epoch (\d+) right", r"resumed from checkpoint.pth.tar after epoch (\d+)")
            self.assertIn(f"epoch {EPOCHS_RESUMED} right", self.logs(jobs[name])[-1])
        self.assertIn("nothing to resume", self.logs(jobs["resumable"])[0])
        self.assertNotIn("resume", self.logs(jobs["expanded"])[0], "--resume was given to the first attempt")
        self.check_it_went_on(jobs["pickled"], r"^generation (\d+) height", r"resumed after generation (\d+)")
        self.assertIn("began with out/netG_epoch_", self.logs(jobs["generate"])[-1])
        for name in ("classify", "language"):
            self.assertRegex(self.logs(jobs[name])[-1], r"^epoch 1 ", f"{name} cannot resume")

    def check_homes(self, homes):
        self.assertEqual(homes["classify"], {"model.pt"})
        for name in ("resumable", "expanded"):
            self.assertEqual(homes[name], {"checkpoint.pth.tar", "model_best.pth.tar"})
        self.assertEqual(homes["language"], {"model.pt"})
        drawn = {f"out/{file.format(epoch)}" for epoch in range(int(EPOCHS))
                 for file in ("netG_epoch_{}.pth", "netD_epoch_{}.pth", "fake_samples_epoch_{:03d}.pgm")}
        self.assertEqual(homes["generate"], drawn)
        self.assertEqual(homes["pickled"], {"run1/state.pkl"})

    def logs(self, job):
        """What each attempt printed, oldest first."""
        numbers = [int(attempt["epoch"].split(".")[1]) for attempt in self.site.rest.attempts(job)]
        return [self.site.rest.log(job, number).decode() for number in numbers]

    def check_it_went_on(self, job, done_line, begun_line):
        """Each attempt began where a step of the one before had ended; only few were done twice. One that was taken
        away before it could print says nothing."""
        logs = [log for log in self.logs(job) if log]
        self.assertGreaterEqual(len(logs), 3)
        for old, new in zip(logs, logs[1:]):
            done = [int(step) for step in re.findall(done_line, old, re.MULTILINE)]
            begun = re.search(begun_line, new)
            self.assertIsNotNone(begun, new)
            self.assertLessEqual(max(done, default=0) - int(begun[1]), LOST_EPOCHS, "too much was done twice")


if __name__ == "__main__":
    unittest.main(verbosity=2)
