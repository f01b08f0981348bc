# SPDX-License-Identifier: Apache-2.0
"""The calls and signals of a submitit job, without submitit, which Debian does not have. As its sources have it:
core/submission.py loads FOLDER/JOB_submitted.pkl; core/job_environment.py installs the handlers, passes SIGTERM and
SIGCONT over, and on the signal of preemption calls checkpoint(), writes the pickle beside its place and moves it there,
and exits with -1; slurm/slurm.py calls scontrol. The client, which submits by sbatch and gives the pickle its name
afterwards, is not in this: what lies in the uploaded folder as first.pkl is taken for it.

python3 submitit_like.py FOLDER"""
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import time

array = os.environ.get("SLURM_ARRAY_JOB_ID")
job_id = f"{array}_{os.environ['SLURM_ARRAY_TASK_ID']}" if array else os.environ["SLURM_JOB_ID"]
global_rank = int(os.environ.get("SLURM_PROCID", 0))
assert os.environ["SUBMITIT_EXECUTOR"] == "slurm"
submitted = pathlib.Path(sys.argv[1]) / f"{job_id}_submitted.pkl"
if not submitted.exists():
    submitted.with_name("first.pkl").rename(submitted)
with submitted.open("rb") as file:
    delayed = pickle.load(file)


def bypass(signum, _):
    print(f"Bypassing signal {signal.Signals(signum).name}", flush=True)


def checkpoint_and_try_requeue(signum, _):
    print(f"Caught signal {signal.Signals(signum).name}: this job is preempted.", flush=True)
    if global_rank != 0:
        return
    print(f"saves step={delayed['step']}", flush=True)
    temporary = submitted.with_name(f".save_tmp_{os.getpid()}_{submitted.name}")
    with temporary.open("wb") as file:
        pickle.dump(delayed, file, pickle.HIGHEST_PROTOCOL)
    temporary.rename(submitted)
    subprocess.check_call(["scontrol", "requeue", job_id])
    print(f"Requeued job {job_id}", flush=True)
    print("Exiting gracefully after preemption/timeout.", flush=True)
    sys.exit(-1)


signal.signal(signal.SIGUSR2, checkpoint_and_try_requeue)
signal.signal(signal.SIGTERM, bypass)
signal.signal(signal.SIGCONT, bypass)
print(f"rank={global_rank} begin step={delayed['step']}", flush=True)
while True:
    time.sleep(0.2)
    delayed["step"] += 1
