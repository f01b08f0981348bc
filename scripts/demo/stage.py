# SPDX-License-Identifier: Apache-2.0
"""The stage of the demo: the site, the two guests, what is said and checked, and the measurements for the table."""
import dataclasses
import itertools
import json
import os
import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "system" / "lib"))
import displacements  # noqa: E402
import guests  # noqa: E402
import table  # noqa: E402
from capture import PORT, Capture  # noqa: E402
from labs import Labs, TimedOut, new_run, wait_until  # noqa: E402
from rest import Refused  # noqa: E402
from rn_site import Cli, Coordinator, Node, base_image  # noqa: E402

STARTED = time.monotonic()
SAVE_EVERY = 40
NOTICE_S = 20
TABLE_NOTES = """
Seen by a peer to which each guest sends a packet with its step every 5 ms, stamped by the kernel:
  last packet  from the owner's command to the lab's last guest packet (cable pulled: not seen, -)
  silence      from the guest's last packet before to its first one anywhere after; most of it is Python importing
               PyTorch with a part of a core
  downtime     from the guest's last packet before to its first one with a step not done before
  steps lost   steps done before and done again, of all that it had done; work lost: the time these steps had taken
By the node's record: cleared, from the owner's command until nothing of the guests is left on the node. Both times
from the owner's command have its program's start in them; "cut after" in an answer counts from where the program has
begun its work, and is the one map write after which no packet passes.
By the network device: sent, all that the lab sent from the command until the guests ran elsewhere."""
GUESTS = ("cnn", "transformer")


def say(text=""):
    tell(f"[{time.monotonic() - STARTED:6.1f} s] {text}" if text else "")


def title(text):
    tell(f"\n── {text} " + "─" * max(0, 100 - len(text)))


