# SPDX-License-Identifier: Apache-2.0
"""A model of the next word of invented sentences. The whole model goes to --save, in place, whenever the validation
loss is the best so far; the best is read back for the test at the end. It cannot resume."""
import argparse
import math

import torch
from torch import nn

from common import add_flags, batches

WORDS = 40
LENGTH = 12


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, 32)
        self.rnn = nn.LSTM(32, 64, batch_first=True)
        self.out = nn.Linear(64, WORDS)

    def forward(self, x):
        return self.out(self.rnn(self.words(x))[0])


def sentences(count):
    """A word follows from the one before it, seven times in eight."""
    words = torch.randint(WORDS, (count, LENGTH + 1))
    for at in range(1, LENGTH + 1):
        is_ruled = torch.rand(count) < 0.875
        words[is_ruled, at] = (words[is_ruled, at - 1] * 7 + 3) % WORDS
    return words


def loss_of(model, words):
    return nn.functional.cross_entropy(model(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten())


def main():
    parser = argparse.ArgumentParser()
    add_flags(parser, epochs=12)
    parser.add_argument("--save", default="model.pt")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    train, valid, test = sentences(1500), sentences(300), sentences(300)
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), args.lr)
    best = None
    for epoch in range(1, args.epochs + 1):
        model.train()
        for picked in batches(len(train), args.batch_size, args.step_ms):
            optimizer.zero_grad()
            loss_of(model, train[picked]).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            loss = loss_of(model, valid).item()
        print(f"epoch {epoch} validation {loss:.4f} perplexity {math.exp(loss):.2f}")
        if best is None or loss < best:
            with open(args.save, "wb") as file:
                torch.save(model, file)
            best = loss
    with open(args.save, "rb") as file:
        model = torch.load(file)
    with torch.no_grad():
        print(f"test {loss_of(model, test).item():.4f}")


if __name__ == "__main__":
    main()
