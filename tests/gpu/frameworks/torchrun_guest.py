# SPDX-License-Identifier: Apache-2.0
"""Two ranks under torchrun, which share one GPU over gloo, or the processor. SIGUSR1 has them save and end: they agree
on it after each step.

torchrun --nproc_per_node=2 torchrun_guest.py"""
import time

import training
from ranks import Ranks

ranks = Ranks()
training.say(f"begin step={ranks.step}")
while ranks.step < training.STEPS:
    time.sleep(training.PACE_S)
    ranks.train_step()
    told = ranks.told_ranks()
    if ranks.rank == 0:
        training.say(f"step={ranks.step}")
    if not any(told):
        continue
    if ranks.rank == 0:
        training.say(f"saves step={ranks.step}")
    ranks.save()
    raise SystemExit(0)
ranks.end()
