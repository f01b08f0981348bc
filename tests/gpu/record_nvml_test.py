#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""record_nvml.py on a library that replays a recording: what it writes is what the card had said, call by call."""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
RECORDED = HERE / "recorded" / "h100.txt"
LIBRARY = sys.argv[1]


def calls_of(text):
    """{state: {(call, device): (code, bytes)}}"""
    states, calls = {}, {}
    for words in (line.split() for line in text.splitlines() if not line.startswith("#")):
        if words[0] == "state":
            calls = states[words[1]] = {}
        else:
            calls[words[0], words[1]] = (words[2], words[3])
    return states


class Record(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="rn-record-nvml-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "libnvidia-ml.so.1").symlink_to(LIBRARY)

    def record(self, state):
        (self.folder / "state").write_text(state)
        out = self.folder / "recorded"
        done = subprocess.run(
            [sys.executable, "-B", HERE / "record_nvml.py", out, "--settle-s", "0",
             "--guest", f"{sys.executable} -B {HERE / 'guest_fake.py'}"],
            env={**os.environ, "LD_LIBRARY_PATH": str(self.folder), "RN_NVML_RECORDING": str(RECORDED),
                 "RN_NVML_STATE": str(self.folder / "state")}, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        return out.read_text()

    def test_what_is_recorded_is_what_was_answered(self):
        recorded = calls_of(RECORDED.read_text())
        for state in ("nobody", "idle_and_training"):
            written = calls_of(self.record(state))
            self.assertEqual(list(written)[:5], ["nobody", "idle", "idle_and_training", "training", "holding"])
            self.assertEqual(list(written)[-1], "after")
            for name, calls in written.items():
                for call, answer in calls.items():
                    self.assertEqual(answer, recorded[state].get(call, ("3", "-")), f"{name}: {call}")
                self.assertEqual(set(recorded[state]) - set(calls), set(), name)

    def test_where_no_driver_is_it_says_so(self):
        (self.folder / "libnvidia-ml.so.1").unlink()
        (self.folder / "libnvidia-ml.so.1").write_text("no library")
        done = subprocess.run([sys.executable, "-B", HERE / "record_nvml.py", self.folder / "recorded"],
                              env={**os.environ, "LD_LIBRARY_PATH": str(self.folder)}, capture_output=True, text=True)

        self.assertEqual(done.returncode, 1)
        self.assertIn("no NVIDIA driver here", done.stderr)


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    unittest.main(argv=sys.argv[:1], verbosity=2)
