# SPDX-License-Identifier: Apache-2.0
"""A whole site with tiny guests, for tests that tell stories: who runs where, what was told, what is recorded."""
import contextlib
import dataclasses
import json
import os
import pathlib
import re
import shutil
import signal
import struct
import time

import chain
import rest
from labs import Labs, wait_until
from rn_site import Cli, Coordinator, Node, tiny_image

ALIVE = ("running", "noticed", "saving")


@dataclasses.dataclass
class Guest:
    name: str
    job: str
    save_every: int
    folder: object


class Site:
    """A coordinator in the lab `campus`, a node in each lab of `contracts`, up and connected; the tiny image."""

    def __init__(self, contracts, heartbeat_ms=1000, flags=(), disk="2G", warden_flags=None,
                 node_config=None):
        """The nodes look for time zones in `zones`, which is the test's to fill; UTC is always there. `warden_flags`:
        by laboratory. `node_config`: of every agent."""
        self.labs = Labs("campus", *contracts, disk=disk)
        try:
            self.coordinator = Coordinator(self.labs, heartbeat_ms=heartbeat_ms, flags=flags).start()
            self.heartbeat_s = heartbeat_ms / 1000
            self.rest = self.coordinator.rest()
            self.zones = self.labs.dir / "zones"
            self.nodes = {lab: Node(self.labs, lab, {"reserve_disk_mib": 64, **contract},
                                    config={"zone_folder": str(self.zones), **(node_config or {})},
                                    warden_flags=(warden_flags or {}).get(lab, ())) for lab, contract in
                          contracts.items()}
            for node in self.nodes.values():
                node.set_up(self.coordinator)
            self.cli = Cli(self.labs, self.coordinator)
            self.cli("image", "add", "base", tiny_image())
            self.wait("all nodes to be up", lambda: all(
                node["state"] == "up" and node["is_connected"] for node in self.rest.nodes().values()))
        except BaseException:
            self.down()
            raise
        self.guests = {}

    def down(self):
        self.labs.down()

    def make_zone(self, name, utc_offset_s):
        """A time zone with one offset for ever (RFC 8536): one whose minutes begin when a test wants them to."""
        self.zones.mkdir(exist_ok=True)
        head = b"TZif" + bytes(16) + struct.pack(">6I", 0, 0, 0, 0, 1, 4)
        (self.zones / name).write_bytes(head + struct.pack(">iBB", utc_offset_s, 0, 0) + b"RNT\0")

    # --- jobs

    def submit(self, name, steps, save_every, step_s, is_in_place=False, handles_term=False, ballast_kib=0, flags=()):
        return self.submit_command(
            name, save_every, chain.command(steps, save_every, step_s, is_in_place, handles_term),
            flags=["--checkpoint", "*.ckpt", "--temporary", "*.tmp", "--env", f"BALLAST_KIB={ballast_kib}", *flags])

    def submit_command(self, name, save_every, command, flags=()):
        """Any command in a folder that has chain.sh."""
        folder = self.labs.dir / f"student-{name}"
        if not folder.exists():
            chain.make_folder(folder)
        job = self.cli(
            "run", "--detach", "--name", name, "--cpus", "0.5", "--cpus-min", "0.1", "--memory", "64MB", "--disk",
            "64MB", *flags, "--", *command, cwd=folder).stdout.strip()
        self.guests[name] = Guest(name, job, save_every, folder)
        return self.guests[name]

    def job(self, name):
        return self.rest.job(self.guests[name].job)

    def attempts(self, name):
        return self.rest.attempts(self.guests[name].job)

    def generation(self, name):
        return self.job(name)["durable"]["generation"]

    def lab_of_node(self, node):
        return next((lab for lab, one in self.rest.nodes().items() if one["id"] == node), "")

    def lab_of(self, name):
        """Where the job runs; "" while it does not."""
        job = self.job(name)
        return self.lab_of_node(job["node"]) if job["state"] == "running" else ""

    def all_on(self, lab):
        return all(self.lab_of(name) == lab for name in self.guests)

    def told(self, name, attempt=None):
        """What an attempt (number as in its epoch; None: the newest) wrote to its standard output."""
        data = self.rest.log(self.guests[name].job, attempt)
        return chain.read(data.decode(errors="replace"))

    # --- waiting

    def wait(self, what, condition, timeout_s=60, every_s=0.1):
        """As wait_until; an answer that fails while the coordinator is away counts as not yet."""
        def tolerant():
            try:
                return condition()
            except (OSError, rest.Refused) as error:
                tolerant.last = error
                return False
        try:
            return wait_until(what, tolerant, timeout_s, every_s)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.picture()}") from None

    def picture(self):
        """For a failed wait: how everything stands. With RN_KEEP_LOGS=FOLDER the daemons' logs are copied there."""
        lines = []
        if "RN_KEEP_LOGS" in os.environ:
            self.keep_logs(os.environ["RN_KEEP_LOGS"])
        with contextlib.suppress(OSError, rest.Refused):
            for lab, node in self.rest.nodes().items():
                lines.append(f"{lab}: {node['state']}, connected {node['is_connected']}, lending {node['lending']}")
            for name in self.guests:
                job = self.job(name)
                lines.append(f"{name}: {job['state']} on {self.lab_of_node(job['node'])!r}: {job['reason']}; durable "
                             f"{job['durable']['generation']}")
                lines += [f"  attempt {one['epoch']} on {self.lab_of_node(one['node'])}: {one['state']}, end "
                          f"{one['end']}: {one['detail']}" for one in self.attempts(name)]
            lines += [f"{self.lab_of_node(one['node'])}: reclaim {one['id']} is {one['phase']}, sees {one['remains']}"
                      for one in self.rest.reclaims() if one["phase"] != "returned"]
            lines += [f"  {event['kind']}: {event['message']}" for event in self.rest.events()[-25:]]
        return "\n".join(lines)

    def keep_logs(self, folder):
        """All that the daemons wrote, a folder for each laboratory."""
        for lab in self.labs.labs:
            shutil.copytree(self.labs.dir / lab / "log", f"{folder}/{lab}", dirs_exist_ok=True)

    # --- the owner's record

    def last_reclaim(self, lab):
        """The newest record of the lab's owner; one without any time while there is none."""
        node = self.rest.nodes()[lab]["id"]
        found = [one for one in self.rest.reclaims() if one["node"] == node and one["kind"] != "lost"]
        return max(found, key=lambda one: one["declared_wall_ms"], default={"kind": "", "cleared_ns": 0})

    def status(self, lab):
        return json.loads(self.nodes[lab].owner("status", "--json").stdout)

    def sent(self, lab):
        """Bytes that have left the laboratory, with all headers."""
        counters = pathlib.Path(f"/proc/{self.nodes[lab].agent.pid}/net/dev").read_text()
        return int(re.search(r"eth0:((?:\s+\d+)+)", counters)[1].split()[8])

    def guest_processes(self, lab):
        """Pids in the control groups of the lab's guests, looked up by ourselves."""
        return set(self.guest_containers(lab))

    def guest_containers(self, lab):
        """The same with the container of each."""
        return self.nodes[lab].guest_containers()

    @contextlib.contextmanager
    def frozen(self, lab):
        """The lab's agent and container engine under SIGSTOP."""
        node = self.nodes[lab]
        pids = node.engine_pids()
        assert len(pids) >= 2, f"the engine of {lab} was not found"
        node.agent.freeze()
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
            node.agent.thaw()


def uptime_s():
    """The clock of chain.sh's lines."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
