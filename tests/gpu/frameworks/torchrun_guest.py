# SPDX-License-Identifier: Apache-2.0
"""Two ranks under torchrun, which share one GPU over gloo, or the processor. SIGUSR1 has them save and end: they agree
on it after each step.

torchrun --nproc_per_node=2 torchrun_guest.py"""
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
training.say(f"begin step={step}")
loss = torch.zeros(())
while step < training.STEPS:
    time.sleep(training.PACE_S)
    inputs, targets = training.batch(step, device, rank)
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    step += 1
    flag = torch.tensor([int(told)])
    dist.all_reduce(flag)
    if rank == 0:
        training.say(f"step={step}")
    if flag.item() == 0:
        continue
    if rank == 0:
        training.say(f"saves step={step}")
        torch.save({"step": step, "model": network.state_dict(), "optimizer": optimizer.state_dict()}, "model.tmp")
        os.rename("model.tmp", "model.pt")
    dist.barrier()
    raise SystemExit(0)
if rank == 0:
    training.say_done(step, training.weights_of(network.state_dict()), loss)
dist.barrier()
