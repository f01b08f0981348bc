# SPDX-License-Identifier: Apache-2.0
"""The guests of frameworks_check.py as agent and warden make, tell and end them; these are stood in for."""
import contextlib
import json
import os
import pathlib
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time

import guest_box

HERE = pathlib.Path(__file__).resolve().parent
NUMBER = "4217"  # the job's
STEPS = 100
TAIL = 60        # lines of a guest that are kept where its check is not good
GRACE_S = 90
HIERARCHIES = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/freezer")


class Broken(Exception):
    """A check could not be made, or is not good: its words are the finding."""


class Groups:
    """Control groups as guests have them; none where they cannot be made."""

    def __init__(self):
        self.number, self.lock, self.can = 0, threading.Lock(), True
        _, folders = self.make()
        entered = [subprocess.run(["sh", "-c", 'echo 0 >"$1/cgroup.procs"', "sh", str(folder)], capture_output=True)
                   for folder in folders]
        self.can = all(one.returncode == 0 for one in entered)
        self.remove(folders)

    def make(self):
        """Its name and its folders."""
        with self.lock:
            self.number += 1
            name = f"reclaim-frameworks-{os.getpid()}-{self.number}"
        folders = []
        for top in map(pathlib.Path, HIERARCHIES):
            if self.can and (top / "cgroup.procs").exists():
                with contextlib.suppress(OSError):
                    (top / name).mkdir()
                    folders.append(top / name)
        return name, folders

    @staticmethod
    def remove(folders):
        for folder in folders:
            for _ in range(100):
                with contextlib.suppress(FileNotFoundError, OSError):
                    folder.rmdir()
                if not folder.exists():
                    break
                time.sleep(0.05)


def below(pid):
    """The process and all that come from it."""
    parents = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                stat = (entry / "stat").read_text()
                parents.setdefault(int(stat.rsplit(") ", 1)[1].split()[1]), []).append(int(entry.name))
    found, left = [], [pid]
    while left:
        one = left.pop()
        found.append(one)
        left += parents.get(one, [])
    return found


def words_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
    except OSError:
        return []


def field_of(pid, name):
    with contextlib.suppress(OSError, IndexError):
        return pathlib.Path(f"/proc/{pid}/status").read_text().partition(f"\n{name}:\t")[2].split()[0]
    return "0"


PROGRAMS = ("torchrun", "accelerate", "deepspeed", "mpirun", "mpiexec", "orterun", "orted", "prterun", "prted")
STARTERS = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch",
            "deepspeed.launcher.launch", "deepspeed.launcher.runner")
# As the warden (warden/cgroup.cc): who catches all of these catches everything, and means nothing by it.
EVERYTHING = (signal.SIGTRAP, signal.SIGXFSZ, signal.SIGSYS)
TRIES = ((signal.SIGUSR1, False), (signal.SIGUSR2, False), (signal.SIGTERM, False), (signal.SIGTERM, True))


def is_launcher(words):
    names = [word.rpartition("/")[2] for word in words]
    for i, name in enumerate(names):
        if i > 0 and words[i - 1] == "-m":
            return name in STARTERS
        if name in PROGRAMS:
            return True
        if i > 0 and not words[i].startswith("-") and not (i > 1 and words[i - 1] in ("-W", "-X")):
            return False
    return False


def catches(pid, number):
    return bool(int(field_of(pid, "SigCgt"), 16) >> (number - 1) & 1)


