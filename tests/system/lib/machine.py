# SPDX-License-Identifier: Apache-2.0
"""Everything of a laboratory that its owner could miss or find: files, users, processes and containers of their own,
network, kernel objects. Two pictures of an unharmed machine are equal."""
import contextlib
import ctypes
import os
import pathlib
import re
import subprocess

from chaos import processes_of
from labs import wait_until

# Where programs put files on a machine; our own tree (state and run folder) is not among them.
TREES = ("/etc", "/usr/local", "/opt", "/srv", "/home", "/root/.ssh", "/lib/systemd", "/usr/lib/sysctl.d", "/var/spool",
         "/run/systemd", "/run/containerd", "/var/lib/reclaimnet", "/run/reclaimnet", "/var/lib/docker", "/run/docker",
         "/run/docker.sock", "/sys/fs/bpf")
NETWORK = {
    "ports": ["ss", "-Hltunp"],
    "links": ["ip", "-o", "link"],
    "addresses": ["ip", "-o", "address"],
    "routes": ["ip", "-4", "route", "show", "table", "all"],
    "routes6": ["ip", "-6", "route", "show", "table", "all"],
    "rules": ["ip", "rule"],
    "nft": ["nft", "list", "ruleset"],
    "qdiscs": ["tc", "qdisc"],
    "sysctls": ["sysctl", "-a"],
}
CONTAINERD = pathlib.Path("/run/containerd/containerd.sock")
CLONE_NEWNS = 0x00020000
OWN_FILTER = "tc filter add dev eth0 ingress bpf bytecode '1,6 0 0 4294967295,' classid 7:1"
# What changes by itself on a machine that nobody touches.
RESTLESS = [(re.compile(r"counter packets \d+ bytes \d+"), "counter"), (re.compile(r" expires \d+sec"), ""),
            (re.compile(r"valid_lft \w+ preferred_lft \w+"), ""), (re.compile(r"direct_packets_stat \d+"), "packets")]
RESTLESS_SYSCTLS = re.compile(
    r"^(fs\.(dentry|file-nr|inode|quota)|kernel\.(random|ns_last_pid|pty|perf_event_max_sample|sched_domain)|"
    r"net\.netfilter\.nf_conntrack_count|net\.ipv4\.tcp_fastopen_key|net\.ipv6\.neigh\.\w+\.gc|fs\.aio|vm\.)")


def file_line(path):
    """The time of change moves with every write, whatever a program does to the others."""
    about = path.lstat()
    kind = f"{about.st_mode:o} {about.st_uid}:{about.st_gid}"
    if path.is_symlink():
        return f"{path} {kind} -> {os.readlink(path)}"
    if path.is_file():
        return f"{path} {kind} {about.st_size} bytes, inode {about.st_ino}, changed {about.st_ctime_ns}"
    return f"{path} {kind}"


def files(*trees):
    """Other runs' files go while they are looked at."""
    lines = []
    for tree in map(pathlib.Path, trees):
        if tree.is_dir() and not tree.is_symlink():
            for top, folders, names in os.walk(tree):
                for name in folders + names:
                    with contextlib.suppress(FileNotFoundError):
                        lines.append(file_line(pathlib.Path(top, name)))
        elif tree.exists():
            lines.append(file_line(tree))
    return sorted(lines)


class Owner:
    """The lab's owner at work: files, a service on a port, an engine with a container, own rules and queues."""

    def __init__(self, labs, lab, image):
        self.labs, self.lab, self.image = labs, lab, image
        self.folder = labs.dir / lab / "owner"
        self.socket = f"unix://{self.folder}/docker.sock"
        self.processes = []

    def call(self, *command, check=True):
        return self.labs.call(self.lab, command, check=check).stdout

    def docker(self, *words, check=True):
        return self.call("docker", "-H", self.socket, *words, check=check)

    def start_engine(self):
        """As Debian does: a containerd of the machine's at its usual place, which the engine uses. Waits for it."""
        self.folder.mkdir()
        (self.folder / "thesis.tex").write_text("mine\n")
        settings = self.folder / "containerd.toml"
        settings.write_text('version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n')
        self.processes.append(self.labs.spawn(self.lab, "owners-containerd", [
            "containerd", "--config", settings, "--root", self.folder / "containerd"]))
        wait_until("the owner's containerd", CONTAINERD.is_socket, 30)
        self.processes.append(self.labs.spawn(self.lab, "owners-engine", [
            "dockerd", f"--host={self.socket}", f"--containerd={CONTAINERD}", f"--data-root={self.folder}/data",
            f"--exec-root={self.folder}/exec", f"--pidfile={self.folder}/docker.pid",
            f"--cgroup-parent={self.labs.cgroup_parent(self.lab)}", "--exec-opt=native.cgroupdriver=cgroupfs",
            "--log-level=warn"]))

    def is_engine_up(self):
        return self.labs.call(self.lab, ["docker", "-H", self.socket, "version"], check=False).returncode == 0

    def start_work(self):
        self.call("docker", "-H", self.socket, "import", self.image, "owners:1")
        self.docker("run", "-d", "--name", "owners-service", "-p", "8080:80", "owners:1", "sh", "-c",
                    "while true; do date >>/log; sleep 0.2; done")
        self.processes.append(self.labs.spawn(self.lab, "owners-program", [
            "/usr/bin/python3", "-c", "import socket,threading; s=socket.create_server(('',8888)); "
            "threading.Event().wait()"]))
        self.call("sh", "-ec", "nft add table inet owners; nft add chain inet owners c '{type filter hook input "
                  "priority 5; }'; nft add rule inet owners c tcp dport 9999 drop; ip route add 203.0.113.0/24 via "
                  f"{self.labs.host}; ip rule add fwmark 7 table 77; tc qdisc add dev eth0 root handle 7: htb; "
                  f"tc qdisc add dev eth0 clsact; {OWN_FILTER}")


