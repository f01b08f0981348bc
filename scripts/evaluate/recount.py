#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""recount.py LOG [--csv RUNS] [--json FILE]: counts an evaluation again from its raw log alone.

The rules are those of docs/formats/evaluation-log.md; nothing of the program that wrote the log takes part. With --csv
the figures of each run are compared with that file's row for it, in the same order. Exit codes: 0 all are the same,
1 some differ, 2 the log or the file cannot be read.
"""
import argparse
import csv
import json
import statistics
import sys

COLUMNS = ["ns", "event", "job", "run", "node", "gpus", "number", "note"]
TAKEN_BACK = ("announced", "notice", "emergency", "lost")
CLEAN_S = 60.0
HOUR = 3600.0
NS = 1e9
SAME_WORK_S = 1e-6  # so little new work is none: progress is written with so many digits
DIFFERENT = 1e-6  # of the larger of the two


class Bad(Exception):
    """A log or a table that cannot be read, with its line."""


class Job:
    def __init__(self, gpus, work_s):
        self.gpus = gpus
        self.work_s = work_s
        self.reached_s = 0.0
        self.lost = None  # (work at the end, where new work began, kind, had a notice), until it runs again
        self.down = None  # (since, kind), until new work is done
        self.began = None
        self.interruptions = 0


class Run:
    def __init__(self, at, job, node, begin_s, reached_s):
        self.job = job
        self.node = node
        self.progress_s = begin_s
        self.new_from_s = max(begin_s, reached_s)
        self.speed = 0.0
        self.since = at
        self.last_worked = at


class Node:
    def __init__(self):
        self.gpus = 0
        self.lent_since = None
        self.has_notice = False


class Kind:
    """Of runs that ended in one way."""

    def __init__(self):
        self.displaced = self.resumed = 0
        self.losses, self.downtimes = [], []


class Count:
    """One run of an evaluation: rows go in, figures come out."""

    def __init__(self):
        self.jobs, self.runs, self.nodes = {}, {}, {}
        self.kinds = {kind: Kind() for kind in (*TAKEN_BACK, "moved")}
        self.submitted = self.finished = self.reclaims = self.overstays = 0
        self.departures = self.clean = 0
        self.lent = self.used = self.useful = self.redone = self.paused = 0.0  # GPU-seconds
        self.bytes = 0.0
        self.away = {}  # node: [job, whether it has been lent again], for those taken back there
        self.returned = self.home = 0
        self.stretches = []  # of finished jobs: (interruptions, time from start to end over work)
        self.ends = None
        self.last = 0

    # ---- what rows mean

    def row(self, at, event, fields):
        if at < self.last:
            raise Bad("ns goes back")
        self.last = at
        handler = getattr(self, "on_" + event, None)
        if handler is None:
            raise Bad(f"no event is called {event!r}")
        if self.ends is not None:
            raise Bad("something happens after the end")
        handler(at, fields)

    def on_submitted(self, _, fields):
        self.submitted += 1
        self.jobs[fields["job"]] = Job(int(fields["gpus"]), float(fields["number"]))

    def on_lent(self, at, fields):
        node = self.nodes.setdefault(fields["node"], Node())
        node.gpus, node.lent_since, node.has_notice = int(fields["gpus"]), at, False
        for waiting in self.away.get(fields["node"], []):
            if not waiting[1]:
                waiting[1] = True
                self.returned += 1

    def on_declared(self, at, fields):
        self.nodes.setdefault(fields["node"], Node()).has_notice = int(fields["number"]) > at

    def on_taken(self, at, fields):
        self.reclaims += 1
        node = self.nodes[fields["node"]]
        self.lent += (at - node.lent_since) / NS * node.gpus
        node.lent_since = None

    def on_started(self, at, fields):
        job, begin_s = self.jobs[fields["job"]], float(fields["number"])
        if job.lost:
            self.lose(job, begin_s)
        if job.began is None:
            job.began = at
        self.runs[fields["run"]] = Run(at, job, fields["node"], begin_s, job.reached_s)
        self.come_home(job, fields["node"])

    def on_speed(self, at, fields):
        run = self.runs[fields["run"]]
        self.advance(run, at)
        run.speed = float(fields["number"])

    def on_ended(self, at, fields):
        run = self.runs.pop(fields["run"])
        self.advance(run, at)
        job, how = run.job, fields["note"]
        job.reached_s = max(job.reached_s, run.progress_s)
        if how == "finished":
            self.finish(job, at)
        elif how in self.kinds:
            self.displace(job, run, how)
        else:
            raise Bad(f"a run cannot end as {how!r}")

    def on_overstayed(self, _, __):
        self.overstays += 1

    def on_carried(self, _, fields):
        self.bytes += float(fields["number"])

    def on_over(self, at, _):
        self.close(at)

    # ---- what follows from them

    def advance(self, run, at):
        """What the run did from its last row to now."""
        seconds = (at - run.since) / NS
        before, gpus = run.progress_s, run.job.gpus
        run.progress_s = before + seconds * run.speed
        new = max(0.0, run.progress_s - max(before, run.new_from_s))
        self.used += seconds * gpus
        self.useful += new * gpus
        self.redone += (run.progress_s - before - new) * gpus
        if run.speed <= 0:
            self.paused += seconds * gpus
        elif seconds > 0:
            run.last_worked = at
        if new > SAME_WORK_S and run.job.down:
            ahead = max(0.0, run.new_from_s - before) / run.speed
            since, kind = run.job.down
            self.kinds[kind].downtimes.append((run.since - since) / NS + ahead)
            run.job.down = None
        run.since = at

    def displace(self, job, run, how):
        self.kinds[how].displaced += 1
        is_taken = how in TAKEN_BACK
        job.lost = (run.progress_s, run.new_from_s, how, is_taken and self.nodes[run.node].has_notice)
        since, before = job.down or (run.last_worked, how)
        job.down = (since, how if is_taken else before)
        if is_taken:
            job.interruptions += 1
            self.away.setdefault(run.node, []).append([job, False])

    def lose(self, job, begin_s):
        end_s, new_from_s, how, had_notice = job.lost
        self.kinds[how].resumed += 1
        self.kinds[how].losses.append(max(0.0, end_s - max(new_from_s, begin_s)) * job.gpus)
        self.departures += had_notice
        self.clean += had_notice and end_s - begin_s <= CLEAN_S
        job.lost = None

    def come_home(self, job, node):
        waiting = self.away.get(node, [])
        self.home += sum(1 for one in waiting if one[0] is job and one[1])
        self.away[node] = [one for one in waiting if one[0] is not job]

    def finish(self, job, at):
        self.finished += 1
        self.stretches.append((job.interruptions, (at - job.began) / NS / job.work_s))
        for node, waiting in self.away.items():
            self.away[node] = [one for one in waiting if one[0] is not job]

    def close(self, at):
        """Open runs and lent nodes count up to here."""
        self.ends = at
        for run in self.runs.values():
            self.advance(run, at)
        for node in self.nodes.values():
            if node.lent_since is not None:
                self.lent += (at - node.lent_since) / NS * node.gpus

    # ---- what comes out

    def figures(self):
        taken = [self.kinds[kind] for kind in TAKEN_BACK]
        losses = [loss for kind in taken for loss in kind.losses]
        downtimes = [one for kind in taken for one in kind.downtimes]
        figures = {
            "simulated_h": self.ends / NS / HOUR,
            "jobs_submitted": self.submitted, "jobs_finished": self.finished,
            "lent_gpu_h": self.lent / HOUR, "used_gpu_h": self.used / HOUR, "useful_gpu_h": self.useful / HOUR,
            "redone_gpu_h": self.redone / HOUR, "paused_gpu_h": self.paused / HOUR,
            "utilisation": share(self.used, self.lent), "useful_utilisation": share(self.useful, self.lent),
            "reclaims": self.reclaims, "displaced": sum(kind.displaced for kind in taken),
            "resumed": len(losses), "caught_up": len(downtimes),
            "loss_gpu_h": sum(losses) / HOUR, "loss_share_of_useful": share(sum(losses), self.useful),
            "loss_gpu_s_per_displaced": share(sum(losses), len(losses)), "loss_gpu_s_median": median(losses),
            "downtime_s_mean": share(sum(downtimes), len(downtimes)), "downtime_s_median": median(downtimes),
            "scheduled_departures": self.departures, "clean_departures": self.clean, "overstays": self.overstays,
            "moved_gb": self.bytes / 1e9,
        }
        for name, kind in self.kinds.items():
            figures[name + "_displaced"] = kind.displaced
            figures[name + "_loss_gpu_h"] = sum(kind.losses) / HOUR
            figures[name + "_downtime_s_mean"] = share(sum(kind.downtimes), len(kind.downtimes))
        return figures

    def beside(self):
        """What the program's own table does not have."""
        some = [stretch for interruptions, stretch in self.stretches if 2 <= interruptions <= 4]
        return {
            "provider_returned": self.returned, "home_again": self.home,
            "stretched_jobs": len(some), "stretch_median": median(some),
            "losses_gpu_s": sorted(round(loss, 3) for kind in TAKEN_BACK for loss in self.kinds[kind].losses),
            "downtimes_s": sorted(round(one, 3) for kind in TAKEN_BACK for one in self.kinds[kind].downtimes),
        }


