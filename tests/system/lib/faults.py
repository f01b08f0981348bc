# SPDX-License-Identifier: Apache-2.0
"""More faults than chaos.py has, for scripts/chaos.sh: SIGKILL at named points, SIGSTOP, cables pulled, full disks, I/O
errors.

A named point is a system call of a daemon: strace ends the process as it enters its Nth call of that kind from now on,
before the kernel does anything of it. So `agent: before a journal or a chunk is durable` is a SIGKILL between write and
fdatasync, and `before a message leaves` one after the journal and before the effect: the crash points of the simulator
(docs/scenarios.md), of which each is before such a call. I/O errors come the same way: the call fails with EIO."""
import collections
import contextlib
import hashlib
import json
import os
import pathlib
import random
import shutil
import sqlite3
import subprocess
import tempfile
import threading
import time

import chaos
from chaos import ENGINES, Act

SYNC, SEND = "fsync,fdatasync", "sendmsg,sendto"
# daemon: {point: system calls}
POINTS = {
    "coordinator": {"before rows or logs are durable": SYNC, "before a database write": "pwrite64",
                    "before a message leaves": SEND},
    "agent": {"before a journal or a chunk is durable": SYNC, "before a database write": "pwrite64",
              "before a message leaves": SEND, "before a file gets its name": "?rename,?renameat,renameat2",
              "before a file is removed": "?unlink,unlinkat", "before a file is opened": "openat"},
    "warden": {"before its journal is durable": SYNC, "before a message leaves": SEND,
               "before a file gets its name": "?rename,?renameat,renameat2", "before a mount": "mount,umount2",
               "before a program starts": "?fork,?vfork,clone,clone3", "before gates are set": "bpf",
               "before the engine is asked": "connect"},
}
POINT_PATIENCE_S = 4  # then the process is killed wherever it is
ERROR_LASTS_S = 3


def is_tracing_possible():
    """Whether strace is there and may look into processes of ours; else why not."""
    if shutil.which("strace") is None:
        return "strace is not installed (apt-get install strace)"
    done = subprocess.run(["strace", "-qq", "-o", "/dev/null", "true"], capture_output=True, text=True)
    return "" if done.returncode == 0 else f"strace may not trace here: {done.stderr.strip()[:200]}"


def schedule(seed, seconds, labs, storage, kill_every_s, can_trace):
    """Owners and jobs as chaos.schedule() has them, fewer of the jobs; everything else more often."""
    rng = random.Random(f"all {seed} {seconds} {kill_every_s}")
    acts = [act for act in chaos.schedule(seed, seconds, labs, storage) if act.what != "kill"]
    first = len(chaos.KINDS)
    jobs = [act for act in acts if act.what == "submit"]
    acts = [act for act in acts if act.what != "submit"] + jobs[:first] + [
        act for act in jobs[first:] if rng.random() < 0.6]
    acts += _kills(rng, seconds, labs, storage, kill_every_s, can_trace)
    nodes = [*labs, storage]
    daemons = ["coordinator"] + [f"{kind} {lab}" for lab in nodes for kind in ("agent", "warden")]
    for at in chaos._times(rng, 5, seconds, 12):
        acts.append(Act(at, "stop", rng.choice(daemons), (round(rng.uniform(0.3, 8), 2),)))
    for at in chaos._times(rng, 8, seconds, 30):
        acts.append(Act(at, "cut", rng.choice(nodes), (round(rng.uniform(0.5, 12), 2),)))
    for at in chaos._times(rng, 15, seconds, 45):
        acts.append(Act(at, "full", rng.choice(["campus", storage]), (round(rng.uniform(2, 8), 2),)))
    if can_trace:
        for at in chaos._times(rng, 10, seconds, 20):
            whom = rng.choice(["coordinator", *(f"agent {lab}" for lab in nodes)])
            acts.append(Act(at, "io", whom, (round(rng.uniform(0.2, 3), 2),)))
    return sorted(acts)


def _kills(rng, seconds, labs, storage, kill_every_s, can_trace):
    acts = []
    daemons = ["coordinator"] * 3 + [f"{kind} {lab}" for lab in labs for kind in ("agent", "agent", "warden", "engine",
                                                                                  "machine")] + [f"agent {storage}"]
    for at in chaos._times(rng, 3, seconds, kill_every_s):
        whom = rng.choice(daemons)
        kind = whom.partition(" ")[0]
        back_s = round(rng.choice([rng.uniform(0, 0.5), rng.uniform(0.5, 2), rng.uniform(2, 5)]), 2)
        if kind == "engine":
            how = rng.choices(ENGINES, [3, 3, 3, 1])[0].split()
        elif kind in POINTS and can_trace and rng.random() < 0.6:
            how = ["at", rng.choice(sorted(POINTS[kind])), str(rng.choice([1, 1, 2, 3, 5, 8]))]
        else:
            how = []
        acts.append(Act(at, "kill", whom, (back_s, *how)))
    return acts


