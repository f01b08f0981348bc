# SPDX-License-Identifier: Apache-2.0
"""Figures of the runs: each has a key, a unit, a median over seeds and an interval."""
import dataclasses

import paired
import settings
from settings import PRODUCT


@dataclasses.dataclass
class Figure:
    key: str
    section: str
    policy: str
    against: str  # a policy, or nothing
    name: str
    unit: str
    median: float
    low: float
    high: float
    values: dict  # seed: value

    @property
    def n(self):
        return len(self.values)

    @property
    def seeds(self):
        return " ".join(str(seed) for seed in sorted(self.values))


@dataclasses.dataclass(frozen=True)
class Metric:
    name: str
    words: str
    unit: str
    of: object  # row: value, or None where there is none; a row that lacks a column has none either
    more_is_better: bool = False

    def value(self, row):
        try:
            return self.of(row)
        except KeyError:
            return None


def share(part, whole, scale=100.0):
    return scale * part / whole if whole else None


def column(name, scale=1.0):
    return lambda row: row[name] * scale


def ratio(part, whole):
    return lambda row: share(row[part], row[whole])


def campus_gpu_h(row):
    return row["gpus"] * row["simulated_h"]


def traffic_share(row):
    whole = settings.campus_gbit(row["nodes"]) * row["simulated_h"] * 3600 / 8  # GB
    return share(row["moved_gb"], whole * settings.line_factor(row["section"]))


def stretch(row):
    return 100 * (row["stretch_median"] - 1) if row["stretched_jobs"] else None


METRICS = {metric.name: metric for metric in (
    Metric("loss", "work lost", "GPU-h", column("loss_gpu_h")),
    Metric("loss_share", "work lost, of the useful work", "%", ratio("loss_gpu_h", "useful_gpu_h")),
    Metric("waste", "lost or stood still to be saved", "GPU-h", lambda row: row["loss_gpu_h"] + row["paused_gpu_h"]),
    Metric("waste_share", "lost or stood still to be saved, of the useful work", "%",
           lambda row: share(row["loss_gpu_h"] + row["paused_gpu_h"], row["useful_gpu_h"])),
    Metric("downtime_mean", "downtime, mean", "s", column("downtime_s_mean")),
    Metric("downtime_median", "downtime, median", "s", column("downtime_s_median")),
    Metric("traffic", "moved over lines", "TB", column("moved_gb", 1e-3)),
    Metric("traffic_share", "moved, of what the buildings' lines carry", "%", traffic_share),
    Metric("utilisation", "of the lent GPU time, used", "%", ratio("used_gpu_h", "lent_gpu_h"), True),
    Metric("useful", "useful work", "GPU-h", column("useful_gpu_h"), True),
    Metric("owned", "of all GPU time, not lent", "%",
           lambda row: share(campus_gpu_h(row) - row["lent_gpu_h"], campus_gpu_h(row))),
    Metric("guests", "of all GPU time, used by guests", "%", lambda row: share(row["used_gpu_h"], campus_gpu_h(row))),
    Metric("busy", "of all GPU time, not lent or used by guests", "%",
           lambda row: share(campus_gpu_h(row) - row["lent_gpu_h"] + row["used_gpu_h"], campus_gpu_h(row)), True),
    Metric("clean", "departures with notice that lost at most a minute", "%",
           ratio("clean_departures", "scheduled_departures"), True),
    Metric("home", "back on their machine, of the displaced whose machine came back in time", "%",
           ratio("home_again", "provider_returned"), True),
    Metric("stretch", "longer than the work in them, jobs with 2 to 4 interruptions", "%", stretch),
    Metric("finished", "of the submitted jobs, finished", "%", ratio("jobs_finished", "jobs_submitted"), True),
    Metric("overstays", "guests still there when the owner came", "", column("overstays")),
    Metric("unresumed", "displaced and not running again at the end", "",
           lambda row: row["displaced"] - row["resumed"]),
    Metric("speed", "simulated per wall second of one run", "h/s", column("simulated_h_per_wall_s"), True),
)}
KINDS = ("announced", "notice", "emergency", "lost")
MOVED = "moved"  # by the policy itself: no reclaim, and so not among the others' loss
for _kind in (*KINDS, MOVED):
    METRICS[f"loss_{_kind}"] = Metric(f"loss_{_kind}", f"work lost, {_kind}", "GPU-h", column(f"{_kind}_loss_gpu_h"))
COMPARED = ("loss", "waste", "downtime_mean", "downtime_median", "traffic", "utilisation", "useful", "clean", "home",
            "finished")


class Table:
    """All runs, and the figures that are asked of them."""

    def __init__(self, rows, sections, has_intervals=True):
        self.rows = rows
        self.has_intervals = has_intervals
        self.sections = {section.name: section for section in sections}
        self.figures = {}

    def policies(self, section):
        """That have runs in it, in the order in which they were played."""
        return list(dict.fromkeys(row["policy"] for row in self.rows if row["section"] == section))

    def values(self, section, policy, metric):
        """{seed: value}; of a section that stands beside another one also that one's."""
        places = {section, self.sections[section].of}
        found = {}
        for row in self.rows:
            if row["policy"] == policy and row["section"] in places:
                value = METRICS[metric].value(row)
                if value is not None:
                    found[row["seed"]] = value
        return found

    def figure(self, section, policy, metric):
        """None if there is no value."""
        values = self.values(section, policy, metric)
        return self.keep(f"{section}/{policy}/{metric}", section, policy, "", metric, METRICS[metric].unit, values)

    def ratio(self, section, policy, against, metric):
        values = paired.ratios(self.values(section, policy, metric), self.values(section, against, metric))
        key = f"{section}/{policy}/{against}/{metric}"
        return self.keep(key, section, policy, against, metric, "times", values)

    def keep(self, key, section, policy, against, metric, unit, values):
        if not values:
            return None
        if key not in self.figures:
            inside = [values[seed] for seed in sorted(values)]
            low, high = paired.interval(inside) if self.has_intervals else (None, None)
            self.figures[key] = Figure(
                key, section, policy, against, metric, unit, paired.median(values.values()), low, high, values)
        return self.figures[key]

    def best(self, section, name, metric="loss"):
        """Of a family (slurm-s1-600, slurm-s1-1800, …) the one with the least median; None if nobody is of it."""
        found = [(figure.median, settings.family(policy)[1] or 0, policy) for policy in self.policies(section)
                 if settings.family(policy)[0] == name and (figure := self.figure(section, policy, metric))]
        return min(found)[2] if found else None

    def families(self, section):
        """Names without intervals, in order; the product and what is the product without a part are not among them."""
        names = [settings.family(policy)[0] for policy in self.policies(section)]
        return [name for name in dict.fromkeys(names) if name != PRODUCT and not name.startswith(PRODUCT + "-")]

    def champions(self, section):
        """The strongest of each family by work loss."""
        return [self.best(section, name) for name in self.families(section)]

    def everything(self):
        """Makes each figure that there can be: for the files beside the page."""
        for section in self.sections:
            for policy in self.policies(section):
                for metric in METRICS:
                    self.figure(section, policy, metric)
            for against in self.policies(section) + ([PRODUCT] if self.sections[section].of else []):
                for policy in [PRODUCT] if not self.sections[section].of else self.policies(section):
                    if policy != against and (against == PRODUCT or not self.sections[section].of):
                        for metric in COMPARED:
                            self.ratio(section, policy, against, metric)
            fixed = self.best(section, "slurm-s1")
            for policy in self.champions(section) if fixed else ():
                if policy != fixed:
                    self.ratio(section, policy, fixed, "loss")
