# SPDX-License-Identifier: Apache-2.0
"""A training of several ranks under torchrun, which saves on SIGUSR1 and ends: the ranks agree on it after each step.
Each has a worker that loads its data, forked when the handler is there already.

torchrun --nproc_per_node=2 ranks.py"""
import os
import pathlib
import signal

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

told = False


def on_signal(*_):
    global told
    told = True
    pathlib.Path(f"told.{dist.get_rank()}.{os.getpid()}").touch()


dist.init_process_group("gloo")
rank = dist.get_rank()
signal.signal(signal.SIGUSR1, on_signal)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
data = DataLoader(TensorDataset(torch.randn(1_000_000, 4)), batch_size=4, num_workers=1)
for step, (batch,) in enumerate(data):
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
    if step == 0:
        pathlib.Path(f"begun.{rank}").touch()
    flag = torch.tensor([int(told)])
    dist.all_reduce(flag)
    if flag.item() == 0:
        continue
    if rank == 0:
        torch.save({"step": step, "model": model.module.state_dict()}, "model.tmp")
        os.rename("model.tmp", "model.pt")
    dist.barrier()
    print(f"rank {rank} saved at step {step}", flush=True)
    break
else:
    raise SystemExit("nobody told it to save")
