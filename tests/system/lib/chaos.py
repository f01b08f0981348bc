# SPDX-License-Identifier: Apache-2.0
"""Faults on a real site by a schedule that one seed gives: daemons and engines killed and started again, owners who
take their machines back and give them again, students who submit. What must never happen is watched all the time."""
import concurrent.futures
import contextlib
import dataclasses
import heapq
import os
import pathlib
import random
import re
import signal
import subprocess
import threading
import time

NOTICE_S = 5
LATECOMERS_END_S = 3  # at once, on a machine whose processors are all busy
KINDS = ("rename", "in-place", "rename-term", "in-place-term", "stateless")
ENGINES = ("dockerd", "containerd", "dockerd containerd", "containerd-shim")


@dataclasses.dataclass(order=True, frozen=True)
class Act:
    at_s: float
    what: str  # kill, owner, submit
    whom: str  # "agent lab-a", "coordinator", …; an owner's lab; a job's name
    details: tuple = ()

    def __str__(self):
        return f"{self.at_s:8.2f} s  {self.what} {self.whom} {' '.join(str(one) for one in self.details)}"


def schedule(seed, seconds, labs, storage):
    """The same for the same arguments, whatever happens meanwhile. Sorted by time."""
    rng = random.Random(f"{seed} {seconds}")
    return sorted(_kills(rng, seconds, labs, storage) + _owners(rng, seconds, labs) + _submits(rng, seconds))


def _times(rng, begin, end, mean):
    at = begin + rng.expovariate(1 / mean)
    while at < end:
        yield round(at, 2)
        at += rng.expovariate(1 / mean)


def _kills(rng, seconds, labs, storage):
    daemons = ["coordinator"] * 2
    for lab in labs:
        daemons += [f"agent {lab}", f"warden {lab}", f"engine {lab}", f"machine {lab}"]
    daemons += [f"agent {storage}"]
    acts = []
    for at in _times(rng, 3, seconds, 3):
        whom = rng.choice(daemons)
        back_s = round(rng.choice([rng.uniform(0, 0.5), rng.uniform(0.5, 3), rng.uniform(3, 8)]), 2)
        engine = rng.choices(ENGINES, [3, 3, 3, 1])[0] if whom.startswith("engine") else ""
        acts.append(Act(at, "kill", whom, (back_s, *engine.split())))
    return acts


def _owners(rng, seconds, labs):
    acts, busy_until = [], dict.fromkeys(labs, 0)
    for at in _times(rng, 5, seconds, 8):
        lab, is_now = rng.choice(labs), rng.random() < 0.4
        hold_s = round(rng.uniform(0.5, 8) + (0 if is_now else NOTICE_S), 2)
        if busy_until[lab] < at:
            acts.append(Act(at, "owner", lab, ("now" if is_now else "notice", hold_s)))
            busy_until[lab] = at + hold_s + 2
    return acts


def _submits(rng, seconds):
    """All kinds at the beginning, to run through most of it; later ones one by one, short, with time to be hit."""
    times = [round(0.3 * index, 2) for index in range(len(KINDS))]
    times += list(_times(rng, 10, max(seconds - 15, 0), 12))
    acts = []
    for index, at in enumerate(times):
        kind = KINDS[index % len(KINDS)]
        save_every = rng.choice([3, 5, 10, 20])
        least = 5 * min(seconds, 3600) if index < len(KINDS) else 100
        steps = save_every * round(rng.uniform(least, least + 200) / save_every)
        acts.append(Act(at, "submit", f"{kind}-{index}", (kind, steps, save_every)))
    return acts


