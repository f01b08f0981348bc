# SPDX-License-Identifier: Apache-2.0
"""A training with Hugging Face's Trainer, as its users write it: it goes on from its newest checkpoint if there is one.

python3 trainer_guest.py jit | default"""
import sys
import time

import torch
import training
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

kind = sys.argv[1]
training.deterministic()
SAVE_STEPS = 15


class Text(torch.utils.data.Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, index):
        tokens = torch.randint(0, 64, (16,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens, "labels": tokens}


class Says(TrainerCallback):
    def on_train_begin(self, args, state, control, **_):
        training.say(f"begin step={state.global_step}")

    def on_step_begin(self, args, state, control, **_):
        time.sleep(training.PACE_S)

    def on_step_end(self, args, state, control, **_):
        training.say(f"step={state.global_step}")


torch.manual_seed(7)
# No dropout: a save between the two halves of a step would have its random numbers drawn twice.
model = GPT2LMHeadModel(GPT2Config(
    vocab_size=64, n_positions=16, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
    bos_token_id=0, eos_token_id=0, attn_implementation="eager"))
jit = {"enable_jit_checkpoint": True, "save_strategy": "no"} if kind == "jit" else {"save_steps": SAVE_STEPS}
arguments = TrainingArguments(
    output_dir="out", max_steps=training.STEPS, per_device_train_batch_size=8, report_to="none", disable_tqdm=True,
    logging_steps=1, seed=7, data_seed=7, **jit)
trainer = Trainer(model=model, args=arguments, train_dataset=Text(), callbacks=[Says()])
try:
    last = get_last_checkpoint("out")
except FileNotFoundError:
    last = None
trainer.train(resume_from_checkpoint=last)
if trainer.state.global_step >= training.STEPS:
    losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    training.say_done(trainer.state.global_step, training.weights_of(model.state_dict()), losses[-1])
