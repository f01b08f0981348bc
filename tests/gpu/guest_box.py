# SPDX-License-Identifier: Apache-2.0
"""One guest of frameworks_check.py: becomes reclaim-init as PID 1 of namespaces of its own (mounts, processes, network
with its loopback alone), in a control group of its own, on the files of this machine or of an unpacked image.

guest_box.py FILE     FILE: what it is, as JSON; frameworks_check.py writes it. Root"""
import contextlib
import ctypes
import fcntl
import json
import os
import pathlib
import shutil
import signal
import socket
import struct
import sys

WORK = "/rn-work"  # not /work: a machine may have its Python there
OWN = ("proc", "reclaim", "reclaim-slurm", WORK[1:])
OF_THE_MACHINE = ("dev", "sys")  # also where the other files are an image's
WRITABLE = ("dev", "sys", "tmp", "run", "var", "proc")
SLURM = ("sacct", "sbatch", "scancel", "scontrol", "squeue", "srun")
NEW_MOUNTS, NEW_IPC, NEW_PIDS, NEW_NET = 0x20000, 0x8000000, 0x20000000, 0x40000000
READ_ONLY, NO_SUID, NO_DEV, NO_EXEC, REMOUNT, BIND, RECURSIVE, PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
LIBC = ctypes.CDLL(None, use_errno=True)


def check(result, what):
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def mount(source, target, kind, flags, data=None):
    words = [None if one is None else os.fsencode(one) for one in (source, target, kind)]
    check(LIBC.mount(*words, ctypes.c_ulong(flags), None if data is None else data.encode()), f"mount {target}")


def loopback_up():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        ask = struct.pack("16sH22x", b"lo", 0)
        flags = struct.unpack_from("H", fcntl.ioctl(end, 0x8913, ask), 16)[0]  # SIOCGIFFLAGS
        fcntl.ioctl(end, 0x8914, struct.pack("16sH22x", b"lo", flags | 1))     # SIOCSIFFLAGS, IFF_UP


def files_of(source, root):
    """The folders under `source` as they are, those with programs not to be written; and this guest's own."""
    for name in sorted(os.listdir(source)):
        entry, here = source / name, root / name
        if name in OWN:
            continue
        if entry.is_symlink():
            here.symlink_to(os.readlink(entry))
        elif entry.is_dir():
            here.mkdir()
            deep = 0 if name == "tmp" else RECURSIVE  # where this root itself may lie
            mount(pathlib.Path("/") / name if name in OF_THE_MACHINE else entry, here, None, BIND | deep)
            if name not in WRITABLE:
                with contextlib.suppress(OSError):
                    mount(None, here, None, REMOUNT | BIND | READ_ONLY)


def enter(said):
    """In the new namespaces, as their PID 1."""
    mount("none", "/", None, RECURSIVE | PRIVATE)
    loopback_up()
    folder = pathlib.Path(said["folder"])
    root = folder / "root"
    root.mkdir()
    mount("none", root, "tmpfs", NO_SUID, "size=16m")
    files_of(pathlib.Path(said["root"]), root)
    for name in OWN:
        (root / name).mkdir()
    mount("proc", root / "proc", "proc", NO_SUID | NO_DEV | NO_EXEC)
    mount(said["work"], root / WORK[1:], None, BIND)
    mount(folder / "reclaim", root / "reclaim", None, BIND)
    shutil.copy(said["init"], root / "init")
    (root / "init").chmod(0o755)
    for name in SLURM:
        (root / "reclaim-slurm" / name).symlink_to("/init")
    os.chroot(root)
    os.chdir(WORK)
    for number in (signal.SIGPIPE, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    os.execve("/init", ["/init", *said["options"], str(16 << 20), "60", said["ticket"], *said["command"]], said["env"])


def main():
    said = json.loads(pathlib.Path(sys.argv[1]).read_text())
    for group in said["groups"]:
        (pathlib.Path(group) / "cgroup.procs").write_text(str(os.getpid()))
    check(LIBC.unshare(NEW_MOUNTS | NEW_IPC | NEW_PIDS | NEW_NET), "unshare")
    child = os.fork()
    if child == 0:
        try:
            enter(said)
        except BaseException as error:  # nobody else would say it
            print(f"guest_box: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(125)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) % 256


if __name__ == "__main__":
    sys.exit(main())
