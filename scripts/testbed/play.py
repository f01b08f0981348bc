# SPDX-License-Identifier: Apache-2.0
"""Plays a scenario: other people's traffic alone, then with guests and owners, then alone again; writes down all that
was seen (record.json) and what it means (result.json, result.txt)."""
import concurrent.futures
import json
import os
import pathlib
import platform
import re
import subprocess
import threading
import time

import bed as beds
import bystanders
import daemon_log
import disciplines
import judge
import lines as topology
import rest
import scenario
import summary
from capture import Capture
from displacements import Starts
from labs import ROOT, wait_until
from lines import Bad
from rn_site import python_image
from students import ENDED, Students

PEERS_PORT = 7445
COUNT = f"""table inet testbed {{ chain out {{ type filter hook output priority 5; policy accept;
tcp dport {PEERS_PORT} counter comment "sent"
tcp sport {PEERS_PORT} counter comment "served"
}}
}}
"""
LOOK_S = 2.0
HEARTBEAT_MS = 3000  # three missed ones are a loss, which processors that are busy with other things must not make


def say(text):
    print(text, flush=True)


class Run:
    discipline = None  # of a site that is not ours

    def __init__(self, found, flags, discipline=disciplines.OURS):
        self.scenario, self.flags, self.discipline = found, flags, discipline
        self.minutes = flags.minutes or found["minutes"]
        self.seconds = self.minutes * 60
        self.faults, self.acts, self.baseline = [], [], []
        self.lock = threading.Lock()
        self.errands = concurrent.futures.ThreadPoolExecutor(32)
        beds.choose_build()
        if discipline != disciplines.OURS:
            beds.studied_program()
        self.lines = beds.read_topology(found["topology"])
        count = topology.count_nodes(self.lines, found.get("nodes"))
        names = [one.name for one in self.lines.nodes]
        self.check_names(names, names[:count])
        self.schedule, self.left_out, self.made_of = scenario.schedule(
            found, names[:count], flags.seed, self.seconds, flags.traces)
        beds.check_machine(count)
        contract = {**found.get("contract", {}), "notice_s": found["mix"]["notice_s"]}
        contracts = {name: {**contract, **found.get("contracts", {}).get(name, {})} for name in names[:count]}
        self.bed = beds.Bed(
            self.lines, count, found["topology"], found.get("shaper", "htb"), contracts, peer=found["peer"],
            heartbeat_ms=HEARTBEAT_MS, tell=self.tell, discipline=discipline)
        self.begun = time.monotonic()

    def check_names(self, names, with_daemons):
        ends = [flow[end] for flow in self.scenario.get("traffic", []) for end in ("from", "to")]
        owned = self.scenario["owners"].get("nodes", {})
        if "fills" in self.scenario["owners"]:
            ends.append(self.scenario["owners"]["fills"]["to"])
        taken = self.scenario["owners"].get("take", [])
        for name in [self.scenario["peer"], *ends, *self.scenario.get("contracts", {}), *owned, *taken]:
            if name not in names:
                raise Bad(f"the scenario names {name!r}, which is no node of its topology; there are "
                          f"{', '.join(names)}")
        if self.scenario["peer"] in with_daemons:
            raise Bad(f"peer: {self.scenario['peer']} has daemons of its own; name a plain host (nodes: N leaves those "
                      "after the first N plain)")

    def tell(self, text):
        say(f"[{time.monotonic() - self.begun:7.1f} s] {text}")

    def fault(self, text):
        with self.lock:
            self.faults.append(text)
        self.tell(f"FAULT {text}")

    # --- setting up

    def set_up(self):
        self.begun = time.monotonic()
        self.bed.up(is_guarded=True)
        self.bed.cli("image", "add", "python", python_image(), timeout_s=300)
        self.tell("each node brings the image by a first small job")
        folder = self.bed.dir / "first"
        folder.mkdir()
        jobs = [self.bed.cli(
            "run", "--detach", "--stateless", "--image", "python", "--lab", name, "--cpus", "0.2", "--cpus-min", "0.1",
            "--memory", "64MB", "--disk", "32MB", "--", "python", "-c", "pass", cwd=folder).stdout.strip()
            for name in self.lending()]
        wait_until("every node to have the image", lambda: all(map(self.has_ended, jobs)), 600, 0.5)
        for name in self.bed.names:
            self.bed.labs.call(name, ["nft", "-f", "-"], text_in=COUNT)
        self.capture = Capture(self.bed.labs, peer=self.bed.peer)
        self.flows = bystanders.start_all(self.bed.labs, self.scenario.get("traffic", []), self.flags.seed)
        self.own = {act.node: None for act in self.schedule if act.fills}
        for number, node in enumerate(self.own):
            self.own[node] = bystanders.OwnTraffic(
                self.bed.labs, node, self.scenario["owners"]["fills"]["to"], number)
        self.ids = {name: node["id"] for name, node in self.bed.rest.nodes().items()}
        self.students = Students(self.bed, self.scenario["jobs"], self.flags.seed)

    def has_ended(self, job):
        try:
            return self.bed.rest.job(job)["state"] in ENDED
        except (OSError, rest.Refused):
            return False  # a busy machine answers late

    def lending(self):
        return [name for name in self.bed.names if self.bed.contracts[name].get("lends", True)]

    def sent(self, node):
        """Bytes to and from other agents' port that left the node: (as who copies, as who is copied from)."""
        listed = self.bed.labs.call(node, ["nft", "list", "table", "inet", "testbed"]).stdout
        return [int(one) for one in re.findall(r"counter packets \d+ bytes (\d+)", listed)]

    # --- the three parts

    def undisturbed_traffic(self):
        seconds = self.scenario.get("baseline_s", 20)
        if not self.flows or not seconds:
            return
        self.tell(f"other people's traffic alone for {seconds:g} s")
        begun = time.time()
        time.sleep(seconds)  # it is measured for so long
        self.baseline.append([begun, time.time()])

    def play(self):
        self.tell(f"{len(self.schedule)} reclaims in {self.minutes:g} minutes")
        self.played = [time.time(), None]
        begun, waiting, errands, looked = time.monotonic(), list(self.schedule), [], 0.0
        while (now := time.monotonic() - begun) < self.seconds:
            while waiting and waiting[0].at_s <= now:
                errands.append(self.errands.submit(self.owner, waiting.pop(0)))
            if time.monotonic() - looked >= LOOK_S:
                looked = time.monotonic()
                self.look(may_submit=True)
            time.sleep(0.05)  # the schedule's own grain
        for errand in errands:
            errand.result(120)
        self.tell("the last owner has given back; the jobs are left to end")
        deadline = time.monotonic() + 120 + self.longest_job_s() * 3
        while self.students.alive() and time.monotonic() < deadline:
            self.look(may_submit=False)
            time.sleep(LOOK_S)  # the rate of looking
        self.look(may_submit=False)
        self.played[1] = time.time()

    def longest_job_s(self):
        jobs = self.scenario["jobs"]
        return jobs["steps"][1] * (jobs["step_ms"] / 1e3 + 0.02)

    def look(self, may_submit):
        try:
            self.students.look()
            if may_submit and self.students.alive() < self.scenario["jobs"]["at_once"]:
                self.students.submit()
        except (OSError, rest.Refused) as error:
            self.fault(f"the coordinator did not answer: {error}")
        except subprocess.CalledProcessError as error:
            self.fault(f"submit: {error.stderr[-300:]}")

    # --- an owner

    def owner(self, act):
        about = {"node": act.node, "kind": act.kind, "notice_s": act.notice_s, "report": None, "sent": None,
                 "fills": act.fills}
        try:
            sent = self.sent(act.node)
            about["begun"] = time.time()
            self.tell(f"{act.node}: {act.kind}" + (f", {act.notice_s:g} s" if act.notice_s else "") +
                      (", and fills the line" if act.fills else ""))
            if act.fills:
                self.own[act.node].begin()
            self.command(act)
            about["command_s"] = time.time() - about["begun"]
            time.sleep(max(0, about["begun"] + act.notice_s + act.hold_s - time.time()))  # the owner works
            about["report"] = self.report(act, about["begun"]) if act.kind != "lost" else None
            about["sent"], about["served"] = [now - before for now, before in zip(self.sent(act.node), sent)]
            about["given_back"] = time.time()
            if act.kind == "lost":
                self.bed.labs.link(act.node, up=True)
            else:
                self.bed.nodes[act.node].owner("release")
        except (OSError, rest.Refused, subprocess.SubprocessError, AssertionError) as error:
            self.fault(f"{act.node}: {act.kind}: {error} {(getattr(error, 'stderr', '') or '')[-300:]}")
            return
        finally:
            if act.fills and self.own[act.node].client:
                self.own[act.node].end()
        with self.lock:
            self.acts.append(about)

    def command(self, act):
        words = {"announced": ["reclaim", "--in", f"{act.notice_s}s"], "notice": ["reclaim"],
                 "emergency": ["reclaim", "--now"]}
        if act.kind == "lost":
            self.bed.labs.link(act.node, up=False)
        else:
            self.bed.nodes[act.node].owner(*words[act.kind])

    def report(self, act, begun):
        """The node's own record of this reclaim; a fault if it does not say that the machine is free."""
        node = self.ids[act.node]

        def newest():
            try:
                reclaims = self.bed.rest.reclaims()
            except (OSError, rest.Refused):
                return None  # asked again
            found = [one for one in reclaims if one["node"] == node and one["kind"] != "lost"
                     and one["declared_wall_ms"] / 1e3 >= begun - 1]
            return next((one for one in found if one["cleared_ns"]), None)
        try:
            return wait_until(f"{act.node} to report that it is cleared", newest, 15, 0.2)
        except AssertionError as error:
            self.fault(str(error))
            return None

    # --- afterwards

    def record(self):
        packets = self.capture.packets()
        starts = {name: Starts(name).take(packets) for name in self.students.jobs}
        names = {node: name for name, node in self.ids.items()}
        events = [event for event in self.bed.rest.events() if event["kind"].startswith("evacuation.")]
        kinds = [event["kind"] for event in events]
        return {
            "about": self.about(), "topology": pathlib.Path(self.scenario["topology"]).read_text(),
            "nodes": {name: self.bed.labs.addresses[name] for name in self.bed.names},
            "traffic": self.scenario.get("traffic", []), "baseline": self.baseline, "played": self.played,
            "acts": sorted(self.acts, key=lambda act: act["begun"]), "jobs": self.students.record(names, starts),
            "copies": self.copies(names),
            "flows": [flow.record() for flow in self.flows], "own": [one.record() for one in self.own.values()],
            "faults": self.faults,
            "deadlines": {kind: kinds.count(kind) for kind in set(kinds)}, "promises": judge.promises(events)}

    def copies(self, names):
        """Of generations, by their senders' logs."""
        return [{"node": node, "to": names.get(one["peer"], ""), "job": one["job"], "at": at,
                 "generation": int(one["generation"]), "bytes": int(one["bytes"])} for node in self.bed.names
                for at, one in daemon_log.timed_events(self.bed.nodes[node].agent.output(), "generation.copied")]

    def about(self):
        commit = subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=10"],
                                capture_output=True, text=True).stdout.strip()
        model = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
        return {"scenario": pathlib.Path(self.flags.scenario).stem, "seed": self.flags.seed, "minutes": self.minutes,
                "owners": self.made_of, "left_out": self.left_out, "nodes": len(self.bed.names),
                "topology": pathlib.Path(self.scenario["topology"]).name, "shaper": self.bed.shaper, "commit": commit,
                "discipline": self.discipline,
                "machine": f"{os.cpu_count()} cores of {model[1] if model else 'unknown'}, {platform.release()}",
                "load": " ".join(f"{one:.1f}" for one in os.getloadavg()), "when": time.strftime("%Y-%m-%d %H:%M %Z")}


