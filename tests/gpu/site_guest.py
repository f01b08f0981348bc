#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The guest of site_check.py: a small training on the GPU that holds memory of it, saves by itself and when it is told
by SIGUSR1, goes on from its checkpoint, and prints the SHA-256 of its weights at its end. Each step takes its time, so
that an owner has some."""
import hashlib
import os
import signal
import sys
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # before CUDA starts: sums in one order
import torch  # noqa: E402

STEPS, SAVE_EVERY, STEP_S, HOLD_MIB = (int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
FILE = "checkpoint.pt"
is_told = False


def told(*_):
    global is_told
    is_told = True


def main():
    signal.signal(signal.SIGUSR1, told)
    device = torch.device("cuda:0")
    torch.manual_seed(7)
    torch.use_deterministic_algorithms(True)
    network = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)).to(device)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    held = torch.ones(HOLD_MIB << 20, dtype=torch.uint8, device=device)
    step = 0
    if os.path.exists(FILE):
        state = torch.load(FILE, map_location=device, weights_only=True)
        network.load_state_dict(state["network"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    print(f"begin step={step} on {torch.cuda.get_device_name(0)}", flush=True)
    global is_told
    while step < STEPS:
        step += 1
        # Of the step alone, on the processor: the same after a resume.
        random = torch.Generator().manual_seed(step)
        images = torch.randn(128, 64, generator=random).to(device)
        labels = torch.randint(0, 10, (128,), generator=random).to(device)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(network(images), labels)
        loss.backward()
        optimizer.step()
        print(f"step={step} loss={loss.item()!r}", flush=True)
        if step % SAVE_EVERY == 0 or is_told:
            is_told = False
            torch.save({"step": step, "network": network.state_dict(), "optimizer": optimizer.state_dict()},
                       FILE + ".tmp")
            os.replace(FILE + ".tmp", FILE)
            print(f"saved step={step}", flush=True)
        time.sleep(STEP_S)
    digest = hashlib.sha256()
    for name, value in sorted(network.state_dict().items()):
        digest.update(name.encode() + value.cpu().numpy().tobytes())
    print("weights", digest.hexdigest(), int(held[-1]), flush=True)


if __name__ == "__main__":
    main()
