#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The words of gpu_guest.py without PyTorch, for tests of gpu_check.py. RN_FAKE_GUEST: `torn` resumes with other
weights, `leaky` finds what a scrub should have overwritten, `blind` finds nothing of its own, `mute` never comes up,
`groups:FILE` adds its control groups to FILE."""
import os
import sys
import time

tenant, words = sys.argv[1], sys.argv[2:]
if tenant == "wait":
    tenant, *words = sys.stdin.readline().split() or ["nobody"]
flags = dict(zip(words[::2], words[1::2]))
is_so = os.environ.get("RN_FAKE_GUEST", "")
if tenant in ("idle", "training", "holding", "endless", "leave"):
    if is_so == "mute":
        sys.exit("no memory")
    if is_so.startswith("groups:"):
        with open("/proc/self/cgroup", encoding="ascii") as own, open(is_so[7:], "a", encoding="ascii") as file:
            file.write(own.read().strip().replace("\n", ",") + "\n")
    print("ready", os.getpid(), flush=True)
    time.sleep(600)  # until it is killed
elif tenant == "seek":
    taken = int(flags["--mib"]) << 20
    print("found", 64 if is_so == "leaky" else 0, "of", taken)
elif tenant == "control":
    print("found", 0 if is_so == "blind" else 64, "of 64")
elif tenant == "scrub":
    print("scrubbed", 1 << 20)
elif "--stop-at" in flags:
    print("from 0", flush=True)
    with open(flags["--checkpoint"], "w", encoding="ascii") as file:
        file.write("30")
    os.kill(os.getpid(), 9)
else:
    print("from", 30 if os.path.exists(flags.get("--checkpoint", "")) else 0)
    if "--again-at" in flags:
        print("from 30")
    print("weights", "other" if is_so == "torn" and flags["--checkpoint"] == "reset.pt" else "same")
