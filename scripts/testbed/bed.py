# SPDX-License-Identifier: Apache-2.0
"""A bed: laboratories of scripts/labs.sh, re-plugged into the topology's tree of switches, with daemons. Everything is
tagged by its run's id, which begins with `tb`, so that whoever has lost it finds it again."""
import json
import os
import pathlib
import secrets
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "system" / "lib"))
import disciplines  # noqa: E402
import lines as topology  # noqa: E402
from capture import PORT as PEER_PORT  # noqa: E402
from labs import SCRIPT, Labs, wait_until  # noqa: E402
from lines import Bad  # noqa: E402
from rest import Refused  # noqa: E402
from rn_site import Cli, Coordinator, Node, program  # noqa: E402

PROGRAMS = ("reclaim", "reclaim-agent", "reclaim-coordinator", "reclaim-init", "reclaim-warden")
TOOLS = ("ip", "tc", "nft", "nsenter", "dockerd", "iperf3", "tcpdump", "setpriv")
LABS_ROOT = pathlib.Path(os.environ.get("RN_LABS_ROOT", "/tmp"))
NODE_DISK_MIB, NODE_MEMORY_MIB = 700, 250  # what a node takes: its engine, images, chunks
GUEST_SHARE = 0.9  # of a node's line: what is left is the owner's, so that no guest packet waits behind theirs
COPY_SHARE = 0.95  # of the line: payload, of which the agent plans nineteen twentieths
CONTRACT = {"notice_s": 20, "guest_cpu_milli": 400, "guest_memory_mib": 700, "guest_disk_mib": 640,
            "reserve_disk_mib": 64}


def check_machine(nodes):
    """Before anything is made."""
    if os.geteuid() != 0:
        raise Bad("needs root: it makes network namespaces, disks and containers; run it as root")
    absent = [tool for tool in TOOLS if not shutil.which(tool)]
    if absent:
        raise Bad(f"not installed: {', '.join(absent)}; run scripts/install-deps.sh")
    choose_build()
    free = shutil.disk_usage(LABS_ROOT).free >> 20
    if free < (wanted := 1024 + nodes * NODE_DISK_MIB):
        raise Bad(f"{LABS_ROOT} has {free} MiB free and {nodes} nodes take {wanted}: make room, or name another folder "
                  "by RN_LABS_ROOT")
    memory = int(next(line for line in open("/proc/meminfo") if line.startswith("MemAvailable")).split()[1]) >> 10
    if memory < (wanted := 512 + nodes * NODE_MEMORY_MIB):
        raise Bad(f"{memory} MiB of memory are free and {nodes} nodes take {wanted}: take fewer nodes (--nodes)")


def choose_build():
    """RN_BUILD, else the first of build/dev and build/ci that has all programs; said in RN_BUILD from then on."""
    own = os.environ.get("RN_BUILD")
    folders = [own] if own else [ROOT / "build" / "dev", ROOT / "build" / "ci"]
    for folder in map(pathlib.Path, folders):
        if all((folder / "apps" / name / name).exists() for name in PROGRAMS):
            os.environ["RN_BUILD"] = str(folder)
            return
    raise Bad(f"programs are not built in {' or '.join(map(str, folders))}: cmake --preset ci && "
              f"ninja -C build/ci {' '.join(PROGRAMS)}")


def studied_program():
    """The coordinator with other rules for rates. Bad if it is not built."""
    path = pathlib.Path(os.environ["RN_BUILD"]) / "apps" / "reclaim-coordinator" / "reclaim-coordinator-studied"
    if not path.exists():
        raise Bad(f"{path} is not built: ninja -C {os.environ['RN_BUILD']} {path.name}; or play --discipline "
                  f"{disciplines.OURS} alone")
    return path


def read_topology(file):
    """What check-topology passes; Bad with its words for anything else."""
    command = [program("reclaim-coordinator"), "check-topology", pathlib.Path(file).absolute(), "--state", "/absent"]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise Bad((done.stderr or done.stdout).strip())
    return topology.parse(pathlib.Path(file).read_text())


def beds():
    """Ids of all beds of this machine, whole or not. A run of another kind has a name of hexadecimal digits."""
    found = {path.name[3:] for path in LABS_ROOT.glob("rn-tb*") if path.is_dir()}
    listed = pathlib.Path("/run/netns")
    names = [path.name for path in listed.glob("rn-tb*-*")] if listed.is_dir() else []
    return sorted(found | {name.split("-")[1] for name in names})


def labs_command(verb, run):
    """`down` and `residue`, whatever state the run is in; answers subprocess.CompletedProcess."""
    return subprocess.run([str(SCRIPT), verb, run], stdout=subprocess.PIPE, text=True)


