# SPDX-License-Identifier: Apache-2.0
"""Forks until it is refused, at most PROCESSES (default 3000) times; then ends all of its children."""
import os
import signal
import time

from verdict import finish, verdict


def main():
    wanted = int(os.environ.get("PROCESSES", "3000"))
    children = []
    refused = False
    while len(children) < wanted:
        try:
            pid = os.fork()
        except OSError:
            refused = True
            break
        if pid == 0:
            signal.alarm(30)
            time.sleep(60)
            os._exit(0)
        children.append(pid)
    for pid in children:
        os.kill(pid, signal.SIGKILL)
    for pid in children:
        os.waitpid(pid, 0)
    verdict("fork bomb", not refused, f"{len(children)} processes")
    finish()


if __name__ == "__main__":
    main()