def share(part, whole):
    return part / whole if whole > 0 else 0.0


def median(values):
    return statistics.median(values) if values else 0.0


def counts(path):
    """A Count for each run in the log."""
    count, begun = None, False
    try:
        with open(path, encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                fields = line.rstrip("\n").split(",")
                try:
                    if fields == COLUMNS:
                        if count is not None:
                            yield finished(count)
                        count, begun = Count(), True
                        continue
                    if not begun:
                        raise Bad("the first row does not name the columns")
                    if len(fields) != len(COLUMNS):
                        raise Bad(f"has {len(fields)} fields, not {len(COLUMNS)}")
                    count.row(int(fields[0]), fields[1], dict(zip(COLUMNS, fields)))
                except (Bad, KeyError, ValueError, TypeError) as error:
                    what = f"names {error}, which is not there" if isinstance(error, KeyError) else str(error)
                    raise Bad(f"{path}:{number}: {what}") from error
        if count is None:
            raise Bad(f"{path}: is empty")
        yield finished(count)
    except OSError as error:
        raise Bad(f"{path}: {error.strerror}") from error


def finished(count):
    if count.ends is None:
        raise Bad("a run has no row `over`: the log was cut off")
    return count


def differences(figures, row):
    """(name, what was counted here, what the table says) of each that is not the same."""
    for name, here in figures.items():
        if name not in row:
            yield name, here, "no such column"
            continue
        there = float(row[name])
        if abs(here - there) > DIFFERENT * max(abs(here), abs(there), 1e-3):
            yield name, here, there


def read_table(path):
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))
    except OSError as error:
        raise Bad(f"{path}: {error.strerror}") from error


