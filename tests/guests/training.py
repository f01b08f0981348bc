# SPDX-License-Identifier: Apache-2.0
"""What both training scripts share: the digits, the step log, the packets, the loop. Deterministic on one thread.

Files in the working folder:
  checkpoint.pt  model, optimizer, random states, step, batch order and the losses so far
  steps.log      append-only; `begin step=N from=checkpoint|nothing time=T` at each start, then
                 `step=N loss=REPR time=T` a line. After a resume the steps since the checkpoint come again.
  curve.csv      step,loss of the whole training, written at the end
  final.pt       the weights, written at the end
"""
import argparse
import os
import random
import socket
import threading
import time

import numpy
import torch
from sklearn.datasets import load_digits

SEED = 1234


def parse_arguments(**defaults):
    """Flags, each with an environment variable of the same name in capitals as its default."""
    parser = argparse.ArgumentParser()

    def flag(name, kind, default):
        variable = name.upper().replace("-", "_")
        parser.add_argument("--" + name, type=kind, default=kind(os.environ.get(variable, default)))

    flag("steps", int, defaults.get("steps", 400))
    flag("save-every", int, defaults.get("save_every", 20))
    flag("batch", int, defaults.get("batch", 64))
    flag("step-ms", float, 0.0)
    flag("peer", str, "")
    flag("peer-interval-ms", float, 0.0)
    return parser.parse_args()


class Packets:
    """Small UDP packets to a peer: one per step, or one every interval by a thread. They say how many steps are done,
    from the first one, which is sent before any step. Errors are ignored."""

    def __init__(self, name, peer, interval_ms, step):
        self.name, self.step, self.sequence = name, step, 0
        self.address, self.is_paced = None, interval_ms > 0
        if not peer:
            return
        host, port = peer.rsplit(":", 1)
        self.address = (host, int(port))
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        if self.is_paced:
            self._send()
            threading.Thread(target=self._run, args=(interval_ms / 1000,), daemon=True).start()

    def at_step(self, step):
        self.step = step
        if self.address and not self.is_paced:
            self._send()

    def _run(self, interval_s):
        while True:
            time.sleep(interval_s)
            self._send()

    def _send(self):
        self.sequence += 1
        try:
            self.socket.sendto(f"{self.name} {self.step} {self.sequence}".encode(), self.address)
        except OSError:
            pass


class StepLog:
    """One write call a line, so that a kill leaves whole lines; a torn end of an earlier run is closed first."""

    def __init__(self, path="steps.log"):
        torn = os.path.exists(path) and os.path.getsize(path) > 0 and not _ends_with_newline(path)
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        if torn:
            os.write(self.file, b"\n")

    def line(self, text):
        os.write(self.file, f"{text} time={time.time():.6f}\n".encode())


def _ends_with_newline(path):
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


class Training:
    """One model on the digits. `step` is the number of steps done; `losses` has one entry for each of them."""

    def __init__(self, model_factory, batch):
        torch.set_num_threads(1)
        torch.use_deterministic_algorithms(True)
        random.seed(SEED)
        numpy.random.seed(SEED)
        torch.manual_seed(SEED)
        digits = load_digits()
        self.images = torch.tensor(digits.images, dtype=torch.float32) / 16
        self.labels = torch.tensor(digits.target)
        self.model = model_factory()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.batch = batch
        self.step, self.epoch, self.position = 0, 0, 0
        self.losses = []
        self.generator = torch.Generator()
        self.generator.manual_seed(SEED)
        self.order = torch.randperm(len(self.labels), generator=self.generator)

    def state(self):
        return {
            "model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(),
            "torch_rng": torch.get_rng_state(), "order_rng": self.generator.get_state(),
            "step": self.step, "epoch": self.epoch, "position": self.position, "order": self.order,
            "losses": list(self.losses),
        }

    def resume(self, path="checkpoint.pt"):
        """Continues from the checkpoint if there is one. A damaged one raises: nothing is silently started anew."""
        if not os.path.exists(path):
            return False
        state = torch.load(path)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["torch_rng"])
        self.generator.set_state(state["order_rng"])
        self.step, self.epoch, self.position = state["step"], state["epoch"], state["position"]
        self.order, self.losses = state["order"], state["losses"]
        return True

    def _next_batch(self):
        if self.position + self.batch > len(self.labels):
            self.order = torch.randperm(len(self.labels), generator=self.generator)
            self.epoch, self.position = self.epoch + 1, 0
        picked = self.order[self.position:self.position + self.batch]
        self.position += self.batch
        return self.images[picked], self.labels[picked]

    def train_step(self):
        images, labels = self._next_batch()
        self.model.train()
        self.optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(self.model(images), labels)
        loss.backward()
        self.optimizer.step()
        self.step += 1
        self.losses.append(loss.item())
        return self.losses[-1]

    def accuracy(self):
        self.model.eval()
        with torch.no_grad():
            return (self.model(self.images).argmax(1) == self.labels).float().mean().item()


def run(name, training, arguments, save, save_requested=lambda: False):
    """Trains to the last step; `save()` every N steps, at the end, and whenever `save_requested()` says so."""
    log = StepLog()
    resumed = training.resume()
    packets = Packets(name, arguments.peer, arguments.peer_interval_ms, training.step)
    log.line(f"begin step={training.step} from={'checkpoint' if resumed else 'nothing'}")
    print(f"{name}: {'resumed' if resumed else 'started'} at step {training.step} of {arguments.steps}", flush=True)
    while training.step < arguments.steps:
        loss = training.train_step()
        log.line(f"step={training.step} loss={loss!r}")
        packets.at_step(training.step)
        if training.step % 10 == 0:
            print(f"{name}: step {training.step} loss {loss:.4f}", flush=True)
        if training.step % arguments.save_every == 0 or training.step == arguments.steps or save_requested():
            save()
            print(f"{name}: saved step {training.step}", flush=True)
        if arguments.step_ms > 0:
            time.sleep(arguments.step_ms / 1000)
    with open("curve.csv", "w") as curve:
        curve.write("step,loss\n")
        for index, loss in enumerate(training.losses):
            curve.write(f"{index + 1},{loss!r}\n")
    torch.save(training.model.state_dict(), "final.pt")
    print(f"{name}: done, accuracy {training.accuracy():.4f}", flush=True)
