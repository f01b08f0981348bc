# SPDX-License-Identifier: Apache-2.0
"""A training with Hugging Face's accelerate that saves on SIGUSR1 by accelerate's own trigger and state, and ends.

accelerate launch accelerate_guest.py"""
import os
import pathlib
import signal
import time

import torch
import training
from accelerate import Accelerator

training.deterministic()
accelerator = Accelerator()
model = training.network()
model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), 1e-3))


class Progress:
    step = 0

    def state_dict(self):
        return {"step": self.step}

    def load_state_dict(self, state):
        self.step = state["step"]


progress = Progress()
accelerator.register_for_checkpointing(progress)
if pathlib.Path("ckpt").exists():
    accelerator.load_state("ckpt")
signal.signal(signal.SIGUSR1, lambda *_: accelerator.set_trigger())
training.say(f"begin step={progress.step}")
loss = torch.zeros(())
while progress.step < training.STEPS:
    time.sleep(training.PACE_S)
    inputs, targets = training.batch(progress.step, accelerator.device)
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    accelerator.backward(loss)
    optimizer.step()
    progress.step += 1
    training.say(f"step={progress.step}")
    if accelerator.check_trigger():
        training.say(f"saves step={progress.step}")
        accelerator.save_state("ckpt.part")
        os.rename("ckpt.part", "ckpt")
        raise SystemExit(0)
training.say_done(progress.step, training.weights_of(accelerator.unwrap_model(model).state_dict()), loss)
