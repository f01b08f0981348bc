#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What sbatch and sacct on the submitter's machine are made of (python/reclaimnet/slurm*.py), without a site: which
pickle is a job's, what its script becomes, and files that come home in pieces, once, results last. With a site:
slurm_client_test.py."""
import contextlib
import io
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
from reclaimnet import errors, folders, slurm_record, slurm_script  # noqa: E402
from reclaimnet.login import Login  # noqa: E402

WORK = slurm_script.WORK  # the job's folder, on every node
OLD, NEW = "a" * 32 + ".pkl", "b" * 32 + ".pkl"
SRUN = "srun --unbuffered --output {folder}/%j_%t_log.out {python} -u -m submitit.core._submit {folder}"


class Folder(unittest.TestCase):
    def setUp(self):
        self.place = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())).resolve()
        self.logs = self.place / "my logs"
        self.logs.mkdir()

    def pickle(self, name, age_s):
        path = self.logs / name
        path.write_bytes(name.encode())
        os.utime(path, (time.time() - age_s,) * 2)

    def script(self, folder=None, python="/home/ada/bin/python", extra=""):
        quoted = f"'{folder or self.logs}'"
        path = self.place / "job.sh"
        path.write_text(f"#!/bin/bash\n#SBATCH --output={quoted}/%j_0_log.out\n{extra}\nexport A=1\n"
                        + SRUN.format(folder=quoted, python=python))
        return slurm_script.read(path, self.place)


class Scripts(Folder):
    def test_the_pickle_that_was_written_last_is_the_jobs(self):
        self.pickle(OLD, 60)
        self.pickle(NEW, 1)

        workspace = self.script().workspace()

        self.assertEqual(sorted(workspace.files), [slurm_script.FIRST, "job.sh", "my logs"])
        self.assertEqual(workspace.files[slurm_script.FIRST]["bytes"], len(NEW))

    def test_a_home_does_not_travel(self):
        self.pickle(NEW, 0)
        self.script()
        with mock.patch.dict(os.environ, HOME=str(self.place)):
            with self.assertRaisesRegex(errors.InvalidError, "keys and logins"):
                self.script()

    def test_of_two_at_once_none_is_taken(self):
        self.pickle(OLD, 2)
        self.pickle(NEW, 1)
        with self.assertRaisesRegex(errors.ConflictError, "written at once.*folder of its own"):
            self.script()

    def test_what_it_names_on_the_submitters_machine_is_named_as_the_job_has_it(self):
        self.pickle(NEW, 1)
        text = self.script().in_job()

        self.assertIn("\nexport A=1\n", text)
        self.assertIn(f"\nsrun --unbuffered --output '{WORK}/my logs/%j_%t_log.out' python3 -u -m "
                      f"submitit.core._submit '{WORK}/my logs' || _rn_code=$?\n", text)
        self.assertIn(" .venv/bin/python -u -m ", self.script(python=".venv/bin/python").in_job())
        self.assertIn(f" {WORK}/v/bin/python -u -m ", self.script(python=f"{self.place}/v/bin/python").in_job())
        subprocess.run(["bash", "-n"], input=text, text=True, check=True)

    def test_the_job_names_its_pickle_and_a_result_makes_it_a_success(self):
        self.pickle(NEW, 1)
        for folder, own in ((self.logs, "my logs"), (f"{self.logs}/%j", "my logs/17")):
            for code, has_result, ends in ((1, True, 0), (1, False, 1), (0, True, 0), (143, False, 143)):
                with self.subTest(own=own, code=code, has_result=has_result), tempfile.TemporaryDirectory() as work:
                    (pathlib.Path(work) / slurm_script.FIRST).write_bytes(b"function")
                    makes = f": >'{work}/{own}/17_0_result.pkl'; " if has_result else ""
                    text = self.script(folder).in_job().replace(f"{WORK}/", f"{work}/")
                    done = subprocess.run(["bash", "-c", f"srun() {{ {makes}return {code}; }}\n{text}"],
                                          env={**os.environ, "SLURM_JOB_ID": "17"}, timeout=20)
                    self.assertEqual(done.returncode, ends)
                    own_folder = pathlib.Path(work) / own
                    self.assertEqual((own_folder / "17_submitted.pkl").read_bytes(), b"function")
                    if has_result:
                        self.assertEqual((own_folder / "17_exit_code").read_text(), f"{code}\n")

    def test_a_pickle_that_has_its_number_already_is_the_one_that_was_saved(self):
        self.pickle(NEW, 1)
        with tempfile.TemporaryDirectory() as work:
            own = pathlib.Path(work) / "my logs"
            own.mkdir()
            (own / "17_submitted.pkl").write_bytes(b"saved")
            (pathlib.Path(work) / slurm_script.FIRST).write_bytes(b"first")
            text = self.script().in_job().replace(f"{WORK}/", f"{work}/")
            subprocess.run(["bash", "-c", f"srun() {{ return 0; }}\n{text}"], check=True, timeout=20,
                           env={**os.environ, "SLURM_JOB_ID": "17"})
            self.assertEqual((own / "17_submitted.pkl").read_bytes(), b"saved")

    def test_a_folder_that_does_not_travel_and_an_array_are_refused(self):
        self.pickle(NEW, 1)
        for words, kind in (({"folder": "/tmp"}, errors.InvalidError),
                            ({"folder": f"{self.logs}/%t"}, errors.UnsupportedError),
                            ({"extra": "#SBATCH --array=0-3"}, errors.UnsupportedError),
                            ({"extra": "#SBATCH -D /tmp"}, errors.InvalidError)):
            with self.subTest(words), self.assertRaises(kind) as raised:
                self.script(**words)
            self.assertTrue(raised.exception.hint)

    def test_any_other_script_is_left_as_it_is(self):
        path = self.place / "train.sh"
        path.write_text("#!/bin/sh\n#SBATCH -J x -o out-%j-%x.%% # here\n# srun submitit.core._submit\ntrue\n")
        script = slurm_script.read(path, self.place)
        self.assertEqual(script.words_for_submit(), ([str(path)], None))
        self.assertEqual(script.output_of("17"), str(self.place / "out-17-x.%"))


class FakeJob:
    id, state, has_ended = "j-1", "succeeded", True

    def __init__(self, *paths):
        self.paths = paths

    def outputs(self):
        return [{"path": path, "kind": "regular"} for path in self.paths]

    def log_bytes(self):
        yield b"said\n"


class FakeClient:
    transport = None


class Homecoming(Folder):
    def setUp(self):
        super().setUp()
        self.written, self.refuses = [], {}
        self.enterContext(mock.patch.dict(os.environ, XDG_STATE_HOME=str(self.place / "state")))
        self.enterContext(mock.patch.object(folders.Fetcher, "fetch", self.fetch))
        self.store = slurm_record.Store(Login("localhost", 1, "t", "f" * 64))
        self.store.prepare()
        self.store.write(slurm_record.Record("17", str(self.place), str(self.place / "log"), "logs", time.time()))
        self.job = FakeJob("logs/17_0_result.pkl", "a", "logs/17_exit_code", "z")

    def fetch(self, file):
        if file["path"] in self.refuses:
            raise self.refuses[file["path"]]
        self.written.append(file["path"])

    def bring(self, for_s=60.0):
        """The answer, and what was said on standard error."""
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            answer = slurm_record.bring_home(
                FakeClient(), self.job, self.store, self.store.read("17"), time.monotonic() + for_s)
        return answer, said.getvalue()

    def test_results_come_last_and_nothing_comes_twice(self):
        (self.place / "logs").mkdir()
        (self.place / "logs" / "17_exit_code").write_text("3\n")
        os.utime(self.place / "logs" / "17_exit_code", (1, 1))
        self.assertEqual(self.bring(), (3, ""))
        self.assertEqual(self.written, ["a", "logs/17_exit_code", "z", "logs/17_0_result.pkl"])
        self.assertEqual((self.place / "log").read_text(), "said\n")

        self.assertEqual(self.bring(), (3, ""))
        self.assertEqual(len(self.written), 4)

    def test_when_its_time_is_over_it_is_not_all_here_and_the_next_call_goes_on(self):
        self.assertEqual(self.bring(-1), (None, ""))
        self.assertEqual(self.written, [])

        self.refuses["z"] = errors.UnavailableError("nobody answers")
        with self.assertRaises(errors.UnavailableError):
            self.bring()
        self.assertEqual(self.written, ["a", "logs/17_exit_code"])

        del self.refuses["z"]
        self.assertEqual(self.bring(), (0, ""))
        self.assertEqual(self.written, ["a", "logs/17_exit_code", "z", "logs/17_0_result.pkl"])

    def test_what_cannot_be_written_is_named_once_and_the_others_come(self):
        self.refuses["a"] = OSError(28, "No space left on device")
        answer, said = self.bring()
        self.assertEqual(answer, 0)
        self.assertIn("job 17: a: [Errno 28] No space left", said)
        self.assertEqual(self.bring(), (0, ""))

    def test_a_name_that_steers_a_terminal_is_shown_and_does_not(self):
        self.job = FakeJob("a\x1b]0;mine\x07\n")
        self.refuses["a\x1b]0;mine\x07\n"] = errors.DeniedError("no")
        answer, said = self.bring()
        self.assertEqual(answer, 0)
        self.assertIn(r"a\x1b]0;mine\x07", said)
        self.assertNotIn("\x1b", said)

    def test_an_output_that_is_no_file_is_named_and_the_others_come(self):
        self.store.write(slurm_record.Record("17", str(self.place), "/", "logs", time.time()))
        answer, said = self.bring()
        self.assertEqual(answer, 0)
        self.assertIn("/: no file's name", said)
        self.assertIn("logs/17_0_result.pkl", self.written)

    def test_while_another_call_is_at_it_it_is_not_here(self):
        with self.store.locked("17") as is_ours:
            self.assertTrue(is_ours)
            self.assertEqual(self.bring(), (None, ""))
        self.assertEqual(self.bring(), (0, ""))

    def test_a_record_that_is_none_says_which_file_and_what_to_do(self):
        path = self.store.folder / "17.json"
        wrong_kind = '{"number": 1, "folder": "", "output": "", "results": "", "since": 0}'
        for text in ("", "[]", '{"number": 17}', wrong_kind):
            path.write_text(text)
            with self.subTest(text), self.assertRaisesRegex(errors.CorruptError, r"17\.json.*delete it"):
                self.store.read("17")
        self.assertIsNone(self.store.read("18"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
