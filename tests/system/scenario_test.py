#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tests/scenarios on real daemons: the simulator's stories (docs/scenarios.md), one after the other.

    scenario_test.py [--speed 12] [--list] [SCENARIO…]      without names: all that can be played

Durations are divided by --speed; waits have half a minute at least, because real machines start real containers. Every
node is a laboratory of its own. What only the simulator can do is named, not skipped in silence.
"""
import argparse
import contextlib
import dataclasses
import json
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
from chaos import Daemons, Watch  # noqa: E402
from labs import ROOT  # noqa: E402
from outcome import Wanted, check_jobs, leftovers  # noqa: E402
from stories import Site  # noqa: E402

SCENARIOS = ROOT / "tests" / "scenarios"
HEARTBEAT_S = 5
STILL_S = 3
UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}
ENDED = ("succeeded", "failed", "cancelled")
# verb: why a real machine cannot do it
ONLY_SIMULATED = {
    "power": "loses and tears what the disk had not synced; a namespace's disk has no power switch",
    "crash": "kills a process at a named point of its code; real programs have no such hooks",
    "disk": "fills a node's disk for a while; bad_input_test.py does that to real daemons",
    "forge": "speaks for a node with that node's own key; real agents keep theirs",
    "forget": "removes a warden's journal while it is dead; warden_journals.cc does that to a real one",
    "liar": "changes chunks as an agent serves them; real agents have no such mode",
    "hollow": "throws away what an agent signs for; real agents have no such mode",
    "rot": "changes a bit of what an agent keeps, where it looks for another copy first",
    "line": "changes what a building's line carries; traffic_test.py has a real line",
    "leave": "needs a machine of its own to take away; leaving.py does that to real daemons",
    "backup": "copies the coordinator's database under way; no helper here does that",
    "restore": "puts that older database back; the same",
    "window": "ends on a full minute, which --speed cannot divide; reclaim_test.py does that to real daemons",
    "data": "takes a disk of the owner away; data_test.py does that to real daemons",
    "clock": "sets one machine's clock; all daemons here share the host's",
    "gang": "a training in lockstep over several machines; gang_test.py runs one on real daemons",
    "stop": "of gangs alone; the same",
    "quota": "an administrator's word to the coordinator; cli_test.py says it to a real one",
    "rogue": "asks the warden behind its agent's back, at the agent's own socket",
}
PLAYED = ("cluster", "submit", "wait", "expect", "owner", "release", "kill", "pause", "link", "advance", "end")


class Failed(AssertionError):
    pass


@dataclasses.dataclass
class Command:
    line: int
    words: list

    def option(self, name, otherwise):
        return next((word[len(name) + 1:] for word in self.words if word.startswith(f"{name}=")), otherwise)


def seconds(text):
    digits = text.rstrip("msh")
    return int(digits) * UNITS[text[len(digits):]]


def read(path):
    lines = enumerate(path.read_text().splitlines(), 1)
    return [Command(number, line.split()) for number, line in lines if line.strip() and not line.startswith("#")]


def unplayable(commands):
    """Why this scenario cannot be played here; empty when it can."""
    found = []
    for command in commands:
        verb = command.words[0]
        if verb not in PLAYED:
            why = ONLY_SIMULATED.get(verb, "this player does not know it")
            found.append(f"line {command.line}: {' '.join(command.words)}: {why}")
        found += [f"line {command.line}: {word}: the real guest cannot" for word in command.words
                  if word.startswith("crash-at=") or word == "frozen-layers"]
        found += [f"line {command.line}: {word}: traffic_test.py has states of a size and a line" for word in
                  command.words if word.startswith("weight=")]
        found += [f"line {command.line}: {word}: the real site takes as many as it has cores for" for word in
                  command.words if word.startswith("guests=")]
        found += [f"line {command.line}: {word}: the real site has no GPUs; gpu_jobs_test.py has false ones" for word in
                  command.words if word.startswith("gpus=")]
    return found


def cluster_of(commands):
    """(lending nodes, storage nodes, heartbeat in seconds) that a scenario asks for."""
    one = next((command for command in commands if command.words[0] == "cluster"), Command(0, ["cluster"]))
    return int(one.option("compute", 2)), int(one.option("storage", 1)), seconds(one.option("heartbeat", "5s"))


class Player:
    """Plays on a site whose nodes are node0, node1, …, store0, …"""

    def __init__(self, site, name, speed):
        self.site, self.name, self.speed = site, name, speed
        self.daemons = Daemons(site, self.tell)
        self.watch = Watch(site)
        self.wanted = {}
        self.thaws = []  # (when, process)
        self.taken = set()

    def tell(self, text):
        print(f"    {text}", flush=True)

    def job(self, name):
        return f"{self.name}-{name}"

    def real(self, text):
        return seconds(text) / self.speed

    def turn(self):
        now = time.monotonic()
        for ended in self.daemons.turn(now):
            raise Failed(ended)
        for when, process in [one for one in self.thaws if one[0] <= now]:
            process.thaw()
            self.thaws.remove((when, process))
        if self.watch.faults:
            raise Failed("\n".join(self.watch.faults))

    def until(self, what, condition, limit_s):
        def tried():
            self.turn()
            return condition()
        self.site.wait(what, tried, limit_s)

    def play(self, commands):
        self.watch.start()
        try:
            for command in commands:
                self.tell(" ".join(command.words))
                try:
                    getattr(self, command.words[0])(command)
                except AssertionError as error:
                    raise Failed(f"line {command.line}: {' '.join(command.words)}: {error}") from None
        finally:
            self.watch.stop()

    # --- one function for each verb

    def cluster(self, command):
        """The site was made for it."""

    def submit(self, command):
        name = self.job(command.words[1])
        steps, save_every = int(command.option("steps", 300)), int(command.option("save-every", 10))
        is_in_place = "in-place" in command.words
        handles_term = not {"handles-term", "leaves-at-term"}.isdisjoint(command.words)  # chain.sh leaves then
        self.wanted[name] = Wanted("in-place" if is_in_place else "rename", steps, save_every)
        step = command.option("step", "1s")
        step_s = max(self.real(step), 0.05)
        if is_in_place:  # a file is taken only when it has held still for a while, which does not go quicker
            step_s = max(step_s, min(seconds(step), STILL_S / save_every))
        self.site.submit(name, steps, save_every, round(step_s, 3), is_in_place, handles_term)

    def holds(self, subject, what, argument):
        site = self.site
        if subject in site.nodes:
            return what == "cleared" and self.is_cleared(subject)
        name = self.job(subject)
        if what == "durable":
            return site.generation(name) > 0
        if what == "finished":
            return site.job(name)["state"] in ENDED
        if what == "on":
            return site.lab_of(name) == argument
        if what == "off":
            return site.lab_of(name) != argument
        return site.job(name)["state"] == what

    def is_cleared(self, lab):
        """By the warden's own word, which needs no coordinator, and by looking."""
        said = json.loads((self.site.nodes[lab].owner("status", "--json")).stdout) if self.is_up(f"agent {lab}") else {}
        newest = max(said.get("reclaims", []), key=lambda one: one["declared_ns"], default=None)
        return not self.site.guest_processes(lab) and (newest is None or newest["cleared_ns"] > 0)

    def is_up(self, daemon):
        return daemon not in self.daemons.down

    def wait(self, command):
        at = command.words.index("within")
        words = command.words[1:at] + [""]
        limit_s = max(self.real(command.words[at + 1]), 30)
        self.until(" ".join(words), lambda: self.holds(words[0], words[1], words[2]), limit_s)

    def expect(self, command):
        words = command.words[1:] + [""]
        if not self.holds(words[0], words[1], words[2]):
            raise Failed(f"not so:\n{self.site.picture()}")

    def owner(self, command):
        lab, kind = command.words[1:3]
        node = self.site.nodes[lab]
        self.taken.add(lab)
        if kind == "emergency":
            node.owner("reclaim", "--now")
            if self.site.guest_processes(lab):
                raise Failed("guests live on after the owner was told that they do not")
            return
        within = f"{max(1, round(self.real(command.words[3])))}s"
        if kind == "announced":
            node.owner("reclaim", "--in", within)
            return
        file = self.site.labs.dir / f"{lab}.yaml"
        file.write_text(json.dumps({**node.contract, "notice_s": int(within[:-1])}))
        node.owner("contract", "set", file)
        node.owner("reclaim")

    def release(self, command):
        self.site.nodes[command.words[1]].owner("release")
        self.taken.discard(command.words[1])

    def kill(self, command):
        back = command.words.index("back")
        self.daemons.kill(" ".join(command.words[1:back]), self.real(command.words[back + 1]))

    def pause(self, command):
        whom = command.words[1]
        process = self.site.coordinator.process if whom == "coordinator" else self.site.nodes[whom].agent
        process.freeze()
        self.thaws.append((time.monotonic() + self.real(command.words[2]), process))

    def link(self, command):
        self.site.labs.link(command.words[1], up=command.words[2] == "up")

    def advance(self, command):
        until = time.monotonic() + self.real(command.words[1])
        while time.monotonic() < until:
            self.turn()
            time.sleep(0.05)  # the story says so

    def end(self, command):
        """Faults stop, everything heals, and every job must end well."""
        for _, process in self.thaws:
            process.thaw()
        self.thaws.clear()
        for lab in self.site.nodes:
            self.site.labs.link(lab, up=True)
        self.daemons.start_all()
        for lab in list(self.taken):
            self.until(f"{lab} to be given back", lambda lab=lab: self.gives_back(lab), 30)
        self.until("all jobs to end", lambda: all(self.site.job(name)["state"] in ENDED for name in self.wanted),
                   max(self.real(command.words[2]), 60))
        faults = [f"{name}: {self.site.job(name)['state']}: {self.site.job(name)['reason']}" for name in self.wanted
                  if self.site.job(name)["state"] != "succeeded"] or check_jobs(self.site, self.wanted)
        lending = [lab for lab in self.site.nodes if lab.startswith("node")]
        with contextlib.suppress(AssertionError):
            self.until("clean machines", lambda: not leftovers(self.site, lending), 30)
        faults += leftovers(self.site, lending)
        if faults:
            raise Failed("\n".join(faults))

    def gives_back(self, lab):
        self.release(Command(0, ["release", lab]))
        return True


