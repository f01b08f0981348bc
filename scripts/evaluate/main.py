# SPDX-License-Identifier: Apache-2.0
"""scripts/evaluate.sh: what it is asked for, and what it says when something is wrong."""
import argparse
import collections
import dataclasses
import datetime
import gzip
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import check  # noqa: E402
import figures  # noqa: E402
import goals  # noqa: E402
import outputs  # noqa: E402
import page  # noqa: E402
import runs  # noqa: E402
import settings  # noqa: E402
from report import Report  # noqa: E402
from settings import MAIN, Bad  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
TREES = ("release", "ci", "dev")
AT_ONCE = 2
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
MOST_PROBLEMS = 20


class Interrupted(BaseException):
    pass


def take_no_interruption():
    for ending in ENDING:
        signal.signal(ending, signal.SIG_IGN)


def interrupted(_, __):
    take_no_interruption()
    raise Interrupted


def say(text):
    print(f"evaluate: {text}", file=sys.stderr, flush=True)


def whole(low, high):
    def read(text):
        if not text.isascii() or not text.isdigit() or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"\"{text}\" is no whole number from {low} to {high}")
        return int(text)
    return read


def number(low, high):
    def read(text):
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"\"{text}\" is no number from {low:g} to {high:g}")
        return value
    return read


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise Bad(f"{message}; see scripts/evaluate.sh --help")


def arguments(words):
    parser = Parser(prog="evaluate.sh", add_help=False, allow_abbrev=False)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", default=str(ROOT / "report"))
    parser.add_argument("--seeds", type=whole(1, 1000))
    parser.add_argument("--seed", type=whole(0, 10 ** 9), default=1)
    parser.add_argument("--nodes", type=whole(1, 2000))
    parser.add_argument("--days", type=number(0.1, 1000))
    parser.add_argument("--minutes", type=number(0.01, 10_000))
    parser.add_argument("--owners", nargs="+", default=[])
    parser.add_argument("--gaps-end", action="store_true")
    parser.add_argument("--jobs", nargs="+", default=[])
    parser.add_argument("--spot")
    parser.add_argument("--baselines-only", action="store_true")
    return parser.parse_args(words)


def size_of(flags):
    size = dataclasses.replace(settings.QUICK if flags.quick else settings.FULL)
    for name in ("nodes", "days", "minutes"):
        if getattr(flags, name) is not None:
            setattr(size, name, getattr(flags, name))
    if flags.seeds is not None:
        size.seeds = flags.seeds
        size.other_seeds = min(size.other_seeds, flags.seeds)
        size.few_seeds = min(size.few_seeds, flags.seeds)
    return size


def program():
    """The release build's, if there is one: figures are its."""
    given = os.environ.get("RN_BUILD")
    trees = [pathlib.Path(given).resolve()] if given else [ROOT / "build" / tree for tree in TREES]
    for tree in trees:
        found = tree / "apps" / "reclaim-sim" / "reclaim-sim"
        if os.access(found, os.X_OK):
            return found
    where = f"RN_BUILD is {given}, and there is none" if given else "build/release, build/ci and build/dev have none"
    raise Bad(f"reclaim-sim is not built: {where}. Run:\n"
              "  cmake --preset release && cmake --build build/release --target reclaim-sim")


def check_files(sim, flags):
    """The program reads each file once, whole; what it says of a bad one has the line in it."""
    owners = ["--owners", *flags.owners, *(["--gaps-end"] if flags.gaps_end else [])] if flags.owners else []
    probes = [owners] if flags.owners else []
    probes += [["--jobs", path] for path in flags.jobs]
    probes += [["--spot", flags.spot]] if flags.spot else []
    for probe in probes:
        asked = subprocess.run(
            [sim, "evaluate", "--policy", "slurm-s0", *settings.SMALLEST, *probe],
            capture_output=True, text=True, check=False)
        if asked.returncode != 0:
            raise Bad(asked.stderr.strip().removeprefix("reclaim-sim: ") or f"{probe[1]}: exit code {asked.returncode}")


def spot_days(path):
    """How long the recording is. The program has read it, so it can be read."""
    if path is None:
        return None
    opened = gzip.open if open(path, "rb").read(2) == b"\x1f\x8b" else open
    with opened(path, "rt", encoding="utf-8") as file:
        lines = file.read().splitlines()
    place = lines[0].split(",").index("ms")
    return max(0.1, int(lines[-1].split(",")[place]) / 86_400_000)


def traces_for(flags, section, seed):
    """Recorded behaviour for this section and seed. In GPUnion's setting and with spot machines owners play no part."""
    words = []
    if section.name == "spot":
        words += ["--spot", flags.spot]
    elif flags.owners and section.name != "gpunion":
        words += ["--owners", *flags.owners] + (["--gaps-end"] if flags.gaps_end else [])
    if flags.jobs:
        words += ["--jobs", flags.jobs[seed % len(flags.jobs)]]
    return words


