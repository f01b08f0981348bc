# SPDX-License-Identifier: Apache-2.0
"""How benches print: what ran where, and samples with n, median and p99."""
import math
import os
import platform
import subprocess

from labs import ROOT


def quantile(samples, q):
    """Nearest rank: with fewer than 100 samples the p99 is the largest."""
    return sorted(samples)[max(0, math.ceil(q * len(samples)) - 1)]


def line(name, samples, unit="s"):
    print(f"{name:<34} n={len(samples)}, p50 {quantile(samples, 0.5):.2f} {unit}, p99 {quantile(samples, 0.99):.2f} "
          f"{unit}, max {max(samples):.2f} {unit}", flush=True)


def heading(title):
    commit = subprocess.run(
        ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=10"], capture_output=True, text=True)
    print(f"{title}\nmachine: {os.cpu_count()} cores, {platform.system()} {platform.release()}, load "
          f"{os.getloadavg()[0]:.1f}\ncommit: {commit.stdout.strip()}", flush=True)
