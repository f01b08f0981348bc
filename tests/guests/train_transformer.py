# SPDX-License-Identifier: Apache-2.0
"""A small transformer that reads a digit row by row. Saves on SIGTERM and goes on; writes its checkpoint in place."""
import signal

import torch
from torch import nn

import training


class RowTransformer(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.embed = nn.Linear(8, width)
        self.places = nn.Parameter(torch.randn(8, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(width, 10)

    def forward(self, images):
        return self.head(self.encoder(self.embed(images) + self.places).mean(1))


def main():
    arguments = training.parse_arguments()
    work = training.Training(RowTransformer, arguments.batch)
    asked = []
    signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))

    def save():
        del asked[:]
        torch.save(work.state(), "checkpoint.pt")

    training.run("transformer", work, arguments, save, save_requested=lambda: bool(asked))


if __name__ == "__main__":
    main()
