#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sbatch, sacct and scancel where one is logged in, on a real site, called as submitit's client calls them: a folder
with a pickle and a script, their names given after the submit, sacct asked until the result lies in that folder. Debian
has no submitit: client and job (tests/guests/frameworks/submitit_job.py) do what its sources document, and nothing here
shows that it itself runs. Root."""
import importlib
import os
import pathlib
import pickle
import re
import shlex
import shutil
import subprocess
import sys
import time
import unittest
import uuid

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
from guests import GUESTS  # noqa: E402
from labs import ROOT  # noqa: E402
from rn_site import program, python_image  # noqa: E402
from stories import Site  # noqa: E402

LENDS = {"guest_disk_mib": 4096, "guest_memory_mib": 1024, "guest_cpu_each_milli": 250, "notice_s": 40}
ENDS_S = 120
PYTHON = "/home/ada/venv/bin/python"  # the client's own, which is nowhere but on the student's machine
# In the order of the client's own sorting.
SCRIPT = """#!/bin/bash

# Parameters
#SBATCH --container-image=python
#SBATCH --error={error}
#SBATCH --job-name=submitit
#SBATCH --mem=96M
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --open-mode=append
#SBATCH --output={output}
#SBATCH --signal=USR2@90
#SBATCH --time=10
#SBATCH --wckey=submitit

# command
export SUBMITIT_EXECUTOR=slurm
srun --unbuffered --output {output_of_task} --error {error_of_task} {python} -u -m submitit.core._submit {folder}
"""
GOES_ON = ("READY", "PENDING", "RUNNING", "UNKNOWN", "REQUEUED", "COMPLETING")


class Submitted:
    """A job as the client knows it: a number, and files by name."""

    def __init__(self, student, number, folder):
        self.student, self.number = student, number
        self.folder = pathlib.Path(str(folder).replace("%j", number))

    def path(self, name):
        return self.folder / f"{self.number}_{name}"

    def states(self):
        """By sacct, as the client reads it: no line while it is not known."""
        out = self.student.call("sacct", "-o", "JobID,State,NodeList", "--parsable2", "-j", self.number).stdout
        head, *lines = out.splitlines()
        names = head.split("|")
        return {row["JobID"]: row for row in (dict(zip(names, line.split("|"))) for line in lines)}

    def wait(self):
        """The state in which it is over, for who waits as the client does: for the file, or for sacct."""
        deadline = time.monotonic() + ENDS_S
        while time.monotonic() < deadline:
            state = self.states().get(self.number, {}).get("State", "UNKNOWN")
            if self.path("0_result.pkl").exists() or state not in GOES_ON:
                return state
            time.sleep(1)
        raise AssertionError(f"job {self.number} does not end: {self.states()}")

    def result(self):
        with self.path("0_result.pkl").open("rb") as file:
            return pickle.load(file)


class Student:
    """A folder with code on the student's machine, where the programs are on the PATH."""

    def __init__(self, site, name):
        self.place = site.labs.dir / f"student-{name}"
        (self.place / "submitit" / "core").mkdir(parents=True)
        for package in ("submitit", "submitit/core"):
            (self.place / package / "__init__.py").touch()
        shutil.copy(GUESTS / "frameworks" / "submitit_job.py", self.place / "submitit" / "core" / "_submit.py")
        shutil.copy(GUESTS / "frameworks" / "submitit_work.py", self.place)
        programs = site.labs.dir / "programs"
        path = f"{programs}:{program('reclaim').parent}:{os.environ['PATH']}"
        self.environment = {
            **os.environ, "PATH": path, "XDG_STATE_HOME": str(site.labs.dir / "state-of-students"),
            "RECLAIM_URL": site.coordinator.url, "RECLAIM_TOKEN": site.rest.token}
        subprocess.run([sys.executable, "-m", "reclaimnet.slurm", "programs", programs], check=True, timeout=30,
                       env={**self.environment, "PYTHONPATH": str(ROOT / "python")}, stdout=subprocess.DEVNULL)

    def call(self, *words, check=True):
        done = subprocess.run([str(word) for word in words], cwd=self.place, env=self.environment, text=True,
                              capture_output=True, timeout=150)
        if check and done.returncode != 0:
            raise AssertionError(f"{words}: {done.returncode}\n{done.stderr}")
        return done

    def write_script(self, head, folder, extra=""):
        quoted = {name: shlex.quote(f"{folder}/{file}") for name, file in (
            ("output", "%j_0_log.out"), ("error", "%j_0_log.err"), ("output_of_task", "%j_%t_log.out"),
            ("error_of_task", "%j_%t_log.err"))}
        text = SCRIPT.format(folder=shlex.quote(str(folder)), python=PYTHON, **quoted)
        path = head / f"submission_file_{uuid.uuid4().hex}.sh"
        path.write_text(text.replace("#SBATCH --time", extra + "#SBATCH --time"))
        return path

    def submit(self, function, *arguments, logs="logs"):
        """As the client does it: pickle, script, sbatch, and then their names."""
        folder = self.place / logs
        head = self.place / logs.partition("/%j")[0]
        head.mkdir(parents=True, exist_ok=True)
        pickled = head / f"{uuid.uuid4().hex}.pkl"
        pickled.write_bytes(pickle.dumps({"function": function, "arguments": arguments}))
        script = self.write_script(head, folder)
        number = re.search(r"job ([0-9]+)", self.call("sbatch", script).stdout)[1]
        job = Submitted(self, number, folder)
        job.folder.mkdir(parents=True, exist_ok=True)
        script.rename(job.path("submission.sh"))
        pickled.rename(job.path("submitted.pkl"))
        return job