def own_lines(lines, run):
    """Without what belongs to other runs, which share this kernel."""
    other = re.compile(r"(?:rn[-_]|reclaim-)(?!" + run + r"\b)[0-9a-z]{4,}")
    return sorted(line for line in lines if not other.search(line))


def loop_devices():
    """Their files. A file on a disk that was unmounted meanwhile is named without what is above it."""
    return subprocess.run(["losetup", "-ln", "-O", "BACK-FILE"], capture_output=True, text=True).stdout.splitlines()


def kernel_objects(run):
    """Control groups, mounts, namespaces and loop devices of the machine, without other runs'."""
    groups = [line.split()[1] for line in pathlib.Path("/proc/mounts").read_text().splitlines()
              if line.split()[2] in ("cgroup", "cgroup2")]
    found = {"cgroups": [folder for group in groups for folder, _, _ in os.walk(group)],
             "mounts": [" ".join(line.split()[3:5]) for line in
                        pathlib.Path("/proc/self/mountinfo").read_text().splitlines()],
             "namespaces": os.listdir("/run/netns"),
             "loops": [line for line in loop_devices() if f"rn-{run}" in line]}
    return {name: own_lines(lines, run) for name, lines in found.items()}


def network(owner):
    found = {}
    for name, command in NETWORK.items():
        text = owner.call(*command, check=False)
        for pattern, instead in RESTLESS:
            text = pattern.sub(instead, text)
        lines = text.splitlines()
        if name == "sysctls":
            lines = [line for line in lines if not RESTLESS_SYSCTLS.match(line)]
        found[name] = sorted(line.strip() for line in lines)
    devices = sorted({line.split(": ")[1].split("@")[0] for line in found["links"]})
    found["filters"] = [f"{device} {side}: {line}" for device in devices for side in ("ingress", "egress", "root")
                        for line in owner.call("tc", "filter", "show", "dev", device, side, check=False).splitlines()]
    return found


def containers(owner):
    listed = owner.docker("ps", "-aq", "--no-trunc").split()
    facts = owner.docker("inspect", "-f", "{{.Name}} {{.State.Status}} {{.State.Pid}} {{.State.StartedAt}} "
                         "{{.RestartCount}}", *listed).splitlines()
    return {"containers": sorted(facts),
            "images and volumes": sorted(owner.docker("images", "-aq").split() + owner.docker("volume", "ls").split()),
            "container networks": sorted(owner.docker("network", "ls").splitlines())}


def names_run(line, run):
    """A command line that names this run's things alone. One that looks through the control groups of another run names
    the folders of all runs on its way."""
    others = re.search(rf"\brn-(?!{run}\b)[0-9a-z]{{6,}}\b", line)
    return f"rn-{run}" in line and not others


def processes(run):
    """Programs of ours and of engines that carry the run's tag or folder, with their pids."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace") \
                if entry.name.isdigit() else ""
            is_ours = f"RN_RUN={run}\0".encode() in (entry / "environ").read_bytes() if line else False
        except OSError:
            continue
        if is_ours or names_run(line, run):
            found.append(f"{entry.name} {line}")
    return found


def picture(owner, without=()):
    """{section: lines}. `without`: pids of processes that are the test's own means."""
    run = owner.labs.run
    return {
        "files": own_lines(files(*TREES, owner.folder / "thesis.tex"), run),
        "users": pathlib.Path("/etc/passwd").read_text().splitlines(),
        "groups": pathlib.Path("/etc/group").read_text().splitlines(),
        "processes": sorted(line for line in processes(run) if int(line.split()[0]) not in without),
        **network(owner), **kernel_objects(run), **containers(owner)}


def changes(before, after):
    """Lines that came (+) or went (-), with their sections; empty for an unharmed machine."""
    return [f"{section}: {sign} {line}" for section in before
            for sign, lines, others in (("+", after[section], before[section]), ("-", before[section], after[section]))
            for line in lines if line not in others]


def bpf_objects(run_folder):
    """Ids of programs and maps that are pinned below the folder: [("prog", 7), …]."""
    found = []
    for pin in (path for path in run_folder.rglob("*") if path.is_file() or path.is_symlink()):
        for kind in ("prog", "map"):
            shown = subprocess.run(["bpftool", "-j", kind, "show", "pinned", str(pin)], capture_output=True, text=True)
            match = re.search(r'"id":(\d+)', shown.stdout)
            if shown.returncode == 0 and match:
                found.append((kind, int(match[1])))
    return found


def have_own_run_folder():
    """This process and its children from now on get an empty /run, so that an engine that stands for the owner's can
    lie at its usual place on a machine that has one, or none."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755,size=64m", "run", "/run"], check=True)


def shim_sockets(run_folder):
    """Sockets of the shims of the engine below the folder, as they see them (in /run/containerd)."""
    found = set()
    for pid in processes_of(["containerd-shim"], f"{run_folder}/"):
        inside = ["nsenter", f"--net=/proc/{pid}/ns/net", "ss", "-Hxl"]
        shown = subprocess.run(inside, capture_output=True, text=True).stdout
        found.update(pathlib.Path(path) for path in re.findall(r"/run/containerd/s/[0-9a-f]+", shown))
    return found


def is_bpf_alive(kind, number):
    return subprocess.run(["bpftool", "-j", kind, "show", "id", str(number)], capture_output=True).returncode == 0
