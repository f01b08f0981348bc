#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check.py FOLDER: whether an evaluation's page, its plots and its tables say the same.

Looks at the page as a program that has not made it: it parses, has every section, refers to nothing elsewhere, each
number on it is the one of figures.csv, each mark lies where its number is on its plot's axis, and figures.csv follows
from runs.csv. Prints what is wrong; exit code 1 if anything is.
"""
import csv
import json
import math
import pathlib
import re
import sys
import xml.etree.ElementTree as xml

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import figures as figures_of  # noqa: E402
import plots  # noqa: E402
import settings  # noqa: E402

SECTIONS = ("answer", "goals", "loss", "ratios", "sweep", "downtime", "traffic", "utilisation", "departures", "home",
            "causes", "mixes", "load", "ablations", "failures", "method", "files")
ELSEWHERE = re.compile(r"https?:|//[a-z]|@import|url\(|<script|<link|<iframe|<img|<object|javascript:", re.IGNORECASE)
PLACES = {"median": "cx", "height": "cy", "level": "y1"}
NEAR = 0.02  # of a plot's pixel


def problems(folder):
    folder = pathlib.Path(folder)
    text = (folder / "index.html").read_text(encoding="utf-8")
    yield from (f"the page refers to something elsewhere: {found[0]}" for found in ELSEWHERE.finditer(text))
    try:
        page = xml.fromstring(re.sub(r"^<!DOCTYPE html>", "", text))
    except xml.ParseError as error:
        yield f"the page does not parse: {error}"
        return
    table = {row["key"]: row for row in read(folder / "figures.csv")}
    yield from structure(page, folder)
    yield from numbers(page, table)
    for plot in page.iter("svg"):
        yield from marks(plot, table)
    yield from tables(folder, table)


def read(path):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def structure(page, folder):
    named = {element.get("id"): element for element in page.iter() if element.get("id")}
    for name in SECTIONS:
        if name not in named:
            yield f"section {name} is missing"
        elif not "".join(named[name].itertext()).strip():
            yield f"section {name} is empty"
    for element in page.iter():
        target = element.get("href") or element.get("src")
        if target is None:
            continue
        if target.startswith("#"):
            if target[1:] not in named:
                yield f"a link goes to {target}, which is not there"
        elif "/" in target or not (folder / target).is_file():
            yield f"a link goes to {target}, which does not lie beside the page"


def numbers(page, table):
    """Each number that is written somewhere."""
    count = 0
    for element in page.iter():
        key, value = element.get("data-figure"), element.get("value") or element.get("data-value")
        if key is None or value is None:
            continue
        count += 1
        row, which = table.get(key), element.get("data-is", "median")
        if row is None:
            yield f"{key} is on the page and not in figures.csv"
            continue
        if which not in row or row[which] == "" or float(row[which]) != float(value):
            yield f"{key}: {which} is {value} on the page, {row.get(which)} in figures.csv"
            continue
        unit = element.get("data-unit", row["unit"])
        if "".join(element.itertext()) != plots.shown(float(value), unit):
            yield f"{key}: {which} is written {''.join(element.itertext())}, and is {value}"
    if count == 0:
        yield "no number of the page names its figure"


def axis_of(plot, name):
    low, high, begin, end = (float(plot.get(f"data-{name}-{what}")) for what in ("low", "high", "begin", "end"))
    axis = plots.Axis([1, 2], plot.get(f"data-{name}-log") == "1", begin, end)
    axis.low, axis.high = low, high
    return axis


def marks(plot, table):
    """Each mark that stands for a number: the number is found again from its place."""
    for element in plot.iter():
        key, which = element.get("data-figure"), element.get("data-is")
        if key is None or which is None or element.tag in ("text", "data"):
            continue
        row = table.get(key)
        if row is None:
            yield f"{key} has a mark and is not in figures.csv"
            continue
        median = float(row["median"])
        if which in PLACES:
            axis = axis_of(plot, "x" if which == "median" else "y")
            wrong = not near(axis, float(element.get(PLACES[which])), median)
        elif which == "interval":
            axis = axis_of(plot, "x")
            wrong = not all(near(axis, float(element.get(at)), float(row[of]))
                            for at, of in (("x1", "low"), ("x2", "high")))
        else:
            axis = axis_of(plot, "x")
            wrong = abs(float(element.get("width")) - (axis.place(median) - axis.place(0))) > NEAR
        if wrong:
            yield f"{key}: its {which} does not lie where {median:g} is"


def near(axis, place, value):
    if axis.is_log and value < axis.low:
        return abs(place - axis.begin) <= NEAR
    expected = axis.place(value)
    return math.isfinite(expected) and abs(place - expected) <= NEAR


def tables(folder, table):
    """figures.csv against runs.csv and figures.json."""
    told = json.loads((folder / "figures.json").read_text(encoding="utf-8"))
    for figure in told["figures"]:
        row = table.get(figure["key"])
        if row is None or any((row[name] or None) != (None if figure[name] is None else repr(figure[name]))
                              for name in ("median", "low", "high")):
            yield f"{figure['key']} is not the same in figures.json and in figures.csv"
    if len(told["figures"]) != len(table):
        yield f"figures.json has {len(told['figures'])} figures, figures.csv {len(table)}"
    runs = [{name: value if name in ("section", "policy", "notices", "commit") else float(value)
             for name, value in row.items() if value != ""} for row in read(folder / "runs.csv")]
    sections = [settings.Section(one["name"], one["words"], one["options"], one["policies"], one["seeds"], of=one["of"])
                for one in told["sections"]]
    again = figures_of.Table(runs, sections, has_intervals=False)
    again.everything()
    for key in sorted(again.figures.keys() ^ table.keys()):
        yield f"{key} is in {'figures.csv' if key in table else 'runs.csv'} alone"
    for key in sorted(again.figures.keys() & table.keys()):
        here, there = again.figures[key], table[key]
        if abs(here.median - float(there["median"])) > 1e-9 * abs(here.median) or here.n != int(there["n"]):
            yield f"{key}: {there['median']} in figures.csv, {here.median!r} from runs.csv"


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__.strip())
        return 0 if sys.argv[1:] in (["-h"], ["--help"]) else 2
    try:
        found = list(problems(sys.argv[1]))
    except OSError as error:
        print(f"check: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    print("\n".join(found) if found else "the page and its tables say the same")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
