# SPDX-License-Identifier: Apache-2.0
"""A training of two ranks under torchrun, over gloo on the processor, that saves when it is told by a signal and goes
on: the ranks agree on it after each step. The same steps give the same bits, interrupted or not. Who had been told is
saved with it, and said by the run that goes on from there: a machine may be left sooner than torchrun, which looks ten
times a second, has passed on what its ranks print.

torchrun --nproc_per_node=2 ddp_train.py        beside tests/gpu/frameworks/training.py"""
import os
import pathlib
import signal
import time

import torch
import torch.distributed as dist
import training

told = False


def on_signal(*_):
    global told
    told = True


def told_ranks():
    """1 for each rank that has been told, else 0; the same list in all of them."""
    flags = torch.zeros(dist.get_world_size(), dtype=torch.int64)
    flags[dist.get_rank()] = int(told)
    dist.all_reduce(flags)
    return flags.tolist()


device = training.deterministic()
dist.init_process_group("gloo")
rank = dist.get_rank()
signal.signal(signal.SIGUSR1, on_signal)
network = training.network().to(device)
model = torch.nn.parallel.DistributedDataParallel(network)
optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
step = 0
if pathlib.Path("model.pt").exists():
    saved = torch.load("model.pt", map_location=device)
    step = saved["step"]
    network.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    training.say(f"rank={rank} goes on told={saved['told']}")
training.say(f"rank={rank} begin step={step}")
loss = torch.zeros(())
while step < training.STEPS:
    time.sleep(training.PACE_S)
    inputs, targets = training.batch(step, device, rank)
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    step += 1
    flags = told_ranks()
    if not any(flags):
        continue
    for _ in range(40):  # signals come one after the other
        if all(flags):
            break
        time.sleep(0.05)
        flags = told_ranks()
    told = False
    if rank == 0:
        state = {"step": step, "told": flags, "model": network.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state, "model.tmp")
        os.rename("model.tmp", "model.pt")
    dist.barrier()
if rank == 0:
    training.say_done(step, training.weights_of(network.state_dict()), loss)
dist.barrier()
