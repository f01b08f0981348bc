#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How tests read the guests' step logs, captures and tables: on literal inputs."""
import pathlib
import struct
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
import capture  # noqa: E402
import guests  # noqa: E402
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


class StepLog(unittest.TestCase):
    def test_starts_and_steps_are_read_and_torn_lines_left_out(self):
        self.assertEqual([begin.step for begin in guests.begins(LOG)], [0, 2, 4])
        self.assertEqual([begin.is_resumed for begin in guests.begins(LOG)], [False, True, True])
        self.assertEqual([step.step for step in guests.steps(LOG)], [1, 2, 3, 3, 4, 5])

    def test_downtime_runs_from_the_last_useful_to_the_first_new_step(self):
        self.assertEqual(guests.downtime_s(LOG), [112.5 - 103.0, 121.0 - 112.5])

    def test_lost_are_the_executed_steps_after_the_checkpoint(self):
        self.assertEqual(guests.lost_steps(LOG), [1, 0])


class CaptureFile(unittest.TestCase):
    def test_udp_payloads_come_with_time_and_source_and_a_torn_end_is_left_out(self):
        payload = b"cnn 7 3"
        udp = struct.pack(">HHHH", 1, 9900, 8 + len(payload), 0) + payload
        ip = bytes([0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 10, 77, 1, 11, 10, 77, 1, 14])
        frame = b"\0" * 12 + b"\x08\x00" + ip + udp
        head = b"\xd4\xc3\xb2\xa1" + b"\0" * 20
        record = struct.pack("<IIII", 1000, 250000, len(frame), len(frame)) + frame

        packets = capture.parse(head + record + record[:20])

        self.assertEqual(packets, [capture.Packet(1000.25, "10.77.1.11", "cnn 7 3")])
        self.assertEqual(packets[0].guest, "cnn")
        self.assertRaises(ValueError, capture.parse, b"x" * 30)


class Table(unittest.TestCase):
    def test_numbers_stand_to_the_right(self):
        text = table.render(["kind", "cut"], [["notice", table.seconds(0.0123)], ["lost", table.seconds(None)]])

        self.assertEqual(text, "kind        cut\n──────  ───────\nnotice  12.3 ms\nlost          -")


if __name__ == "__main__":
    unittest.main()