def processes_of(words, *parts):
    """Pids of programs with one of these names, all `parts` somewhere in their command lines."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            argv = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            name = pathlib.Path(argv[0]).name
            if any(name == word or name.startswith(f"{word}-runc") for word in words) and all(
                    part in " ".join(argv) for part in parts):
                found.append(int(entry.name))
    return found


class Daemons:
    """Every daemon of a site by its name in acts: killed, started again after a time, seen when one ends by itself."""

    def __init__(self, site, tell):
        self.site, self.tell = site, tell
        self.down = {}  # daemon: when it is to start again
        self.started = {}  # daemon: since when it is up

    def all(self):
        yield "coordinator", self.site.coordinator.process
        for lab, node in self.site.nodes.items():
            yield f"agent {lab}", node.agent
            yield f"warden {lab}", node.warden

    def kill(self, whom, back_s, *engine):
        """How many processes it was."""
        kind, _, lab = whom.partition(" ")
        if kind == "engine":
            pids = processes_of(engine, f"{self.site.nodes[lab].run}/")
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return len(pids)
        processes = dict(self.all())
        those = (f"agent {lab}", f"warden {lab}") if kind == "machine" else (whom,)
        up = [daemon for daemon in those if daemon not in self.down]
        for daemon in up:
            processes[daemon].kill()
            self.down[daemon] = time.monotonic() + back_s
        return len(up)

    def turn(self, now):
        """Starts whose time has come; answers what ended although nobody killed it."""
        ended = [f"the {daemon} ended by itself with {process.popen.returncode}:\n{process.output()[-3000:]}"
                 for daemon, process in self.all() if daemon not in self.down and not process.is_running()]
        for daemon in [one for one, at in self.down.items() if at <= now]:
            self.start(daemon)
        return ended

    def start(self, daemon):
        del self.down[daemon]
        kind, _, lab = daemon.partition(" ")
        self.tell(f"start {daemon}")
        if kind == "coordinator":
            self.site.coordinator.spawn()
        elif kind == "agent":
            self.site.nodes[lab].spawn_agent()
        else:
            self.site.nodes[lab].spawn_warden()
        self.started[daemon] = time.monotonic()

    quiet_s = 0.1  # after the last fault's end, until nobody can die of it any more

    def calm(self):
        """Faults are over."""

    def start_all(self):
        for daemon in list(self.down):
            self.start(daemon)


class Watch(threading.Thread):
    """Looks at all guests' processes all the time: no attempt has two containers, none is on two machines, and a
    machine that its owner was told to have has none. A container that the engine was just starting may come up with its
    init alone, which waits at its gate and cannot fork; it is ended at once."""

    def __init__(self, site):
        super().__init__(daemon=True)
        self.site = site
        self.owned = {}  # lab: since when its owner may expect to be alone
        self.faults = []
        self.latecomers = {}  # containers on their owner's machines: since when
        self.looks = 0
        self.most = 0  # attempts seen alive at once
        self.is_over = False

    def attempts(self):
        """(job, epoch): set of (lab, container), of living processes."""
        found = {}
        for lab in self.site.nodes:
            for pid, container in self.site.guest_containers(lab).items():
                with contextlib.suppress(OSError):
                    environ = dict(
                        entry.split("=", 1) for entry in
                        pathlib.Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
                        if "=" in entry)
                    if "RECLAIM_EPOCH" in environ:
                        key = (environ["RECLAIM_JOB_ID"], environ["RECLAIM_EPOCH"])
                        found.setdefault(key, set()).add((lab, container))
        return found

    def look(self):
        owned = set(self.owned)
        attempts = self.attempts()
        seen_late, self.latecomers, now = self.latecomers, {}, time.monotonic()
        for (job, epoch), places in attempts.items():
            if len(places) > 1:
                self.report(f"attempt {epoch} of {job} runs twice at once: {sorted(places)}")
            for lab, container in places:
                if lab not in owned or lab not in self.owned:
                    continue
                since = self.latecomers[container] = seen_late.get(container, now)
                if now - since > LATECOMERS_END_S or not self.is_init_alone(lab, container):
                    self.report(f"{lab} is its owner's, and attempt {epoch} of {job} runs in {container}")
        self.looks += 1
        self.most = max(self.most, len(attempts))

    def is_init_alone(self, lab, container):
        mine = [pid for pid, one in self.site.guest_containers(lab).items() if one == container]
        try:
            return all("NSpid" in (status := pathlib.Path(f"/proc/{pid}/status").read_text()) and
                       re.search(r"^NSpid:.*\t1$", status, re.MULTILINE) for pid in mine)
        except OSError:
            return True  # gone while it was looked at

    def report(self, fault):
        if fault not in self.faults:
            self.faults.append(fault)

    def run(self):
        while not self.is_over:
            self.look()
            time.sleep(0.1)  # the rate of looking, beside a site that needs the processors

    def stop(self):
        self.is_over = True
        self.join()


class Chaos:
    """Plays a schedule on a site. `faults` is empty when nothing happened that must not."""

    def __init__(self, site, acts, submit, out=None):
        self.site, self.acts, self.submit = site, acts, submit
        self.out = out or (lambda line: print(line, flush=True))
        self.begun = time.monotonic()
        self.daemons = Daemons(site, self.tell)
        self.watch = Watch(site)
        self.people = concurrent.futures.ThreadPoolExecutor(16)
        self.errands = []
        self.counts = {}
        self.at_lab = {lab: threading.Lock() for lab in site.nodes}  # one owner each, who does one thing at a time

    def tell(self, text):
        self.out(f"  {time.monotonic() - self.begun:8.2f} s  {text}")

    @property
    def faults(self):
        return self.watch.faults

    def play(self):
        """Until the last act; then every daemon is started, and every owner has released."""
        self.watch.start()
        queue = list(self.acts)
        heapq.heapify(queue)
        while queue and not self.faults:
            now = time.monotonic()
            self.faults.extend(self.daemons.turn(now))
            if queue[0].at_s <= now - self.begun:
                self.perform(heapq.heappop(queue))
            else:
                time.sleep(0.02)  # the schedule's own grain
        self.daemons.calm()
        quiet_since = time.monotonic()
        while not self.faults and time.monotonic() < quiet_since + self.daemons.quiet_s:
            self.faults.extend(self.daemons.turn(time.monotonic()))
            if self.daemons.down or not all(errand.done() for errand in self.errands):
                quiet_since = time.monotonic()
            time.sleep(0.02)  # as above
        self.daemons.start_all()
        for errand in self.errands:
            errand.result(120)

    def perform(self, act):
        self.tell(f"{act.what} {act.whom} {' '.join(str(one) for one in act.details)}")
        self.counts[act.what] = self.counts.get(act.what, 0) + 1
        if act.what == "kill":
            self.daemons.kill(act.whom, *act.details)
        elif act.what == "owner":
            self.errands.append(self.people.submit(self.owner, act.whom, *act.details))
        else:
            self.errands.append(self.people.submit(self.submit, act.whom, *act.details))

    # --- an owner

    def owner(self, lab, kind, hold_s):
        """Takes the machine back, looks whether it is free, has it for a while, gives it again."""
        with self.at_lab[lab]:
            begun = time.monotonic()
            if kind == "now":
                self.take_now(lab)
            else:
                self.insist(lab, "reclaim")
                self.wait_until_alone(lab, time.monotonic() + NOTICE_S)
            self.watch.owned[lab] = time.monotonic()
            time.sleep(max(0, begun + hold_s - time.monotonic()))  # the owner works
            del self.watch.owned[lab]
            self.insist(lab, "release")

    def take_now(self, lab):
        """By the socket; by hand, as the manual says, when no warden answers."""
        try:
            self.site.nodes[lab].owner("reclaim", "--now")
            return
        except subprocess.CalledProcessError as error:
            self.tell(f"{lab}: reclaim --now: {error.stderr.strip()}; by hand")
        try:
            self.site.nodes[lab].kill_switch()
        except subprocess.CalledProcessError as error:
            self.faults.append(f"{lab}: reclaim-warden kill: {error.returncode} {error.stdout} {error.stderr}")

    def insist(self, lab, word, timeout_s=60):
        """An owner whose warden is dead says it again."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                return self.site.nodes[lab].owner(word)
            except subprocess.CalledProcessError as error:
                if time.monotonic() > deadline:
                    self.faults.append(f"{lab}: {word}: {error.stderr}")
                    return None
                time.sleep(0.3)  # a person's patience

    def wait_until_alone(self, lab, deadline, grace_s=30):
        """No guest later than the deadline, or than a killed warden's return; `grace_s` for a loaded machine. Until the
        deadline a guest that was on its way may still come."""
        while time.monotonic() < deadline or self.site.guest_processes(lab):
            now = time.monotonic()
            up_since = self.daemons.started.get(f"warden {lab}", 0)
            if f"warden {lab}" not in self.daemons.down and now > max(deadline, up_since) + grace_s:
                self.faults.append(f"{lab}: guests are there {now - deadline:.1f} s after the owner's deadline, the "
                                   f"warden up for {now - up_since:.1f} s")
                return
            time.sleep(0.05)  # between two looks
