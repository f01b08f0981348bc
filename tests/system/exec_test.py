#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Commands inside a running job, files into it and out of it, and a look at it, from a student's machine: streams,
codes, terminals, somebody else's job, a hostile guest, a job that moves and is cut off by its owner. Real daemons,
engines and namespaces."""
import fcntl
import os
import pathlib
import pty
import random
import select
import signal
import struct
import subprocess
import sys
import termios
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
from rn_site import Cli, program, python_image  # noqa: E402
from stories import Site  # noqa: E402

NOTICE_S = 5
BIG = random.Random(9).randbytes(20 << 20)
FAILED = 255
# A guest that plays its own PID 1 towards its user, in whose folder it wants to write.
HOSTILE = r"""
import os, socket, struct

def frame(kind, body):
    return b"\x04" + bytes([kind]) + struct.pack(">H", len(body)) + body

def entry(kind, name):
    return bytes([kind]) + struct.pack(">H", 0o4777) + bytes([len(name)]) + name

os.unlink("/reclaim/tunnel.sock")
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind("/reclaim/tunnel.sock")
os.chmod("/reclaim/tunnel.sock", 0o666)
listener.listen(8)
print("waits", flush=True)
names = [b"../evil", b"..", b"/tmp/evil", b"link/evil", b""]
while True:
    end, _ = listener.accept()
    end.recv(20000)
    end.send(b"\x02")
    end.recv(20000)
    name = names.pop(0)
    names.append(name)
    body = entry(2, b"x") + entry(1, name) + struct.pack(">I", 4) + b"evil" + bytes(4) + b"\x03\x05"
    try:
        end.send(frame(16, body))
        end.send(frame(19, b"\0"))
        end.send(b"\x06")
        end.recv(20000)
    except OSError:
        pass  # who asked has had enough
    end.close()
