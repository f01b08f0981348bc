#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""compare_runs.py UNDISTURBED OTHER: are two training folders the same, bit for bit? Prints each difference, exit 1.

Compared are the curve files, the curves that follow from the step logs (the last line of each step counts, because
steps after the last checkpoint run again), and the bytes of the final weights.
"""
import hashlib
import pathlib
import re
import sys

LINE = re.compile(rb"^step=(\d+) loss=(\S+) time=(\S+)$")


def curve_of_log(path):
    """{step: loss as written}; lines that a kill tore are left out."""
    curve = {}
    for line in pathlib.Path(path).read_bytes().split(b"\n"):
        match = LINE.match(line)
        if match:
            curve[int(match[1])] = match[2].decode()
    return curve


def digest(path):
    """SHA-256 of the file in hexadecimal digits, or "absent"."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else "absent"


def differences(left, right):
    left, right = pathlib.Path(left), pathlib.Path(right)
    found = []
    for name in ("curve.csv", "final.pt"):
        hashes = [digest(folder / name) for folder in (left, right)]
        if hashes[0] != hashes[1] or "absent" in hashes:
            found.append(f"{name}: {hashes[0][:16]} against {hashes[1][:16]}")
    curves = [curve_of_log(folder / "steps.log") if (folder / "steps.log").exists() else {} for folder in (left, right)]
    if not curves[0]:
        found.append(f"{left}/steps.log has no steps")
    for step in sorted(set(curves[0]) | set(curves[1])):
        if curves[0].get(step) != curves[1].get(step):
            found.append(f"steps.log: step {step}: {curves[0].get(step)} against {curves[1].get(step)}")
            break
    return found


def main():
    found = differences(sys.argv[1], sys.argv[2])
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
