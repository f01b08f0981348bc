# SPDX-License-Identifier: Apache-2.0
"""Classifies digits. Its only file is model.pt, the weights, written in place when everything is over."""
import argparse

import torch
from torch import nn
from torch.nn import functional

from common import add_flags, batches, digits


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 16, 3, padding=1)
        self.hidden = nn.Linear(16 * 16, 64)
        self.out = nn.Linear(64, 10)

    def forward(self, x):
        x = functional.max_pool2d(functional.relu(self.conv(x)), 2)
        return self.out(functional.relu(self.hidden(x.flatten(1))))


def main():
    parser = argparse.ArgumentParser()
    add_flags(parser, epochs=14)
    parser.add_argument("--save-model", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    images, labels, test_images, test_labels = digits()
    model = Net()
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    for epoch in range(1, args.epochs + 1):
        model.train()
        for picked in batches(len(images), args.batch_size, args.step_ms):
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(images[picked]), labels[picked])
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            right = (model(test_images).argmax(1) == test_labels).sum().item()
        print(f"epoch {epoch} loss {loss.item():.4f} accuracy {right}/{len(test_labels)}")
    if args.save_model:
        torch.save(model.state_dict(), "model.pt")


if __name__ == "__main__":
    main()
