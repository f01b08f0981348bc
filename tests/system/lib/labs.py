# SPDX-License-Identifier: Apache-2.0
"""Laboratories on one machine, for tests and the demo: scripts/labs.sh from Python.

    with Labs("lab-a", "lab-b", "peer", disk="8G") as labs:
        agent = labs.spawn("lab-a", "agent", [build / "reclaim-agent", "serve", …])
        labs.link("lab-a", up=False)

Everything goes when the block ends, and by a guard process when this one is killed. With RN_TIMES=1 every wait and
every program is printed with the seconds that it took.
"""
import contextlib
import os
import pathlib
import secrets
import select
import signal
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "scripts" / "labs.sh"


BEGUN = time.monotonic()


@contextlib.contextmanager
def timed(what):
    """Where a test's seconds go, for whoever asks by RN_TIMES."""
    begun = time.monotonic()
    try:
        yield
    finally:
        now = time.monotonic()
        if "RN_TIMES" in os.environ and now - begun >= 0.1:
            print(f"  {now - BEGUN:8.2f} s  {now - begun:6.2f} s  {what}", flush=True)


class TimedOut(AssertionError):
    """A wait is over; its message says for what and what was seen last."""


def patience_s(timeout_s):
    """A limit is for what hangs, and written down for a machine that has time: one beside six others has less."""
    return max(timeout_s, min(3 * timeout_s, 90))


def wait_until(what, condition, timeout_s, every_s=0.05):
    """The first true value of condition(); its last false value is named when the time is over, three times as long
    where it is short. Real time."""
    timeout_s = patience_s(timeout_s)
    deadline = time.monotonic() + timeout_s
    with timed(f"until {what}"):
        while True:
            value = condition()
            if value:
                return value
            if time.monotonic() > deadline:
                raise TimedOut(f"waited {timeout_s} s for: {what} (last seen: {value!r})")
            time.sleep(every_s)  # between two looks


class Process:
    """A started program, ended by its own pid alone. Its output lies in `log`."""

    def __init__(self, name, popen, log):
        self.name, self.popen, self.log = name, popen, pathlib.Path(log)
        self.pid = popen.pid

    def is_running(self):
        return self.popen.poll() is None

    def signal(self, number):
        if self.is_running():
            os.kill(self.pid, number)

    def freeze(self):
        self.signal(signal.SIGSTOP)

    def thaw(self):
        self.signal(signal.SIGCONT)

    def kill(self):
        """SIGKILL, and waits until it is gone."""
        self.signal(signal.SIGKILL)
        self.popen.wait(60)

    def stop(self, timeout_s=30):
        """SIGTERM; SIGKILL after the timeout. Answers the exit status."""
        self.thaw()
        self.signal(signal.SIGTERM)
        try:
            return self.popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return self.popen.returncode

    def output(self):
        return self.log.read_text(errors="replace") if self.log.exists() else ""


def new_run():
    """An id for Labs(run=…), for whoever must know it before there is anything."""
    return secrets.token_hex(3)


class Labs:
    def __init__(self, *labs, rate=None, disk=None, run=None):
        self.run = run or new_run()
        command = [str(SCRIPT), "up", "--guard", str(os.getpid()), "--run", self.run]
        for flag, value in (("--rate", rate), ("--disk", disk)):
            command += [flag, value] if value else []
        self.labs = labs
        self.processes = []
        self._up(command + list(labs))
        try:
            values = dict(line.split("=", 1) for line in self._call([SCRIPT, "env", self.run]).splitlines())
        except BaseException:
            self._call([SCRIPT, "down", self.run])
            raise
        self.dir = pathlib.Path(values["RN_DIR"])
        self.host = values["RN_HOST"]
        self.addresses = {lab: values["RN_ADDRESS_" + lab.replace("-", "_")] for lab in labs}
        self.subnet = self.host.rsplit(".", 1)[0]
        self.is_up = True

    def _up(self, command):
        """Whatever interrupts it: nothing is left, and its program, which undoes itself, has ended."""
        with timed(" ".join(command)):
            up = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            try:
                status = up.wait()
            except BaseException:
                up.terminate()
                if up.wait() == 0:
                    subprocess.run([str(SCRIPT), "down", self.run])
                raise
        if status != 0:
            raise subprocess.CalledProcessError(status, command)

    @staticmethod
    def _call(command):
        with timed(" ".join(map(str, command))):
            return subprocess.run(
                [str(part) for part in command], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.down()

    def disk(self, lab):
        return self.dir / lab / "disk"

    def run_dir(self, lab):
        return self.dir / lab / "run"

    def log(self, lab, name):
        return self.dir / lab / "log" / f"{name}.log"

    def cgroup_parent(self, lab):
        return f"/rn-{self.run}-{lab}"

    def address6(self, lab):
        third, last = self.addresses[lab].split(".")[2:]
        return f"fd77:0:0:{third}::{last}"

    def _inside(self, lab, command):
        prefix = ["nsenter", f"--net=/run/netns/rn-{self.run}-{lab}", "--"] if lab else []
        return prefix + [str(part) for part in command]

    def _environment(self, extra):
        return {**os.environ, "RN_RUN": self.run, **(extra or {})}

    def spawn(self, lab, name, command, env=None, cwd=None):
        """Starts a program on the lab's network (lab None: the host's) as a session of its own."""
        log = self.log(lab, name) if lab else self.dir / f"{name}.log"
        with open(log, "ab") as out:
            popen = subprocess.Popen(
                self._inside(lab, command), env=self._environment(env), cwd=cwd, stdin=subprocess.DEVNULL,
                stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
        process = Process(name, popen, log)
        self.processes.append(process)
        return process

    def call(self, lab, command, env=None, cwd=None, timeout_s=60, check=True, text_in=None):
        """Runs a program to its end; answers subprocess.CompletedProcess with text output."""
        with timed(" ".join(map(str, command))):
            return subprocess.run(
                self._inside(lab, command), env=self._environment(env), cwd=cwd, timeout=timeout_s, check=check,
                capture_output=True, text=True, input=text_in)

    def link(self, lab, up):
        self._call([SCRIPT, "link", self.run, lab, "up" if up else "down"])

    def rate(self, lab, rate):
        self._call([SCRIPT, "rate", self.run, lab, rate or "none"])

    def residue(self):
        """What of this run is there, a list of lines; empty after down()."""
        done = subprocess.run([str(SCRIPT), "residue", self.run], stdout=subprocess.PIPE, text=True)
        return done.stdout.splitlines()

    def down(self):
        if not self.is_up:
            return
        self.is_up = False
        for process in self.processes:
            process.thaw()
        with timed("labs down"):
            subprocess.run([str(SCRIPT), "down", self.run], check=True)
        for process in self.processes:
            process.popen.wait(60)


def wait_for_exit(pid, timeout_s):
    """True when the process has ended in time. By pidfd: a dead child of another's may stay as a zombie for ever."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))
    finally:
        os.close(descriptor)
