# SPDX-License-Identifier: Apache-2.0
"""The calls and signals of a training with JAX and Orbax on one host, without these, which Debian does not have. As
their documents have it: the preemption-sync service catches SIGTERM; CheckpointManager.reached_preemption(step) is true
from the next step on, and the manager saves then, into STEP.orbax-checkpoint-tmp-TIME, which gets its name STEP at the
end. The script ends by itself, and goes on from latest_step().

python3 orbax_like.py"""
import os
import pathlib
import signal
import time

directory = pathlib.Path("ckpt")
directory.mkdir(exist_ok=True)
is_preempted = False


def on_sigterm(*_):
    global is_preempted
    is_preempted = True


def save(step):
    print(f"saves step={step}", flush=True)
    temporary = directory / f"{step}.orbax-checkpoint-tmp-{time.time_ns()}"
    (temporary / "default" / "d").mkdir(parents=True)
    (temporary / "default" / "manifest.ocdbt").write_bytes(os.urandom(200))
    (temporary / "default" / "d" / "0123456789abcdef").write_bytes(os.urandom(5000))
    (temporary / "_CHECKPOINT_METADATA").write_text("{}")
    temporary.rename(directory / str(step))


step = max((int(path.name) for path in directory.iterdir() if path.name.isdigit()), default=0)
signal.signal(signal.SIGTERM, on_sigterm)
print(f"rank=0 begin step={step}", flush=True)
while True:
    time.sleep(0.2)
    step += 1
    if is_preempted:
        save(step)
        break