def compare(found, path):
    rows = read_table(path)
    if len(rows) != len(found):
        print(f"the log has {len(found)} runs, {path} has {len(rows)} rows")
        return 1
    failed = 0
    for number, (count, row) in enumerate(zip(found, rows), 1):
        wrong = list(differences(count.figures(), row))
        failed |= bool(wrong)
        name = f"run {number}, {row.get('policy')} seed {row.get('seed')}"
        same = f"{len(count.figures())} figures, all the same"
        print(f"{name}: " + (f"{len(wrong)} figures differ" if wrong else same))
        for figure, here, there in wrong:
            there = there if isinstance(there, str) else f"{there:.10g}"
            print(f"  {figure}: {here:.10g} from the log, {there} in the table")
    return failed


def main():
    parser = argparse.ArgumentParser(
        prog="recount.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", help="of `reclaim-sim evaluate --log`")
    parser.add_argument("--csv", help="of the same command, to compare with")
    parser.add_argument("--json", help="where to write the figures, one object a line")
    flags = parser.parse_args()
    try:
        found = list(counts(flags.log))
        if flags.json:
            with open(flags.json, "w", encoding="utf-8") as file:
                for count in found:
                    print(json.dumps({**count.figures(), **count.beside()}), file=file)
        if flags.csv:
            return int(compare(found, flags.csv))
        for count in found:
            print(json.dumps(count.figures(), indent=1))
        return 0
    except Bad as bad:
        print(f"recount: {bad}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"recount: {flags.json}: {error.strerror}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
