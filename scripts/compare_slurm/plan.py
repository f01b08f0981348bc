# SPDX-License-Identifier: Apache-2.0
"""What is played through both: the same owners, the same jobs, one laboratory of the same machines. Pure: the same
numbers give the same plan."""
import dataclasses

import owners
from lines import Bad

SPEED = 60  # a second of owners and guests stands for a minute; notices, transfers and daemons are in real time
NOTICE_S = 10
PEER = "desk"  # the host to which guests send their progress
VARIANTS = {
    "s1": "guests save at a fixed interval",
    "s2": "guests save at a fixed interval, and once more when they are told (SIGTERM)"}
SIDES = ("slurm", "reclaimnet")
STEP_MS, SAVE_S = 100, 30  # a save every half an hour of their time
JOBS = {"steps": [700, 1100], "step_ms": STEP_MS, "state_mib": [16, 24], "blocks": 3}
OWNERS = {"mean_free_s": 60, "hold_s": [6, 12], "first_s": 40}
MIX = {"notice": 0.75, "emergency": 0.25, "notice_s": NOTICE_S}
CONTRACT = {"guest_cpu_milli": 500}  # one guest a machine, as a node of one processor is in Slurm
CPUS = ("0.5", "0.3")


@dataclasses.dataclass(frozen=True)
class Plan:
    variant: str
    seed: int
    nodes: tuple  # their names
    acts: tuple  # of owners.Act, by time
    scenario: dict  # as scripts/testbed plays it; `topology` is the text and not a file

    @property
    def seconds(self):
        return max(act.until_s for act in self.acts) + 2


def topology(nodes):
    """One switch, each machine at 1 Gbit/s, a desk beside them."""
    lines = [f"  - {{name: {name}, at: switch-1, rate: 1gbit}}" for name in (*nodes, PEER)]
    return "\n".join(["version: 1", "links:", "  - name: switch-1", "nodes:", *lines]) + "\n"


def acts_of(nodes, reclaims, seed):
    """The first `reclaims` acts of made-up owners."""
    long_enough = 600 + reclaims * (OWNERS["mean_free_s"] + NOTICE_S + OWNERS["hold_s"][1])
    found, _ = owners.made_up(OWNERS, MIX, nodes, seed, long_enough)
    return tuple(sorted(found)[:reclaims])


def make(variant, nodes, reclaims, seed, save_s=SAVE_S):
    """`save_s`: between two saves of a guest, in seconds as they are played."""
    if variant not in VARIANTS:
        raise Bad(f"there is no variant {variant!r}; there are {', '.join(VARIANTS)}")
    names = tuple(f"node-{number}" for number in range(1, nodes + 1))
    guests = guests_at_once(nodes)
    save_every = max(1, round(save_s * 1000 / STEP_MS))
    jobs = {**JOBS, "save_every": [save_every, save_every], "at_once": guests,
            "term_share": 1 if variant == "s2" else 0}
    acts = acts_of(list(names), reclaims, seed)
    scenario = {
        "topology": topology(names), "nodes": nodes, "peer": PEER, "jobs": jobs, "owners": OWNERS, "mix": MIX,
        "contract": CONTRACT, "baseline_s": 0}
    return Plan(variant, seed, names, acts, scenario)


def guests_at_once(nodes):
    """Fewer than machines, so that who is displaced mostly finds a free one: queues are not what is compared."""
    return max(1, (nodes + 1) // 2)
