#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How tests read the guests' step logs, captures and tables: on literal inputs. And what scripts refuse."""
import contextlib
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts" / "lib"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
import capture  # noqa: E402
import daemon_log  # noqa: E402
import displacements  # noqa: E402
import guests  # noqa: E402
import help_pages  # noqa: E402
import machine  # noqa: E402
import table  # noqa: E402

LOG = """begin step=0 from=nothing time=100.000000
step=1 loss=2.5 time=101.000000
step=2 loss=2.0 time=102.000000
step=3 loss=1.5 time=103.000000
begin step=2 from=checkpoint time=110.000000
step=3 loss=1.5 time=111.000000
step=4 loss=1.0 time=112.500000
step=5 lo
begin step=4 from=checkpoint time=120.000000
step=5 loss=0.5 time=121.000000
"""


class InstallDeps(unittest.TestCase):
    def test_words_that_it_does_not_know_install_nothing(self):
        script = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "install-deps.sh"
        for words in (["--frob"], ["check"], ["--check", "more"], [""]):
            done = subprocess.run([script, *words], capture_output=True, text=True, timeout=60)
            self.assertEqual((done.returncode, done.stdout), (2, ""), f"{words}: {done.stderr}")
            self.assertIn("next:", done.stderr)


class UntilClean(unittest.TestCase):
    """scripts/lib/until_clean.py: Ctrl-C on what runs the tests, of whom each takes its time to clean up."""
    SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "lib" / "until_clean.py"
    # Dies of a Ctrl-C at once, as ctest does; its child does not, and says when it has cleaned up.
    RUNNER = """
import pathlib, signal, subprocess, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
TEST = '''
import pathlib, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    pathlib.Path(sys.argv[1], "begun").touch()
    time.sleep(60)
finally:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    time.sleep(float(sys.argv[2]))
    pathlib.Path(sys.argv[1], "clean").touch()
'''
sys.exit(subprocess.call([sys.executable, "-c", TEST, *sys.argv[1:]]))
"""

    def begin(self, cleanup_s, bound_s):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="rn-clean-"))
        self.addCleanup(shutil.rmtree, folder)
        run = subprocess.Popen(
            [self.SCRIPT, "--bound", str(bound_s), sys.executable, "-c", self.RUNNER, folder, str(cleanup_s)],
            stderr=subprocess.PIPE, text=True, start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
        self.addCleanup(self.end, run)
        give_up = time.monotonic() + 20
        while not (folder / "begun").exists():
            self.assertLess(time.monotonic(), give_up, "its test has not begun")
            time.sleep(0.02)
        return folder, run

    def end(self, run):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)  # its session, with what it left
        run.wait()
        run.stderr.close()

    def said_by(self, run):
        """What it says until it ends; what it leaves may hold its stderr."""
        self.assertIsNotNone(run.wait(timeout=40))
        os.set_blocking(run.stderr.fileno(), False)
        return os.read(run.stderr.fileno(), 1 << 16).decode()

    def test_after_ctrl_c_it_stays_until_the_tests_have_cleaned_up(self):
        folder, run = self.begin(cleanup_s=1, bound_s=60)
        os.killpg(run.pid, signal.SIGINT)
        said = self.said_by(run)
        self.assertTrue((folder / "clean").exists(), said)
        self.assertEqual(run.returncode, 130)
        self.assertRegex(said, r"told to end.* 60 s at most(.|\n)*all have ended")

    def test_it_does_not_stay_longer_than_its_bound_and_names_what_is_left(self):
        folder, run = self.begin(cleanup_s=60, bound_s=0.5)
        os.killpg(run.pid, signal.SIGINT)
        said = self.said_by(run)
        self.assertFalse((folder / "clean").exists(), said)
        self.assertEqual(run.returncode, 130)
        self.assertRegex(said, r"still there: \d+ .*python3(.|\n)*labs\.sh sweep")

    def test_a_second_ctrl_c_leaves_them(self):
        folder, run = self.begin(cleanup_s=60, bound_s=60)
        os.killpg(run.pid, signal.SIGINT)
        said = ""
        while "told to end" not in said:  # it counts from when it heard, not from when we said
            said += os.read(run.stderr.fileno(), 1 << 16).decode()
        time.sleep(1.2)  # a key that is held for a second is one wish
        os.killpg(run.pid, signal.SIGINT)
        self.assertIn("still there", self.said_by(run))
        self.assertFalse((folder / "clean").exists())

    def test_a_signal_that_comes_to_it_alone_is_passed_on(self):
        folder, run = self.begin(cleanup_s=0.2, bound_s=60)
        os.kill(run.pid, signal.SIGTERM)
        said = self.said_by(run)
        self.assertEqual(run.returncode, 143)
        self.assertTrue((folder / "clean").exists(), said)

    def test_an_undisturbed_command_keeps_its_exit_status(self):
        for command, status in (["true"], 0), (["sh", "-c", "exit 7"], 7), (["sh", "-c", "kill -9 $$"], 137), (
                ["/no/such/program"], 127):
            done = subprocess.run([self.SCRIPT, *command], capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, status, done.stderr)


