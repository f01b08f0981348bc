# SPDX-License-Identifier: Apache-2.0
"""A training with JAX and Orbax's CheckpointManager, as Orbax's documents have it: JAX's preemption service catches
SIGTERM, the manager saves at the step that it names, and reached_preemption(step) says when to end.

python3 orbax_guest.py"""
import hashlib
import os
import time

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import training

jax.distributed.initialize(coordinator_address="127.0.0.1:29511", num_processes=1, process_id=0)
# Sums and products alone: what a library chooses by measuring would differ in the last bits.
state = {"w": jnp.zeros((16,), jnp.float32), "m": jnp.zeros((16,), jnp.float32), "step": jnp.zeros((), jnp.int32)}


@jax.jit
def update(state, inputs, targets):
    def loss_of(w):
        return jnp.mean((jnp.sum(inputs * w[None, :], axis=1) - targets) ** 2)
    loss, gradient = jax.value_and_grad(loss_of)(state["w"])
    m = 0.9 * state["m"] + gradient
    return {"w": state["w"] - 0.01 * m, "m": m, "step": state["step"] + 1}, loss


manager = ocp.CheckpointManager(
    os.path.abspath("ckpt"), options=ocp.CheckpointManagerOptions(save_interval_steps=100_000, max_to_keep=2))
latest = manager.latest_step()
if latest is not None:
    state = manager.restore(latest, args=ocp.args.StandardRestore(state))
training.say(f"device {jax.devices()[0]}")
training.say(f"begin step={int(state['step'])}")
loss = 0.0
for step in range(int(state["step"]) + 1, training.STEPS + 1):
    time.sleep(training.PACE_S)
    inputs = np.random.default_rng(step).standard_normal((32, 16), np.float32)
    state, loss = update(state, inputs, np.sin(inputs.sum(1)))
    training.say(f"step={step}")
    if manager.save(step, args=ocp.args.StandardSave(state)):
        training.say(f"saves step={step}")
    if manager.reached_preemption(step):
        training.say(f"reached_preemption step={step}")
        manager.wait_until_finished()
        raise SystemExit(0)
manager.wait_until_finished()
bits = b"".join(np.asarray(state[name]).tobytes() for name in ("w", "m"))
training.say_done(int(state["step"]), hashlib.sha256(bits).hexdigest()[:16], loss)
