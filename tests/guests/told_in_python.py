# SPDX-License-Identifier: Apache-2.0
"""A training that asks the package whether to save, and ends some steps after it went on: docs/python.md.

reclaim run --tell-api --checkpoint state.ckpt --temporary '*.saving' -- python3 told_in_python.py STEP_S"""
import pathlib
import sys
import time

import reclaimnet

STEPS_AFTER_RESUME = 10

state = pathlib.Path("state.ckpt")
step = int(state.read_text()) if reclaimnet.is_resumed() else 0
last = step + STEPS_AFTER_RESUME if reclaimnet.is_resumed() else sys.maxsize
print(f"begin step={step}", flush=True)
while step < last:
    time.sleep(float(sys.argv[1]))
    step += 1
    if reclaimnet.should_save():
        said = reclaimnet.notice()
        with reclaimnet.saving(state) as path:
            pathlib.Path(path).write_text(str(step))
            # Before it is there: at a notice the machine is left at once after that.
            why = f"reason={said.reason} left={said.seconds_left:.0f}" if said else "reason=-"
            print(f"saves step={step} {why}", end="", flush=True)
pathlib.Path("answer").write_text(f"{step}\n")