HELP = """Do things.

First steps:
  thing do 7    once

Usage: thing [OPTIONS] SUBCOMMAND

Options:
  -h,--help                   Print this help message and exit
  --long-name TEXT Excludes: --other
                              what it is

Subcommands:
  do                          Do one.

Examples:
  thing do 7
  thing do 8    twice

It is done
then.
"""


class HelpPages(unittest.TestCase):
    """scripts/lib/help_pages.py: man pages of what --help says."""

    def test_examples_are_kept_line_by_line_and_only_the_first_paragraph_is_the_name(self):
        found = help_pages.parse(HELP)
        self.assertEqual(found.description, "Do things.")
        self.assertEqual(found.details, "First steps:\n  thing do 7    once")
        self.assertEqual(found.usage, "[OPTIONS] SUBCOMMAND")
        self.assertEqual((found.commands(), found.flags()), (["do"], ["-h", "--help", "--long-name"]))
        self.assertEqual(found.footer, "Examples:\n  thing do 7\n  thing do 8    twice\n\nIt is done\nthen.")
        self.assertEqual(list(help_pages.paragraphs(found.footer)), [
            ".PP", ".nf\nExamples:\n  thing do 7\n  thing do 8    twice\n.fi", ".PP", "It is done\nthen."])


class StepLog(unittest.TestCase):
    def test_starts_and_steps_are_read_and_torn_lines_left_out(self):
        self.assertEqual([begin.step for begin in guests.begins(LOG)], [0, 2, 4])
        self.assertEqual([begin.is_resumed for begin in guests.begins(LOG)], [False, True, True])
        self.assertEqual([step.step for step in guests.steps(LOG)], [1, 2, 3, 3, 4, 5])


OUTPUT = """cnn: resumed at step 40 of 1500
cnn: step 50 loss 2.2
cnn: step 80 loss 2.1
cnn: saved step 80
cnn: step 120 loss 2.0
cnn: saved step 120
cnn: step 130 loss 1.9
cnn: saved st"""


class ToldByOutput(unittest.TestCase):
    def test_begin_saves_and_the_last_step_are_read_and_torn_lines_left_out(self):
        found = guests.told(OUTPUT)

        self.assertEqual((found.begin, found.is_resumed, found.saved, found.last), (40, True, [80, 120], 130))

    def test_only_the_last_whole_save_is_where_a_successor_may_go_on(self):
        self.assertEqual(guests.told(OUTPUT).may_resume_at(40), {120}, "80 would be a generation lost")

    def test_a_save_of_which_it_could_tell_no_more_counts_too(self):
        self.assertEqual(guests.told(OUTPUT + "\ncnn: step 160 loss 1.8\n").may_resume_at(40), {120, 160})

    def test_one_that_has_saved_nothing_gives_its_successor_its_own_begin(self):
        self.assertEqual(guests.told("cnn: resumed at step 40 of 90\n").may_resume_at(40), {40})
        self.assertEqual(guests.told("").may_resume_at(40), {0})


def packets(*lines):
    """"time source step sequence" each, all of the guest cnn."""
    found = []
    for line in lines:
        time, source, step, sequence = line.split()
        found.append(capture.Packet(float(time), source, f"cnn {step} {sequence}"))
    return found


