# SPDX-License-Identifier: Apache-2.0
"""One scenario and seed, played once by each discipline: how copies share lines, and what it came to. Pure but for the
files.

    disciplines.py OUT      the table again, of the results in OUT's folders

docs/testbed.md says what the disciplines are."""
import argparse
import json
import pathlib
import sys

import summary

OURS = "ours"
WORDS = {OURS: "admission and deadline rates", "fair": "TCP fair share", "priority": "strict priority by value",
         "edf": "EDF without admission"}
GOAL = 0.01  # of what was promised may be missed


def names(text):
    """Of a flag: each once, in the order given; `all` are all."""
    found = list(WORDS) if text == "all" else text.split(",")
    if not set(found) <= set(WORDS) or len(set(found)) != len(found):
        raise argparse.ArgumentTypeError(f"wants some of {', '.join(WORDS)}, each once, or all, not {text!r}")
    return found


def work_share(displaced):
    """Of the work that scheduled evacuations had to carry away, in seconds of guests, the part that was inside; None if
    there was none."""
    carried = [one for one in displaced if one["kind"] in ("announced", "notice")]
    worth = sum(one["worth_s"] for one in carried)
    return sum(one["worth_s"] for one in carried if one["is_inside"]) / worth if worth else None


def row(result):
    told = result["promised"]
    late = told["late"] or {"n": 0, "count": 0, "share": None}
    return {
        "discipline": result["about"].get("discipline", OURS), "inside": result["inside"],
        "inside_of_fitting": result["inside_of_fitting"], "work_inside": work_share(result["displaced"]),
        "promised": told["missed"]["n"], "missed": told["missed"], "withdrawn": told["withdrawn"], "late": late,
        "harm": result["harm"], "jobs": {name: result["jobs"][name] for name in ("n", "bit_identical")},
        "load": result["about"].get("load"), "commit": result["about"].get("commit")}


def verdict(one):
    """Of what stood as promised when its notice was over: is the goal met? Few prove nothing."""
    if not one["late"]["n"]:
        return "-"
    is_met = one["late"]["share"] <= GOAL
    return ("goal met" if is_met else "goal missed") + ("" if one["late"]["n"] >= 100 else ", but few")


def _harm(one):
    words = [f"{each['flow']} ({each['pace']}) {each['measure']} {each['phase']} {summary.change(each['change'])}"
             for each in one["harm"] if each["change"] is not None]
    return "; ".join(words) or "no flows"


def text(rows, about):
    """A table, and under it what each did to other people's traffic."""
    lines = [f"scenario {about['scenario']}, seed {about['seed']}, {about['minutes']:g} minutes, topology "
             f"{about['topology']}, {about['nodes']} nodes, {about['shaper']}; the same owners, jobs and gaps for each",
             "", f"{'':<30} {'inside their notice':<19} {'of those that fit':<19} {'of the work':<11} "
             f"{'promised until the end,':<24} {'missed by the':<14} {'withdrawn'}",
             f"{'':<30} {'':<19} {'':<19} {'':<11} {'and late':<24} {'daemon’s word':<14}"]
    for one in rows:
        work = "-" if one["work_inside"] is None else f"{100 * one['work_inside']:.1f} %"
        withdrawn = summary.share(one["withdrawn"]) if one["withdrawn"] else "-"
        lines.append(f"{WORDS[one['discipline']]:<30} {summary.share(one['inside']):<19} "
                     f"{summary.share(one['inside_of_fitting']):<19} {work:<11} {summary.share(one['late']):<24} "
                     f"{summary.share(one['missed']):<14} {withdrawn}")
    lines += ["", f"promised and late: at most {100 * GOAL:g} % is the goal; without admission all that has a deadline "
              "counts as promised"]
    for one in rows:
        lines.append(f"{WORDS[one['discipline']]}: {verdict(one)}; jobs bit-identical {one['jobs']['bit_identical']} "
                     f"of {one['jobs']['n']}; load {one['load']}; others: {_harm(one)}")
    return "\n".join(lines) + "\n"


def write(out):
    """disciplines.json and disciplines.txt, of the results that are there."""
    results = [json.loads((out / name / "result.json").read_text()) for name in WORDS
               if (out / name / "result.json").exists()]
    rows = [row(one) for one in results]
    (out / "disciplines.json").write_text(json.dumps(rows, indent=1) + "\n")
    (out / "disciplines.txt").write_text(text(rows, results[0]["about"]))


if __name__ == "__main__":
    write(pathlib.Path(sys.argv[1]))
    print(pathlib.Path(sys.argv[1], "disciplines.txt").read_text(), end="")
