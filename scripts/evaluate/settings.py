# SPDX-License-Identifier: Apache-2.0
"""What is played: sizes, sections and their seeds, and which policies there are."""
import dataclasses
import re
import subprocess

PRODUCT = "reclaimnet"
DAEMONS = "reclaimnet-daemons"  # the product with every tick: shows that skipping is right, and takes hours here
FULL_USERS, FULL_NODES, FULL_LABS = 60, 54, 12
MIXES = ("mixed", "emergency-heavy", "generous", "gpunion")
MAIN = "mixed"
BUSY = 4  # times the users
SMALLEST = ["--nodes", "1", "--labs", "1", "--days", "0.1", "--users", "1"]
SWEEP = (60, 120, 300, 600, 1200, 1800, 3600, 7200)
# What the issue asks for and the program has an option for, or not: (words, options of which one must be there).
VARIATIONS = (
    ("link speeds", ("--line-factor",)),
    ("state sizes", ("--state-factor",)),
    ("wrong hazards", ("--hazard-factor",)),
)
FACTORS = ("0.25", "4")
LINES = "line-factor-"


class Bad(Exception):
    """What the user gave cannot be used; said in one line, with what to do next."""


@dataclasses.dataclass
class Size:
    name: str
    nodes: int
    days: float
    seeds: int
    other_seeds: int
    few_seeds: int  # of what is dear: many jobs, and each part that is left out
    minutes: float
    sweep: tuple


QUICK = Size("quick", 16, 3, 8, 3, 2, 4, (60, 120, 300, 600, 1800, 3600))
FULL = Size("full", 54, 7, 20, 8, 6, 50, SWEEP)


@dataclasses.dataclass
class Section:
    name: str
    words: str
    options: list
    policies: list
    seeds: list
    is_counted_again: bool = False
    of: str = ""  # the section whose runs stand beside these: same setting, other policies


def users_of(nodes, times=1):
    return max(2, round(FULL_USERS * nodes / FULL_NODES * times))


def labs_of(nodes):
    return max(1, min(nodes, max(4, round(FULL_LABS * nodes / FULL_NODES))))


def campus_gbit(nodes):
    """What the buildings' lines carry together (src/evaluate/campus.h): the denominator of the traffic's share."""
    buildings = min(4, labs_of(nodes))
    return 10.0 * buildings if buildings == 1 else 10.0 * (buildings - 1) + 2.5


def line_factor(section):
    """By how much the lines of this section carry more than the campus's own."""
    return float(section.removeprefix(LINES)) if section.startswith(LINES) else 1.0


def known_policies(program):
    """(names, names with a number of seconds in them, those whose form is not known) that the program itself lists."""
    asked = subprocess.run(
        [program, "evaluate", "--policy", "?", *SMALLEST],
        capture_output=True, text=True, timeout=60, check=False)
    listed = re.search(r"known: (.*)", asked.stderr, re.DOTALL)
    if not listed:
        raise Bad(f"{program} does not list its policies: {asked.stderr.strip() or 'it says nothing'}")
    names = [re.sub(r"\(.*?\)", "", name).strip() for name in re.sub(r"\s+", " ", listed[1]).split(",")]
    names = [name for name in names if name]
    plain = [name for name in names if re.fullmatch(r"[a-z0-9-]+", name)]
    swept = [name.removesuffix("-SECONDS") for name in names if re.fullmatch(r"[a-z0-9-]+-SECONDS", name)]
    return plain, swept, [name for name in names if name not in plain and not name.endswith("-SECONDS")]


def known_options(program):
    told = subprocess.run([program, "evaluate", "--help"], capture_output=True, text=True, timeout=60, check=False)
    return set(re.findall(r"--[a-z][a-z-]*", told.stdout))


def family(policy):
    """(what it is without its interval, the interval in seconds or None); in tables it is written 600s."""
    found = re.fullmatch(r"(.*[a-z0-9])-(\d+)s?", policy)
    return (found[1], int(found[2])) if found else (policy, None)


def policies_of(plain, swept, sweep, with_product):
    """(for every section, ablations)."""
    ablations = [name for name in plain if name.startswith(PRODUCT + "-") and name != DAEMONS]
    others = [name for name in plain if not name.startswith(PRODUCT)]
    others += [f"{name}-{seconds}" for name in swept for seconds in sweep]
    return ([PRODUCT] if with_product else []) + others, ablations if with_product else []


def setting(size, notices, users_times=1, days=None):
    return ["--nodes", str(size.nodes), "--labs", str(labs_of(size.nodes)), "--days", f"{days or size.days:g}",
            "--users", str(users_of(size.nodes, users_times)), "--notices", notices]


def plan(size, first_seed, policies, ablations, options, spot_days):
    """Sections in the order in which they stand on the page; `options` are those that the program knows."""
    seeds = list(range(first_seed, first_seed + size.seeds))
    some, few = seeds[:size.other_seeds], seeds[:size.few_seeds]
    sections = [Section(MAIN, "mixed notices", setting(size, MAIN), policies, seeds, True)]
    sections += [Section(mix, f"notices: {mix}", setting(size, mix), policies, some) for mix in MIXES if mix != MAIN]
    sections.append(Section("busy", f"{BUSY} times the users", setting(size, MAIN, BUSY), policies, few))
    if ablations:
        sections.append(
            Section("ablations", "the product without a part", setting(size, MAIN), ablations, few, of=MAIN))
    if spot_days:
        sections.append(Section("spot", "recorded spot machines", setting(size, MAIN, days=spot_days), policies, some))
    for words, names in VARIATIONS if size.name == "full" else ():
        for name in (name for name in names if name in options):
            sections += [
                Section(f"{name.strip('-')}-{factor}", f"{words} times {factor}", setting(size, MAIN) + [name, factor],
                        policies, few) for factor in FACTORS]
    return sections


def not_there(size, options, spot_days):
    """What the page says of what was not varied."""
    for words, names in VARIATIONS:
        if not any(name in options for name in names):
            yield f"{words}: reclaim-sim evaluate has no option {' or '.join(names)}"
        elif size.name != "full":
            yield f"{words}: only in a full evaluation"
    if not spot_days:
        yield "recorded spot machines: no --spot FILE was given"
