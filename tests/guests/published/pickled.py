# SPDX-License-Identifier: Apache-2.0
"""Finds the smallest value of a function by small random steps. Its whole state goes to run1/state.pkl, in place, after
each generation of steps; it goes on from that file if it is there."""
import argparse
import os
import pickle
import random
import time

FILE = "run1/state.pkl"


def height(point):
    return sum((value - index) ** 2 for index, value in enumerate(point))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--generations", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--step-ms", type=float, default=0, help="each generation takes this much longer")
    args = parser.parse_args()
    os.makedirs(os.path.dirname(FILE), exist_ok=True)
    random.seed(args.seed)
    begin, point = 0, [0.0] * 8
    if os.path.exists(FILE):
        with open(FILE, "rb") as file:
            begin, point, dice = pickle.load(file)
        random.setstate(dice)
        print(f"resumed after generation {begin}")
    for generation in range(begin + 1, args.generations + 1):
        for _ in range(200):
            near = [value + random.gauss(0, 0.1) for value in point]
            point = min(point, near, key=height)
        time.sleep(args.step_ms / 1000)
        print(f"generation {generation} height {height(point):.6f}")
        with open(FILE, "wb") as file:
            pickle.dump((generation, point, random.getstate()), file)


if __name__ == "__main__":
    main()
