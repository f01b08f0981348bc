# SPDX-License-Identifier: Apache-2.0
"""The numbers beside the page, as CSV and JSON, and the folder's change from old to new in one step."""
import csv
import json
import os
import pathlib
import shutil

from settings import Bad

MARK = "figures.json"  # only an evaluation's folder has it, with this in it:
MADE_BY = "scripts/evaluate.sh"
FIGURE_COLUMNS = [
    "key", "section", "policy", "against", "figure", "unit", "median", "low", "high", "n", "seeds", "commit"]
LISTS = ("losses_gpu_s", "downtimes_s")
PERCENTS = (*range(0, 95, 5), *range(95, 101))


def figure_rows(table, commit):
    for figure in sorted(table.figures.values(), key=lambda one: one.key):
        yield {"key": figure.key, "section": figure.section, "policy": figure.policy, "against": figure.against,
               "figure": figure.name, "unit": figure.unit, "median": figure.median, "low": figure.low,
               "high": figure.high, "n": figure.n, "seeds": figure.seeds, "commit": commit}


def scalars(row, commit):
    """A run as one row of a table: without the lists of each displacement."""
    first = {"section": row["section"], "policy": row["policy"], "seed": row["seed"], "notices": row["notices"]}
    return {**first, **{name: value for name, value in row.items() if name not in LISTS}, "commit": commit}


def write_csv(path, rows, columns=None):
    rows = list(rows)
    columns = columns or list(dict.fromkeys(name for row in rows for name in row))
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({name: words(value) for name, value in row.items()})


def words(value):
    return "" if value is None else repr(value) if isinstance(value, float) else value


def pooled(table, section, policy, what):
    """All displacements of all seeds, sorted."""
    return sorted(value for row in table.rows if row["section"] == section and row["policy"] == policy
                  for value in row.get(what, ()))


def quantile(values, percent):
    """Linear between the two that are next to it."""
    place = (len(values) - 1) * percent / 100
    below = int(place)
    above = min(below + 1, len(values) - 1)
    return values[below] + (values[above] - values[below]) * (place - below)


def distributions(table, commit):
    """Of each displacement, over all seeds: what share of them lost so much, or was down so long."""
    for section in table.sections:
        for policy in table.policies(section):
            for what in LISTS:
                values = pooled(table, section, policy, what)
                for percent in PERCENTS if values else ():
                    yield {"section": section, "policy": policy, "what": what, "percent": percent,
                           "value": quantile(values, percent), "n": len(values), "commit": commit}


def write(folder, table, goals, about, failures):
    folder = pathlib.Path(folder)
    commit = about["commit"]
    figures = list(figure_rows(table, commit))
    runs = [scalars(row, commit) for row in table.rows]
    write_csv(folder / "figures.csv", figures, FIGURE_COLUMNS)
    write_csv(folder / "runs.csv", runs)
    write_csv(folder / "distributions.csv", distributions(table, commit),
              ["section", "policy", "what", "percent", "value", "n", "commit"])
    sections = [{"name": one.name, "words": one.words, "options": one.options, "policies": one.policies,
                 "seeds": one.seeds, "of": one.of} for one in table.sections.values()]
    told = [{"goal": one.name, "words": one.words, "wanted": one.wanted, "state": one.state, "is_sure": one.is_sure,
             "figure": one.figure.key if one.figure else None, "median": one.figure.median if one.figure else None,
             "low": one.figure.low if one.figure else None, "high": one.figure.high if one.figure else None,
             "n": one.figure.n if one.figure else 0, "why": one.why} for one in goals]
    with open(folder / MARK, "w", encoding="utf-8") as file:
        json.dump({"made_by": MADE_BY, "about": about, "goals": told, "failures": failures, "sections": sections,
                   "figures": figures}, file, indent=1)
        file.write("\n")
    with open(folder / "runs.json", "w", encoding="utf-8") as file:
        json.dump(runs, file, indent=1)
        file.write("\n")


def check_place(folder):
    """Bad if something is there that no evaluation made: it would be deleted."""
    folder = pathlib.Path(folder)
    if not folder.parent.is_dir():
        raise Bad(f"{folder.parent} is no folder; make it, or name another --out")
    if not os.access(folder.parent, os.W_OK):
        raise Bad(f"{folder.parent} cannot be written to; name another --out")
    if not folder.exists():
        return
    if not folder.is_dir():
        raise Bad(f"{folder} is no folder; name another --out")
    if any(folder.iterdir()) and not was_made_here(folder):
        raise Bad(f"{folder} has files that no evaluation made; name another --out")


def was_made_here(folder):
    try:
        return json.loads((folder / MARK).read_text(encoding="utf-8")).get("made_by") == MADE_BY
    except (OSError, ValueError, AttributeError):
        return False


def put(made, folder):
    """`made` becomes `folder`; what was there is gone. Both lie beside each other."""
    folder, old = pathlib.Path(folder), None
    if folder.exists():
        old = folder.with_name(f".{folder.name}.old-{os.getpid()}")
        os.rename(folder, old)
    try:
        os.rename(made, folder)
    except OSError:
        if old:
            os.rename(old, folder)
        raise
    if old:
        shutil.rmtree(old)
