# SPDX-License-Identifier: Apache-2.0
"""The goals, each computed from the figures: met, missed, or not measured and why."""
import dataclasses

import paired
import settings
from settings import MAIN, PRODUCT

PIPELINES = ("bamboo", "warm-shadow", "pipeline")
GOAL_NODES = 54


@dataclasses.dataclass
class Goal:
    name: str
    words: str
    bound: float  # None: only reported
    is_least: bool  # the figure must be at least, else at most the bound
    paper: str
    section: str  # of the page, where its plot is
    figure: object = None
    why: str = ""  # not measured

    @property
    def state(self):
        if self.figure is None:
            return "not measured"
        if self.bound is None:
            return "reported"
        return "met" if self.holds(self.figure.median) else "missed"

    @property
    def is_sure(self):
        """Whether the whole interval says the same as the median; fewer seeds have only a range, which is none."""
        if self.figure is None or self.figure.n < paired.LEAST or self.bound is None:
            return False
        return self.holds(self.figure.low) == self.holds(self.figure.high) == (self.state == "met")

    def holds(self, value):
        return value >= self.bound if self.is_least else value <= self.bound

    @property
    def wanted(self):
        if self.bound is None:
            return "no bound"
        return f"{'at least' if self.is_least else 'at most'} {self.bound:g}"


def pipeline(table):
    """The strongest of those that are redundancy in pipelines, None if none has been played."""
    found = [policy for policy in table.champions(MAIN) if policy.startswith(PIPELINES)]
    figures = {policy: table.figure(MAIN, policy, "loss") for policy in found}
    return min((policy for policy in found if figures[policy]), key=lambda policy: figures[policy].median, default=None)


def against(table, policy, metric):
    """(figure, why there is none)."""
    if PRODUCT not in table.policies(MAIN):
        return None, "the product was not played"
    if policy is None:
        return None, "no such baseline was played"
    figure = table.ratio(MAIN, PRODUCT, policy, metric)
    return figure, "" if figure else "the baseline lost nothing in any seed, or there is no such figure"


def own(table, metric, why="it did not occur in any seed"):
    if PRODUCT not in table.policies(MAIN):
        return None, "the product was not played"
    figure = table.figure(MAIN, PRODUCT, metric)
    return figure, "" if figure else why


def speed(table):
    nodes = {row["nodes"] for row in table.rows if row["section"] == MAIN}
    if nodes != {GOAL_NODES}:
        return None, f"the goal is for {GOAL_NODES} nodes"
    return own(table, "speed")


def check_ratio(table):
    """Pipeline redundancy over the best fixed interval, as the paper's two figures imply it."""
    s1, pipe = table.best(MAIN, "slurm-s1"), pipeline(table)
    if s1 is None or pipe is None:
        return None, "no such baseline was played"
    figure = table.ratio(MAIN, pipe, s1, "loss")
    return figure, "" if figure else "Slurm lost nothing"


def goals(table):
    s1, pipe, quick = table.best(MAIN, "slurm-s1"), pipeline(table), table.best(MAIN, "slurm-s1", "downtime_mean")
    recount = "no run could be counted again from its log"

    def goal(name, words, bound, is_least, paper, section, found):
        figure, why = found
        return Goal(name, words, bound, is_least, paper, section, figure, why)

    return [
        goal("loss-s1", f"work lost, of what Slurm loses with its best fixed interval ({label(s1)})", 0.20, False,
             "0.34 in the paper", "loss", against(table, s1, "loss")),
        goal("loss-pipeline", "work lost, of what pipeline redundancy loses" + (f" ({label(pipe)})" if pipe else ""),
             0.40, False, "0.62 in the paper", "loss", against(table, pipe, "loss")),
        goal("check", "pipeline redundancy's work loss, of Slurm's best fixed interval", None, False,
             "the paper implies 0.55", "ratios", check_ratio(table)),
        goal("downtime", f"mean downtime, of Slurm's with the fixed interval that is best for it ({label(quick)})",
             0.40, False, "0.62 in the paper", "downtime", against(table, quick, "downtime_mean")),
        goal("departures", "departures with notice that lost at most a minute of work, %", 97, True, "GPUnion 94",
             "departures", own(table, "clean")),
        goal("fitting", "the same, of those whose delta fitted the notice, %", 99, True, "", "departures",
             (None, "the simulator does not say afterwards which deltas fitted")),
        goal("home", "back on their machine, of the displaced whose machine came back in time, %", None, True,
             "GPUnion 67", "home", own(table, "home", recount)),
        goal("home-pays", "the same, of those for which it pays, %", 80, True, "", "home",
             (None, "for which it pays is not judged afterwards")),
        goal("stretch", "training time beyond the work itself, with 2 to 4 interruptions, %", 2, False,
             "GPUnion 3 to 7", "departures", own(table, "stretch", "no job with 2 to 4 interruptions finished")),
        goal("traffic", "moved, of what the buildings' lines could carry, %", 1, False, "GPUnion below 2", "traffic",
             own(table, "traffic_share")),
        goal("background", "change of other people's traffic, %", 1, False, "below 3 in the paper", "traffic",
             (None, "the campus has no other traffic in the simulator; the testbed measures it")),
        goal("busy", "GPU time not lent or used by guests, of all, at this load, %", 67, True, "GPUnion 34 to 67",
             "utilisation", own(table, "busy")),
        goal("interactive", "interactive requests served, against none lent, %", 40, True, "GPUnion +40", "utilisation",
             (None, "no recorded or generated job is interactive")),
        goal("speed", "simulated hours per wall second of one run", 22.4, True, "8 weeks in 60 s", "method",
             speed(table)),
    ]


def label(policy):
    """A policy's name for people; one that is not known here is called as the program calls it."""
    if policy is None:
        return "none"
    name, seconds = settings.family(policy)
    words = LABELS.get(policy) or LABELS.get(name) or name
    return words if seconds is None or policy in LABELS else f"{words} {span(seconds)}"


def span(seconds):
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= size and seconds % size == 0:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


LABELS = {
    PRODUCT: "ReclaimNet",
    "reclaimnet-stays": "no way home",
    "reclaimnet-no-ahead": "no copies ahead",
    "reclaimnet-flat": "no topology",
    "reclaimnet-constant-hazard": "constant hazard",
    "reclaimnet-no-joint": "no joint rule",
    "reclaimnet-no-groups": "no group risk",
    "reclaimnet-one-by-one": "chosen one by one",
    "reclaimnet-fair-share": "fair-share rates",
    "reclaimnet-strict-priority": "strict priority",
    "reclaimnet-random": "random places",
    "reclaimnet-most-free": "most-free places",
    "reclaimnet-nearest": "nearest places",
    "slurm-s0": "Slurm S0",
    "slurm-s1": "Slurm S1",
    "slurm-s2": "Slurm S2",
    "slurm-term": "Slurm SIGTERM",
    "young-daly": "Young/Daly",
    "bamboo": "Bamboo",
    "bamboo-one-lab": "Bamboo, 1 lab",
    "warm-shadow": "warm shadow",
    "condor-vacate": "HTCondor",
    "checkfreq": "CheckFreq-like",
    "oracle": "oracle",
}
MEANS = {
    "slurm-s0": "preempt and requeue, nothing is saved",
    "slurm-s1": "saved at a fixed interval",
    "slurm-s2": "saved at a fixed interval, and at SIGTERM",
    "slurm-term": "saved at SIGTERM alone",
    "young-daly": "as S2, at the interval of Young and Daly",
}