class Guest:
    """One attempt. Its folder is kept by who made it."""

    def __init__(self, run, check, work, attempt, pace_s):
        self.run, self.check, self.work = run, check, work
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=f"{check.name}-{attempt}-", dir=run.scratch))
        (self.folder / "reclaim").mkdir()
        self.group, self.groups = run.groups.make()
        ticket = secrets.token_hex(8)
        said = {"folder": str(self.folder), "root": str(run.options.root), "work": str(work),
                "init": str(run.options.init), "groups": [str(one) for one in self.groups], "ticket": ticket,
                "options": ["--slurm"] if check.tasks else [], "command": run.command_of(check),
                "env": environment(run, check, attempt, pace_s)}
        (self.folder / "said.json").write_text(json.dumps(said))
        self.errors = (self.folder / "errors").open("wb")
        self.begun = time.monotonic()
        self.popen = subprocess.Popen(
            [sys.executable, "-B", str(HERE / "guest_box.py"), str(self.folder / "said.json")],
            stdin=subprocess.DEVNULL, stdout=self.errors, stderr=self.errors, start_new_session=True)
        self.write("go", ticket)

    def write(self, name, text):
        """As the warden: whole or not at all."""
        part = self.folder / "reclaim" / f".{name}.part"
        part.write_text(text)
        part.replace(self.folder / "reclaim" / name)

    def log(self):
        text = ""
        for path in (self.folder / "errors", self.folder / "reclaim" / "log"):
            with contextlib.suppress(OSError):
                text += path.read_text(errors="replace")
        return text

    def steps(self, what):
        """The numbers of such lines; torchrun puts the rank's name before its own."""
        head = rf"{what} " if what else ""
        return [int(step) for step in re.findall(rf"^(?:\[\w+\]:)?{head}step=(\d+)", self.log(), re.MULTILINE)]

    def done(self):
        found = re.findall(r"^(?:\[\w+\]:)?done step=(\d+) weights=(\w+) loss=(\S+)", self.log(), re.MULTILINE)
        return {"steps": int(found[-1][0]), "weights": found[-1][1], "loss": float(found[-1][2])} if found else None

    def is_over(self):
        return self.popen.poll() is not None

    def wait(self, what, is_so, limit_s):
        end = time.monotonic() + min(limit_s, self.run.left_s())
        while not is_so():
            if self.is_over():
                if is_so():
                    return
                raise Broken(f"it ended with {self.code()} before {what}")
            if time.monotonic() >= end:
                raise Broken(f"no {what} within its time; the last step was {(self.steps('') or ['none'])[-1]}")
            time.sleep(0.05)

    def wait_over(self, what, limit_s):
        self.wait(what, self.is_over, limit_s)

    def code(self):
        with contextlib.suppress(OSError, ValueError):
            return int((self.folder / "reclaim" / "exit").read_text())
        return self.popen.poll()

    def pids(self):
        found = set()
        for folder in self.groups:
            with contextlib.suppress(OSError):
                found.update(map(int, (folder / "cgroup.procs").read_text().split()))
        return sorted(found) if self.groups else sorted(below(self.popen.pid))

    def told(self):
        """By the warden's choice: those who catch the signal by themselves, no launcher and no forked worker. The
        signal, or None, and their pids."""
        named = self.check.signal
        if self.run.catchers and self.groups:
            words = ["tell", self.group] if named is None else ["signal", self.group, str(int(named))]
            done = subprocess.run([*self.run.catchers, *words], capture_output=True, text=True, timeout=20)
            if done.returncode != 0:
                raise Broken(f"catchers: {done.stderr.strip()}")
            numbers = [int(word) for word in done.stdout.split()]
            number, pids = (named, numbers) if named is not None else (numbers[0], numbers[1:])
            return (signal.Signals(number) if pids else None), pids
        for number, everything in TRIES if named is None else ((named, None),):
            pids = [pid for pid in self.catchers(number)
                    if everything is None or everything == all(catches(pid, one) for one in EVERYTHING)]
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            if pids:
                return number, pids
        return None, []

    def catchers(self, number):
        guest, chosen = self.pids(), []
        for pid in guest:
            words, parent = words_of(pid), int(field_of(pid, "PPid"))
            is_worker = "--multiprocessing-fork" in words or (parent in guest and words == words_of(parent))
            if catches(pid, number) and not is_launcher(words) and not is_worker:
                chosen.append(pid)
        return chosen

    def notice(self):
        """As the agent at an owner's notice. Who was signalled, by which, with their command lines."""
        self.write("notice", json.dumps({
            "reason": "a check", "deadline_unix": time.time() + GRACE_S, "grace_s": GRACE_S,
            "will_migrate": True}) + "\n")
        catching = {pid: (words_of(pid), field_of(pid, "SigCgt")) for pid in self.pids()}
        number, pids = self.told()
        return number, {pid: " ".join(catching.get(pid, (["?"], ""))[0])[:200] for pid in pids}, catching

    def kill(self):
        """All of it, and its group."""
        end = time.monotonic() + 20
        while time.monotonic() < end:
            left = [pid for pid in self.pids() if field_of(pid, "State") not in ("Z", "0")]
            if not left and self.is_over():
                break
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.popen.poll()
            time.sleep(0.05)
        if not self.is_over():
            self.popen.kill()
        self.popen.wait(10)
        self.errors.close()
        self.run.groups.remove(self.groups)

    def tail(self):
        return self.log().splitlines()[-TAIL:]