def make_site(compute, storage, speed):
    lends = {"guest_disk_mib": 256, "guest_memory_mib": 512}
    contracts = {f"node{i}": {**lends, "guest_cpu_milli": 300 if i % 2 else 1000} for i in range(compute)}
    contracts.update({f"store{i}": {"lends": False} for i in range(storage)})
    # NOTE: heartbeats of less than a second would make a busy test machine lose nodes that are well.
    heartbeat_ms = max(1000, round(HEARTBEAT_S * 1000 / speed))
    return Site(contracts, heartbeat_ms=heartbeat_ms, flags=[
        "--min-residence-s", max(1, round(300 / speed)), "--home-settle-s", max(1, round(60 / speed))])


def play_one(name, commands, speed):
    """Answers its fault, or None. On a site of its own: nodes remember how often they went away."""
    print(f"  {name}", flush=True)
    begun = time.monotonic()
    compute, storage, _ = cluster_of(commands)
    site = make_site(compute, storage, speed)
    try:
        Player(site, name[:2], speed).play(commands)
        print(f"  {name}: played in {time.monotonic() - begun:.0f} s", flush=True)
        return None
    except AssertionError as error:
        print(f"  {name}: FAILED\n{error}", flush=True)
        return str(error)
    finally:
        site.down()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="*")
    parser.add_argument("--speed", type=float, default=12)
    parser.add_argument("--list", action="store_true", help="say what can be played, and do nothing")
    flags = parser.parse_args()
    every = {path.stem: read(path) for path in sorted(SCENARIOS.glob("*.scn"))}
    chosen = [pathlib.Path(name).stem for name in flags.scenarios] or list(every)
    for name, commands in every.items():
        why = unplayable(commands)
        state = "not playable here" if why else "asked for" if name in chosen else "playable, not asked for"
        print("\n      ".join([f"  {name}: {state}", *why]), flush=True)
    if flags.list:
        return 0
    playable = {name: every[name] for name in chosen if not unplayable(every[name])}
    failed = [name for name, commands in playable.items() if play_one(name, commands, flags.speed)]
    print(f"scenarios: {len(playable) - len(failed)} of {len(playable)} played and good; not good: {failed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