def tasks(sections, sim, flags, folder):
    """In an order in which each section has the same part of its seeds when time is up, the main comparison twice that.
    Of the product without a part each part is a task: each takes as long as all of another section's seed."""
    found = []
    for place, section in enumerate(sections):
        groups = [[policy] for policy in section.policies] if section.of else [section.policies]
        for index, seed in enumerate(section.seeds):
            when = (index + 0.5) / len(section.seeds) / (2 if section.name == MAIN else 1)
            found += [(when, place, number, seed, group) for number, group in enumerate(groups)]
    return [runs.task(sections[place], seed, group, sim, traces_for(flags, sections[place], seed), folder)
            for _, place, _, seed, group in sorted(found)]


def commit():
    git = ["git", "-C", str(ROOT), "-c", "safe.directory=*"]
    head = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=False)
    if head.returncode != 0:
        return "unknown"
    changed = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True, check=False).stdout
    return head.stdout.strip() + ("+changes" if changed.strip() else "")


def machine():
    names = [line.split(":", 1)[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
             if line.startswith("model name")]
    return f"{names[0] if names else 'unknown'}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}"


def about(flags, size, sim, words):
    def recorded(paths, otherwise):
        return "recorded: " + ", ".join(pathlib.Path(path).name for path in paths) if paths else otherwise
    return {
        "size": size.name, "nodes": size.nodes, "days": size.days, "labs": settings.labs_of(size.nodes),
        "users": settings.users_of(size.nodes), "commit": commit(),
        "when": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "program": "/".join(sim.parts[-5:]) if sim.is_relative_to(ROOT) else str(sim), "machine": machine(),
        "owners": recorded(flags.owners, "generated people"), "jobs": recorded(flags.jobs, "generated users"),
        "command": shlex.join(["scripts/evaluate.sh", *words])}


def publish(made, out, sections, played, described):
    """Makes the page of what was played, looks whether it holds, and puts it in its place."""
    done, failed, late = played
    rows = sorted((row for one in done for row in runs.rows_of(one)), key=lambda row: row["seed"])
    counted = sum("home_again" in row for row in rows)
    asked = collections.Counter(one.section for one in done + failed + late)
    lacking = collections.Counter(one.section for one in late)
    failures = {
        "failed": [{"section": one.section, "seed": one.seed, "fault": one.fault} for one in failed],
        "late": [(name, count, asked[name]) for name, count in lacking.items()],
        "not_played": described.pop("not_played"), "recounted": counted}
    if not any(row["section"] == MAIN for row in rows):
        why = failures["failed"][0]["fault"] if failed else "there was no time for one; give more --minutes"
        say(f"no seed of the main comparison was played: {why}")
        return 1
    table = figures.Table(rows, sections)
    table.everything()
    found = goals.goals(table)
    for left in made.iterdir():
        left.unlink()
    report = Report(table, found, described, failures)
    (made / "index.html").write_text(page.render(report), encoding="utf-8")
    outputs.write(made, table, found, described, failures)
    wrong = list(check.problems(made))
    for problem in wrong[:MOST_PROBLEMS]:
        say(problem)
    if wrong:
        say(f"{len(wrong)} faults in the page; it is not put into {out}")
        return 1
    take_no_interruption()
    outputs.put(made, out)
    tell(report, out)
    return 1 if failed else 0


def tell(report, out):
    for goal in report.goals:
        value = f"{goal.figure.median:.3g}" if goal.figure else goal.why
        print(f"{goal.state:>12}  {goal.words}: {value} ({goal.wanted})")
    for one in report.failures["failed"]:
        say(f"FAILED {one['section']}, seed {one['seed']}: {one['fault']}")
    for name, count, of in report.failures["late"]:
        say(f"no time for {count} of {of} runs of {name}")
    print(f"{out / 'index.html'}")


def evaluate(flags, words):
    began = time.monotonic()
    size, sim = size_of(flags), program()
    out = pathlib.Path(os.path.realpath(flags.out))
    outputs.check_place(out)
    check_files(sim, flags)
    plain, swept, unknown = settings.known_policies(sim)
    policies, ablations = settings.policies_of(plain, swept, size.sweep, not flags.baselines_only)
    options = settings.known_options(sim)
    sections = settings.plan(size, flags.seed, policies, ablations, options, spot_days(flags.spot))
    described = about(flags, size, sim, words)
    described["not_there"] = list(settings.not_there(size, options, flags.spot))
    described["not_played"] = [f"{name}: how it is called is not known here" for name in unknown]
    described["not_played"] += [f"{settings.DAEMONS}: the same with every tick of the daemons, too slow here"]
    made = out.with_name(f".{out.name}.new-{os.getpid()}")
    made.mkdir()
    try:
        progress = runs.Progress(60 * size.minutes)
        played = runs.Pool(AT_ONCE, 60 * size.minutes, progress).play(tasks(sections, sim, flags, made))
        progress.finish()
        described["took"] = f"{runs.clock(time.monotonic() - began)} minutes, two runs at a time"
        return publish(made, out, sections, played, described)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def main():
    words = sys.argv[1:]
    for ending in ENDING:
        signal.signal(ending, interrupted)
    try:
        return evaluate(arguments(words), words)
    except Bad as bad:
        say(str(bad))
        return 2
    except OSError as error:
        say(f"{error.filename or 'a file'}: {error.strerror}")
        return 1
    except Interrupted:
        say("interrupted; nothing was changed")
        return 130


if __name__ == "__main__":
    sys.exit(main())