def write(out, record):
    result = judge.judge(record)
    out.mkdir(parents=True, exist_ok=True)
    (out / "record.json").write_text(json.dumps(record) + "\n")
    (out / "result.json").write_text(json.dumps(result, indent=1) + "\n")
    (out / "result.txt").write_text(summary.text(result))
    return result


def main(flags, take_no_interruption, take_interruptions):
    found = scenario.read(flags.scenario)
    out = flags.out or pathlib.Path(f"testbed-{flags.scenario.stem}-{flags.seed}")
    if len(flags.discipline) == 1:
        return play_one(Run(found, flags, flags.discipline[0]), out, take_no_interruption)
    if flags.keep:
        raise Bad("--keep leaves one bed up: play one discipline with it")
    code = 0
    runs = [Run(found, flags, name) for name in flags.discipline]  # each is looked at before the first is played
    for run in runs:
        say(f"discipline {run.discipline}: {disciplines.WORDS[run.discipline]}")
        take_interruptions()  # the bed before took none while it went down
        code |= play_one(run, out / run.discipline, take_no_interruption)
    disciplines.write(out)
    say((out / "disciplines.txt").read_text())
    return code


def play_one(run, out, take_no_interruption):
    flags = run.flags
    try:
        run.set_up()
        run.undisturbed_traffic()
        run.play()
        run.undisturbed_traffic()
        record = run.record()
        for flow in [*run.flows, *run.own.values()]:
            flow.stop()
        run.capture.stop()
    finally:
        take_no_interruption()
        if not flags.keep:
            run.bed.down()
    if not flags.keep:
        record["faults"] += [f"left behind: {line}" for line in run.bed.labs.residue()]
    result = write(out, record)
    say((out / "result.txt").read_text())
    say(f"written to {out}")
    return 1 if result["faults"] or result["jobs"]["wrong"] else 0
