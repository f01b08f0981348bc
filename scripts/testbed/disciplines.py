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
from lines import Bad

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


def _table(rows):
    """Of lines of words; each column as wide as it has to be."""
    widths = [max(len(one[column]) for one in rows) for column in range(len(rows[0]))]
    return ["  ".join(f"{word:<{width}}" for word, width in zip(one, widths)).rstrip() for one in rows]


def _fates(rows):
    yield ["", "inside their notice", "of those that fit", "of the work", "promised to the end, and late",
           "missed by its own word", "promises withdrawn", "jobs bit-identical", "load"]
    for one in rows:
        jobs = one["jobs"]
        yield [WORDS[one["discipline"]], summary.share(one["inside"]), summary.share(one["inside_of_fitting"]),
               "-" if one["work_inside"] is None else f"{100 * one['work_inside']:.1f} %",
               f"{summary.share(one['late'])}: {verdict(one)}", summary.share(one["missed"]),
               summary.share(one["withdrawn"]) if one["withdrawn"] else "-", f"{jobs['bit_identical']} of {jobs['n']}",
               one["load"] or "-"]


def _harm(rows):
    yield ["change against the same run without guests", *(one["discipline"] for one in rows)]
    for which, each in enumerate(rows[0]["harm"]):
        yield [f"{each['flow']} ({each['pace']}), {each['measure']} {each['phase']}",
               *(summary.change(one["harm"][which]["change"]) for one in rows)]


def text(rows, about):
    """What came of the evacuations, and under it what was done to other people's traffic."""
    lines = [f"scenario {about['scenario']}, seed {about['seed']}, {about['minutes']:g} minutes, topology "
             f"{about['topology']}, {about['nodes']} nodes, {about['shaper']}; the same owners, jobs and gaps for each",
             "", *_table(list(_fates(rows))), "",
             f"goal: of what is promised until the end at most {100 * GOAL:g} % late; without admission all that has a "
             "deadline counts as promised"]
    if rows[0]["harm"]:
        lines += ["", *_table(list(_harm(rows)))]
    return "\n".join(lines) + "\n"


def write(out):
    """disciplines.json and disciplines.txt, of the results that are there. Bad if they are not of one scenario."""
    results = [json.loads((out / name / "result.json").read_text()) for name in WORDS
               if (out / name / "result.json").exists()]
    if not results:
        raise Bad(f"no result lies in {out}, in no folder called {', '.join(WORDS)}; testbed.sh run SCENARIO "
                  f"--discipline all --out {out} plays them")
    if len({tuple(one["about"][name] for name in ("scenario", "seed", "minutes")) for one in results}) > 1:
        raise Bad(f"the results in {out} are not of one scenario, seed and length; name another folder by --out")
    rows = [row(one) for one in results]
    (out / "disciplines.json").write_text(json.dumps(rows, indent=1) + "\n")
    (out / "disciplines.txt").write_text(text(rows, results[0]["about"]))


if __name__ == "__main__":
    try:
        write(pathlib.Path(sys.argv[1]))
    except (Bad, OSError) as error:
        sys.exit(f"disciplines: {error}")
    print(pathlib.Path(sys.argv[1], "disciplines.txt").read_text(), end="")
