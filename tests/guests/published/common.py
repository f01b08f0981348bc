# SPDX-License-Identifier: Apache-2.0
"""What the five scripts share: the digits as tensors, and a step's length. None of them knows of ReclaimNet."""
import time

import torch


def add_flags(parser, epochs):
    parser.add_argument("--epochs", type=int, default=epochs)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--lr", type=float, default=0.002)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--step-ms", type=float, default=0, help="each step takes this much longer")


def digits():
    """Training images and labels, then those held back."""
    from sklearn.datasets import load_digits  # takes seconds, and not every script needs it

    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(data.target)
    return images[:1500], labels[:1500], images[1500:], labels[1500:]


def batches(count, size, step_ms):
    """Indices of one epoch's batches, shuffled."""
    for picked in torch.randperm(count).split(size):
        time.sleep(step_ms / 1000)
        yield picked
