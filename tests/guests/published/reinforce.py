# SPDX-License-Identifier: Apache-2.0
"""Learns by reward to walk along a line to its end. It writes no file at all; what it has to say it prints."""
import argparse
import time

import torch
from torch import nn

PLACES = 8


def play(policy, longest):
    """The logarithms of the chosen steps' probabilities, and the reward: earlier is better."""
    place, chosen = 0, []
    for count in range(longest):
        here = nn.functional.one_hot(torch.tensor(place), PLACES).float()
        choice = torch.distributions.Categorical(logits=policy(here))
        step = choice.sample()
        chosen.append(choice.log_prob(step))
        place = max(0, place + (1 if step.item() else -1))
        if place == PLACES - 1:
            return chosen, 1 - count / longest
    return chosen, 0.0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--episodes", type=int, default=300)
    parser.add_argument("--seed", type=int, default=543)
    parser.add_argument("--log-interval", type=int, default=10)
    parser.add_argument("--step-ms", type=float, default=0, help="each episode takes this much longer")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    policy = nn.Sequential(nn.Linear(PLACES, 32), nn.ReLU(), nn.Linear(32, 2))
    optimizer = torch.optim.Adam(policy.parameters(), 0.01)
    running = 0.0
    for episode in range(1, args.episodes + 1):
        chosen, reward = play(policy, 60)
        optimizer.zero_grad()
        (-(reward - running) * torch.stack(chosen).sum()).backward()
        optimizer.step()
        running = 0.9 * running + 0.1 * reward
        time.sleep(args.step_ms / 1000)
        if episode % args.log_interval == 0:
            print(f"episode {episode} reward {reward:.2f} average {running:.2f}")


if __name__ == "__main__":
    main()
