# SPDX-License-Identifier: Apache-2.0
"""What the guests of two ranks under torchrun share: gloo, one model, its optimizer, and whether somebody was told."""
import os
import pathlib
import signal

import torch
import torch.distributed as dist
import training


class Ranks:
    """This process's rank of a training that goes on from model.pt. SIGUSR1 tells it to save."""

    def __init__(self):
        self.told = False
        self.step = 0
        self.saved = None
        self.loss = torch.zeros(())
        self.device = training.deterministic()
        dist.init_process_group("gloo")
        self.rank = dist.get_rank()
        signal.signal(signal.SIGUSR1, self.on_signal)
        self.network = training.network().to(self.device)
        self.model = torch.nn.parallel.DistributedDataParallel(self.network)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.01, momentum=0.9)
        if pathlib.Path("model.pt").exists():
            self.saved = torch.load("model.pt", map_location=self.device)
            self.step = self.saved["step"]
            self.network.load_state_dict(self.saved["model"])
            self.optimizer.load_state_dict(self.saved["optimizer"])

    def on_signal(self, *_):
        self.told = True

    def train_step(self):
        inputs, targets = training.batch(self.step, self.device, self.rank)
        self.optimizer.zero_grad()
        self.loss = torch.nn.functional.mse_loss(self.model(inputs), targets)
        self.loss.backward()
        self.optimizer.step()
        self.step += 1

    def told_ranks(self):
        """1 for each rank that has been told, else 0; the same list in all of them."""
        flags = torch.zeros(dist.get_world_size(), dtype=torch.int64)
        flags[self.rank] = int(self.told)
        dist.all_reduce(flags)
        return flags.tolist()

    def save(self, **more):
        """By the first rank, whole or not at all; all wait for it."""
        if self.rank == 0:
            state = {"step": self.step, "model": self.network.state_dict(), "optimizer": self.optimizer.state_dict()}
            torch.save({**state, **more}, "model.tmp")
            os.rename("model.tmp", "model.pt")
        dist.barrier()

    def end(self):
        if self.rank == 0:
            training.say_done(self.step, training.weights_of(self.network.state_dict()), self.loss)
        dist.barrier()
