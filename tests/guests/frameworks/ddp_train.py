# SPDX-License-Identifier: Apache-2.0
"""A training of two ranks under torchrun, over gloo on the processor, that saves when it is told by a signal and goes
on: the ranks agree on it after each step. The same steps give the same bits, interrupted or not. Who had been told is
saved with it, and said by the run that goes on from there: a machine may be left sooner than torchrun, which looks ten
times a second, has passed on what its ranks print.

torchrun --nproc_per_node=2 ddp_train.py        beside tests/gpu/frameworks/{ranks,training}.py"""
import time

import training
from ranks import Ranks

ranks = Ranks()
if ranks.saved:
    training.say(f"rank={ranks.rank} goes on told={ranks.saved['told']}")
training.say(f"rank={ranks.rank} begin step={ranks.step}")
while ranks.step < training.STEPS:
    time.sleep(training.PACE_S)
    ranks.train_step()
    told = ranks.told_ranks()
    if not any(told):
        continue
    for _ in range(40):  # signals come one after the other
        if all(told):
            break
        time.sleep(0.05)
        told = ranks.told_ranks()
    ranks.told = False
    ranks.save(told=told)
ranks.end()
