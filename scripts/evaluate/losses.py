#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Where lost work comes from, counted from the raw log of an evaluation.

  reclaim-sim evaluate --policy reclaimnet --log rows.csv && scripts/evaluate/losses.py rows.csv

Each loss (docs/formats/evaluation-log.md) is cut in two at the newest save that the run had whole when it
ended: what was done after it ("behind"), and what was in it and is not in the state from which the job goes on
("left": it did not get away). What lies behind a save that was begun after the notice was computed by a guest
that had saved its last; behind an older one no save was made in time."""
import argparse
import csv
import statistics
import sys
from collections import defaultdict

SAME_WORK_S = 1e-3
TOGETHER_S = 2


class Run:
    def __init__(self, row, new_from):
        self.job, self.node, self.begin = row["job"], row["node"], int(row["ns"])
        self.from_s = self.progress = float(row["number"])
        self.new_from = new_from
        self.since, self.speed = self.begin, 0.0
        self.saves = []  # (begun ns, progress, whole ns or None)

    def advance(self, ns):
        self.progress += (ns - self.since) * 1e-9 * self.speed
        self.since = ns

    def set_speed(self, ns, speed):
        self.advance(ns)
        if speed == 0 and ns > self.begin:
            self.saves.append([ns, self.progress, None])
        if speed > 0 and self.saves and self.saves[-1][2] is None:
            self.saves[-1][2] = ns
        self.speed = speed


class Loss:
    """Of one run that was taken back, settled when its job goes on."""

    def __init__(self, run, job, ns, end_s, kind, told, ended):
        self.run, self.job, self.ns, self.end_s, self.kind = run, job, ns, end_s, kind
        self.declared = told[0] if told else None
        self.notice_s = (told[1] - told[0]) * 1e-9 if told else 0
        self.ended = ended  # when runs were taken back from its node, later ones too

    def company(self):
        many = sum(abs(ns - self.ns) * 1e-9 <= TOGETHER_S for ns in self.ended)
        return "alone on its node" if many <= 1 else f"{many} from its node together"

    def settle(self, ns, resumed_s):
        run = self.run
        whole = [s for s in run.saves if s[2] is not None and s[2] <= self.ns]
        newest_s, begun = (whole[-1][1], whole[-1][0]) if whole else (run.from_s, None)
        floor = max(run.new_from, resumed_s)
        behind = max(0.0, self.end_s - max(floor, newest_s))
        left = max(0.0, min(newest_s, self.end_s) - floor)
        gpus = self.job["gpus"]
        self.behind, self.left = behind * gpus, left * gpus
        self.resumed_after_s = (ns - self.ns) * 1e-9
        has_notice = self.declared is not None
        if not has_notice:
            self.why = "no notice"
        elif begun is not None and begun >= self.declared:
            self.why = "saved at the notice"
        elif run.saves and run.saves[-1][0] >= self.declared:
            self.why = "its save was not done in time"
        else:
            self.why = "no save at the notice"
        self.has_left = left > SAME_WORK_S


def losses_of(rows):
    """Yields a list of settled losses for each run of the program in the log."""
    jobs, runs, pending, declared, reached, out, ended_at = {}, {}, {}, {}, defaultdict(float), [], defaultdict(list)
    for row in rows:
        ns, event = row["ns"], row["event"]
        if ns == "ns":  # the next run of the program
            yield out
            jobs, runs, pending, declared, reached, out = {}, {}, {}, {}, defaultdict(float), []
            ended_at = defaultdict(list)
            continue
        ns = int(ns)
        if event == "submitted":
            jobs[row["job"]] = {"gpus": int(row["gpus"]), "kind": row["note"]}
        elif event == "lent":
            declared.pop(row["node"], None)
        elif event == "declared":
            declared[row["node"]] = (ns, int(row["number"]))
        elif event == "started":
            job = row["job"]
            loss = pending.pop(job, None)
            if loss is not None:
                loss.settle(ns, float(row["number"]))
                out.append(loss)
            runs[row["run"]] = Run(row, max(reached[job], float(row["number"])))
        elif event == "speed":
            run = runs[row["run"]]
            run.set_speed(ns, float(row["number"]))
            reached[run.job] = max(reached[run.job], run.progress)
        elif event == "ended":
            run = runs.pop(row["run"])
            run.advance(ns)
            reached[run.job] = max(reached[run.job], run.progress)
            if row["note"] in ("finished", "moved"):
                if row["note"] == "moved":
                    pending.pop(run.job, None)
                continue
            ended_at[run.node].append(ns)
            pending[run.job] = Loss(
                run, jobs[run.job], ns, run.progress, row["note"], declared.get(run.node), ended_at[run.node])
    yield out


def table(losses, key, title):
    groups = defaultdict(list)
    for loss in losses:
        groups[key(loss)].append(loss)
    columns = f"{'runs':>5} {'GPU-h':>7} {'behind':>7} {'left':>7} {'with left':>9} {'back after s':>12}"
    print(f"\n{title}\n{'':46} {columns}")
    for name, group in sorted(groups.items(), key=lambda g: -sum(x.behind + x.left for x in g[1])):
        behind, left = sum(x.behind for x in group) / 3600, sum(x.left for x in group) / 3600
        after = statistics.median(x.resumed_after_s for x in group)
        name = name if isinstance(name, str) else ", ".join(name)
        many = sum(x.has_left for x in group)
        print(f"{name:46} {len(group):5} {behind + left:7.2f} {behind:7.2f} {left:7.2f} {many:9} {after:12.0f}")


def bucket(seconds):
    for most in (15, 30, 60, 120, 300, 600, 1200):
        if seconds <= most:
            return f"up to {most:5} s"
    return "more"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", help="written by reclaim-sim evaluate --log")
    parser.add_argument("--together", action="store_true", help="all runs of the log as one")
    parser.add_argument("--worst", type=int, default=0, help="list the so many largest losses")
    arguments = parser.parse_args()
    with open(arguments.log, newline="", encoding="utf-8") as file:
        runs = list(losses_of(csv.DictReader(file)))
    if arguments.together:
        runs = [[loss for run in runs for loss in run]]
    for number, losses in enumerate(runs, 1):
        total = sum(x.behind + x.left for x in losses) / 3600
        print(f"\n== run {number} of the log: {total:.3f} GPU-hours lost in {len(losses)} displacements that went on")
        table(losses, lambda x: (x.kind, x.why), "by kind of the end, and what was saved")
        table(losses, lambda x: x.job["kind"], "by state")
        table(losses, lambda x: (x.kind, x.job["kind"]), "by both")
        table(losses, Loss.company, "by who had to leave with it")
        table([x for x in losses if x.has_left], lambda x: "back after " + bucket(x.resumed_after_s),
              "with saves that did not get away, by the time until it went on")
        for x in sorted(losses, key=lambda x: -(x.behind + x.left))[: arguments.worst]:
            print(f"job {x.run.job} ({x.job['kind']}, {x.job['gpus']} GPU) node {x.run.node} at {x.ns * 1e-9:.0f} s:"
                  f" {x.kind}, notice {x.notice_s:.0f} s, {x.why}; behind {x.behind:.0f}, left {x.left:.0f} GPU-s;"
                  f" back after {x.resumed_after_s:.0f} s; it ran {(x.ns - x.run.begin) * 1e-9:.0f} s"
                  f" with {len(x.run.saves)} saves")


if __name__ == "__main__":
    sys.exit(main())
