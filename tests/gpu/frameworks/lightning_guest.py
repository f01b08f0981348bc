# SPDX-License-Identifier: Apache-2.0
"""A training with PyTorch Lightning, as its users write it: nothing in it knows of a notice. Lightning catches the
signal, saves and asks for a requeue (SLURMEnvironment), or saves by its callback when it is ended.

python3 lightning_guest.py slurm | ranks | callback"""
import inspect
import sys
import time

import torch
import training

try:
    import lightning.pytorch as pl
    from lightning.pytorch.callbacks import ModelCheckpoint, OnExceptionCheckpoint
except ImportError:
    import pytorch_lightning as pl
    from pytorch_lightning.callbacks import ModelCheckpoint, OnExceptionCheckpoint

kind = sys.argv[1]
device = training.deterministic()


class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.network, self.last = training.network(), 0.0

    def training_step(self, *_):
        # NOTE: Lightning leaves where a loader was to the loader, so data are by the step and not by the loader.
        time.sleep(training.PACE_S)
        inputs, targets = training.batch(self.global_step, self.device, self.global_rank)
        loss = torch.nn.functional.mse_loss(self.network(inputs), targets)
        self.last = loss.item()
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), 1e-3)

    def on_train_start(self):
        training.say(f"begin step={self.global_step}")

    def on_train_batch_end(self, *_):
        if self.global_rank == 0:
            training.say(f"step={self.global_step}")

    def on_save_checkpoint(self, checkpoint):
        training.say(f"saves step={checkpoint['global_step']}")


def callbacks():
    if kind != "callback":
        return []
    flags = {"dirpath": "ckpt", "save_last": True, "every_n_train_steps": 1000}
    if "save_on_exception" in inspect.signature(ModelCheckpoint).parameters:
        return [ModelCheckpoint(**flags, save_on_exception=True)]
    return [ModelCheckpoint(**flags), OnExceptionCheckpoint("ckpt", "last")]


is_gpu = device.type == "cuda" and kind != "ranks"  # two ranks of NCCL's need two GPUs
trainer = pl.Trainer(
    accelerator="gpu" if is_gpu else "cpu", devices=2 if kind == "ranks" else 1,
    strategy="ddp" if kind == "ranks" else "auto", max_steps=training.STEPS, max_epochs=-1, default_root_dir=".",
    deterministic="warn", logger=False, enable_progress_bar=False, enable_model_summary=False, callbacks=callbacks(),
    enable_checkpointing=kind == "callback")
module = Module()
training.say(f"environment {type(trainer._accelerator_connector.cluster_environment).__name__}")
loader = torch.utils.data.DataLoader(torch.arange(1_000_000), batch_size=1)
trainer.fit(module, loader, **({"ckpt_path": "last"} if kind == "callback" else {}))
if trainer.global_step >= training.STEPS and trainer.is_global_zero:
    training.say_done(trainer.global_step, training.weights_of(module.network.state_dict()), module.last)
