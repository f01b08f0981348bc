# SPDX-License-Identifier: Apache-2.0
"""When owners take their machines back: from a slice of a trace at an accelerated clock, or made up. Pure: the same
scenario, seed and length give the same acts."""
import csv
import dataclasses
import datetime
import gzip
import io
import random

from lines import Bad

KINDS = ("announced", "notice", "emergency", "lost")
SETTLE_S = 5  # an owner who has given back does not come again sooner
GPUS_OF_A_NODE = 8


@dataclasses.dataclass(frozen=True, order=True)
class Act:
    at_s: float  # of the run: when the owner says it
    node: str
    kind: str
    notice_s: float  # until the deadline; 0 for an emergency and a loss
    hold_s: float  # from the deadline until the owner gives back
    fills: bool = False  # the machine's line, with traffic of their own, from the command until they give back

    @property
    def until_s(self):
        return self.at_s + self.notice_s + self.hold_s


def read_trace(path):
    """[(minute since the first row, idle GPUs)]. Bad for a file that is none, and for one with gaps."""
    try:
        data = path.read_bytes()
        text = gzip.decompress(data).decode() if path.suffix == ".gz" else data.decode()
        rows = list(csv.DictReader(io.StringIO(text)))
        times = [datetime.datetime.fromisoformat(row["time"]) for row in rows]
        idle = [int(row["idle_gpus"]) for row in rows]
    except (OSError, EOFError, ValueError, KeyError) as error:
        raise Bad(f"{path} is no trace of an owner (columns time, idle_gpus): {error!r}") from None
    if len(rows) < 2:
        raise Bad(f"{path} has {len(rows)} rows: an owner's trace has one a minute")
    found = []
    for before, time, gpus in zip([None, *times], times, idle):
        if before and (time - before).total_seconds() != 60:
            raise Bad(f"{path} has a gap or a step back after {before}: cut the trace there, or fill it")
        found.append((len(found), gpus))
    return found


def busy_spells(trace, index, first, last, min_free):
    """[(minute, minutes)] of node `index` of the lab: when it is taken after at least `min_free` minutes of freedom,
    and for how long. A node is free while idle >= 8 (index + 1)."""
    found, free_since = [], None
    for minute, idle in trace[first:last]:
        is_free = idle >= GPUS_OF_A_NODE * (index + 1)
        if is_free and free_since is None:
            free_since = minute
        elif not is_free and free_since is not None:
            if minute - free_since >= min_free:
                found.append([minute - first, None])
            free_since = None
        if found and found[-1][1] is None and is_free and free_since == minute:
            found[-1][1] = minute - first - found[-1][0]
    return [(begin, length if length is not None else last - first - begin) for begin, length in found]


def _drawn(rng, mix):
    """(kind, notice in seconds) by the declared mix."""
    kind = rng.choices(KINDS, [mix.get(one, 0) for one in KINDS])[0]
    low, high = mix.get("announced_s", (20, 40))
    notice = {"announced": round(rng.uniform(low, high)), "notice": mix["notice_s"]}.get(kind, 0)
    return kind, notice


def _spread(acts, seconds):
    """Without acts that would come while their owner still has the machine, or too late to end; and how many those
    were."""
    kept, free_at, left_out = [], {}, 0
    for act in sorted(acts):
        if act.at_s < free_at.get(act.node, 0) or act.until_s > seconds:
            left_out += 1
            continue
        kept.append(act)
        free_at[act.node] = act.until_s + SETTLE_S
    return kept, left_out


def filling(acts, share, seed):
    """The same acts; of those with a notice a share whose owner fills the line meanwhile."""
    rng = random.Random(f"filling {seed}")
    drawn = [(act, rng.random() < share) for act in acts]
    return [dataclasses.replace(act, fills=fills and act.notice_s > 0) for act, fills in drawn]


def from_traces(spec, mix, nodes, traces, seed, seconds):
    """`spec`: speed (trace minutes in a real minute), first (minute of the slice), min_free, hold_s (least, most),
    nodes: {node: {lab, index}}. `traces`: {lab: rows}."""
    rng, acts = random.Random(f"owners {seed}"), []
    per_s = spec["speed"] / 60  # trace minutes in a real second
    low, high = spec["hold_s"]
    for node in nodes:
        one = spec["nodes"].get(node)
        if one is None:
            continue
        first = spec.get("first", 0)
        last = first + int(seconds * per_s) + 1
        if last > len(traces[one["lab"]]):
            raise Bad(f"the trace of {one['lab']} has {len(traces[one['lab']])} minutes, and the slice ends at {last}: "
                      "begin earlier (first:), play for a shorter time or slower")
        for begin, length in busy_spells(traces[one["lab"]], one["index"], first, last, spec["min_free"]):
            kind, notice = _drawn(rng, mix)
            at = begin / per_s - (notice if kind == "announced" else 0)  # announced: the owner comes at the deadline
            hold = min(max(length / per_s, low), high)
            acts.append(Act(round(max(at, 0), 2), node, kind, notice, round(hold, 2)))
    return _spread(acts, seconds)


def made_up(spec, mix, nodes, seed, seconds):
    """`spec`: mean_free_s, hold_s (least, most), group: the chance that the owner of one machine takes one more of the
    same lab (the name up to its last hyphen) in the same second."""
    rng, acts = random.Random(f"owners {seed}"), []
    low, high = spec["hold_s"]
    for node in nodes:
        at = spec.get("first_s", 10) + rng.expovariate(1 / spec["mean_free_s"])
        while at < seconds:
            kind, notice = _drawn(rng, mix)
            hold = round(rng.uniform(low, high), 2)
            acts.append(Act(round(at, 2), node, kind, notice, hold))
            mates = [one for one in nodes if one != node and one.rpartition("-")[0] == node.rpartition("-")[0]]
            if mates and rng.random() < spec.get("group", 0):
                acts.append(Act(round(at + rng.uniform(0, 1), 2), rng.choice(mates), kind, notice, hold))
            at += notice + hold + rng.expovariate(1 / spec["mean_free_s"])
    return _spread(acts, seconds)
