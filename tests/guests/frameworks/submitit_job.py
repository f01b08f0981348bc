# SPDX-License-Identifier: Apache-2.0
"""What runs in a job that submitit's client has submitted, without submitit, which Debian does not have. As its sources
have it: it waits a minute for FOLDER/JOB_submitted.pkl, calls what is in there, writes ("success", what it answered) or
("error", the traceback) beside FOLDER/JOB_RANK_result.pkl and moves it there; on the signal of preemption it calls
checkpoint(), writes the pickle again and asks to be queued. It lies in the job's folder as submitit/core/_submit.py.

python3 -u -m submitit.core._submit FOLDER"""
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import time
import traceback

job_id, rank = os.environ["SLURM_JOB_ID"], os.environ.get("SLURM_PROCID", "0")
assert os.environ["SUBMITIT_EXECUTOR"] == "slurm"
folder = pathlib.Path(sys.argv[1].replace("%j", job_id))
submitted, result = folder / f"{job_id}_submitted.pkl", folder / f"{job_id}_{rank}_result.pkl"


def dump(what, path):
    temporary = path.with_suffix(".pkl.save_tmp")
    temporary.write_bytes(pickle.dumps(what))
    temporary.rename(path)


def on_preemption(*_):
    print("Caught signal SIGUSR2: this job is preempted.", flush=True)
    again = delayed["function"].checkpoint(*delayed["arguments"])
    if rank == "0":
        dump(again, submitted)
        subprocess.check_call(["scontrol", "requeue", job_id])
    sys.exit(-1)


for _ in range(60):
    if submitted.exists():
        break
    time.sleep(1)
with submitted.open("rb") as file:
    delayed = pickle.load(file)
signal.signal(signal.SIGUSR2, on_preemption)
signal.signal(signal.SIGTERM, lambda *_: print("Bypassing signal SIGTERM", flush=True))
try:
    dump(("success", delayed["function"](*delayed["arguments"])), result)
except Exception:
    dump(("error", traceback.format_exc()), result)
    raise