class SlurmClient(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.site = Site({"lab-a": LENDS, "lab-b": LENDS}, disk="24G")
        cls.addClassCleanup(cls.site.down)
        cls.site.cli("image", "add", "python", python_image(), timeout_s=300)
        cls.site.nodes["lab-b"].owner("pause")  # until somebody has to go there
        cls.student = Student(cls.site, "submitit")
        sys.path.insert(0, str(cls.student.place))
        cls.work = importlib.import_module("submitit_work")
        cls.counting = cls.student.submit(cls.work.Count())

    def ran(self, job):
        """Its attempts that began, with their numbers: one that a node refused has said nothing."""
        attempts = self.site.rest.attempts(self.site.rest.job(job.number)["id"])
        return [(number, one) for number, one in enumerate(attempts, 1) if one["started_wall_ms"]]

    def log(self, job, attempt=1):
        """Of the attempt that began as the first, second …"""
        ran = self.ran(job)
        if len(ran) < attempt:
            return ""
        return self.site.rest.log(self.site.rest.job(job.number)["id"], ran[attempt - 1][0]).decode()

    def test_a_a_functions_result_comes_to_where_the_client_looks_for_it(self):
        place = self.student.place
        job = self.student.submit(self.work.where, 7, [1, 2, 3])
        (place / "kept.txt").write_text("written by the student meanwhile\n")

        self.assertEqual(job.wait(), "COMPLETED")

        self.assertEqual(job.result(), ("success", (42, "/work")))
        self.assertEqual((place / "left.txt").read_text(), "left by the job\n")
        self.assertEqual((place / "kept.txt").read_text(), "written by the student meanwhile\n")
        aside = list((place / ".reclaim").glob("*/outputs/kept.txt"))
        self.assertEqual([path.read_text() for path in aside], ["written by the job\n"])
        self.assertIn("computes\n", job.path("0_log.out").read_text())
        again = job.path("0_result.pkl").stat()
        self.assertEqual(job.states()[job.number]["State"], "COMPLETED")
        self.assertEqual(job.path("0_result.pkl").stat().st_ino, again.st_ino, "it was brought once more")

    def test_b_what_a_function_raises_comes_home_too_and_it_has_failed(self):
        job = self.student.submit(self.work.fails, "no such thing")

        self.assertEqual(job.wait(), "FAILED")

        kind, words = job.result()
        self.assertEqual(kind, "error")
        self.assertIn("ValueError: no such thing", words)
        code = self.student.call("sacct", "-n", "-P", "-o", "ExitCode", "-j", job.number).stdout
        self.assertEqual(code, "1:0\n")

    def test_c_it_is_cancelled_by_its_number(self):
        job = self.student.submit(self.work.sleeps)
        self.site.wait("it to run", lambda: "sleeps\n" in self.log(job), ENDS_S)
        self.assertEqual(job.states()[job.number]["State"], "RUNNING")

        self.student.call("scancel", job.number)

        self.assertEqual(job.wait(), "CANCELLED")
        self.assertFalse(job.path("0_result.pkl").exists())
        self.assertIn("sleeps\n", job.path("0_log.out").read_text())

    def test_d_a_folder_by_the_jobs_number_that_git_ignores_travels_all_the_same(self):
        student = Student(self.site, "by-number")
        (student.place / ".gitignore").write_text("logs/\n*.pkl\n")

        jobs = [student.submit(self.work.where, factor, [1], logs="logs/%j") for factor in (2, 3)]

        self.assertEqual([job.wait() for job in jobs], ["COMPLETED"] * 2)
        self.assertEqual([job.result()[1][0] for job in jobs], [2, 3])

    def test_e_at_a_notice_it_saves_and_its_result_comes_from_another_machine(self):
        job = self.counting
        self.site.wait("it to count", lambda: "begin step=0\n" in self.log(job), ENDS_S)
        time.sleep(1)  # some steps of its own
        self.site.nodes["lab-b"].owner("resume")
        self.site.wait("lab-b to lend", lambda: self.site.rest.nodes()["lab-b"]["lending"] == "open", 30)

        self.site.nodes["lab-a"].owner("reclaim", "-m", "a lecture")

        self.assertEqual(job.wait(), "COMPLETED")
        kind, (first, last) = job.result()
        saves = [int(step) for step in re.findall(r"(?m)^saves step=(\d+)$", self.log(job, 1))]
        self.assertEqual((kind, last), ("success", first + 10))
        self.assertTrue(saves, self.log(job, 1))
        self.assertEqual(first, saves[-1], "not from what it saved last")
        self.assertEqual([one["end"] for _, one in self.ran(job)], ["reclaimed", "succeeded"])
        self.site.nodes["lab-a"].owner("release")

    def test_f_a_plain_script_is_submitted_too_and_its_log_lies_where_it_says(self):
        (self.student.place / "plain.sh").write_text(
            "#!/bin/sh\n#SBATCH --mem=64M\n#SBATCH -o plain-%j.log\necho hello >made.txt; echo said\n")
        number = self.student.call("sbatch", "--parsable", "plain.sh").stdout.strip()
        job = Submitted(self.student, number, self.student.place)

        self.assertEqual(job.wait(), "COMPLETED")

        self.assertEqual((self.student.place / "made.txt").read_text(), "hello\n")
        self.assertIn("said\n", (self.student.place / f"plain-{number}.log").read_text())

    def test_g_what_is_not_done_here_is_said_before_anything_is_submitted(self):
        before = len(self.site.rest.jobs())
        student = Student(self.site, "wrong")
        logs = student.place / "logs"
        logs.mkdir()
        script = student.write_script(logs, logs)
        outside = student.write_script(logs, "/tmp/elsewhere")
        array = student.write_script(logs, logs, "#SBATCH --array=0-3%4\n")
        for words, said in ((("sbatch", script), "no pickle that waits"), (("sbatch", outside), "is not below"),
                            (("sbatch", array), "which pickle is of which task"),
                            (("sbatch", "-N", "1", "a.sh"), "-N: options"),
                            (("sbatch",), "one script"), (("sbatch", "nowhere.sh"), "nowhere.sh"),
                            (("srun", "hostname"), "within a job"), (("scancel", "-s", "9"), "no job's number"),
                            (("sacct", "-j", "1", "-o", "Colour"), "no field colour"), (("sacct",), "which jobs")):
            done = student.call(*words, check=False)
            self.assertEqual(done.returncode, 1, (words, done.stdout, done.stderr))
            self.assertIn(said, done.stderr, words)
            self.assertIn("next: ", done.stderr, words)
        for _ in range(2):
            (logs / f"{uuid.uuid4().hex}.pkl").write_bytes(b"")
        done = student.call("sbatch", script, check=False)
        self.assertIn("were written at once", done.stderr)
        self.assertEqual(len(self.site.rest.jobs()), before)
        self.assertEqual(student.call("sacct", "-P", "-o", "JobID", "-j", "999999").stdout, "JobID\n")


if __name__ == "__main__":
    if os.getuid() != 0:
        print("skipped: needs root")
        sys.exit(77)
    unittest.main(verbosity=2)