def tell(line):
    """Whoever read along may be gone (`| head`, `| tee` at a Ctrl-C): the story ends then, but not what is said of its
    end, which must not stand in the way of taking everything down."""
    try:
        print(line, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


def number_of(epoch):
    """An attempt's number, from its epoch "DATABASE.ATTEMPT"."""
    return int(epoch.split(".")[1])


@dataclasses.dataclass
class Act:
    """One reclaim or loss, for the table. Times are the machine's wall clock, seconds."""

    name: str
    lab: str
    begun: float
    command_s: float = None  # how long the owner's command took
    cut_s: float = None  # from the command to the guests' last packet, seen by the peer
    cleared_s: float = None  # from the command to cleared, by the node's record
    bytes_sent: int = None  # by the lab, all together, until the guests run elsewhere
    cut: float = None  # when the cable was pulled: what comes later is a zombie's


class Stage:
    def __init__(self, steps, step_ms=100):
        self.steps, self.step_ms = steps, step_ms
        self.checks, self.failures, self.acts = 0, [], []
        self.jobs, self.runs, self.folders = {}, {}, {}
        self.seen = {guest: displacements.Starts(guest) for guest in GUESTS}
        self.run, self.labs = new_run(), None
        self.reference = {}
        self.own_interfaces = {}  # of each lab, before it had a guest

    # --- checks

    def check(self, is_true, text):
        self.checks += 1
        say(f"{'  ✓' if is_true else '  ✗ FAILED:'} {text}")
        if not is_true:
            self.failures.append(text)
        return is_true

    def wait(self, what, condition, timeout_s=60, every_s=0.1):
        """A wait that fails is a failed check, and the story goes on as far as it can."""
        try:
            return wait_until(what, condition, timeout_s, every_s)
        except TimedOut as error:
            self.check(False, str(error))
            return None

    # --- setting up

    def build_labs(self):
        self.labs = Labs("campus", "lab-a", "lab-b", "storage", "peer", rate="1gbit", disk="10G", run=self.run)

    def build_site(self):
        self.coordinator = Coordinator(
            self.labs, heartbeat_ms=1000, flags=["--min-residence-s", 5, "--home-settle-s", 5]).start()
        self.rest = self.coordinator.rest()
        say(f"coordinator at {self.coordinator.url}, state in {self.coordinator.state}")
        peer = [{"prefix": f"{self.labs.addresses['peer']}/32", "port": PORT, "protocol": "udp"}]
        common = {
            "notice_s": NOTICE_S, "network": peer, "guest_memory_mib": 3000, "guest_disk_mib": 2048,
            "reserve_disk_mib": 64}
        contracts = {
            "lab-a": {**common, "guest_cpu_milli": 1000},
            "lab-b": {**common, "guest_cpu_milli": 500, "guest_cpu_each_milli": 250},
            "storage": {"lends": False, "reserve_disk_mib": 64}}
        self.nodes = {lab: Node(self.labs, lab, contract) for lab, contract in contracts.items()}
        for lab, node in self.nodes.items():
            node.set_up(self.coordinator)
            self.own_interfaces[lab] = node.interfaces()
            say(f"{lab} joined from {node.address}")
        say("storage lends nothing and keeps copies; beside them, peer listens to a packet of each guest every 5 ms")
        self.cli = Cli(self.labs, self.coordinator)
        wait_until("all nodes to be up", lambda: sum(
            node["state"] == "up" and node["is_connected"] for node in self.rest.nodes().values()) == 3, 60)
        archive = base_image()
        say(f"listing the base image ({pathlib.Path(archive).stat().st_size >> 20} MiB)")
        self.cli("image", "add", "base", archive, timeout_s=300)

    def bring_image(self):
        """A short job on each lending laboratory: brings the image there, and then shows a start with it cached."""
        say("bringing the image to lab-a and lab-b by a first small job on each")
        labs = ("lab-a", "lab-b")
        first = {lab: self.small_job(lab) for lab in labs}
        for lab in labs:
            wait_until(f"the first job on {lab}", lambda: self.rest.job(first[lab])["state"] == "succeeded", 900)
            at = {event["kind"]: event["at_wall_ms"] for event in self.rest.events(first[lab])}
            took_s = (at["attempt.preparing"] - at["attempt.fetching"]) / 1000
            say(f"{lab}: image brought, verified and loaded in {took_s:.1f} s")
        begun = time.time()
        job = self.small_job("lab-a")
        wait_until("the second job", lambda: self.rest.job(job)["started_wall_ms"], 60)
        started = self.rest.job(job)
        say(f"image cached: submit to running in {started['started_wall_ms'] - started['submitted_wall_ms']} ms "
            f"({time.time() - begun:.1f} s with the command and our polling)")
        wait_until("lab-a to be empty again", lambda: self.rest.job(job)["state"] == "succeeded", 120)

    def small_job(self, lab):
        folder = self.labs.dir / "small"
        folder.mkdir(exist_ok=True)
        return self.cli("run", "-d", "--stateless", "--lab", lab, "--memory", "512MB", "--disk", "64MB", "--", "python",
                        "-c", "import torch, sklearn", cwd=folder).stdout.strip()

    def start_references(self):
        """The same trainings, undisturbed and outside of the site."""
        root = self.labs.dir / "reference-root"
        guests.unpack_image(base_image(), root)
        for guest in GUESTS:
            folder = guests.make_folder(self.labs.dir / f"reference-{guest}", guest)
            arguments = ["--steps", str(self.steps), "--save-every", str(SAVE_EVERY)]
            popen = guests.run_undisturbed(root, folder, arguments, self.labs.dir / f"reference-{guest}.log",
                                           self.labs.run)
            self.reference[guest] = (folder, popen)

    def submit(self, guest):
        folder = guests.make_folder(self.labs.dir / f"student-{guest}", guest)
        command = [
            "run", "--image", "base", "--name", guest, "--cpus", "0.5", "--cpus-min", "0.1", "--memory", "1GB",
            "--disk", "512MB", "--peer", f"{self.labs.addresses['peer']}:{PORT}/udp", "--",
            "python", "train.py", "--steps", str(self.steps), "--save-every", str(SAVE_EVERY), "--step-ms",
            str(self.step_ms), "--peer", f"{self.labs.addresses['peer']}:{PORT}", "--peer-interval-ms", "5"]
        say(f"$ reclaim {' '.join(command)}")
        self.folders[guest] = folder
        self.runs[guest] = self.cli.spawn(f"run-{guest}", *command, cwd=folder)
        job = wait_until(f"{guest} to be submitted", lambda: next(
            (job for job in self.rest.jobs() if job["spec"]["name"] == guest), None), 60)
        self.jobs[guest] = job["id"]

    # --- looking

    def job(self, guest):
        return self.rest.job(self.jobs[guest])

    def lab_of(self, guest):
        """Where the job runs, "" while it does not."""
        job = self.job(guest)
        if job["state"] not in ("running", "noticed", "saving"):
            return ""
        return next((lab for lab, node in self.rest.nodes().items() if node["id"] == job["node"]), "")

    def all_run_at(self, lab):
        return all(self.lab_of(guest) == lab for guest in GUESTS)

    def generation(self, guest):
        return self.job(guest)["durable"]["generation"]

    def attempts(self, guest):
        return self.rest.attempts(self.jobs[guest])

    def told(self, guest, epoch):
        """What the attempt wrote to its standard output, as far as it is here."""
        try:
            log = self.rest.log(self.jobs[guest], number_of(epoch))
        except (OSError, Refused):
            log = b""
        return guests.told(log.decode(errors="replace"))

    def last_generation_before(self, guest, attempt):
        """The newest that was durable when the attempt was placed: of any attempt before it."""
        known = [one["generation"] for one in self.rest.generations(self.jobs[guest])]
        return max((one["generation"] for one in known
                    if number_of(one["epoch"]) < number_of(attempt["epoch"])), default=0)

    def sent_bytes(self, lab):
        answer = self.labs.call(lab, ["ip", "-j", "-s", "link", "show", "eth0"]).stdout
        return json.loads(answer)[0]["stats64"]["tx"]["bytes"]

    def packets_from(self, lab, since):
        new = itertools.takewhile(lambda packet: packet.time >= since, reversed(self.capture.packets()))
        return [packet for packet in new if packet.source == self.labs.addresses[lab]][::-1]

    def of_guests(self, lab):
        """Processes and network interfaces of the lab's guests, looked up in the kernel by ourselves."""
        node = self.nodes[lab]
        return node.guest_containers(), node.interfaces() - self.own_interfaces[lab]

    def check_free(self, lab):
        processes, links = self.of_guests(lab)
        self.check(not processes and not links, f"{lab} is free, looked up from outside in its kernel: "
                   f"{len(processes)} processes in guests' control groups, {len(links)} guests' interfaces")

    def starts(self, guest):
        """Its starts that the peer has seen, oldest first."""
        return self.seen[guest].take(self.capture.packets())

    def last_step(self, guest):
        """The highest that the peer has seen."""
        return max((start.packets[-1][1] for start in self.starts(guest)), default=0)

    def has_new_step(self, act, guest):
        one = self.displaced(act, guest)
        return one is not None and one.downtime_s is not None

    def displaced(self, act, guest, until=float("inf")):
        """What the act cost this guest, by its packets; None if it was not there."""
        return displacements.displacement(self.starts(guest), act.begun, until, act.cut)

    # --- an act: what the table says about it

    def begin(self, name, lab):
        act = Act(name, lab, time.time())
        act.bytes_sent = -self.sent_bytes(lab)
        self.acts.append(act)
        return act

    def finish(self, act):
        """After the guests run elsewhere: what the peer saw, what the node recorded, what went over its cable."""
        act.bytes_sent += self.sent_bytes(act.lab)
        seen = self.packets_from(act.lab, act.begun)
        if seen:
            act.cut_s = seen[-1].time - act.begun
        node = self.rest.nodes()[act.lab]["id"]
        since = act.begun * 1000 - 1500  # the node's clock is read a moment before its record is made
        records = [record for record in self.rest.reclaims()
                   if record["node"] == node and record["declared_wall_ms"] >= since and record["cleared_ns"]]
        if records:
            record = min(records, key=lambda one: one["declared_wall_ms"])
            after_s = (record["cleared_ns"] - record["declared_ns"]) / 1e9
            act.cleared_s = record["declared_wall_ms"] / 1000 + after_s - act.begun

    def print_table(self):
        rows = []
        for number, act in enumerate(self.acts):
            until = self.acts[number + 1].begun if number + 1 < len(self.acts) else float("inf")
            of_act = [act.name, act.lab, table.seconds(act.cut_s), table.seconds(act.cleared_s),
                      table.mebibytes(act.bytes_sent)]
            for guest in GUESTS:
                rows.append(of_act + [guest] + self.cells_of(self.displaced(act, guest, until)))
                of_act = [""] * len(of_act)
        columns = ["what", "lab", "last packet", "cleared", "sent", "guest", "silence", "downtime", "steps lost",
                   "work lost"]
        print(table.render(columns, rows), flush=True)
        print(TABLE_NOTES, flush=True)

    @staticmethod
    def cells_of(one):
        if one is None:
            return ["-"] * 4
        lost = "-" if one.lost_steps is None else f"{one.lost_steps} of {one.step}"
        return [table.seconds(one.silence_s), table.seconds(one.downtime_s), lost, table.seconds(one.lost_s)]

    def close(self):
        """Whatever was begun: a laboratory that was interrupted in its making has undone itself."""
        if self.labs is None:
            return
        self.labs.down()  # ends the references too
        for _, popen in self.reference.values():
            popen.wait(30)
        left = self.labs.residue()
        self.check(not left, f"looked for what is left of namespaces, processes, containers, mounts, cgroups and BPF "
                   f"objects: {len(left)}")
        for line in left:
            say(f"    left behind: {line}")


def open_capture(stage):
    stage.capture = Capture(stage.labs)
