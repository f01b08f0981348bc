# SPDX-License-Identifier: Apache-2.0
"""A result to be read: as text, as CSV, and as one page with a plot that needs nothing else."""
import csv
import html
import io
import json

import plot
from account import MEASURES
from plan import NOTICE_S, SIDES, SPEED, VARIANTS

NAMES = {"slurm": "Slurm", "reclaimnet": "ReclaimNet"}
ROWS = (("lost_s", "work lost a displaced guest, s"), ("downtime_s", "downtime, s"), ("silence_s", "silence, s"),
        ("wait_s", "owner's wait, all reclaims, s"), ("wait_with_guest_s", "owner's wait where a guest was, s"))


def number(value, digits=2):
    return "-" if value is None else f"{value:.{digits}f}"


def cell(one):
    return f"{number(one['mean'])} / {number(one['p50'])} / {number(one['p99'])} (n={one['n']})"


def heads(result):
    about = [play["about"] for play in result["plays"]]
    first = about[0]
    loads = sorted(float(one["load"].split()[0]) for one in about)
    yield (f"machine: {first['machine']}; load {loads[0]:g} to {loads[-1]:g}; commit {first['commit']}; "
           f"{min(one['when'] for one in about)} to {max(one['when'] for one in about)}")
    slurm = sorted({one["slurm"] for one in about if "slurm" in one})
    built = sorted({one["programs"] for one in about if "programs" in one})
    seeds = sorted({one["seed"] for one in about})
    yield (f"{', '.join(slurm) or 'Slurm not played'}; ReclaimNet's programs: "
           f"{'; '.join(built) or 'not played'}; {first['nodes']} nodes, {first['guests']} guests at once; seeds "
           f"{', '.join(map(str, seeds))}; {len(about)} plays")
    yield (f"a second of owners and guests stands for {SPEED} s; guests save each {first['save_s']:g} s; "
           f"notices of {NOTICE_S} s, and all that daemons do, are in real seconds")


def rows(variant):
    """[(kind, what, {side: cell}, ratio of the means)]."""
    sides, found = variant["sides"], []
    kinds = next(iter(sides.values()))["kinds"]
    for kind in kinds:
        for name, what in ROWS:
            ratio = variant.get("ratios", {}).get(kind, {}).get(name, {}).get("mean")
            found.append((kind, what, {side: cell(one["kinds"][kind][name]) for side, one in sides.items()
                                       if kind in one["kinds"]}, number(ratio)))
    return found


def side_words(side, one):
    return (f"{NAMES[side]}: {one['reclaims']} reclaims in {one['plays']} plays, {one['displaced']} guests displaced "
            f"({one['never_resumed']} not resumed before the end, {one['again_before_new_work']} again before new "
            f"work); steps done once more {one['steps_again']} of {one['useful_steps']} that count "
            f"({number(one['again_of_useful'] and 100 * one['again_of_useful'])} %); useful share of the guests' time "
            f"{number(one['useful_share'] and 100 * one['useful_share'], 1)} %; jobs {one['jobs']}, wrong "
            f"{one['wrong']}")


TOTAL_NAMES = {"lost_a_reclaim_s": "work lost a reclaim, s", "downtime_a_reclaim_s": "downtime a reclaim, s",
               "again_of_useful": "steps done once more, of those that count",
               "useful_share": "useful share of the guests' time"}


def total_words(variant):
    """Over whole plays: each side, and the ratio."""
    for name, what in TOTAL_NAMES.items():
        each = ", ".join(f"{NAMES[side]} {number(one[name], 3)}" for side, one in variant["sides"].items())
        yield f"{what}: {each}, ratio {number(variant.get('ratios_of_totals', {}).get(name))}"


def repetition_words(variant):
    for name, what in ROWS:
        each = variant.get("ratios", {}).get("all", {}).get(name, {}).get("mean_by_repetition")
        if each:
            yield f"ratio of the means by repetition, {what}: {', '.join(map(number, each))}"


def text(result):
    lines = [*heads(result), ""]
    for name, variant in result["variants"].items():
        lines += [f"{name}: {VARIANTS[name]}", *(f"  {side_words(*one)}" for one in variant["sides"].items())]
        lines.append(f"  {'kind':<10}{'mean / median / p99':<36}{'Slurm':<34}{'ReclaimNet':<34}ratio of the means")
        for kind, what, cells, ratio in rows(variant):
            lines.append(f"  {kind:<10}{what:<36}" + "".join(f"{cells.get(side, '-'):<34}" for side in SIDES) + ratio)
        lines += [*(f"  {one}" for one in (*total_words(variant), *repetition_words(variant))), ""]
    lines += [f"FAULT {fault}" for fault in result["faults"]]
    return "\n".join(lines) + "\n"


def table(names, entries):
    out = io.StringIO()
    writer = csv.DictWriter(out, names, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(entries)
    return out.getvalue()


TAG = ("variant", "side", "repetition", "seed")


def displaced_csv(result):
    return table([*TAG, "job", "node", "kind", "begun", "lost_steps", *MEASURES, "again_before_new_work", "resumed"],
                 [one for play in result["plays"] for one in play["displaced"]])


def owners_csv(result):
    return table([*TAG, "node", "kind", "begun", "displaced", "wait_s"],
                 [one for play in result["plays"] for one in play["owners"]])


def page(result):
    parts = ["<!doctype html><html lang=en><meta charset=utf-8><title>Slurm and ReclaimNet</title>",
             "<style>body{font:15px sans-serif;max-width:70em;margin:2em auto;padding:0 1em}",
             "td,th{padding:.2em .8em;text-align:left;border-bottom:1px solid #ddd}</style>",
             "<h1>The same owners and guests through Slurm and through ReclaimNet</h1>"]
    parts += [f"<p>{html.escape(line)}" for line in heads(result)]
    parts.append(plot.svg(result))
    for name, variant in result["variants"].items():
        parts.append(f"<h2>{name}: {html.escape(VARIANTS[name])}</h2>")
        parts += [f"<p>{html.escape(side_words(*one))}" for one in variant["sides"].items()]
        parts.append("<table><tr><th>kind<th>mean / median / p99<th>Slurm<th>ReclaimNet<th>ratio of the means")
        parts += ["<tr>" + "".join(f"<td>{html.escape(one)}" for one in (
            kind, what, *(cells.get(side, "-") for side in SIDES), ratio))
            for kind, what, cells, ratio in rows(variant)]
        parts.append("</table>")
        parts += [f"<p>{html.escape(one)}" for one in (*total_words(variant), *repetition_words(variant))]
    parts += [f"<p><b>FAULT</b> {html.escape(fault)}" for fault in result["faults"]]
    return "\n".join(parts) + "\n"


def write(out, result):
    out.mkdir(parents=True, exist_ok=True)
    (out / "result.json").write_text(json.dumps(result, indent=1) + "\n")
    (out / "result.txt").write_text(text(result))
    (out / "displaced.csv").write_text(displaced_csv(result))
    (out / "owners.csv").write_text(owners_csv(result))
    (out / "result.html").write_text(page(result))
    (out / "result.svg").write_text(plot.svg(result) + "\n")
