# SPDX-License-Identifier: Apache-2.0
"""Behaves towards its machine as the guest of a check of frameworks_check.py with its framework, without it: catches
the same signals, leaves the same files, says the same words and ends with the same codes; or not quite.

frameworks_fake.py CHECK good | deaf | mute | forgets | other | crashes | mpi [RANK]

mpi: MPI's runtime is in it, which catches everything, and has its daemon beside it."""
import contextlib
import hashlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

STEPS, PACE_S, SAVE_STEPS = int(os.environ["RN_STEPS"]), float(os.environ["RN_PACE_S"]), 15
KINDS = {  # signal, file, words, exit code; code None: it asks for a requeue
    "lightning_requeue": (signal.SIGUSR1, "hpc_ckpt_1.ckpt", "Handling auto-requeue signal: 10", None),
    "lightning_srun": (signal.SIGUSR1, "hpc_ckpt_1.ckpt", "Handling auto-requeue signal: 10", None),
    "lightning_callback": (signal.SIGTERM, "ckpt/last.ckpt", "Received SIGTERM: 15", 143),
    "trainer_jit": (signal.SIGTERM, "out/checkpoint-{}/trainer_state.json", "SIGTERM received", 0),
    "trainer_default": (None, "out/checkpoint-{}/trainer_state.json", "", 0),
    "accelerate": (signal.SIGUSR1, "ckpt/state", "", 0),
    "torchrun": (signal.SIGUSR1, "model.pt", "", 0),
    "orbax": (signal.SIGTERM, "ckpt/{}/_CHECKPOINT_METADATA", "reached_preemption step=0", 0),
    "submitit": (signal.SIGUSR2, "logs/4217_submitted.pkl", "", None),
}
kind, mode = sys.argv[1:3]
rank = int(sys.argv[3]) if len(sys.argv) > 3 else 0
number, place, words, code = KINDS[kind]
is_told = False


def say(text):
    os.write(1, f"{text}\n".encode())


def on_signal(*_):
    global is_told
    is_told = True


def save():
    if rank != 0:
        return
    say(f"saves step={step}")
    path = pathlib.Path(place.format(step))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"global_step": step, "weights": weights}))


def leave():
    if mode != "mute":
        say(words)
    save()
    if code is not None:
        sys.exit(code)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if rank == 0:
        subprocess.run(["scontrol", "requeue", os.environ["SLURM_JOB_ID"]], check=True)
        say(f"Requeued SLURM job: {os.environ['SLURM_JOB_ID']}")
    time.sleep(100)


step, weights = 0, "0"
found = [json.loads(path.read_text()) for path in pathlib.Path().glob(place.format("*"))]
if found and mode != "forgets":
    newest = max(found, key=lambda state: state["global_step"])
    step, weights = newest["global_step"], newest["weights"] + ("x" if mode == "other" else "")
if rank == 0 and kind in ("lightning_srun", "torchrun"):
    subprocess.Popen([sys.executable, *sys.argv, "1"])
if mode == "mpi":
    for each in range(1, signal.SIGSYS + 1):
        with contextlib.suppress(OSError):
            signal.signal(each, lambda *_: None)
    subprocess.Popen(["orted", "-c", "trap : USR1; while :; do sleep 1; done"], executable="/bin/sh")
if number is not None:
    signal.signal(number, on_signal)
if rank == 0:
    say("environment SLURMEnvironment")
    say(f"begin step={step}")
while step < STEPS:
    time.sleep(PACE_S)
    step, weights = step + 1, hashlib.sha256(f"{weights} {step}".encode()).hexdigest()[:16]
    if rank == 0:
        say(f"step={step}")
    if mode == "crashes" and step == 10:
        raise ValueError("it breaks at step 10")
    if is_told and mode != "deaf":
        leave()
    if number is None and step % SAVE_STEPS == 0:
        save()
if rank == 0:
    say(f"done step={step} weights={weights} loss=0.5")
