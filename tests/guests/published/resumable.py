# SPDX-License-Identifier: Apache-2.0
"""Classifies digits with checkpoints: after each epoch checkpoint.pth.tar is written in place, and copied to
model_best.pth.tar when it is the best so far. It goes on only where --resume says; a file that is not there is no
error, so the flag can always be given."""
import argparse
import os
import shutil

import torch
from torch import nn
from torch.nn import functional

from common import add_flags, batches, digits

FILE = "checkpoint.pth.tar"


def save(state, is_best):
    torch.save(state, FILE)
    if is_best:
        shutil.copyfile(FILE, "model_best.pth.tar")


def main():
    parser = argparse.ArgumentParser()
    add_flags(parser, epochs=20)
    parser.add_argument("--resume", default="", metavar="PATH")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    images, labels, test_images, test_labels = digits()
    model = nn.Sequential(nn.Conv2d(1, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 36, 10))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 30)
    begin, best = 0, 0
    if args.resume:
        if os.path.isfile(args.resume):
            state = torch.load(args.resume)
            begin, best = state["epoch"], state["best"]
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            schedule.load_state_dict(state["schedule"])
            print(f"resumed from {args.resume} after epoch {begin}")
        else:
            print(f"nothing to resume at {args.resume}")
    for epoch in range(begin, args.epochs):
        model.train()
        for picked in batches(len(images), args.batch_size, args.step_ms):
            loss = functional.cross_entropy(model(images[picked]), labels[picked])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
        model.eval()
        with torch.no_grad():
            right = (model(test_images).argmax(1) == test_labels).sum().item()
        print(f"epoch {epoch + 1} right {right}")
        save({"epoch": epoch + 1, "best": max(best, right), "model": model.state_dict(),
              "optimizer": optimizer.state_dict(), "schedule": schedule.state_dict()}, right > best)
        best = max(best, right)


if __name__ == "__main__":
    main()
