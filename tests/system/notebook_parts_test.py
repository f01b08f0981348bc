#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the image of `reclaim notebook` has of ours, without Jupyter: variables that outlive a kernel, when the folder
is said to be a checkpoint, and when nobody works. With the real Jupyter: notebook_test.py."""
import json
import os
import pathlib
import pickle
import sys
import tempfile
import time
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "python" / "notebook")]
import reclaim_notebook as guest  # noqa: E402
from reclaimnet import injob, magics, variables  # noqa: E402


class Variables(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.path = str(self.folder / variables.FILE)

    def test_come_back_in_another_namespace_all_or_those_that_are_named(self):
        variables.save({"a": [1, 2], "b": "two", "c": 3}, ["a", "b"], self.path)
        variables.save({"b": "new"}, ["b"], self.path)

        everything, one = {}, {"b": "old"}
        self.assertEqual(variables.load(everything, None, self.path), ["a", "b"])
        self.assertEqual(variables.load(one, ["a"], self.path), ["a"])

        self.assertEqual(everything, {"a": [1, 2], "b": "new"})
        self.assertEqual(one, {"a": [1, 2], "b": "old"})
        self.assertEqual(os.listdir(self.folder), [variables.FILE], "nothing else is left")

    def test_what_cannot_be_saved_is_named_and_changes_nothing(self):
        variables.save({"a": 1}, ["a"], self.path)
        before = pathlib.Path(self.path).read_bytes()
        for namespace, names, words in (
                ({"a": 2, "f": lambda: 0}, ["a", "f"], "f cannot be saved"),
                ({"a": 2, "g": (i for i in ())}, ["a", "g"], "g cannot be saved"),
                ({"a": 2}, ["a", "h"], "there is no variable h"),
                ({}, [], "name the variables")):
            with self.assertRaisesRegex(variables.VariableError, words):
                variables.save(namespace, names, self.path)
            self.assertEqual(pathlib.Path(self.path).read_bytes(), before)

    def test_a_full_disk_leaves_the_file_that_was(self):
        variables.save({"a": 1}, ["a"], self.path)
        before = pathlib.Path(self.path).read_bytes()
        with mock.patch.object(os, "fsync", side_effect=OSError(28, "No space left on device")):
            with self.assertRaises(OSError):
                variables.save({"a": 2}, ["a"], self.path)
        self.assertEqual(pathlib.Path(self.path).read_bytes(), before)
        self.assertEqual(os.listdir(self.folder), [variables.FILE])

    def test_what_cannot_be_loaded_is_named_and_changes_nothing(self):
        namespace = {"a": "mine"}
        with self.assertRaisesRegex(variables.VariableError, "nothing was saved in"):
            variables.load(namespace, None, self.path)
        variables.save({"a": 1}, ["a"], self.path)
        with self.assertRaisesRegex(variables.VariableError, "b was not saved: there are a"):
            variables.load(namespace, ["a", "b"], self.path)
        whole = {"format": variables.FORMAT, "variables": {"a": pickle.dumps(1), "m": b"cnowhere\nNothing\n."}}
        pathlib.Path(self.path).write_bytes(pickle.dumps(whole))
        with self.assertRaisesRegex(variables.VariableError, "m cannot be loaded .*nowhere.*run the cells"):
            variables.load(namespace, None, self.path)
        self.assertEqual(namespace, {"a": "mine"})
        for junk in (b"", b"junk", pickle.dumps([1]), pickle.dumps({"format": "x"})):
            pathlib.Path(self.path).write_bytes(junk)
            with self.assertRaisesRegex(variables.VariableError, "is not what %reclaim_save writes"):
                variables.load(namespace, None, self.path)

    def test_the_magics_say_what_they_did_and_never_raise(self):
        class Shell:
            user_ns = {"a": 7, "f": lambda: 0}
            magic = {}

            def register_magic_function(self, function, kind, name):
                assert kind == "line"
                self.magic[name] = function

        shell = Shell()
        magics.load_ipython_extension(shell)
        with mock.patch.dict(os.environ, {"RECLAIM_CHECKPOINT_DIR": str(self.folder)}), \
                mock.patch("sys.stdout") as out, mock.patch("sys.stderr") as err:
            shell.magic["reclaim_save"]("a")
            shell.user_ns.pop("a")
            shell.magic["reclaim_load"]("")
            shell.magic["reclaim_save"]("f")
            said = "".join(call.args[0] for call in out.write.call_args_list)
            failed = "".join(call.args[0] for call in err.write.call_args_list)
        self.assertEqual(shell.user_ns["a"], 7)
        self.assertIn("saved a (", said)
        self.assertIn("loaded a\n", said)
        self.assertIn("%reclaim_save: f cannot be saved", failed)


class FakeJob:
    """What injob says; counts what it is told."""

    def __init__(self):
        self.is_due, self.word, self.saves = False, None, 0

    def should_save(self):
        return self.is_due

    def notice(self):
        return self.word

    def checkpoint_saved(self):
        self.saves += 1
        self.is_due = False


class Saving(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.now = 100.0
        self.job = FakeJob()
        self.saver = guest.Saver(self.folder, self.job, lambda: self.now)

    def look(self, times=1):
        for _ in range(times):
            self.now += 1
            self.saver.look()
        return self.job.saves

    def write(self, text):
        (self.folder / "a.ipynb").write_text(text)

    def test_what_has_changed_is_said_once_when_it_holds_still(self):
        self.assertEqual(self.look(), 0)
        self.assertEqual(self.look(), 1, "what was uploaded is a checkpoint, too")
        self.assertEqual(self.look(5), 1)
        self.write("1")
        self.assertEqual(self.look(), 1)
        self.write("22")
        self.assertEqual(self.look(), 1, "it does not hold still")
        self.assertEqual(self.look(), 2)
        (self.folder / ".ipynb_checkpoints").mkdir()
        (self.folder / ".ipynb_checkpoints" / "a-checkpoint.ipynb").write_text("old")
        self.assertEqual(self.look(3), 2, "Jupyter's own copies are no news")

    def test_a_save_that_is_due_is_answered_though_nothing_has_changed(self):
        self.look(3)
        self.job.is_due = True
        self.assertEqual(self.look(2), 2)

    def test_a_notice_that_is_heard_of_after_its_save_was_due_leaves_pages_their_time(self):
        self.look(3)
        self.job.is_due = True
        self.assertEqual(self.look(), 1)
        self.job.word = injob.Notice("a lecture", time.time() + 60, 60.0)
        self.assertEqual(self.look(5), 1)
        self.assertEqual(self.look(), 2)

    def test_at_a_notice_pages_have_time_to_save_and_no_more_than_half_of_it(self):
        self.look(3)
        self.job.is_due, self.job.word = True, injob.Notice("a lecture", time.time() + 60, 60.0)
        self.assertEqual(self.look(5), 1, "a page may still save")
        self.write("saved by the page")
        self.assertEqual(self.look(), 1)
        self.assertEqual(self.look(), 2)
        self.job.word = None
        self.look()
        self.job.is_due, self.job.word = True, injob.Notice("an exam", time.time() + 20, 20.0)
        for second in range(1, 14):
            self.write("x" * second)
            self.look()
            if self.job.saves > 2:
                break
        self.assertEqual(second, 11, "it never holds still, and half of the time is over")

    def test_a_short_notice_waits_for_no_page(self):
        self.look(3)
        self.job.is_due, self.job.word = True, injob.Notice("now", time.time(), 0.0)
        self.assertEqual(self.look(), 2)


class Idle(unittest.TestCase):
    STATUS = {"last_activity": "2024-01-31T10:20:30.123456Z", "started": "2024-01-31T10:00:00.000000Z"}
    LAST = 1706696430

    def test_a_busy_kernel_a_gpu_and_an_open_page_are_work(self):
        def last(kernels, is_gpu_busy=False):
            return guest.last_activity(self.STATUS, kernels, is_gpu_busy, 2e9)
        idle = {"execution_state": "idle", "connections": 0}
        self.assertEqual(last([]), self.LAST)
        self.assertEqual(last([idle]), self.LAST)
        self.assertEqual(last([idle, {**idle, "execution_state": "busy"}]), 2e9)
        self.assertEqual(last([{**idle, "connections": 1}]), 2e9)
        self.assertEqual(last([idle], is_gpu_busy=True), 2e9)

    def test_the_end_is_announced_to_the_pages_and_taken_back(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        idle = guest.Idleness(1, "/notebooks/7/", 600, folder / "idle.json")
        answers = {"status": self.STATUS, "kernels": []}
        idle.ask = answers.get
        self.enterContext(mock.patch.object(guest, "is_gpu_busy", lambda: False))

        def at(seconds_idle):
            idle.next_look = 0.0
            with mock.patch.object(time, "time", lambda: self.LAST + seconds_idle):
                return idle.is_over(), json.loads((folder / "idle.json").read_text())["ends_unix"]
        self.assertEqual(at(100), (False, None))
        self.assertEqual(at(400), (False, self.LAST + 600))
        answers["kernels"] = [{"execution_state": "busy"}]
        self.assertEqual(at(500), (False, None), "somebody works again")
        answers["kernels"] = []
        self.assertEqual(at(600), (True, self.LAST + 600))
        answers["status"] = None
        idle.next_look = 0.0
        self.assertFalse(idle.is_over(), "what does not answer is not idle")

    def test_without_a_limit_it_never_ends_and_a_wrong_one_is_said(self):
        idle = guest.Idleness(1, "/notebooks/7/", 0, pathlib.Path("/nowhere"))
        self.assertFalse(idle.is_over())
        with mock.patch.dict(os.environ, {"NOTEBOOK_IDLE_S": "soon"}), self.assertRaisesRegex(SystemExit, "soon"):
            guest.number_in("NOTEBOOK_IDLE_S", 1, 100)


if __name__ == "__main__":
    unittest.main()