def environment(run, check, attempt, pace_s):
    """The image's, which is the machine's here, and what the agent gives (agent/core_start.cc); of a script for Slurm
    what submitting it sets (apps/reclaim/cli_slurm_script.cc)."""
    env = {name: value for name, value in os.environ.items()
           if not name.startswith(("RECLAIM_", "SLURM_", "RN_", "SUBMITIT_"))}
    if str(run.options.root) != "/":
        env = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
    threads = ("OMP", "OPENBLAS", "MKL", "BLIS", "NUMEXPR", "NUMBA", "RAYON")
    env |= {f"{name}_NUM_THREADS": "2" for name in threads}
    env |= {"GOMAXPROCS": "2", "PYTHON_CPU_COUNT": "2", "RECLAIM_CPUS_NUM": "2", "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "1", "HOME": guest_box.WORK, "PWD": guest_box.WORK, "JOB_ID": NUMBER,
            "RECLAIM_JOB_ID": "j-check", "RECLAIM_JOB_NUMBER": NUMBER, "RECLAIM_JOB_NAME": check.name,
            "RECLAIM_ATTEMPT": str(attempt), "RECLAIM_EPOCH": f"1.{attempt}",
            "RECLAIM_RESTART_COUNT": str(attempt - 1), "RECLAIM_NODE_RANK": "0", "RECLAIM_NODES_NUM": "1",
            "RECLAIM_NODES_IPS": "127.0.0.1", "RECLAIM_MASTER_NODE_IP": "127.0.0.1",
            "RECLAIM_GPUS_NUM": "1" if run.has_gpu else "0", "RECLAIM_GPUS_PER_NODE": "1" if run.has_gpu else "0",
            "RECLAIM_CHECKPOINT_DIR": guest_box.WORK, "RECLAIM_NOTICE_FILE": "/reclaim/notice",
            "CUDA_VISIBLE_DEVICES": "0" if run.has_gpu else "", "RN_STEPS": str(STEPS), "RN_PACE_S": str(pace_s)}
    if attempt > 1:
        env |= {"RECLAIM_RESUME_FROM": guest_box.WORK, "RECLAIM_RESUME_GENERATION": "1"}
    if check.tasks:
        env |= slurm_variables(check, attempt)
    return env | check.env


def slurm_variables(check, attempt):
    tasks = str(check.tasks)
    said = {"SLURM_JOB_ID": NUMBER, "SLURM_JOBID": NUMBER, "SLURM_JOB_NAME": "resnet", "SLURM_NNODES": "1",
            "SLURM_SUBMIT_DIR": guest_box.WORK, "SLURM_JOB_NODELIST": "localhost", "SLURM_NODELIST": "localhost",
            "SLURMD_NODENAME": "localhost", "SLURM_JOB_NUM_NODES": "1", "SLURM_NODEID": "0", "SLURM_PROCID": "0",
            "SLURM_LOCALID": "0", "SLURM_TASKS_PER_NODE": tasks, "SLURM_NTASKS": tasks, "SLURM_NPROCS": tasks,
            "SLURM_NTASKS_PER_NODE": tasks}
    return said | ({"SLURM_RESTART_COUNT": str(attempt - 1)} if attempt > 1 else {})
