# SPDX-License-Identifier: Apache-2.0
"""Plays the runs, two at a time, within a bounded time, and leaves no process behind."""
import collections
import csv
import ctypes
import dataclasses
import json
import pathlib
import signal
import subprocess
import sys
import time

RECOUNT = pathlib.Path(__file__).resolve().parent / "recount.py"
LATE = 1.1  # of the time in which runs begin: then those that are not done are ended
LOOK_S = 0.05
PR_SET_PDEATHSIG = 1
MOST_SHOWN = 400  # characters of what a failed run said


@dataclasses.dataclass
class Task:
    """One seed of one section: its policies, one after the other, then the recount."""

    section: str
    seed: int
    commands: list
    stem: str  # of its files
    step: int = 0
    process: subprocess.Popen = None
    began: float = 0.0
    fault: str = ""


def task(section, seed, policies, program, traces, folder):
    """`traces`: options for this section and seed."""
    stem = str(folder / f"{section.name}-{seed}-{policies[0]}")
    command = [str(program), "evaluate", "--policy", *policies, "--seed", str(seed), *section.options, *traces,
               "--csv", f"{stem}.csv"]
    if not section.is_counted_again:
        return Task(section.name, seed, [command], stem)
    recount = ["/usr/bin/python3", "-B", str(RECOUNT), f"{stem}.log", "--csv", f"{stem}.csv",
               "--json", f"{stem}.recount"]
    return Task(section.name, seed, [command + ["--log", f"{stem}.log"], recount], stem)


def die_with_parent():
    """Also if we are killed outright. In the child, before it becomes the program."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Pool:
    def __init__(self, at_once, begin_s, tell):
        self.at_once = at_once
        self.began = time.monotonic()
        self.begin_until = self.began + begin_s
        self.end_at = self.began + begin_s * LATE
        self.tell = tell
        self.running = []
        self.longest = {}  # section: seconds

    def play(self, tasks):
        """(tasks that ended well, failed ones, those for which there was no time)."""
        waiting, done, failed, late = collections.deque(tasks), [], [], []
        try:
            while waiting or self.running:
                while waiting and len(self.running) < self.at_once:
                    following = waiting.popleft()
                    if self.has_time(following.section):
                        self.start(following)
                    else:
                        late.append(following)
                time.sleep(LOOK_S)
                for one in list(self.running):
                    self.look(one, done, failed, late)
                self.tell(len(done), len(failed), len(tasks), time.monotonic() - self.began)
        finally:
            self.end_all()
        return done, failed, late

    def has_time(self, section):
        now = time.monotonic()
        return now < self.begin_until and now + self.longest.get(section, 0) < self.end_at

    def start(self, one):
        one.began = time.monotonic()
        self.running.append(one)
        self.launch(one)

    def launch(self, one):
        errors = open(f"{one.stem}.said", "wb")
        with errors:
            one.process = subprocess.Popen(
                one.commands[one.step], stdin=subprocess.DEVNULL, stdout=errors, stderr=errors,
                preexec_fn=die_with_parent)  # noqa: PLW1509: one thread only

    def look(self, one, done, failed, late):
        status = one.process.poll()
        if status is None:
            if time.monotonic() > self.end_at:
                self.end(one)
                late.append(one)
            return
        if status != 0:
            self.running.remove(one)
            one.fault = fault_of(one, status)
            failed.append(one)
            return
        one.step += 1
        if one.step < len(one.commands):
            return self.launch(one)
        self.running.remove(one)
        took = time.monotonic() - one.began
        self.longest[one.section] = max(took, self.longest.get(one.section, 0))
        pathlib.Path(f"{one.stem}.log").unlink(missing_ok=True)
        done.append(one)

    def end(self, one):
        one.process.kill()
        one.process.wait()
        self.running.remove(one)

    def end_all(self):
        for one in list(self.running):
            self.end(one)


def fault_of(one, status):
    said = pathlib.Path(f"{one.stem}.said").read_bytes().decode(errors="replace").strip()
    lines = said.splitlines()
    if one.step > 0:  # the recount
        wrong = [line.strip() for line in lines if not line.endswith("all the same")]
        return "the recount differs: " + "; ".join(wrong)[:MOST_SHOWN]
    how = f"signal {-status}" if status < 0 else f"exit code {status}"
    return f"{how}: " + " ".join(lines[-3:])[-MOST_SHOWN:]


def rows_of(one):
    """Of a task that ended well: a dictionary for each policy, numbers as such, with what the recount adds."""
    with open(f"{one.stem}.csv", encoding="utf-8", newline="") as file:
        rows = [{name: value if name in ("policy", "notices") else number(value) for name, value in row.items()}
                for row in csv.DictReader(file)]
    for row in rows:
        row["section"] = one.section
    counted = pathlib.Path(f"{one.stem}.recount")
    if counted.exists():
        added = [json.loads(line) for line in counted.read_text(encoding="utf-8").splitlines()]
        for row, more in zip(rows, added, strict=True):
            row.update({name: value for name, value in more.items() if name not in row})
    return rows


def number(text):
    value = float(text)
    return int(value) if value.is_integer() else value


class Progress:
    """A line that is written over on a terminal, else one for each task that ends."""

    def __init__(self, limit_s, out=sys.stderr):
        self.limit_s = limit_s
        self.out = out
        self.last = None

    def __call__(self, done, failed, all_of_them, seconds):
        line = f"evaluate: {done} of {all_of_them} runs" + (f", {failed} failed" if failed else "")
        is_terminal = self.out.isatty()
        if is_terminal:
            line += f", {clock(seconds)} of at most {clock(self.limit_s * LATE)}"
        if line == self.last:
            return
        self.last = line
        self.out.write(f"\r{line}\033[K" if is_terminal else f"{line}, {clock(seconds)}\n")
        self.out.flush()

    def finish(self):
        if self.out.isatty():
            self.out.write("\n")


def clock(seconds):
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
