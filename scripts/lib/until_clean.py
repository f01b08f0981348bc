#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""until_clean.py [--bound SECONDS] COMMAND [ARGUMENT…]: runs COMMAND; the exit status is its own.

ctest dies at once of a Ctrl-C, while the tests that it ran still take their laboratories down. If this is told to end
(SIGINT, SIGTERM or SIGHUP), it waits until all that COMMAND began has ended, SECONDS at most (120), says so, and names
what is there then. The exit status is 128 and the signal's number. Told a second time, it waits no longer."""
import ctypes
import os
import pathlib
import select
import signal
import sys
import time

BOUND_S = 120
PATIENCE_S = 2  # for COMMAND, which was told by the terminal as we were
PR_SET_CHILD_SUBREAPER = 36
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def say(text):
    print(f"until_clean: {text}", file=sys.stderr, flush=True)


def children():
    """Pids of this process's own, who outlived their parents among them."""
    try:
        own = os.getpid()
        return [int(pid) for pid in pathlib.Path(f"/proc/{own}/task/{own}/children").read_text().split()]
    except OSError:
        return []


def name_of(pid):
    try:
        words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return f"{pid}"
    return f"{pid} {b' '.join(words).decode(errors='replace').strip()[:100]}"


class Watch:
    """COMMAND, and whatever it leaves behind while it is watched."""

    def __init__(self, command, bound_s):
        self.bound_s, self.told, self.told_at, self.again, self.status = bound_s, None, 0, False, None
        if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "PR_SET_CHILD_SUBREAPER")
        self.bell, ring = os.pipe()
        os.set_blocking(self.bell, False)
        os.set_blocking(ring, False)
        signal.set_wakeup_fd(ring, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in ENDING:
            if signal.getsignal(number) != signal.SIG_IGN:  # as a background command's SIGINT: left as it is
                signal.signal(number, self.tell)
        self.pid = os.posix_spawnp(command[0], command, os.environ)

    def tell(self, number, _):
        if self.told is None:
            self.told, self.told_at = number, time.monotonic()
        elif time.monotonic() > self.told_at + 1:  # a key that is held is no second wish
            self.again = True

    def reap(self):
        """False when no child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.pid:
                self.status = os.waitstatus_to_exitcode(status)

    def sleep(self, seconds):
        if select.select([self.bell], [], [], seconds)[0]:
            os.read(self.bell, 4096)

    def run(self):
        while self.reap() and self.status is None and self.told is None:
            self.sleep(60)
        if self.told is None and self.status is not None and -self.status in ENDING:
            self.tell(-self.status, None)  # it heard of it first
        if self.told is None:
            return self.status if self.status >= 0 else 128 - self.status
        self.wait()
        return 128 + self.told

    def wait(self):
        begun, others = time.monotonic(), None
        if self.reap():
            say(f"told to end: the tests take down what they made, {self.bound_s:g} s at most; again: leave them")
        while self.reap():
            now = time.monotonic()
            if self.again or now > begun + self.bound_s:
                for pid in children():
                    say(f"still there: {name_of(pid)}")
                say("left before all had ended; scripts/labs.sh sweep takes down what nobody uses any more")
                return
            if self.status is None and others is None and now > begun + PATIENCE_S:
                others = {self.pid, *children()}  # the signal was for us alone: COMMAND is told, and then its children
                os.kill(self.pid, self.told)
            if self.status is not None and others:
                for pid in set(children()) - others:
                    os.kill(pid, signal.SIGINT)
                others = set()
            self.sleep(0.2)
        say(f"all have ended, after {time.monotonic() - begun:.0f} s")


def main():
    words, bound_s = sys.argv[1:], BOUND_S
    if words[:1] == ["--bound"]:
        bound_s, words = float(words[1]), words[2:]
    if not words:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        return Watch(words, bound_s).run()
    except FileNotFoundError:
        say(f"there is no program {words[0]}")
        return 127


if __name__ == "__main__":
    sys.exit(main())
