# SPDX-License-Identifier: Apache-2.0
"""What the simulator is told of a run of the testbed: topology, what others send, owners, guests. Not what transfers,
starts and saves took. docs/formats/replay.md has the fields."""
import statistics

import judge
import lines as topology
from lines import Bad

BEFORE_S = 30  # the site stands so long before it is played on
AFTER_S = 60
PAYLOAD = 1448 / 1514  # of a frame: TCP with time stamps, over Ethernet
COPY_SHARE = 0.95  # of a node's line (bed.py)
WIRE = 1500 / 1448 * (16384 + 22) / 16384  # what the node counts (IP, TCP, TLS) of a byte that is sent
BLOCK = 64 << 10
CPU_MILLI = (200, 100)  # students.py
NEEDED = ("topology", "nodes", "traffic", "played", "acts", "jobs", "about")


def check(record):
    if not isinstance(record, dict):
        raise Bad("it is no record: an object is expected")
    for name in NEEDED:
        if name not in record:
            raise Bad(f"it is no whole record: {name!r} is missing")
    for act in record["acts"]:
        for name in ("node", "kind", "notice_s", "begun", "given_back"):
            if act.get(name) is None:
                raise Bad(f"it is no whole record: an act lacks {name!r}")
        if act["node"] not in record["nodes"]:
            raise Bad(f"an act is of {act['node']!r}, which is no node of the record ({', '.join(record['nodes'])})")
    for name, job in record["jobs"].items():
        for attempt in job.get("attempts", []):
            if attempt["node"] and attempt["node"] not in record["nodes"]:
                raise Bad(f"{name} was on {attempt['node']!r}, which is no node of the record")


def carries(record):
    """Payload that each link carries for copies, beside other people's flows of a known rate."""
    lines = topology.parse(record["topology"])
    others = {}
    for flow in record["traffic"]:
        if flow.get("rate"):
            bits = topology.rate_bps(flow["rate"]) / PAYLOAD
        elif flow["kind"] == "small":
            bits = flow["bytes"] * 8 / (flow["every_ms"] / 1e3) / PAYLOAD
        else:
            raise Bad(f"the flow from {flow['from']} to {flow['to']} has no rate: what it leaves to copies is not "
                      "known")
        for name, way, _ in lines.path(flow["from"], flow["to"]):
            others[(name, way)] = others.get((name, way), 0) + bits
    found = []
    for one in lines.switches + lines.nodes:
        for way, rate in (("up", one.up), ("down", one.down)):
            if rate:
                left = max(rate - others.get((one.name, way), 0), rate / 1000) * PAYLOAD
                if way == "up" and one in lines.nodes:
                    left = min(left, rate * COPY_SHARE)  # of payload
                found.append({"link": f"{one.name} {way}", "bytes_per_s": left / 8})
    return found


def owners(record, begin):
    found = []
    for act in record["acts"]:
        report = act.get("report") or {}  # the node's own word of when it heard of it
        declared = max(act["begun"], report.get("declared_wall_ms", 0) / 1e3) - begin
        deadline = declared + (act["notice_s"] if act["kind"] in judge.SCHEDULED else 0)
        found.append({"node": act["node"], "kind": act["kind"], "declared_s": declared, "deadline_s": deadline,
                      "returns_s": max(act["given_back"] - begin, deadline + 0.5)})
    return found


def step_s(job, otherwise):
    """Of the guest, its share of a save included."""
    found = [(after[1] - before[1]) / (after[0] - before[0]) for attempt in job["attempts"]
             for before, after in zip(attempt["log"]["saved"], attempt["log"]["saved"][1:])
             if after[0] - before[0] == job["spec"]["save_every"]]
    return statistics.median(found) if found else otherwise


def known_until(record, attempt):
    """The owner's word that ended this stay; what its guest saved after that is not told."""
    began = attempt["log"]["began"]
    words = [act["begun"] for act in record["acts"] if act["node"] == attempt["node"] and act["begun"] > began]
    return min(words, default=float("inf")) if attempt["end"] in ("reclaimed", "lost") else float("inf")


def stays(record, job, begin):
    found = []
    for attempt in job["attempts"]:
        if attempt["log"]["began"] is None or not attempt["node"]:
            continue
        until = known_until(record, attempt)
        copies = [{"at_s": max(one["created"] - begin, 0), "holder": holder} for one in job["generations"]
                  for holder in one["holders"][:1] if one["source"] == attempt["node"]
                  and one["epoch"] == attempt["epoch"] and holder in record["nodes"]]
        found.append({"node": attempt["node"], "began_s": attempt["log"]["began"] - begin, "copies": copies,
                      "saves": [{"at_s": time - begin, "step": step} for step, time in attempt["log"]["saved"]
                                if time <= until]})
    return found


def guests(record, begin, machine):
    found = []
    known = [one for one in (step_s(job, None) for job in record["jobs"].values()) if one]
    otherwise = statistics.median(known) if known else 0.09
    for name, job in record["jobs"].items():
        spec, there = job["spec"], stays(record, job, begin)
        if not there:
            continue
        last = job["starts"][-1]["packets"][-1][0] if job["starts"] else None
        found.append({
            "name": name, "submitted_s": max(there[0]["began_s"] - machine["first_start_s"], 0), "steps": spec["steps"],
            "save_every": spec["save_every"], "step_s": step_s(job, otherwise), "state_bytes": spec["state_mib"] << 20,
            "step_bytes": spec["blocks"] * BLOCK, "handles_term": spec["handles_term"],
            "told_s": machine["told_s"] + (spec["state_mib"] << 20) / machine["told_rate"],
            "ended_s": last - begin if last and job["state"] == "succeeded" else 0, "stays": there})
    return sorted(found, key=lambda one: one["submitted_s"])


def replay(record, machine, guest_cpu_milli=400):
    """(what `reclaim-sim replay` reads, the wall clock's second that is its 0)."""
    check(record)
    begin = record["played"][0] - BEFORE_S
    told = ("told_s", "told_rate", "first_start_s")
    return {
        "topology": record["topology"], "seconds": record["played"][1] - begin + AFTER_S, "heartbeat_ms": 3000,
        "guest_cpu_milli": guest_cpu_milli, "cpu_milli": CPU_MILLI[0], "cpu_milli_min": CPU_MILLI[1],
        "copy_share": COPY_SHARE,
        "nodes": list(record["nodes"]), "carries": carries(record), "owners": owners(record, begin),
        "guests": guests(record, begin, machine),
        "machine": {name: value for name, value in machine.items() if name not in told}}, begin