class Bed:
    def __init__(self, lines, nodes, topology_file, shaper="htb", contracts=None, heartbeat_ms=1000, flags=(),
                 peer=None, tell=print, discipline=disciplines.OURS):
        """`peer`: the host to which guests may send, for who looks at them from outside. `discipline`: how copies
        share lines; under another one than ours nobody holds them at their uplink."""
        self.discipline = discipline
        self.lines, self.shaper, self.tell = lines, shaper, tell
        self.names = [one.name for one in lines.nodes[:nodes]]
        self.hosts = [one.name for one in lines.nodes[nodes:]]
        self.run = f"tb{secrets.token_hex(3)}"
        self.contracts = {name: {**CONTRACT, **(contracts or {}).get(name, {})} for name in self.names}
        self.heartbeat_ms, self.flags = heartbeat_ms, list(flags)
        self.topology_file = pathlib.Path(topology_file).resolve()
        self.peer = peer
        self.labs = self.coordinator = self.rest = self.cli = None
        self.nodes = {}

    @property
    def dir(self):
        return LABS_ROOT / f"rn-{self.run}"

    # --- up

    def up(self, is_guarded):
        """Guarded: everything goes when this process ends, however it ends. Raises Bad when the room is not enough."""
        begun = time.monotonic()
        command_labs = ["campus", *self.names, *self.hosts]
        make = Labs if is_guarded else UnguardedLabs
        self.labs = make(*command_labs, disk="16G", run=self.run)
        self.write_state("starting")
        for command in topology.commands(self.lines, self.run, self.shaper):
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                raise Bad(f"{' '.join(command)}: {done.stderr.strip()}")
        self.check_reach()
        self.tell(f"{self.run}: {len(self.names)} nodes, {len(self.hosts)} plain hosts, {len(self.lines.switches) + 1} "
                  f"switches")
        copied = self.dir / "topology.yaml"
        shutil.copy(self.topology_file, copied)
        is_studied = self.discipline != disciplines.OURS
        flags = ["--topology", copied, *self.flags] + (["--study-rates", self.discipline] if is_studied else [])
        self.coordinator = (StudiedCoordinator if is_studied else Coordinator)(
            self.labs, heartbeat_ms=self.heartbeat_ms, flags=flags).start()
        self.rest = self.coordinator.rest()
        self.rest.timeout_s = 30  # processors are few and busy
        self.cli = Cli(self.labs, self.coordinator)
        for name in self.names:
            if self.peer:
                self.contracts[name]["network"] = [
                    {"prefix": f"{self.labs.addresses[self.peer]}/32", "port": PEER_PORT, "protocol": "udp"}]
            self.nodes[name] = BedNode(self, name)
            self.nodes[name].set_up(self.coordinator)
            self.tell(f"{name} joined from {self.nodes[name].address}")
        wait_until("all nodes to be up", self.all_are_up, 60)
        self.write_state("up")
        self.tell(f"{self.run}: up in {time.monotonic() - begun:.0f} s")

    def all_are_up(self):
        try:
            found = self.rest.nodes()
        except (OSError, Refused):
            return False  # not yet
        return len(found) == len(self.names) and all(
            node["state"] == "up" and node["is_connected"] and
            (node["lending"] == "open" or not self.contracts[name].get("lends", True)) for name, node in found.items())

    def check_reach(self):
        """One packet along the longest ways: a tree that was not put together is found here and not in a result."""
        first = self.labs.addresses[self.lines.nodes[0].name]
        for lab in [one.name for one in self.lines.nodes[1:]] + ["campus"]:
            wait_until(f"{lab} to reach {self.lines.nodes[0].name}", lambda lab=lab: self.labs.call(
                lab, ["ping", "-c1", "-W1", first], check=False).returncode == 0, 15)

    def write_state(self, state):
        nodes = {name: {"address": self.labs.addresses[name]} for name in self.names}
        text = {"state": state, "nodes": nodes, "hosts": {name: self.labs.addresses[name] for name in self.hosts},
                "coordinator": f"https://{self.labs.addresses['campus']}:7443", "shaper": self.shaper,
                "topology": str(self.topology_file), "build": os.environ["RN_BUILD"]}
        new = self.dir / "bed.json.new"
        new.write_text(json.dumps(text, indent=1) + "\n")
        os.replace(new, self.dir / "bed.json")

    def down(self):
        if self.labs:
            self.labs.down()
        else:
            labs_command("down", self.run)


class StudiedCoordinator(Coordinator):
    def executable(self):
        return studied_program()


class BedNode(Node):
    """Shown by the name that the topology gives it; guests get a share of the line that is told to the warden."""

    def __init__(self, bed, name):
        line = bed.lines.node(name).up
        flags = ["--uplink", f"eth0:{int(line * GUEST_SHARE / 1000)}kbit"] if line else []
        if line and bed.discipline == disciplines.OURS:
            flags += ["--transfers", f"eth0:{int(line * COPY_SHARE / 1000)}kbit"]
        super().__init__(bed.labs, name, bed.contracts[name], warden_flags=flags)

    def join(self, coordinator):
        token = coordinator.rest().join_token(self.lab)
        self.labs.call(self.lab, self.as_agent(self.agent_program(
            "join", coordinator.url, "--token", token, "--hostname", self.lab)))


class UnguardedLabs(Labs):
    """That outlive the process that made them."""

    def _up(self, command):
        at = command.index("--guard")
        super()._up(command[:at] + command[at + 2:])
