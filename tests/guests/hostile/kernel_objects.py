# SPDX-License-Identifier: Apache-2.0
"""Takes what the kernel counts for root as well: inotify instances, queued signals, message queues, and entries of the
machine's table of connections at the peer ALLOWED (address:port, UDP). Says how much it got."""
import ctypes
import os
import resource
import signal
import socket

from verdict import finish, verdict

TRIES = 20000
IN_NONBLOCK = 2048
libc = ctypes.CDLL(None, use_errno=True)


def inotify_instances():
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    taken = []
    while len(taken) < TRIES:
        instance = libc.inotify_init1(IN_NONBLOCK)
        if instance < 0:
            break
        taken.append(instance)
    for instance in taken:
        os.close(instance)
    with open("/proc/sys/fs/inotify/max_user_instances") as file:
        machine = int(file.read())
    verdict("inotify instances", len(taken) > machine // 8, f"{len(taken)} of {machine}")


def queued_signals():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
    count = 0
    while count < TRIES and libc.sigqueue(os.getpid(), int(signal.SIGRTMIN), None) == 0:
        count += 1
    verdict("queued signals", count > 2048, str(count))


def message_queues():
    count = 0
    while count < 64 and libc.mq_open(f"/hostile-{count}".encode(), os.O_CREAT | os.O_RDWR, 0o600, None) >= 0:
        count += 1
    verdict("message queues", count > 4, str(count))


def connections():
    host, port = os.environ["ALLOWED"].split(":")
    sent = 0
    for source in range(1024, 1024 + TRIES):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
            try:
                end.bind(("", source))
                end.sendto(b"x", (host, int(port)))
                sent += 1
            except OSError:
                pass
    print(f"connections begun: {sent}", flush=True)


if __name__ == "__main__":
    inotify_instances()
    queued_signals()
    message_queues()
    connections()
    finish()
