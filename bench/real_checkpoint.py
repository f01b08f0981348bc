# SPDX-License-Identifier: Apache-2.0
"""Writes one.pt and two.pt, checkpoints of a real training before and after its last ten steps: a transformer of 8
million parameters and the moments of its AdamW, as PyTorch saves them. Runs in the base image (bench/figures.sh)."""
import torch
from torch import nn


def main():
    torch.manual_seed(1)
    layer = nn.TransformerEncoderLayer(320, 8, 1280, batch_first=True, dropout=0.1)
    model = nn.Sequential(nn.Embedding(1000, 320), nn.TransformerEncoder(layer, 6), nn.Linear(320, 1000))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for step in range(1, 21):
        tokens = torch.randint(0, 1000, (2, 33))
        scores = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(scores.reshape(-1, 1000), tokens[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()},
                       "one.pt" if step == 10 else "two.pt")


if __name__ == "__main__":
    main()
