# SPDX-License-Identifier: Apache-2.0
"""Statistics over seeds: medians, ratios of the same seed, and how sure they are."""
import random
import statistics

ROUNDS = 2000
SEED = 20260501  # of the resampling: the same numbers give the same interval
LEAST = 6  # below that a resampled median covers less than 95 %: the range of the seeds is given instead

_picks = {}


def picks(count):
    """Which of `count` values each round takes; the same for every figure of so many seeds."""
    if count not in _picks:
        dice = random.Random(f"{SEED} {count}")
        _picks[count] = [[dice.randrange(count) for _ in range(count)] for _ in range(ROUNDS)]
    return _picks[count]


def median(values):
    return statistics.median(values)


def interval(values):
    """(low, high): 95 % bootstrap interval of the median; of fewer than LEAST values their range, of one (None, None).
    """
    if len(values) < 2:
        return None, None
    if len(values) < LEAST:
        return min(values), max(values)
    medians = sorted(statistics.median(values[i] for i in pick) for pick in picks(len(values)))
    return medians[int(0.025 * ROUNDS)], medians[int(0.975 * ROUNDS) - 1]


def ratios(ours, theirs):
    """{seed: ours / theirs} of the seeds that both have; a seed in which theirs is nothing says nothing."""
    return {seed: ours[seed] / theirs[seed] for seed in sorted(ours.keys() & theirs.keys()) if theirs[seed] > 0}