"""


class Exec(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        lends = {"guest_disk_mib": 1024, "guest_memory_mib": 1024, "notice_s": NOTICE_S}
        cls.site = Site({"lab-a": lends, "lab-b": lends}, disk="4G")
        cls.addClassCleanup(cls.site.down)
        cls.site.cli("image", "add", "python", python_image(), timeout_s=300)
        cls.spawned = 0
        cls.home = cls.site.labs.dir / "home"
        cls.home.mkdir()
        cls.job = cls.submit("student", "import time; print('up', flush=True); time.sleep(10000)")

    @classmethod
    def submit(cls, name, script):
        """Number of a job that runs, in a folder that has one file."""
        folder = cls.site.labs.dir / f"student-{name}"
        folder.mkdir()
        (folder / "given.txt").write_text("from the student\n")
        job = cls.site.cli(
            "run", "--detach", "--stateless", "--image", "python", "--cpus", "0.5", "--cpus-min", "0.1", "--memory",
            "128MB", "--disk", "256MB", "--env", "MINE=as the job's", "--", "python3", "-u", "-c", script,
            cwd=folder).stdout.strip()
        cls.wait_until_up(job)
        return job

    @classmethod
    def wait_until_up(cls, job):
        cls.site.wait("the guest to be reached", lambda: cls.site.cli(
            "exec", job, "--", "true", check=False).returncode == 0, 150)

    def exec(self, *words, text_in=None, check=True):
        return self.site.labs.call(
            None, [program("reclaim"), "exec", *words], env=self.site.cli.environment, timeout_s=120, check=check,
            text_in=text_in)

    def spawn(self, *words):
        type(self).spawned += 1
        process = self.site.cli.spawn(f"exec-{self.spawned}", *words)
        self.addCleanup(process.stop)
        return process

    def node(self):
        return self.site.nodes[self.site.lab_of_node(self.site.rest.job(self.job)["node"])]

    def runs(self, word):
        """Whether a process of the guest has such a word."""
        script = "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '"
        return word in self.exec(self.job, "--", "sh", "-c", script).stdout

    def ended(self, process, limit_s=60):
        self.site.wait("its end", lambda: not process.is_running(), limit_s)
        return process.popen.returncode

    def test_a_streams_stay_apart_and_the_code_is_the_commands_own(self):
        done = self.exec(self.job, "--", "sh", "-c", "echo out; echo err >&2; exit 7", check=False)
        self.assertEqual((done.stdout, done.stderr, done.returncode), ("out\n", "err\n", 7))
        self.assertEqual(self.exec(self.job, "--", "sh", "-c", "kill -9 $$", check=False).returncode, 137)
        done = self.exec(self.job, "--", "no-such-command", check=False)
        self.assertEqual(done.returncode, 127)
        self.assertIn("cannot run no-such-command", done.stderr)

    def test_b_it_is_a_process_of_the_jobs_own_and_no_more(self):
        script = "echo $MINE; id -u; cat given.txt; grep -E '^(CapEff|NoNewPrivs|Seccomp):' /proc/self/status"
        own = self.exec(self.job, "--", "sh", "-c", "grep -E '^(CapEff|NoNewPrivs|Seccomp):' /proc/1/status").stdout
        done = self.exec(self.job, "--", "sh", "-c", script).stdout.splitlines()
        self.assertEqual(done[0], "as the job's")
        self.assertNotEqual(done[1], "0")
        self.assertEqual(done[2], "from the student")
        self.assertEqual(done[3:], own.splitlines())

    def test_c_input_comes_to_its_end_and_output_of_any_size_comes_whole(self):
        text = "x" * 1_000_000
        self.assertEqual(self.exec("-i", self.job, "--", "wc", "-c", text_in=text).stdout.strip(), str(len(text)))
        self.assertEqual(self.exec("-i", self.job, "--", "cat", text_in=text).stdout, text)
        self.assertEqual(self.exec(self.job, "--", "cat", text_in=text).stdout, "", "without -i there is none")

    def test_d_an_interrupt_reaches_the_command(self):
        process = self.spawn("exec", self.job, "--", "sh", "-c",
                             "trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.1; done")
        self.site.wait("the command", lambda: "ready" in process.output())
        process.signal(signal.SIGINT)
        self.assertEqual(self.ended(process), 9)
        self.assertIn("caught", process.output())

    def test_e_a_terminal_has_the_size_of_the_one_here_and_its_keys(self):
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 101, 0, 0))
        process = subprocess.Popen(
            [program("reclaim"), "exec", self.job, "--", "sh"], stdin=theirs, stdout=theirs, stderr=theirs,
            env={**os.environ, **self.site.cli.environment, "TERM": "vt100"}, start_new_session=True)
        os.close(theirs)
        self.addCleanup(os.close, ours)
        self.addCleanup(process.kill)
        told = b""

        def wait_for(words):
            nonlocal told
            end = time.monotonic() + 30
            while words not in told:
                self.assertLess(time.monotonic(), end, told)
                if select.select([ours], [], [], 1)[0]:
                    told += os.read(ours, 4096)

        os.write(ours, b"stty size; echo $TERM; echo is''there\r")
        wait_for(b"isthere")
        self.assertIn(b"33 101", told)
        self.assertIn(b"vt100", told)
        fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 20, 60, 0, 0))
        process.send_signal(signal.SIGWINCH)
        os.write(ours, b"until stty size | grep '^20.60'; do sleep 0.1; done\r")
        wait_for(b"20 60")
        os.write(ours, b"sleep 4321; echo went''on\r")
        self.site.wait("the sleep", lambda: self.runs("4321"))  # the key is for it, not for the shell
        os.write(ours, b"\x03")
        os.write(ours, b"echo after''it\r")
        wait_for(b"afterit")
        os.write(ours, b"exit 5\r")
        self.assertEqual(process.wait(30), 5)

    def test_f_nobody_else_gets_in(self):
        token = self.site.rest.post("/v1/tokens", {"kind": "user", "user": "bob", "lab": "lab-b", "role": "owner"})
        bob = Cli(self.site.labs, self.site.coordinator, token=token["token"])
        for words, code in ((["exec", self.job, "--", "id"], FAILED), (["cp", f"{self.job}:given.txt", "."], 3),
                            (["attach", self.job], 3)):
            done = bob(*words, check=False, cwd=self.home)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(f"no job {self.job}", done.stderr)

    def test_g_files_and_folders_go_both_ways(self):
        tree = self.home / "tree"
        (tree / "sub").mkdir(parents=True)
        (tree / "big").write_bytes(BIG)
        (tree / "sub" / "run.sh").write_text("#!/bin/sh\necho it runs\n")
        (tree / "sub" / "run.sh").chmod(0o755)
        (tree / "link").symlink_to("/etc/passwd")
        began = time.monotonic()
        done = self.site.cli("cp", tree, f"{self.job}:", check=False)
        print(f"20 MiB to the job in {time.monotonic() - began:.2f} s")
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertIn("left out: ", done.stderr)
        script = "test -x tree/sub/run.sh && sh tree/sub/run.sh"
        self.assertEqual(self.exec(self.job, "--", "sh", "-c", script).stdout, "it runs\n")
        back = self.home / "back"
        began = time.monotonic()
        self.site.cli("cp", f"{self.job}:tree", back)
        print(f"20 MiB from the job in {time.monotonic() - began:.2f} s")
        self.assertTrue((back / "big").read_bytes() == BIG)
        self.assertTrue(os.access(back / "sub" / "run.sh", os.X_OK))
        self.site.cli("cp", f"{self.job}:given.txt", "renamed.txt", cwd=self.home)
        self.assertEqual((self.home / "renamed.txt").read_text(), "from the student\n")
        for words, code, said in ((["cp", f"{self.job}:gone", "."], 3, "cannot read gone: No such file"),
                                  (["cp", self.home / "renamed.txt", f"{self.job}:/proc/"], None, "cannot write"),
                                  (["cp", self.home / "none", f"{self.job}:x"], 3, "none")):
            done = self.site.cli(*words, check=False, cwd=self.home)
            self.assertIn(said, done.stderr)
            self.assertIn("\n  next: ", done.stderr)
            if code:
                self.assertEqual(done.returncode, code)

    def test_h_a_hostile_guest_writes_nothing_but_where_it_was_asked(self):
        folder = self.site.labs.dir / "student-hostile"
        folder.mkdir()
        (folder / "evil.py").write_text(HOSTILE)
        job = self.site.cli(
            "run", "--detach", "--stateless", "--image", "python", "--cpus", "0.5", "--cpus-min", "0.1", "--memory",
            "128MB", "--disk", "64MB", "--", "python3", "-u", "evil.py", cwd=folder).stdout.strip()
        self.site.wait("the hostile guest", lambda: "waits" in self.site.cli("logs", job, check=False).stdout, 150)
        home = self.home / "victim"
        (home / "to").mkdir(parents=True)
        (home / "other").mkdir()
        (home / "to" / "link").symlink_to(home / "other")
        for _ in range(5):
            done = self.site.cli("cp", f"{job}:x/", home / "to", check=False)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn("what the guest sent is refused: a name in it is none\n  next: ", done.stderr)
        self.assertEqual(sorted(str(path.relative_to(home)) for path in home.rglob("*")), ["other", "to", "to/link"])
        self.assertFalse(pathlib.Path("/tmp/evil").exists())
        self.site.cli("stop", job)

    def test_i_a_job_that_moves_breaks_it_and_says_so_and_is_watched_on(self):
        before = self.node()
        watching = self.spawn("attach", self.job)
        self.site.wait("the log", lambda: "up" in watching.output())
        process = self.spawn("exec", self.job, "--", "sleep", "1234")
        self.site.wait("the command", lambda: self.runs("1234"))
        before.owner("reclaim", "-m", "an exam")
        self.assertEqual(self.ended(process), FAILED)
        self.assertIn("the connection into the guest broke: ", process.output())
        self.assertIn("\n  next: ", process.output())
        self.wait_until_up(self.job)
        self.assertNotEqual(self.node(), before)
        before.owner("release")
        number = self.site.rest.job(self.job)["node"]
        self.site.wait("the move to be told", lambda: f"running on {number}" in watching.output(), 60)
        self.assertTrue(watching.is_running())
        watching.signal(signal.SIGINT)
        self.assertEqual(self.ended(watching), 0)
        self.assertIn(f"detached; the job goes on: reclaim attach {self.job}", watching.output())

    def test_j_after_the_owners_cut_nothing_of_it_lives(self):
        before = self.node()
        process = self.spawn("exec", self.job, "--", "sh", "-c",
                             "trap '' HUP TERM INT; setsid sleep 98765 & sleep 98765")
        self.site.wait("the commands", lambda: len(self.marked()) >= 2)
        began = time.monotonic()
        before.owner("reclaim", "--now")
        self.assertEqual(self.ended(process), FAILED)
        print(f"broken {time.monotonic() - began:.2f} s after the order")
        self.assertEqual(self.marked(), [])
        self.wait_until_up(self.job)
        before.owner("release")

    @staticmethod
    def marked():
        """Processes of the machine that are the command of test_j, except for who asked for it."""
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().split(b"\0")
            except OSError:
                continue
            if words[:2] == [b"sleep", b"98765"]:
                found.append(path.parent.name)
        return found

    def test_k_what_it_ran_is_ended_with_the_users_end_and_counts_for_nothing(self):
        process = self.spawn("exec", self.job, "--", "sleep", "87654")
        self.site.wait("the command", lambda: self.runs("87654"))
        process.kill()
        self.site.wait("its end in the guest", lambda: not self.runs("87654"))
        watching = self.spawn("attach", self.job)
        self.site.wait("the log", lambda: "up" in watching.output())
        self.site.cli("stop", self.job)
        self.assertNotIn(self.ended(watching), (0, None))
        self.assertIn("cancelled", watching.output())
        done = self.exec(self.job, "--", "true", check=False)
        self.assertEqual(done.returncode, FAILED, done.stderr)
        self.assertIn("is over: cancelled", done.stderr)


if __name__ == "__main__":
    unittest.main()
