# SPDX-License-Identifier: Apache-2.0
"""What is submitted by the test of submitit's client: a module that client and job both have in their folder."""
import os
import pathlib
import time


def where(factor, numbers):
    """The sum, and where it was computed; leaves a file behind."""
    pathlib.Path("left.txt").write_text("left by the job\n")
    pathlib.Path("kept.txt").write_text("written by the job\n")
    print("computes", flush=True)
    return factor * sum(numbers), os.getcwd()


def fails(word):
    raise ValueError(word)


def sleeps():
    print("sleeps", flush=True)
    time.sleep(1000)


class Count:
    """Counts until it was interrupted and has counted on for ten more; answers where it went on and where it ended."""

    def __init__(self):
        self.step = 0

    def checkpoint(self):
        print(f"saves step={self.step}", flush=True)
        return {"function": self, "arguments": ()}

    def __call__(self):
        first = self.step
        print(f"begin step={first}", flush=True)
        while not first or self.step < first + 10:
            time.sleep(0.1)
            self.step += 1
        return first, self.step
