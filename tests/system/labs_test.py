#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The laboratories themselves: separate networks and disks, cables that can be pulled, and nothing left behind."""
import os
import pathlib
import secrets
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
from capture import PORT, Capture  # noqa: E402
from labs import ROOT, SCRIPT, Labs, TimedOut, wait_for_exit, wait_until  # noqa: E402


def residue(run):
    return subprocess.run([SCRIPT, "residue", run], stdout=subprocess.PIPE, text=True).stdout


class LabsTest(unittest.TestCase):
    def ping(self, labs, source, target):
        return labs.call(source, ["ping", "-c1", "-W1", labs.addresses[target]], check=False).returncode == 0

    def test_labs_reach_each_other_until_a_cable_is_pulled(self):
        with Labs("lab-a", "lab-b") as labs:
            self.assertTrue(self.ping(labs, "lab-a", "lab-b"))
            self.assertTrue(self.ping(labs, None, "lab-a"))

            labs.link("lab-b", up=False)
            self.assertFalse(self.ping(labs, "lab-a", "lab-b"))

            labs.link("lab-b", up=True)
            wait_until("the cable to work again", lambda: self.ping(labs, "lab-a", "lab-b"), 10)

    def test_a_lab_can_fill_only_its_own_disk(self):
        with Labs("lab-a", "lab-b", disk="64M") as labs:
            filled = labs.call("lab-a", ["dd", "if=/dev/zero", f"of={labs.disk('lab-a')}/x", "bs=1M"], check=False)

            self.assertIn("No space left", filled.stderr)
            (labs.disk("lab-b") / "y").write_bytes(b"y" * (8 << 20))

    def test_a_capture_sees_what_arrives_and_when(self):
        with Labs("lab-a", "peer") as labs:
            capture = Capture(labs)
            before = time.time()
            send = ("import socket, sys; s = socket.socket(2, 2);"
                    "[s.sendto(b'cnn %d 1' % n, (sys.argv[1], int(sys.argv[2]))) for n in range(5)]")
            labs.call("lab-a", [sys.executable, "-c", send, labs.addresses["peer"], PORT])
            packets = wait_until("five packets", lambda: len(capture.packets("cnn")) == 5 and capture.packets(), 10)

            self.assertEqual([packet.text for packet in packets], [f"cnn {step} 1" for step in range(5)])
            self.assertEqual({packet.source for packet in packets}, {labs.addresses["lab-a"]})
            self.assertTrue(all(before <= packet.time <= time.time() for packet in packets))

    def test_down_ends_stopped_and_deaf_processes_and_removes_everything(self):
        labs = Labs("lab-a", disk="64M")
        deaf = labs.spawn("lab-a", "deaf", ["sh", "-c", "trap '' TERM; while :; do sleep 1; done"])
        frozen = labs.spawn("lab-a", "frozen", ["sleep", "1000"])
        frozen.freeze()
        self.assertTrue(any(line.startswith("process") for line in labs.residue()))

        labs.down()

        self.assertFalse(deaf.is_running() or frozen.is_running())
        self.assertEqual(labs.residue(), [])

    def test_everything_goes_when_the_owner_of_the_labs_is_killed(self):
        lib = str(pathlib.Path(__file__).resolve().parent / "lib")
        code = ("import sys,time; sys.path.insert(0,sys.argv[1]); from labs import Labs; l=Labs('a',disk='64M');"
                "l.spawn('a','s',['sleep','1000']); print(l.run,flush=True); time.sleep(1000)")
        owner = subprocess.Popen([sys.executable, "-c", code, lib], stdout=subprocess.PIPE, text=True)
        run = owner.stdout.readline().strip()
        self.assertIn("process", residue(run))

        os.kill(owner.pid, signal.SIGKILL)
        owner.wait()
        owner.stdout.close()

        wait_until("nothing left", lambda: residue(run) == "", 30, 0.5)

    def test_a_sweep_takes_down_what_lost_its_guard_too_and_nothing_else(self):
        with tempfile.TemporaryDirectory() as root:
            environment = {**os.environ, "RN_LABS_ROOT": root}  # it sees these three runs alone

            def script(*words):
                return subprocess.run([SCRIPT, *words], env=environment, stdout=subprocess.PIPE, text=True).stdout

            owners, guards, runs = [], [], [secrets.token_hex(3) for _ in range(3)]
            for run in runs:
                self.addCleanup(subprocess.run, [SCRIPT, "down", run], env=environment)
                owners.append(subprocess.Popen(["sleep", "1000"]))
                self.addCleanup(owners[-1].wait)
                self.addCleanup(owners[-1].kill)
                script("up", "--run", run, "--guard", str(owners[-1].pid), "a")
                record = pathlib.Path(root, f"rn-{run}", "guard").read_text().splitlines()
                self.assertEqual(record[1].split()[0], str(owners[-1].pid))
                guards.append(int(record[2].split()[0]))
                self.assertIn(f"guard\0{run}", pathlib.Path(f"/proc/{guards[-1]}/cmdline").read_text())
            for number in (0, 1):
                os.kill(guards[number], signal.SIGKILL)
                wait_for_exit(guards[number], 10)
            owners[0].kill()
            owners[0].wait()

            self.assertEqual(script("sweep").split(), [runs[0]])

            self.assertEqual(script("residue", runs[0]), "")
            for run in runs[1:]:
                self.assertIn("namespace", script("residue", run))
            owners[1].kill()
            owners[1].wait()
            record = pathlib.Path(root, f"rn-{runs[1]}", "guard")
            text = record.read_text()
            for other in ("another world of pids\n" + text.split("\n", 1)[1], text.rsplit("\n", 2)[0] + "\n", ""):
                record.write_text(other)
                self.assertEqual(script("sweep"), "", other)
            record.write_text(text)
            script("up", "--run", secrets.token_hex(3), "--guard", "1", "switch")  # refused; but swept before
            self.assertEqual(script("residue", runs[1]), "")

    # ---- what the suites of C++ leave, of which each is its own guard (tests/system/warden_node_fake.h)

    @staticmethod
    def cgroup_root():
        mounts = [line.split() for line in pathlib.Path("/proc/mounts").read_text().splitlines()]
        return pathlib.Path(next(words[1] for words in mounts if words[2] in ("cgroup", "cgroup2") and (
            words[2] == "cgroup2" or "freezer" in words[3].split(","))))

    def leftover(self, root, run, maker):
        """What a suite has made, as far as a sweep can see it: its record, a folder, a cgroup with a process in it."""
        folder, cgroup = pathlib.Path(root, f"rn-{run}"), self.cgroup_root() / f"reclaim-{run}"
        (folder / "state").mkdir(parents=True)
        born = pathlib.Path(f"/proc/{maker.pid}/stat").read_text().rsplit(") ", 1)[1].split()[19]
        boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        (folder / "guard").write_text(f"{boot} {os.readlink('/proc/self/ns/pid')}\n" + f"{maker.pid} {born}\n" * 2)
        (cgroup / "guest").mkdir(parents=True)
        guest = subprocess.Popen(["sleep", "1000"])
        (cgroup / "guest" / "cgroup.procs").write_text(str(guest.pid))

        def undo():
            guest.kill()
            guest.wait()
            for group in (cgroup / "guest", cgroup):
                if group.exists():
                    wait_until(f"{group} to be empty", lambda g=group: not (g / "cgroup.procs").read_text(), 10)
                    group.rmdir()
        self.addCleanup(undo)
        return folder, cgroup, guest

    def test_a_sweep_takes_down_what_a_killed_suite_has_left_and_no_living_ones(self):
        with tempfile.TemporaryDirectory() as root:
            killed, living = subprocess.Popen(["sleep", "1000"]), subprocess.Popen(["sleep", "1000"])
            for maker in (killed, living):
                self.addCleanup(maker.wait)
                self.addCleanup(maker.kill)
            name = f"tst{os.getpid()}"
            dead = self.leftover(root, name, killed)
            alive = self.leftover(root, name + "1", living)  # its name begins with the other's
            environment = {**os.environ, "RN_LABS_ROOT": root}
            sweep = [SCRIPT, "sweep"]
            self.assertEqual(subprocess.run(sweep, env=environment, stdout=subprocess.PIPE, text=True).stdout, "")
            killed.kill()
            killed.wait()

            self.assertEqual(subprocess.run(sweep, env=environment, stdout=subprocess.PIPE, text=True).stdout.split(),
                             [name])

            self.assertFalse(dead[0].exists() or dead[1].exists())
            self.assertIsNotNone(dead[2].wait(10))
            self.assertTrue(alive[0].exists() and alive[1].exists())
            self.assertIsNone(alive[2].poll())

    def test_a_suite_that_is_killed_is_swept(self):
        suite = pathlib.Path(os.environ.get("RN_BUILD", ROOT / "build" / "dev")) / "tests" / "system" / "warden_node"
        if not suite.exists():
            self.skipTest(f"{suite} is not built")
        root = tempfile.mkdtemp(prefix="rn-suite-")
        self.addCleanup(os.rmdir, root)  # never through what may still be mounted below
        environment = {**os.environ, "RN_LABS_ROOT": root}
        process = subprocess.Popen([suite, "--gtest_filter=Warden.the_disk_limit*"], env=environment,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        run = f"sys{process.pid}"
        folder, cgroup = pathlib.Path(root, f"rn-{run}"), self.cgroup_root() / f"reclaim-{run}"
        self.addCleanup(subprocess.run, [SCRIPT, "down", run], env=environment)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        wait_until("its cgroup", cgroup.exists, 60)
        self.assertEqual(subprocess.run([SCRIPT, "sweep"], env=environment, stdout=subprocess.PIPE).stdout, b"")
        self.assertIsNone(process.poll(), "it still runs")
        process.kill()
        process.wait()

        swept = subprocess.run([SCRIPT, "sweep"], env=environment, stdout=subprocess.PIPE, text=True).stdout

        self.assertEqual(swept.split(), [run])
        self.assertFalse(folder.exists() or cgroup.exists())
        self.assertEqual(subprocess.run([SCRIPT, "residue", run], env=environment, stdout=subprocess.PIPE,
                                        text=True).stdout, "")

    def test_interrupt_during_a_command_takes_the_labs_down(self):
        owner = subprocess.Popen(
            [SCRIPT, "with", "a", "--", "sh", "-c", "echo $RN_RUN; sleep 1000"], stdout=subprocess.PIPE, text=True,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # a test in the background ignores it
        run = owner.stdout.readline().strip()

        os.killpg(owner.pid, signal.SIGINT)

        self.assertTrue(wait_for_exit(owner.pid, 30))
        owner.wait()
        owner.stdout.close()
        self.assertEqual(residue(run), "")

    def test_up_that_is_interrupted_before_it_has_told_its_id_undoes_itself(self):
        last = ["ip", "netns", "list"]
        for seen in ("rn-{}-switch", "rn-{}-a", "rn-{}-d"):  # made first, in the middle, at the end
            run = secrets.token_hex(3)
            up = subprocess.Popen(
                [SCRIPT, "up", "--run", run, "--disk", "64M", "--rate", "1gbit", "a", "b", "c", "d"],
                stdout=subprocess.PIPE, text=True, start_new_session=True,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
            self.addCleanup(subprocess.run, [SCRIPT, "down", run])
            with self.subTest(seen):
                wait_until("its first steps", lambda: seen.format(run) in subprocess.check_output(last, text=True), 20,
                           0.002)

                os.killpg(up.pid, signal.SIGINT)

                told = up.communicate(timeout=40)[0]
                self.assertEqual(residue(run), "")
                # NOTE(bash 5.2): a trap amid the parsing of $(…) is called a syntax error, which ends it, too.
                self.assertIn(up.returncode, (130, 2))
                self.assertEqual(told, "")

    def test_up_that_is_interrupted_leaves_another_ones_run_alone(self):
        with Labs("a") as labs:
            for verb in (["up", "--run", labs.run, "b"], ["with", "--run", labs.run, "b", "--", "true"]):
                self.assertNotEqual(subprocess.run([SCRIPT, *verb], capture_output=True).returncode, 0)
                self.assertIn(f"namespace rn-{labs.run}-a", labs.residue())

    def test_labs_whose_start_is_interrupted_leave_nothing(self):
        lib = str(pathlib.Path(__file__).resolve().parent / "lib")
        code = ("import signal,sys; sys.path.insert(0,sys.argv[1]); from labs import Labs;"
                "signal.signal(signal.SIGINT, signal.default_int_handler); Labs('a','b',disk='64M',run=sys.argv[2])")
        run = secrets.token_hex(3)
        self.addCleanup(subprocess.run, [SCRIPT, "down", run])
        owner = subprocess.Popen(
            [sys.executable, "-c", code, lib, run], stderr=subprocess.PIPE, text=True, start_new_session=True)
        wait_until("its folder", pathlib.Path(f"/tmp/rn-{run}").exists, 20, 0.002)

        os.kill(owner.pid, signal.SIGINT)  # not its child: that one hears of it from Labs

        self.assertIn("KeyboardInterrupt", owner.communicate(timeout=40)[1])
        self.assertEqual(residue(run), "")

    def test_a_bad_name_and_a_taken_run_are_refused_and_leave_nothing(self):
        for arguments in (["--run", "Bad!", "a"], ["--run", "ok", "name-that-is-too-long"], ["--run", "ok"]):
            done = subprocess.run([SCRIPT, "up", *arguments], capture_output=True, text=True)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("labs:", done.stderr)
        with Labs("a") as labs:
            again = subprocess.run([SCRIPT, "up", "--run", labs.run, "b"], capture_output=True, text=True)
            self.assertIn("exists already", again.stderr)
        self.assertEqual(residue("ok"), "")

    def test_changes_of_the_machine_are_told_from_a_snapshot(self):
        with tempfile.TemporaryDirectory() as folder:
            before = f"{folder}/before"
            subprocess.run([SCRIPT, "snapshot", before], check=True)
            with Labs("a", disk="64M") as labs:
                told = subprocess.run([SCRIPT, "changes", before], stdout=subprocess.PIPE, text=True)

                self.assertEqual(told.returncode, 1)
                for line in (f"+ namespace rn-{labs.run}-a", f"+ interface rn-{labs.run}",
                             f"+ mount {labs.disk('a')} ext4", f"+ route {labs.subnet}.0/24"):
                    self.assertIn(line, told.stdout)
            after = subprocess.run([SCRIPT, "changes", before], stdout=subprocess.PIPE, text=True)
            self.assertNotIn(labs.run, after.stdout)

    def test_a_wait_that_fails_says_for_what(self):
        with self.assertRaisesRegex(TimedOut, "the moon"):
            wait_until("the moon", lambda: None, 0.1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
