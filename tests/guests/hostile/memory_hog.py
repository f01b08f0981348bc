# SPDX-License-Identifier: Apache-2.0
"""A child takes memory until it is killed or refused, at most MEMORY_MIB (default 4096, above any limit)."""
import os

from verdict import finish, verdict


def take(wanted_mib, report):
    held = []
    for number in range(wanted_mib):
        held.append(os.urandom(4096) * 256)
        if number % 32 == 0:
            os.pwrite(report, str(number).encode().ljust(8), 0)
    os.pwrite(report, b"all     ", 0)


def main():
    wanted = int(os.environ.get("MEMORY_MIB", "4096"))
    report = os.memfd_create("report")
    pid = os.fork()
    if pid == 0:
        try:
            take(wanted, report)
        except MemoryError:
            os._exit(3)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    reached = os.pread(report, 8, 0).decode().strip() or "0"
    how = f"killed by signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit {os.WEXITSTATUS(status)}"
    verdict("memory", reached == "all", f"{reached} MiB of {wanted}, {how}")
    finish()


if __name__ == "__main__":
    main()
