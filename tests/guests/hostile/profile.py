# SPDX-License-Identifier: Apache-2.0
"""Looks at what the container was given: identity, capabilities, system calls, mounts, devices, processes."""
import ctypes
import errno
import os
import socket
import stat

from verdict import finish, verdict

libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWUSER, MS_REMOUNT, MS_BIND = 0x10000000, 32, 4096
SYS_BPF, SYS_PERF_EVENT_OPEN, SYS_KEYCTL, SYS_IO_URING_SETUP, SYS_PTRACE = 321, 298, 250, 425, 101


def status_of(pid="self"):
    with open(f"/proc/{pid}/status") as file:
        return dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)


def refused(call, *arguments):
    """True when the system call failed for want of permission (not because its arguments were wrong)."""
    result = call(*arguments)
    return result == -1 and ctypes.get_errno() in (errno.EPERM, errno.ENOSYS, errno.EACCES)


def identity():
    status = status_of()
    held = {name: status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb") if int(status[name], 16)}
    verdict("capabilities", held, str(held) if held else "none, not even to be gained")
    verdict("root", os.getuid() == 0 or os.geteuid() == 0, f"uid {os.getuid()}")
    verdict("no-new-privileges", status["NoNewPrivs"] != "1", f"NoNewPrivs {status['NoNewPrivs']}")
    verdict("seccomp", status["Seccomp"] != "2", f"Seccomp {status['Seccomp']}")
    with open("/proc/self/uid_map") as file:
        first = file.readline().split()
    verdict("user namespace", first[1] == "0", f"uid_map {' '.join(first)}")
    try:
        os.setuid(0)
        verdict("setuid", True)
    except OSError:
        verdict("setuid", False)


def system_calls():
    zero = ctypes.create_string_buffer(128)
    verdict("unshare a user namespace", libc.unshare(CLONE_NEWUSER) == 0)
    for name, number, arguments in (
        ("bpf", SYS_BPF, (0, zero, 72)), ("perf_event_open", SYS_PERF_EVENT_OPEN, (zero, 0, -1, -1, 0)),
        ("keyctl", SYS_KEYCTL, (0, -3, 1)), ("io_uring_setup", SYS_IO_URING_SETUP, (1, zero)),
    ):
        ctypes.set_errno(0)
        reached = not refused(libc.syscall, number, *arguments)
        verdict(f"system call {name}", reached, os.strerror(ctypes.get_errno()))
    mounted = libc.mount(b"none", b"/tmp", b"tmpfs", 0, None) == 0
    verdict("mount", mounted)
    verdict("remount the root", libc.mount(b"none", b"/", None, MS_REMOUNT | MS_BIND, None) == 0)
    verdict("chroot", not refused(libc.chroot, b"/tmp"))
    verdict("mknod of a disk", libc.mknod(b"/tmp/disk", stat.S_IFBLK | 0o600, os.makedev(8, 0)) == 0)
    try:
        raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        raw.close()
        verdict("raw socket", True)
    except OSError as error:
        verdict("raw socket", False, error.strerror)


def can_write(folder):
    path = os.path.join(folder, ".hostile-probe")
    try:
        with open(path, "w") as file:
            file.write("x")
        os.unlink(path)
        return True
    except OSError:
        return False


def files():
    allowed = {os.path.realpath("."), "/tmp", "/dev/shm", "/dev/mqueue", "/run", "/var/tmp"}
    tried = ("/", "/etc", "/usr", "/usr/bin", "/var", "/root", "/home", "/opt", "/sys", "/proc")
    writable = [folder for folder in tried if folder not in allowed and can_write(folder)]
    verdict("write outside the own folder", writable, " ".join(writable))
    sockets = [path for path in ("/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock",
                                 "/run/reclaimnet", "/var/lib/reclaimnet") if os.path.exists(path)]
    verdict("sockets of engine and daemons", sockets, " ".join(sockets))
    disks = [name for name in os.listdir("/dev") if stat.S_ISBLK(os.stat(os.path.join("/dev", name)).st_mode)]
    verdict("block devices", disks, " ".join(disks))
    knobs = ["/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/proc/sys/net/ipv4/ip_forward",
             "/sys/fs/cgroup/cgroup.procs", "/sys/kernel/uevent_helper", "/sys/fs/cgroup/memory/release_agent",
             "/proc/sys/vm/drop_caches", "/dev/mem", "/dev/kmsg", "/proc/kcore"]
    opened = []
    for knob in knobs:
        try:
            os.close(os.open(knob, os.O_WRONLY))
            opened.append(knob)
        except OSError:
            pass
    verdict("kernel knobs", opened, " ".join(opened))
    mounts = [line.split()[1] for line in open("/proc/self/mounts")]
    here = os.path.realpath(".") + "/"
    known = ("/proc", "/sys", "/dev", "/etc/", "/tmp", "/run", "/reclaim")
    foreign = [mount for mount in mounts
               if mount != "/" and not mount.startswith(known) and not here.startswith(mount + "/")]
    verdict("foreign mounts", [mount for mount in foreign if can_write(mount)], " ".join(foreign))


def others():
    """Where other guests' disks lie: the loop devices' own files name them."""
    told = []
    for name in os.listdir("/sys/block") if os.path.isdir("/sys/block") else []:
        try:
            with open(f"/sys/block/{name}/loop/backing_file") as file:
                told.append(file.read().strip())
        except OSError:
            pass
    verdict("paths of others' disks", told, " ".join(told))


def processes():
    seen = [pid for pid in os.listdir("/proc") if pid.isdigit()]
    with open("/proc/1/cmdline", "rb") as file:
        first = file.read().replace(b"\0", b" ").decode().strip()
    foreign = [name for name in ("systemd", "dockerd", "containerd", "reclaim-agent", "reclaim-warden")
               if name in first]
    verdict("processes of the host", len(seen) > 64 or foreign, f"{len(seen)} seen, first is {first[:60]!r}")
    attached = libc.syscall(SYS_PTRACE, 16, 1, 0, 0) == 0 and os.getpid() != 1
    verdict("ptrace of process 1", attached and status_of(1)["Uid"].split()[0] == "0")
    steering = [name for name in os.environ if name.startswith(("LD_", "NVIDIA_", "DOCKER_"))]
    verdict("variables that steer the runtime", steering, " ".join(steering))


if __name__ == "__main__":
    identity()
    system_calls()
    files()
    others()
    processes()
    finish()
