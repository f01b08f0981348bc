#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The demo is interrupted while it prepares its stage: it says so, ends, and nothing of it is left. What --keep
suggests works."""
import contextlib
import io
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
from guests import make_folder, run_undisturbed, unpack_image  # noqa: E402
from labs import ROOT, SCRIPT, Labs, wait_until  # noqa: E402
from rn_site import tiny_image  # noqa: E402

sys.path.insert(0, str(ROOT / "scripts" / "demo"))
import kept  # noqa: E402
import story as told  # noqa: E402
from stage import Stage  # noqa: E402

STORY = ROOT / "scripts" / "demo" / "story.py"


def residue(run):
    return subprocess.run([SCRIPT, "residue", run], stdout=subprocess.PIPE, text=True).stdout.splitlines()


def living(is_wanted):
    """Pids of the processes for whose (parent, session) that holds. Nobody may reap the dead of a machine."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            state, parent, _, session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue  # it has ended meanwhile
        if state not in "ZX" and is_wanted(int(parent), int(session)):
            found.append(int(entry.name))
    return found


def descendants(pid):
    children = living(lambda parent, _: parent == pid)
    return children + [further for child in children for further in descendants(child)]


class Interrupted(unittest.TestCase):
    def interrupt(self, is_moment, times=1):
        """Ctrl-C in the terminal of a demo as soon as is_moment(its run, its text); answers its status and text."""
        with tempfile.TemporaryFile() as out:
            story = subprocess.Popen(
                [sys.executable, "-B", str(STORY), "--steps", "10"], stdout=out, stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # in the background it is ignored
            self.addCleanup(story.wait)
            self.addCleanup(lambda: story.poll() is None and os.killpg(story.pid, signal.SIGKILL))

            def text():
                return os.pread(out.fileno(), 1 << 20, 0).decode()

            run = wait_until("its run", lambda: re.search(r"run (\w+)\n", text()), 60, 0.005)[1]
            self.addCleanup(subprocess.run, [SCRIPT, "down", run])
            wait_until("the moment", lambda: story.poll() is not None or is_moment(run, text()), 120, 0.005)
            for _ in range(times):
                os.killpg(story.pid, signal.SIGINT)
            story.wait(150)
            text = text()
        self.assertEqual(residue(run), [], text)
        self.assertEqual(living(lambda _, session: session == story.pid), [], text)
        return story.returncode, text

    def assert_said(self, status, text):
        self.assertEqual(status, 130, text)
        self.assertIn("interrupted", text)
        self.assertNotIn("Traceback", text)
        self.assertNotIn("FAILED", text)

    def test_while_the_laboratories_are_made(self):
        self.assert_said(*self.interrupt(lambda run, _: pathlib.Path(f"/tmp/rn-{run}/lab-b").exists()))

    def test_again_and_again_while_the_site_is_built(self):
        self.assert_said(*self.interrupt(lambda _, text: "lab-a joined" in text, times=3))

    def test_undisturbed_trainings_end_with_the_laboratories(self):
        with Labs("a") as labs:
            root = labs.dir / "root"
            unpack_image(tiny_image(), root)
            (root / "bin" / "python").write_text("#!/bin/sh\nsleep 1000 & echo begun\nwait\n")
            (root / "bin" / "python").chmod(0o755)
            log = labs.dir / "log"
            training = run_undisturbed(root, make_folder(labs.dir / "cnn", "cnn"), [], log, labs.run)
            wait_until("its begin", lambda: log.read_text() == "begun\n", 60)
            below = descendants(training.pid)
            self.addCleanup(lambda: [os.kill(pid, signal.SIGKILL) for pid in living(lambda *_: True) if pid in below])
            self.assertIn(True, ["sleep" in pathlib.Path(f"/proc/{pid}/comm").read_text() for pid in below])

        training.wait(60)
        self.assertEqual([pid for pid in living(lambda *_: True) if pid in below], [])


class Arguments(unittest.TestCase):
    def test_wrong_ones_are_refused_before_anything_is_installed_or_built(self):
        with tempfile.TemporaryDirectory() as alone:  # with nothing beside it that could install or build
            script = shutil.copy(STORY.parent.parent / "demo.sh", alone)
            for words, said in (["--sed", "3"], 'no argument "--sed"'), (["--seed", "x"], "whole number"), \
                    (["--seed", "17956018160"], "at most 10 digits"), (["--seed", "1795601816", "-x"], '"-x"'), \
                    (["--steps", "1000000"], "at most 6 digits"), \
                    (["--keep", "--steps"], "whole number"), (["--steps", "0"], "500 or more"), \
                    (["--steps", "0499"], "500 or more"):
                done = subprocess.run(["bash", script, *words], capture_output=True, text=True, timeout=60)
                self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
                self.assertIn(said, done.stderr)


    def test_other_scripts_say_what_they_want_before_they_build(self):
        nobody = ["setpriv", "--reuid", "64991", "--clear-groups"]
        with tempfile.TemporaryDirectory() as alone:
            os.chmod(alone, 0o755)
            os.mkdir(f"{alone}/scripts")
            scripts = {name: shutil.copy(STORY.parent.parent / name, f"{alone}/scripts")
                       for name in ("chaos.sh", "mutation.sh", "test.sh")}
            for words, status, said in (
                    ([scripts["mutation.sh"], "--help"], 0, "mutation.sh [SECONDS"),
                    ([scripts["mutation.sh"], "--hepl"], 2, "'--hepl' is no number of seconds"),
                    ([scripts["mutation.sh"], "60", "9"], 2, "see --help"),
                    ([scripts["chaos.sh"], "--minutes", "soon"], 2, "see --help"),
                    ([*nobody, scripts["chaos.sh"], "--minutes", "1"], 2, "run it as root"),
                    ([*nobody, scripts["test.sh"]], 2, "run them as root"),
                    ([*nobody, scripts["test.sh"], "tidy", "system"], 2, "run them as root")):
                done = subprocess.run(words, capture_output=True, text=True, timeout=60)
                self.assertEqual(done.returncode, status, done.stdout + done.stderr)
                self.assertIn(said, done.stdout + done.stderr)


class Kept(unittest.TestCase):
    """The site of `--keep`, without the story before it."""

    def test_every_suggested_command_works_as_it_is_printed(self):
        stage = Stage(10)
        self.addCleanup(stage.close)
        stage.build_labs()
        stage.build_site()
        stage.nodes["lab-b"].owner("reclaim")  # as the story leaves it
        kept.lend_again(stage)
        self.assertEqual(stage.failures, [])
        lending = {lab: node["lending"] for lab, node in stage.rest.nodes().items() if lab != "storage"}
        self.assertEqual(lending, {"lab-a": "open", "lab-b": "open"})

        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            kept.print_block(stage)
        pasted = [line.strip() for line in said.getvalue().splitlines() if re.match("  (export|mkdir|reclaim)", line)]
        self.assertEqual(pasted, [command for _, command in kept.suggestions(stage)])
        done = subprocess.run(["bash", "-ec", "\n".join(pasted)], cwd="/", stdin=subprocess.DEVNULL, timeout=280,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("\n42\n", "\n" + done.stdout)

    def test_a_list_of_saves_is_said_in_words(self):
        self.assertEqual(told.in_words([]), "the attempt before had not said that it saved")
        self.assertEqual(told.in_words([40, 80]), "the attempt before saved last at steps 40 and 80")

    def test_the_verdict_names_what_failed(self):
        stage = Stage(10)
        for failures, last in (([], "passed"), (["x is y"], "✗ x is y")):
            stage.failures = failures
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                told.print_verdict(stage)
            self.assertIn(last, said.getvalue().splitlines()[-1])

    def test_ctrl_c_ends_a_kept_site_with_the_verdict_of_its_story(self):
        for failures, status in ((), 0), (("x is y",), 1):
            with self.subTest(failures=failures):
                stage = unittest.mock.MagicMock(failures=list(failures), nodes={})
                acts = {name: unittest.mock.MagicMock(__name__=name) for name in dir(told) if name.startswith("act_")}
                said = io.StringIO()
                before = {number: signal.getsignal(number) for number in told.ENDING}
                try:
                    with unittest.mock.patch.multiple(told, **acts), \
                            unittest.mock.patch.multiple(told, Stage=lambda _: stage, open_capture=lambda _: None), \
                            unittest.mock.patch.object(kept, "suggestions", lambda _: []), \
                            unittest.mock.patch.object(sys, "argv", ["story", "--keep"]), \
                            unittest.mock.patch.object(signal, "pause", lambda: signal.raise_signal(signal.SIGINT)), \
                            contextlib.redirect_stdout(said):
                        self.assertEqual(told.main(), status)
                finally:
                    for number, handler in before.items():
                        signal.signal(number, handler)
                lines = said.getvalue().splitlines()
                verdict = "1 FAILED" if failures else "passed"
                self.assertEqual(sum(verdict in line for line in lines), 2, said.getvalue())
                stage.close.assert_called_once_with()


if __name__ == "__main__":
    unittest.main(verbosity=2)
