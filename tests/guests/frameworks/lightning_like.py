# SPDX-License-Identifier: Apache-2.0
"""The calls and signals of Lightning (2.x), without Lightning, which Debian does not have. As its sources have it:
fabric/plugins/environments/slurm.py reads the variables; pytorch/trainer/connectors/signal_connector.py installs the
handlers, saves and calls scontrol; checkpoint_connector.py finds the newest hpc_ckpt_N.ckpt; without Slurm
launchers/subprocess_script.py starts the other ranks and passes SIGTERM on to them, and
ModelCheckpoint(save_on_exception=True) saves for `ckpt_path="last"`.

python3 lightning_like.py DEVICES"""
import glob
import os
import re
import signal
import subprocess
import sys
import time
import zipfile


def say(words):
    """In one piece: ranks share the output."""
    os.write(1, f"{words}\n".encode())


devices = int(sys.argv[1])
is_slurm = "SLURM_NTASKS" in os.environ and os.environ.get("SLURM_JOB_NAME") not in ("bash", "interactive")
others, received_sigterm = [], False
if is_slurm:
    world, rank = int(os.environ["SLURM_NTASKS"]), int(os.environ["SLURM_PROCID"])
    local_rank, node_rank = int(os.environ["SLURM_LOCALID"]), int(os.environ["SLURM_NODEID"])
    if world > 1 and "SLURM_NTASKS_PER_NODE" not in os.environ:
        raise RuntimeError(f"You set `--ntasks={world}`, which is not supported: use `--ntasks-per-node={world}`")
    if int(os.environ["SLURM_NTASKS_PER_NODE"]) != devices:
        raise ValueError("the number of devices is not that of the tasks of a node")
    address = os.environ.get("SLURM_NODELIST", "127.0.0.1").split(" ")[0].split(",")[0]
    say(f"rank={rank} of {world} at {address}:{int(os.environ['SLURM_JOB_ID'][-4:]) + 15000}")
else:
    world, rank = devices, int(os.environ.get("LOCAL_RANK", 0))
    if rank == 0:
        others = [subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, "LOCAL_RANK": str(one)})
                  for one in range(1, world)]
    say(f"rank={rank} of {world} without Slurm")


def save(path):
    """As torch.save: a zip archive, written in place."""
    if rank == 0:
        say(f"saves step={step} as {path}")
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("global_step", str(step))


def numbers():
    return [int(re.search(r"_(\d+)\.", path)[1]) for path in glob.glob("hpc_ckpt_*.ckpt")]


def slurm_sigusr_handler_fn(signum, _):
    say(f"rank={rank} Handling auto-requeue signal: {signum}")
    save(f"hpc_ckpt_{max(numbers(), default=0) + 1}.ckpt")
    if rank != 0:
        return
    job_id = os.environ["SLURM_JOB_ID"]
    if "SLURM_ARRAY_JOB_ID" in os.environ:
        job_id = f"{os.environ['SLURM_ARRAY_JOB_ID']}_{os.environ['SLURM_ARRAY_TASK_ID']}"
    assert re.match("[0-9_-]+", job_id)
    cmd = ["scontrol", "requeue", job_id]
    try:
        result = subprocess.call(cmd)
    except FileNotFoundError:
        result = subprocess.call(" ".join(cmd), shell=True)
    say(f"Requeued SLURM job: {job_id}" if result == 0 else f"Requeuing failed with {result}")


def sigterm_notifier_fn(signum, _):
    global received_sigterm
    say(f"rank={rank} Received SIGTERM: {signum}")
    if not received_sigterm:
        for other in others:
            other.send_signal(signum)
    received_sigterm = True


step = 0
newest = f"hpc_ckpt_{max(numbers(), default=0)}.ckpt" if is_slurm else "last.ckpt"
if os.path.exists(newest):
    with zipfile.ZipFile(newest) as archive:
        step = int(archive.read("global_step"))
if is_slurm:
    signal.signal(signal.SIGUSR1, slurm_sigusr_handler_fn)
signal.signal(signal.SIGTERM, sigterm_notifier_fn)
say(f"rank={rank} begin step={step}")
while True:
    time.sleep(0.2)  # a batch
    step += 1
    if received_sigterm:  # SIGTERMException, after the batch
        if not is_slurm:
            save("last.ckpt")
        sys.exit(143)
