# SPDX-License-Identifier: Apache-2.0
"""What the guests of frameworks_check.py have in common: how long they train, how fast, and the lines by which they say
where they are. Saving and going on are the frameworks' own."""
import hashlib
import os

STEPS = int(os.environ.get("RN_STEPS", "100"))
PACE_S = float(os.environ.get("RN_PACE_S", "0"))  # of a step, so that a notice can come in the middle


def say(words):
    """In one piece: ranks share the output."""
    os.write(1, f"{words}\n".encode())


def deterministic():
    """PyTorch's device, set so that the same training has the same bits each time."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    import torch
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cuda.matmul.allow_tf32 = False
    return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")


def batch(step, device, rank=0):
    """Inputs and targets of a step, the same on each machine: drawn on the processor."""
    import torch
    generator = torch.Generator().manual_seed(1000 * step + rank)
    inputs = torch.randn(32, 16, generator=generator)
    return inputs.to(device), inputs.sum(1, keepdim=True).sin().to(device)


def network():
    import torch
    torch.manual_seed(7)
    return torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))


def weights_of(tensors):
    """A name for these bits: names with PyTorch's tensors."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(name.encode())
        digest.update(tensor.detach().float().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def say_done(step, weights, loss):
    say(f"done step={step} weights={weights} loss={float(loss):.9g}")
