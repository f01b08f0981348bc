# SPDX-License-Identifier: Apache-2.0
"""Two networks, one against the other, that draw digits. Each epoch puts new files into --outf: an image and the
weights of both. --netG and --netD begin with given weights; the count of epochs begins at 0 all the same."""
import argparse
import os

import torch
from torch import nn

from common import add_flags, batches, digits

NOISE = 16


def write_image(path, images):
    """A portable grey map, one digit beside the other."""
    strip = (torch.cat(list(images[:, 0]), dim=1) * 255).clamp(0, 255).to(torch.uint8)
    with open(path, "wb") as file:
        file.write(f"P5 {strip.shape[1]} {strip.shape[0]} 255\n".encode() + strip.numpy().tobytes())


def main():
    parser = argparse.ArgumentParser()
    add_flags(parser, epochs=15)
    parser.add_argument("--outf", default=".")
    parser.add_argument("--netG", default="")
    parser.add_argument("--netD", default="")
    args = parser.parse_args()
    os.makedirs(args.outf, exist_ok=True)
    torch.manual_seed(args.seed)
    images = digits()[0]
    net_g = nn.Sequential(
        nn.Linear(NOISE, 128), nn.ReLU(), nn.Linear(128, 64), nn.Sigmoid(), nn.Unflatten(1, (1, 8, 8)))
    net_d = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.LeakyReLU(0.2), nn.Linear(128, 1))
    for net, path in ((net_g, args.netG), (net_d, args.netD)):
        if path:
            net.load_state_dict(torch.load(path))
            print(f"began with {path}")
    fixed = torch.randn(8, NOISE)
    criterion = nn.BCEWithLogitsLoss()
    optimizer_g = torch.optim.Adam(net_g.parameters(), args.lr, (0.5, 0.999))
    optimizer_d = torch.optim.Adam(net_d.parameters(), args.lr, (0.5, 0.999))
    for epoch in range(args.epochs):
        for picked in batches(len(images), args.batch_size, args.step_ms):
            fake = net_g(torch.randn(len(picked), NOISE))
            one, zero = torch.ones(len(picked), 1), torch.zeros(len(picked), 1)
            optimizer_d.zero_grad()
            loss_d = criterion(net_d(images[picked]), one) + criterion(net_d(fake.detach()), zero)
            loss_d.backward()
            optimizer_d.step()
            optimizer_g.zero_grad()
            loss_g = criterion(net_d(fake), one)
            loss_g.backward()
            optimizer_g.step()
        print(f"epoch {epoch} loss D {loss_d.item():.3f} G {loss_g.item():.3f}")
        with torch.no_grad():
            write_image(f"{args.outf}/fake_samples_epoch_{epoch:03d}.pgm", net_g(fixed))
        torch.save(net_g.state_dict(), f"{args.outf}/netG_epoch_{epoch}.pth")
        torch.save(net_d.state_dict(), f"{args.outf}/netD_epoch_{epoch}.pth")


if __name__ == "__main__":
    main()
