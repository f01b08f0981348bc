# SPDX-License-Identifier: Apache-2.0
"""The calls and signals of Hugging Face's Trainer, without transformers, which Debian does not have. As its sources
have it: trainer_jit_checkpoint.py (`enable_jit_checkpoint=True`) waits three seconds after SIGTERM, saves in a thread
and has the training stop after the step, so that the script ends by itself, with 0; without it the Trainer catches
nothing and saves each `save_steps`. Both go on because the script asks for it (`resume_from_checkpoint=True`): from the
checkpoint with the greatest number (trainer_utils.py, get_last_checkpoint). The step in which the signal comes lasts
here until the thread has saved.

python3 hf_like.py jit | default"""
import json
import os
import pathlib
import re
import signal
import sys
import threading
import time

SAVE_STEPS = 15
is_jit = sys.argv[1] == "jit"
checkpoint_requested, is_saved = False, threading.Event()


def save_checkpoint():
    """As Trainer._save_checkpoint: into a folder of its own, trainer_state.json near the end."""
    print(f"saves step={step}", flush=True)
    folder = pathlib.Path(f"out/checkpoint-{step}")
    folder.mkdir(parents=True)
    header = json.dumps({"__metadata__": {"step": str(step)}}).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
        (folder / name).write_bytes(os.urandom(1000))
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    (folder / "training_args.bin").write_bytes(os.urandom(1000))


def immediate_async_checkpoint():
    save_checkpoint()
    is_saved.set()


def sigterm_handler(*_):
    global checkpoint_requested
    if checkpoint_requested:
        return
    print("SIGTERM received, initiating JIT checkpoint", flush=True)
    checkpoint_requested = True
    threading.Timer(3, lambda: threading.Thread(target=immediate_async_checkpoint, daemon=True).start()).start()


step = 0
found = [path for path in pathlib.Path("out").glob("checkpoint-*") if re.fullmatch(r"checkpoint-\d+", path.name)]
if found:
    last = max(found, key=lambda path: int(path.name.split("-")[1]))
    step = json.loads((last / "trainer_state.json").read_text())["global_step"]
if is_jit:
    signal.signal(signal.SIGTERM, sigterm_handler)
print(f"rank=0 begin step={step}", flush=True)
while not checkpoint_requested:
    time.sleep(0.2)
    step += 1
    if checkpoint_requested:
        is_saved.wait()
    elif not is_jit and step % SAVE_STEPS == 0:
        save_checkpoint()
