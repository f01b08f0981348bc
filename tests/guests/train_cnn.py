# SPDX-License-Identifier: Apache-2.0
"""A small convolutional network on the digits. No signal handler; saves by writing a new file and renaming it."""
import os

import torch
from torch import nn

import training


def make_model():
    return nn.Sequential(
        nn.Unflatten(1, (1, 8)), nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.2), nn.Linear(1024, 256), nn.ReLU(), nn.Linear(256, 10))


def main():
    arguments = training.parse_arguments()
    work = training.Training(make_model, arguments.batch)

    def save():
        with open("checkpoint.pt.new", "wb") as file:
            torch.save(work.state(), file)
            file.flush()
            os.fsync(file.fileno())
        os.rename("checkpoint.pt.new", "checkpoint.pt")

    training.run("cnn", work, arguments, save)


if __name__ == "__main__":
    main()
