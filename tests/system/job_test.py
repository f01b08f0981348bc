#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A job from `reclaim run` to its outputs, on a real coordinator, agent, warden and engine; the tiny image. And the
machine afterwards: as it was before."""
import datetime
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
from labs import ROOT, SCRIPT, wait_until  # noqa: E402
from one_node import OneNode  # noqa: E402
from processes import user_of  # noqa: E402


MIB = 1 << 20
RESERVE_MIB = 256  # of the coordinator's disk, which uploads leave free
REPEAT_S = 2  # of the agent's, after a failed upload


class Job(OneNode):
    @classmethod
    def setUpClass(cls):
        folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        cls.before = f"{folder}/before"
        subprocess.run([SCRIPT, "snapshot", cls.before], check=True)
        super().setUpClass()

    def submit(self, folder, *command, flags=(), **options):
        return self.cli("run", "--disk", "64MB", "--memory", "64MB", "--stateless", *flags, "--", *command, cwd=folder,
                        **options)

    def test_1_files_go_there_and_outputs_and_log_come_back(self):
        folder = self.folder("plain", question="6 times 7\n")

        done = self.submit(folder, "sh", "-c", "cat question; echo 42 > answer; id -u")

        self.assertEqual(done.stdout, "6 times 7\n10001\n")
        self.assertEqual((folder / "answer").read_text(), "42\n")
        self.assertEqual([log.read_text() for log in folder.glob(".reclaim/*/attempt-*.log")], [done.stdout])

    def test_1b_an_output_that_cannot_be_written_keeps_no_other_away(self):
        folder = self.folder("crooked", **{"z-old": "old\n"})
        elsewhere = self.folder("elsewhere")
        (folder / "away").symlink_to(elsewhere)
        long = "n" * 255  # as long as a name may be

        done = self.submit(folder, "sh", "-c", f"rm away; mkdir away; echo 1 > away/x; echo 2 > {long}; echo 3 > z-old",
                           check=False)

        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertIn("away/x goes through the symbolic link away", done.stderr)
        self.assertIn("reclaim cp", done.stderr)
        self.assertEqual([path.name for path in elsewhere.iterdir()], [])
        self.assertEqual((folder / long).read_text(), "2\n")
        self.assertEqual((folder / "z-old").read_text(), "3\n")

    def test_1c_lines_of_a_log_are_found_by_when_they_came(self):
        """Seconds lie between three lines, and a second is what their times are kept to."""
        folder = self.folder("slowly")
        script = "for one in one two three; do echo $one; until [ -e /tmp/$one ]; do sleep 0.1; done; done"
        job = self.submit(folder, "sh", "-c", script, flags=["--detach"]).stdout.strip()
        rest = self.coordinator.rest()
        wait_until("it to run", lambda: rest.job(job)["state"] == "running", 60)
        for one in ("one", "two", "three"):
            wait_until(f"line {one}", lambda: rest.log(job).endswith(f"{one}\n".encode()), 60)  # noqa: B023
            time.sleep(2)  # the distance of the lines
            self.cli("exec", job, "--", "touch", f"/tmp/{one}")
        wait_until("its end", lambda: rest.job(job)["state"] == "succeeded", 90)

        def logs(*flags, **options):
            return self.cli("logs", *flags, job, **options)

        stamped = [line.split(" ", 1) for line in logs("--timestamps").stdout.splitlines()]
        self.assertEqual([words for _, words in stamped], ["one", "two", "three"])
        one, two, three = (datetime.datetime.fromisoformat(stamp.replace("Z", "+00:00")) for stamp, _ in stamped)
        for before, after in ((one, two), (two, three)):
            self.assertGreater((after - before).total_seconds(), 1.5)
        self.assertLess(abs(time.time() - three.timestamp()), 60)

        self.assertEqual(logs("--since", stamped[1][0]).stdout, "two\nthree\n")
        self.assertEqual(logs("--until", stamped[1][0]).stdout, "one\ntwo\n")
        self.assertEqual(logs("--since", stamped[1][0], "--until", stamped[1][0]).stdout, "two\n")
        self.assertEqual(logs("--since", "1h").stdout, "one\ntwo\nthree\n")
        self.assertEqual(logs("--since", "1h", "--tail", "1", "-t").stdout, " ".join(stamped[2]) + "\n")
        self.assertEqual(logs("--follow", "--tail", "2").stdout, "two\nthree\n")
        self.assertEqual(logs("--until", "2020-01-01").stdout, "")
        for words, flags in (("'soon' is neither a duration nor a time\n  next: for example 90s", ["--since", "soon"]),
                             ("--until is before --since", ["--since", "1m", "--until", "1h"]),
                             ("excludes", ["--follow", "--until", "1h"]), ("--tail", ["--tail", "0"])):
            refused = logs(*flags, check=False)
            self.assertEqual(refused.returncode, 2, refused.stderr)
            self.assertIn(words, refused.stderr)

    def test_2_the_exit_code_is_the_jobs(self):
        done = self.submit(self.folder("failing"), "sh", "-c", "exit 7", flags=["--max-restarts", "0"], check=False)

        self.assertEqual(done.returncode, 7, done.stderr)

    def test_2b_the_exit_code_is_known_when_the_job_has_left_no_room_on_its_disk(self):
        fill = "i=0; while true >f$i; do i=$((i+1)); done 2>/dev/null; exit 255"

        done = self.submit(self.folder("inodes"), "sh", "-c", fill, check=False,
                           flags=["--max-restarts", "0", "--output", "none", "--temporary", "f*"])

        self.assertEqual(done.returncode, 255, done.stderr)
        self.assertNotIn("vanished", done.stderr)

    def test_3_a_running_job_is_listed_explained_and_stopped(self):
        job = self.submit(self.folder("sleeping"), "sleep", "1000", flags=["--detach"]).stdout.strip()
        rest = self.coordinator.rest()
        wait_until("the job to run", lambda: rest.job(job)["state"] == "running", 60)

        self.assertIn(job, self.cli("ps").stdout)
        self.assertIn("lab-a", self.cli("why", job).stdout)
        self.cli("stop", job)

        wait_until("the job to end", lambda: rest.job(job)["state"] == "cancelled", 30)

    def test_4_an_owner_who_takes_the_machine_back_has_it_and_gives_it_again(self):
        job = self.submit(self.folder("displaced"), "sleep", "1000", flags=["--detach"]).stdout.strip()
        rest = self.coordinator.rest()
        wait_until("the job to run", lambda: rest.job(job)["state"] == "running", 60)

        done = self.node.kill_switch()

        self.assertRegex(done.stdout, "^cleared")
        wait_until("the job to wait again", lambda: rest.job(job)["state"] == "queued", 60)
        self.node.owner("release")
        wait_until("the job to run again", lambda: rest.job(job)["state"] == "running", 60)
        self.cli("stop", job)

    def test_4b_what_remains_of_a_guest_is_named_and_its_job_was_taken_back_not_lost(self):
        job = self.submit(self.folder("remaining"), "sleep", "1004", flags=["--detach"]).stdout.strip()
        rest = self.coordinator.rest()
        wait_until("the job to run", lambda: rest.job(job)["state"] == "running", 60)
        uid = wait_until("its command to run", lambda: user_of(b"sleep\0001004\0"), 20)
        # With the guest's user id, outside of every guest, so that nobody may end it for the owner.
        stray = self.labs.spawn("lab-a", "stray", ["setpriv", "--reuid", str(uid), "--clear-groups", "sleep", "600"])

        order = self.labs.spawn("lab-a", "order", self.node.agent_program("reclaim", "--now"))
        wait_until("the job to wait again", lambda: rest.job(job)["state"] == "queued", 60)
        self.assertNotEqual(order.popen.wait(60), 0, order.output())
        record = max(rest.reclaims(), key=lambda one: one["declared_wall_ms"])
        told_ms = rest.ran(job)[0]["ended_wall_ms"] - record["declared_wall_ms"]
        self.assertLess(told_ms, 9000, "it is told while the order is still at work, for ten seconds")
        self.assertIn(f"PID {stray.pid}: ", order.output())
        self.assertNotIn("by hand", order.output())
        doctor = self.labs.call("lab-a", self.node.agent_program("doctor"), check=False)
        stray.kill()
        wait_until("the machine to be cleared", lambda: "cleared" in self.node.owner("status").stdout, 40)

        self.assertEqual(doctor.returncode, 1, doctor.stdout)
        self.assertRegex(doctor.stdout, f"MISSING reclaim r-.*user id, PID {stray.pid}: outside the guests' cgroup")
        self.node.owner("release")
        wait_until("the job to run again", lambda: rest.job(job)["state"] == "running", 60)
        self.assertEqual(rest.ran(job)[0]["end"], "reclaimed", rest.ran(job)[0])
        self.cli("stop", job)

    def test_4c_who_lends_again_while_guests_are_being_cleared_waits_for_that_and_is_not_refused(self):
        job = self.submit(self.folder("lent-again"), "sleep", "1005", flags=["--detach"]).stdout.strip()
        rest = self.coordinator.rest()
        uid = wait_until("its command to run", lambda: user_of(b"sleep\0001005\0"), 90)
        stray = self.labs.spawn("lab-a", "stray", ["setpriv", "--reuid", str(uid), "--clear-groups", "sleep", "600"])
        order = self.labs.spawn("lab-a", "order", self.node.agent_program("reclaim", "--now"))
        wait_until("its command to be gone", lambda: user_of(b"sleep\0001005\0") is None, 60, 0.05)

        said = self.node.owner("release", timeout_s=60)  # for ten seconds the order looks what becomes of the stray

        print(f"  release: {said.stderr.strip() or 'the machine was cleared before it'}")
        order.popen.wait(60)
        stray.kill()
        wait_until("the job to run again", lambda: rest.job(job)["state"] == "running", 60)
        self.cli("stop", job)

    def test_5_a_guest_is_told_how_many_threads_to_start_like_the_undisturbed_runs_without_a_site(self):
        script = f"source {ROOT}/scripts/lib/image_run.sh; image_threads 2"
        outside = subprocess.run(["bash", "-c", script], check=True, stdout=subprocess.PIPE, text=True).stdout.split()

        done = self.submit(self.folder("asking"), "env", flags=["--cpus", "2.5", "--cpus-min", "0.1"])

        told = [line for line in done.stdout.splitlines() if re.match("[A-Z_]+=2$", line)]
        self.assertIn("RECLAIM_CPUS_NUM=2", told)
        self.assertEqual(sorted(told), sorted(["RECLAIM_CPUS_NUM=2", *outside]))

    def fill_the_coordinators_disk(self):
        """But for less than uploads leave free. Answers the file to be deleted, which is gone with the test, too."""
        disk = self.labs.disk("campus")  # a file system of its own, on a loop device that goes with the laboratories
        free = os.statvfs(disk)
        filler = disk / "filler"
        self.addCleanup(filler.unlink, missing_ok=True)
        with open(filler, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, free.f_bavail * free.f_frsize - RESERVE_MIB * MIB // 2)
        return filler

    def sent_bytes(self):
        """By the node, so far."""
        link, = json.loads(self.labs.call("lab-a", ["ip", "-s", "-j", "link", "show", "dev", "eth0"]).stdout)
        return link["stats64"]["tx"]["bytes"]

    def test_6_outputs_for_which_the_coordinator_has_no_room_wait_and_come_home_when_there_is_some(self):
        rest, home = self.coordinator.rest(), self.folder("home")
        filler = self.fill_the_coordinators_disk()
        make = "head -c 262144 /dev/urandom >first; head -c 5000000 /dev/urandom >second; sha256sum first second"
        job = self.submit(home, "sh", "-c", make, flags=["--detach", "--no-upload"]).stdout.strip()

        def complaints():
            return [event["message"] for event in rest.events(job) if event["kind"] == "checkpoint.trouble"]

        told, = wait_until("its user to be told", complaints, 30)
        self.assertRegex(told, "^it has ended well, and its outputs wait to come home: .*the coordinator's disk is "
                               "full: [0-9]+ MiB are free, 256 MiB are reserved; next: ask the operator to make room")
        self.assertIn(told, self.cli("why", job).stdout)
        begun, before = time.monotonic(), self.sent_bytes()
        time.sleep(2 * REPEAT_S)
        wait_until("it to be tried again", lambda: self.sent_bytes() - before > 262144, 60)
        tries = (self.sent_bytes() - before) / 262144
        self.assertLess(tries, (time.monotonic() - begun) / REPEAT_S + 2, "each sends the first file")
        self.assertEqual(complaints(), [told], "in the history once")
        self.assertEqual(rest.job(job)["finished_wall_ms"], 0, rest.job(job))

        filler.unlink()

        wait_until("the job to end", lambda: rest.job(job)["state"] == "succeeded", 30)
        self.assertEqual([attempt["end"] for attempt in rest.ran(job)], ["succeeded"])
        self.cli("cp", f"{job}:", home)
        came = "".join(f"{hashlib.sha256((home / name).read_bytes()).hexdigest()}  {name}\n"
                       for name in ("first", "second"))
        self.assertEqual(rest.log(job).decode(), came)

    def test_9_after_leaving_the_machine_is_as_before(self):
        self.node.owner("leave", "--purge")
        self.labs.down()

        told = subprocess.run([SCRIPT, "changes", self.before], stdout=subprocess.PIPE, text=True)

        self.assertEqual(self.labs.residue(), [])
        self.assertNotIn(self.labs.run, told.stdout)
        owners = ("user", "group", "sysctl", "rule")
        self.assertEqual([line for line in told.stdout.splitlines() if line[2:].split(" ")[0] in owners], [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