class Displacements(unittest.TestCase):
    # Steps take a second; five are saved; two more are done on a when its owner comes at 107.
    WIRE = packets(
        "100 a 0 1", "101 a 1 2", "105 a 5 3", "106 a 6 4", "107.25 a 7 5", "107.5 a 7 6",
        "120 b 5 1", "121 b 6 2", "122 b 7 3", "123.5 b 8 4", "124 b 9 5")

    def test_a_start_is_told_by_its_source_and_by_numbers_that_begin_again(self):
        wire = packets("1 a 0 1", "2 a 1 2", "5 a 1 1", "6 b 1 1", "7 a 2 2")

        found = displacements.Starts("cnn").take(wire)

        self.assertEqual([(start.source, start.first, start.restored) for start in found], [
            ("a", 1, 0), ("a", 5, 1), ("b", 6, 1)])
        self.assertEqual(displacements.Starts("transformer").take(wire), [])

    def test_lost_is_what_was_seen_done_and_is_done_again(self):
        one = displacements.displacement(displacements.Starts("cnn").take(self.WIRE), 107)

        self.assertEqual((one.step, one.restored, one.lost_steps), (7, 5, 2))
        self.assertEqual((one.last, one.lost_s), (107.5, 2.5))

    def test_packets_that_come_later_are_added(self):
        starts = displacements.Starts("cnn")
        starts.take(self.WIRE[:8])

        self.assertEqual(starts.take(self.WIRE), displacements.Starts("cnn").take(self.WIRE))

    def test_downtime_ends_with_the_first_step_that_is_new_and_silence_with_the_first_packet(self):
        one = displacements.displacement(displacements.Starts("cnn").take(self.WIRE), 107)

        self.assertEqual((one.silence_s, one.downtime_s), (12.5, 16.0))

    def test_nothing_is_lost_when_the_last_step_was_saved(self):
        wire = packets("100 a 0 1", "101 a 1 2", "110 b 1 1", "111 b 2 2")

        one = displacements.displacement(displacements.Starts("cnn").take(wire), 100.5)

        self.assertEqual((one.lost_steps, one.lost_s, one.downtime_s), (0, 0.0, 10.0))

    def test_a_start_that_did_nothing_new_is_part_of_the_downtime(self):
        wire = packets("100 a 0 1", "104 a 4 2", "110 b 2 1", "111 b 3 2", "120 a 3 1", "121 a 4 2", "122 a 5 3")

        one = displacements.displacement(displacements.Starts("cnn").take(wire), 104.5)

        self.assertEqual((one.silence_s, one.downtime_s, one.restored, one.lost_steps), (6.0, 18.0, 3, 1))

    def test_a_zombies_packets_after_the_cut_do_not_count(self):
        wire = packets(
            "100 b 0 1", "105 b 5 2", "110 b 9 90", "112 a 4 1", "113 b 12 99", "114 a 5 2", "115 a 6 3")

        one = displacements.displacement(displacements.Starts("cnn").take(wire), 105.5, cut=105.5)

        self.assertEqual((one.step, one.lost_steps, one.downtime_s), (5, 1, 10.0))

    def test_what_has_not_happened_yet_is_none(self):
        found = displacements.Starts("cnn").take(self.WIRE)

        self.assertIsNone(displacements.displacement(found, 99))
        self.assertIsNone(displacements.displacement(found, 107, until=110).silence_s)
        self.assertIsNone(displacements.displacement(found, 124).silence_s)
        again = displacements.displacement(displacements.Starts("cnn").take(self.WIRE[:8]), 107)
        self.assertEqual((again.silence_s, again.downtime_s, again.lost_steps), (12.5, None, 2))


class DaemonLog(unittest.TestCase):
    def test_lines_of_an_event_come_with_their_time_and_their_fields(self):
        at = time.mktime((2026, 11, 26, 11, 4, 5, 0, 0, -1)) + 0.25
        log = ('2026-11-26T11:04:05.250 I generation.copied job=j-1 bytes=17 words="of \\"two\\""\n'
               '2026-11-26T11:04:06.000 W told why=" generation.copied x=1"\n')

        found = daemon_log.timed_events(log, "generation.copied")

        self.assertEqual(found, [(at, {"job": "j-1", "bytes": "17", "words": 'of "two"'})])
        self.assertEqual(daemon_log.events(log, "generation.copied"), [fields for _, fields in found])


class CaptureFile(unittest.TestCase):
    def test_udp_payloads_come_with_time_and_source_and_a_torn_end_is_left_out(self):
        payload = b"cnn 7 3"
        udp = struct.pack(">HHHH", 1, 9900, 8 + len(payload), 0) + payload
        ip = bytes([0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 10, 77, 1, 11, 10, 77, 1, 14])
        frame = b"\0" * 12 + b"\x08\x00" + ip + udp
        head = b"\xd4\xc3\xb2\xa1" + b"\0" * 20
        record = struct.pack("<IIII", 1000, 250000, len(frame), len(frame)) + frame

        reader = capture.Reader()

        self.assertEqual(reader.feed(head[:10]), [])
        first = list(reader.feed(head[10:] + record + record[:20]))
        second = reader.feed(record[20:] + record[:5])

        packet = capture.Packet(1000.25, "10.77.1.11", "cnn 7 3")
        self.assertEqual((first, second), ([packet], [packet, packet]))
        self.assertEqual(packet.guest, "cnn")
        self.assertRaises(ValueError, capture.Reader().feed, b"x" * 30)


class ProcessesOfARun(unittest.TestCase):
    def test_who_looks_through_another_runs_groups_is_not_ours(self):
        ours, groups = "0a1b2c", "/sys/fs/cgroup"
        for line, is_ours in {
                "reclaim-warden serve --lab 0a1b2c-lab-a --run /tmp/rn-0a1b2c/lab-a/run": True,
                "sleep 9 /tmp/rn-0a1b2c": True,
                f"find {groups}/rn-19a8cb-* {groups}/rn-0a1b2c-lab-a/rn-19a8cb-*": False,
                "sleep 9 /tmp/rn-19a8cb": False}.items():
            self.assertEqual(machine.names_run(line, ours), is_ours, line)


class Table(unittest.TestCase):
    def test_numbers_stand_to_the_right(self):
        text = table.render(["kind", "cut"], [["notice", table.seconds(0.0123)], ["lost", table.seconds(None)]])

        self.assertEqual(text, "kind        cut\n──────  ───────\nnotice  12.3 ms\nlost          -")


if __name__ == "__main__":
    unittest.main()