class Trace:
    """strace on one daemon, until it is let go."""

    def __init__(self, process, calls, what):
        self.process = process
        self.popen = subprocess.Popen(
            ["strace", "-f", "-qqq", "-o", "/dev/null", "-p", str(process.pid), "-e", f"trace={calls}", "-e",
             f"inject={calls}:{what}"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def let_go(self):
        """Waits: until it has, the daemon's threads may stand still."""
        self.popen.terminate()
        self.popen.wait(20)


class Daemons(chaos.Daemons):
    """Knows who is traced, stopped, or may end because its disk is full."""

    quiet_s = 6  # longer than anybody is excused, also for a commit that was under way when there was room again

    def __init__(self, site, tell):
        super().__init__(site, tell)
        self.kills = collections.Counter()  # point: SIGKILLs
        self.phases = collections.Counter()  # of the attempts of an agent that was killed
        self.counts = collections.Counter()
        self.traced = {}  # daemon: (Trace, point or "", when it is over, back_s)
        self.stopped = {}  # daemon: when it goes on
        self.excused = {}  # daemon: (until when it may end by itself, why)
        self.restarts = collections.deque()  # of daemons, as an owner does who has made room; other threads add to it

    def is_free(self, daemon):
        process = dict(self.all())[daemon]
        return daemon not in self.down and daemon not in self.traced and daemon not in self.stopped and \
            process.is_running()

    def kill(self, whom, back_s, *how):
        kind, _, lab = whom.partition(" ")
        if how[:1] == ("at",):
            if self.is_free(whom):
                trace = Trace(dict(self.all())[whom], POINTS[kind][how[1]], f"signal=KILL:when={how[2]}")
                self.traced[whom] = (trace, how[1], time.monotonic() + POINT_PATIENCE_S, back_s)
            else:
                self.counts["kills that met nobody"] += 1
            return 0
        for daemon in (f"agent {lab}", f"warden {lab}") if kind == "machine" else (whom,):
            self.let_go(daemon)
        killed = super().kill(whom, back_s, *how)
        self.kills[f"{kind}: at random" + (f" ({' '.join(how)})" if how else "")] += killed
        if killed and kind in ("agent", "machine"):
            self.note_phases(lab)
        return killed

    def let_go(self, daemon):
        if daemon in self.traced:
            self.traced.pop(daemon)[0].let_go()
        if self.stopped.pop(daemon, None):
            dict(self.all())[daemon].thaw()

    def note_phases(self, lab):
        """What the attempts were at, by the journal that the dead agent left."""
        folder = self.site.nodes[lab].state / "agent"
        with tempfile.TemporaryDirectory() as copy, contextlib.suppress(OSError, sqlite3.Error, ValueError, KeyError):
            for name in ("journal.db", "journal.db-wal"):
                if (folder / name).exists():
                    shutil.copy(folder / name, copy)
            with contextlib.closing(sqlite3.connect(f"{copy}/journal.db")) as database:
                rows = database.execute("SELECT value FROM journal WHERE key LIKE 'attempt/%'").fetchall()
            phases = [json.loads(value)["phase"] for (value,) in rows]
            self.phases.update(phases or ["idle"])

    def stop(self, whom, for_s):
        if self.is_free(whom):
            dict(self.all())[whom].freeze()
            self.stopped[whom] = time.monotonic() + for_s
            self.counts[f"SIGSTOP of {whom.partition(' ')[0]}"] += 1

    def fail_io(self, whom, back_s):
        if self.is_free(whom):
            trace = Trace(dict(self.all())[whom], SYNC, "error=EIO:when=1+3")
            over = time.monotonic() + ERROR_LASTS_S
            self.traced[whom] = (trace, "", over, back_s)
            self.excused[whom] = (over + 1, "EIO")  # it may still be on its way to its end then
            self.counts[f"EIO at fsync of {whom.partition(' ')[0]}"] += 1

    def turn(self, now):
        for daemon, (trace, point, over, back_s) in list(self.traced.items()):
            if not trace.process.is_running():
                self.on_end_of_traced(daemon, now)
            elif now > over:
                self.let_go(daemon)
                if point:
                    self.counts["points that were not passed in time"] += 1
                    self.kill(daemon, back_s)
        for daemon in [one for one, at in self.stopped.items() if at <= now]:
            self.let_go(daemon)
            self.started[daemon] = now  # as one that was dead: it could not keep a deadline
        for daemon, (until, why) in list(self.excused.items()):
            process = dict(self.all())[daemon]
            if daemon not in self.down and not process.is_running() and process.popen.returncode > 0:
                self.counts[f"ends of {daemon.partition(' ')[0]} by {why}"] += 1
                self.down[daemon] = until + 0.5
            if now > until + 5:
                del self.excused[daemon]
        while self.restarts:
            self.kill(self.restarts.popleft(), 0.5)
        return super().turn(now)

    def on_end_of_traced(self, daemon, now):
        trace, point, _, back_s = self.traced.pop(daemon)
        trace.let_go()
        status = trace.process.popen.returncode
        kind, _, lab = daemon.partition(" ")
        if point and status == -9:
            self.kills[f"{kind}: {point}"] += 1
            if kind == "agent":
                self.note_phases(lab)
        elif point or status <= 0:
            return  # by itself: the base class says so
        else:
            self.counts[f"ends of {kind} by EIO"] += 1
        self.tell(f"{daemon} has ended {point or 'by EIO'}")
        self.down[daemon] = now + back_s

    def calm(self):
        for daemon in [*self.traced, *self.stopped]:
            self.let_go(daemon)


class Chaos(chaos.Chaos):
    def __init__(self, site, acts, submit, out=None):
        super().__init__(site, acts, submit, out)
        self.daemons = Daemons(site, self.tell)
        self.at_cable = {lab: threading.Lock() for lab in site.labs.labs}
        self.disks = DiskWatch(site)

    def perform(self, act):
        other = {"stop": self.daemons.stop, "io": self.daemons.fail_io}.get(act.what)
        errand = {"cut": self.cut, "full": self.fill}.get(act.what)
        if other is None and errand is None:
            return super().perform(act)
        self.tell(f"{act.what} {act.whom} {' '.join(str(one) for one in act.details)}")
        self.counts[act.what] = self.counts.get(act.what, 0) + 1
        if other is not None:
            return other(act.whom, *act.details)
        return self.errands.append(self.people.submit(errand, act.whom, *act.details))

    def play(self):
        self.disks.start()
        super().play()
        self.disks.stop()
        self.faults.extend(self.disks.faults)

    def cut(self, lab, for_s):
        with self.at_cable[lab]:
            self.site.labs.link(lab, up=False)
            self.daemons.counts["cables pulled"] += 1
            time.sleep(for_s)  # the cable lies there
            self.site.labs.link(lab, up=True)

    def fill(self, lab, for_s):
        """Only disks on which no guest computes: one that lends keeps its guests' own. A warden is started again
        afterwards, as its message says."""
        daemons = ["coordinator"] if lab == "campus" else [f"agent {lab}", f"warden {lab}"]
        filler = self.site.labs.disk(lab) / "filler"
        with self.at_cable[lab]:
            for daemon in daemons:
                self.daemons.excused[daemon] = (time.monotonic() + for_s + 1, "a full disk")
            try:
                fill_disk(filler)
                self.daemons.counts["disks filled"] += 1
                time.sleep(for_s)  # nothing can be written
            finally:
                filler.unlink(missing_ok=True)
            if lab != "campus":
                self.daemons.restarts.append(f"warden {lab}")


def fill_disk(path):
    with open(path, "wb", buffering=0) as file:
        free = os.statvfs(path).f_bavail * os.statvfs(path).f_frsize
        with contextlib.suppress(OSError):
            os.posix_fallocate(file.fileno(), 0, free)
        with contextlib.suppress(OSError):
            file.seek(0, os.SEEK_END)
            while True:
                file.write(bytes(4096))


class DiskWatch(threading.Thread):
    """Looks at stored chunks while the daemons are killed: each has the bytes of its name (I6), and nobody reads a
    checkpoint in one (I14)."""

    def __init__(self, site):
        super().__init__(daemon=True)
        self.site, self.faults, self.looks, self.is_over = site, [], 0, False

    def run(self):
        while not self.is_over:
            for node in self.site.nodes.values():
                for path in list(pathlib.Path(node.state / "agent" / "chunks" / "chunks").glob("??/*"))[:100]:
                    if len(path.name) != 64:
                        continue  # on its way to its name
                    with contextlib.suppress(OSError):
                        stored = path.read_bytes()
                        self.looks += 1
                        if hashlib.sha256(stored).hexdigest() != path.name:
                            self.faults.append(f"I6: {path} has other bytes than its name says")
                        if b"\n\nend\n" in stored or b"step=" in stored:
                            self.faults.append(f"I14: {path} is readable without its key")
            time.sleep(3)  # the rate of looking

    def stop(self):
        self.is_over = True
        self.join()
