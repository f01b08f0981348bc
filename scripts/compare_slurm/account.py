# SPDX-License-Identifier: Apache-2.0
"""What the plays show, from their records and nothing else, in the same way for both sides. docs/compare-slurm.md has
the definitions. Pure."""
import statistics

import judge
from plan import SIDES

TOTALS = ("lost_a_reclaim_s", "downtime_a_reclaim_s", "again_of_useful", "useful_share")
MEASURES = ("lost_s", "downtime_s", "silence_s")  # of each displaced guest


def owner_wait_s(act):
    """From the owner's command until the machine is theirs: their job's start, or cleared by the node's record. None if
    that was never said."""
    if "started" in act:
        return max(0.0, act["started"] - act["begun"])
    report = act.get("report")
    if not report or not report["cleared_ns"]:
        return None
    return max(0.0, report["declared_wall_ms"] / 1e3 - act["begun"] +
               (report["cleared_ns"] - report["declared_ns"]) / 1e9)


def step_s(jobs):
    """The usual time between two steps, over all guests."""
    gaps = [later[0] - earlier[0] for job in jobs.values() for start in job["starts"]
            for earlier, later in zip(start["packets"], start["packets"][1:]) if later[1] == earlier[1] + 1]
    return statistics.median(gaps) if gaps else None


def work_of(job):
    """(steps that count, steps done once more, seconds from the first sign of life to the last step). A start
    after that is nobody's loss."""
    starts = sorted((start for start in job["starts"] if start["packets"]), key=lambda one: one["packets"][0][0])
    if not starts:
        return 0, 0, 0.0
    useful = max(step for start in starts for _, step in start["packets"])
    done = reached = 0
    for start in starts:
        restored, last = start["packets"][0][1], max(step for _, step in start["packets"])
        done += last - min(restored, reached)  # a step that was saved before a packet told of it was done, too
        reached = max(reached, last)
    end = min(time for start in starts for time, step in start["packets"] if step == useful)
    return useful, done - useful, end - starts[0]["packets"][0][0]


def work(jobs):
    """Over a whole play, also what going home cost, or a start that came to nothing."""
    useful, again, seconds = (sum(part) for part in zip(*map(work_of, jobs.values()), (0, 0, 0.0)))
    step = step_s(jobs)
    return {"useful_steps": useful, "steps_again": again, "guest_s": round(seconds, 2),
            "again_of_useful": again / useful if useful else None,
            "useful_share": useful * step / seconds if step and seconds else None}


def play_of(record):
    """One play: its displaced guests, its owners, its work."""
    about = record["about"]
    tag = {name: about[name] for name in ("variant", "side", "repetition", "seed")}
    owners, displaced = [], []
    for act in record["acts"]:
        found = judge.displaced_by(record, act, ended_too=True)
        owners.append({**tag, "node": act["node"], "kind": act["kind"], "begun": act["begun"],
                       "displaced": len(found), "wait_s": owner_wait_s(act)})
        for one in found:
            displaced.append({
                **tag, **{name: one[name] for name in ("job", "node", "kind", "begun", "lost_steps", *MEASURES,
                                                       "again_before_new_work")},
                "resumed": one["resumed_at"] is not None})
    wrong = {name: job["fault"] for name, job in record["jobs"].items() if job["fault"]}
    return {**tag, "about": about, "owners": owners, "displaced": displaced, "work": work(record["jobs"]),
            "jobs": len(record["jobs"]), "wrong": wrong, "faults": record["faults"]}


def spread(samples):
    """judge.spread with the mean: of losses the mean is what a site pays."""
    samples = [one for one in samples if one is not None]
    return {**judge.spread(samples), "mean": statistics.fmean(samples) if samples else None}


def by_reclaim(name, displaced, owners):
    """Over all reclaims, also those that found no guest: who puts guests where owners do not come has fewer to move."""
    return sum(one[name] or 0 for one in displaced) / len(owners) if owners else None


def side_of(plays):
    """All plays of one side in one variant."""
    owners = [one for play in plays for one in play["owners"]]
    displaced = [one for play in plays for one in play["displaced"]]
    useful = sum(play["work"]["useful_steps"] for play in plays)
    again = sum(play["work"]["steps_again"] for play in plays)
    shares = [play["work"]["useful_share"] for play in plays if play["work"]["useful_share"] is not None]
    found = {
        "plays": len(plays), "reclaims": len(owners), "displaced": len(displaced),
        "never_resumed": sum(not one["resumed"] for one in displaced),
        "again_before_new_work": sum(one["again_before_new_work"] for one in displaced),
        "useful_steps": useful, "steps_again": again, "again_of_useful": again / useful if useful else None,
        "useful_share": statistics.fmean(shares) if shares else None,
        "lost_a_reclaim_s": by_reclaim("lost_s", displaced, owners),
        "downtime_a_reclaim_s": by_reclaim("downtime_s", displaced, owners),
        "jobs": sum(play["jobs"] for play in plays), "wrong": sum(len(play["wrong"]) for play in plays),
        "kinds": {}}
    for kind in ("all", *sorted({one["kind"] for one in owners})):
        of_kind = [one for one in displaced if kind in ("all", one["kind"])]
        waits = [one for one in owners if kind in ("all", one["kind"])]
        found["kinds"][kind] = {
            "reclaims": len(waits), "displaced": len(of_kind),
            **{name: spread([one[name] for one in of_kind]) for name in MEASURES},
            "wait_s": spread([one["wait_s"] for one in waits]),
            "wait_with_guest_s": spread([one["wait_s"] for one in waits if one["displaced"]])}
    return found


def ratio(one, of):
    return one / of if one is not None and of else None


def ratios(sides, repetitions):
    """ReclaimNet's figure over Slurm's, by kind; of the means also for each repetition alone."""
    ours, theirs = sides["reclaimnet"]["kinds"], sides["slurm"]["kinds"]
    found = {}
    for kind in [one for one in ours if one in theirs]:
        found[kind] = {
            name: {quantity: ratio(ours[kind][name][quantity], theirs[kind][name][quantity])
                   for quantity in ("mean", "p50", "p99")}
            for name in (*MEASURES, "wait_s", "wait_with_guest_s")}
    for name in (*MEASURES, "wait_with_guest_s"):
        found["all"][name]["mean_by_repetition"] = [
            ratio(*(one[side]["kinds"]["all"][name]["mean"] for side in reversed(SIDES))) for one in repetitions]
    return found


def result_of(records):
    """Of all plays together. `records` stay as they are."""
    plays = [play_of(record) for record in records]
    variants = {}
    for variant in sorted({play["variant"] for play in plays}):
        there = [play for play in plays if play["variant"] == variant]
        sides = {side: side_of(mine) for side in SIDES if (mine := [one for one in there if one["side"] == side])}
        variants[variant] = {"sides": sides}
        if len(sides) == len(SIDES):
            repetitions = []
            for repetition in sorted({play["repetition"] for play in there}):
                pair = {side: [one for one in there if (one["side"], one["repetition"]) == (side, repetition)]
                        for side in SIDES}
                if all(pair.values()):
                    repetitions.append({side: side_of(mine) for side, mine in pair.items()})
            variants[variant]["ratios"] = ratios(sides, repetitions)
            variants[variant]["ratios_of_totals"] = {
                name: ratio(sides["reclaimnet"][name], sides["slurm"][name]) for name in TOTALS}
    return {"variants": variants, "plays": plays,
            "faults": [f"{one['variant']} {one['side']} {one['repetition']}: {fault}" for one in plays
                       for fault in (*one["faults"], *(f"{job} {why}" for job, why in one["wrong"].items()))]}
