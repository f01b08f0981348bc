# SPDX-License-Identifier: Apache-2.0
"""What a run of the testbed shows, from its record and nothing else: times are the machine's wall clock in seconds.

    judge.py RECORD.json      judges a record again

docs/testbed.md has the definitions."""
import json
import math
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "system" / "lib"))
import guest  # noqa: E402
import lines as topology  # noqa: E402
from displacements import Start, displacement  # noqa: E402

SCHEDULED = ("announced", "notice")
GOODPUT = 0.9  # of a line, for the question whether something fits
SLACK_S = 0.05  # of a deadline, for the clock of another process
HARM_GOAL = 0.01  # to others' traffic while nobody is taken back
OWN_RAMP_S = 1  # until an owner's new transfer goes at its speed
CUT_LOOK_S = 5  # how long after an emergency's command a packet still counts as late


def quantile(samples, q):
    """Nearest rank; None of nothing."""
    return sorted(samples)[max(0, math.ceil(q * len(samples)) - 1)] if samples else None


def spread(samples):
    samples = [one for one in samples if one is not None]
    return {"n": len(samples), "p50": quantile(samples, 0.5), "p99": quantile(samples, 0.99),
            "max": max(samples, default=None)}


# --- displacements

def starts_of(job):
    return [Start("", one["source"], [tuple(packet) for packet in one["packets"]]) for one in job["starts"]]


def old_attempt(job, node, at):
    """The attempt that was on the node at that time, by its own log."""
    found = [one for one in job["attempts"] if one["node"] == node and one["log"]["began"] is not None
             and one["log"]["began"] <= at]
    return found[-1] if found else None


def saved_step(job, at):
    """Of the newest save, of any attempt, that was over by then; 0 for none."""
    return max((save for one in job["attempts"] for save, time in one["log"]["saved"] if time <= at), default=0)


def durable_at(job, at):
    """The newest generation whose row was there at that time."""
    return max((one for one in job["generations"] if one["committed"] <= at), key=lambda one: one["committed"],
               default=None)


def resumed_from(job, old):
    """The generation from which the attempt after `old` went on; None while there is none, or if it began anew."""
    later = job["attempts"][job["attempts"].index(old) + 1:]
    number = next((one["resumed"] for one in later if one["log"]["began"] is not None), 0)
    return next((one for one in job["generations"] if number and one["generation"] == number), None)


def delta_of(job, first, last):
    """Bytes that the destination lacks: all of it if it has nothing."""
    spec = job["spec"]
    if first == 0:
        return spec["state_mib"] << 20
    return guest.dirty_bytes(spec["state_mib"], spec["blocks"], first, last) if last > first else 0


def lacking(job, holders, at, last):
    """Bytes that the best provided of the holders lacked of the save at step `last`, at that time."""
    had = [saved_step(job, one["created"]) for one in job["generations"]
           if one["committed"] <= at and set(one["holders"]) & set(holders)]
    return delta_of(job, max(had, default=0), last)


def worth_s(known, old, ready):
    """Work that the last save had beyond what was durable at the command, in seconds of the guest; 0 if there was no
    such save."""
    since = max(known["created"] if known else 0, old["log"]["began"])
    return max(0.0, ready - since) if ready < math.inf else 0.0


def displaced_by(record, act, ended_too=False):
    """What the act cost each guest that was on the machine and had work left; `ended_too`: also one that did its last
    step there and was started once more all the same."""
    found = []
    address = record["nodes"][act["node"]]
    cut = act["begun"] if act["kind"] == "lost" else None
    for name, job in record["jobs"].items():
        starts = starts_of(job)
        before = [one for one in starts if one.first < act["begun"]]
        if not before or before[-1].source != address or before[-1].packets[-1][0] < act["begun"] - 2:
            continue
        cost = displacement(starts, act["begun"], cut=cut)
        old = old_attempt(job, act["node"], act["begun"])
        if cost is None or old is None or old["end"] in ("", "succeeded"):
            continue
        if cost.step >= job["spec"]["steps"] and not (ended_too and cost.restored is not None):
            continue
        found.append(_displaced(record, act, name, job, cost, old, starts))
    return found


def _displaced(record, act, name, job, cost, old, starts):
    deadline = act["begun"] + act["notice_s"]
    last_save = max((step for step, time in old["log"]["saved"]), default=old["log"]["begin"])
    last_save_at = max((time for _, time in old["log"]["saved"]), default=act["begun"])
    after = [one for one in starts if one.first >= act["begun"]]
    resumed = resumed_from(job, old)
    known = durable_at(job, act["begun"])
    known_step = saved_step(job, known["created"]) if known else 0
    # One that saves when it is told has nothing to send before that save is over, and if it never is, never. Its
    # word may be missing, for it is ended as soon as the save is there; the generation made of it is not.
    if job["spec"]["handles_term"] and last_save_at <= act["begun"]:
        is_made = resumed and resumed["created"] > act["begun"] and after
        last_save_at = resumed["created"] if is_made else math.inf
        last_save = max(last_save, after[0].restored) if is_made else last_save
    is_kept = after and after[0].restored >= last_save and last_save_at < math.inf
    is_new_at_once = after and any(step > cost.step for _, step in after[0].packets)
    holders = [one for one in (resumed or {}).get("holders", []) if one != act["node"] and one in record["nodes"]]
    return {
        "job": name, "kind": act["kind"], "node": act["node"], "begun": act["begun"], "deadline": deadline,
        "to": holders[0] if holders else None, "ready": max(act["begun"], last_save_at),
        "known_step": known_step, "last_save": last_save,
        "delta": delta_of(job, known_step, last_save), "fills": act.get("fills", False),
        "durable_at": resumed["committed"] if resumed else None,
        "worth_s": worth_s(known, old, last_save_at),
        "lacking": lacking(job, holders, act["begun"], last_save),
        "is_inside": bool(is_kept and resumed and resumed["committed"] <= deadline + SLACK_S),
        "restored": cost.restored, "silence_s": cost.silence_s, "downtime_s": cost.downtime_s,
        "lost_steps": cost.lost_steps, "lost_s": cost.lost_s,
        "again_before_new_work": bool(after and len(after) > 1 and not is_new_at_once),
        "resumed_at": after[0].first if after else None}


# --- what would have fitted

def _capacities(lines, flows):
    """{(line, direction): bits per second that evacuations may count on}: GOODPUT less what other people send at a
    fixed rate. Who sends all that TCP gets counts for nothing: what he leaves is for TCP to say."""
    found = {}
    for one in lines.switches + lines.nodes:
        for way, rate in (("up", one.up), ("down", one.down)):
            if rate:
                found[(one.name, way)] = rate * GOODPUT
    for flow in flows:
        if flow.get("rate"):
            for name, way, _ in lines.path(flow["from"], flow["to"]):
                found[(name, way)] = max(0.0, found[(name, way)] - topology.rate_bps(flow["rate"]))
    return found


def mark_fits(lines, flows, displaced):
    """Sets `fits`: whether the bytes that were really missing could have crossed the lines that they really had to
    cross, from the moment that they were there until the deadline, together with the other evacuations of that time.
    Judged by every interval between a moment of readiness and a deadline, on every line of the way."""
    capacities = _capacities(lines, flows)
    crossing = {}
    for one in displaced:
        way = lines.path(one["node"], one["to"]) if one["to"] else [(one["node"], "up", lines.node(one["node"]).up)]
        one["fits"] = one["ready"] <= one["deadline"]
        for name, direction, _ in way:
            crossing.setdefault((name, direction), []).append(one)
    for line, users in crossing.items():
        if line not in capacities:
            continue
        for begin in {one["ready"] for one in users}:
            for end in {one["deadline"] for one in users}:
                inside = [one for one in users if one["ready"] >= begin and one["deadline"] <= end]
                if inside and sum(one["delta"] for one in inside) * 8 > capacities[line] * (end - begin):
                    for one in inside:
                        one["fits"] = False


# --- what went ahead

def sent_ahead(record):
    """Copies of what was durable already, from machines that nobody wanted back at that time; None if the record has no
    copies written down."""
    if "copies" not in record:
        return None
    rows = {(job["job"], row["generation"]): row for job in record["jobs"].values() for row in job["generations"]}

    def is_ahead(copy):
        row = rows.get((copy["job"], copy["generation"]))
        is_wanted = any(act["node"] == copy["node"] and act["begun"] <= copy["at"] <= act["given_back"]
                        for act in record["acts"])
        return row is not None and row["source"] == copy["node"] and copy["at"] > row["committed"] and not is_wanted
    return [copy for copy in record["copies"] if is_ahead(copy)]


def lacked_less(job, ahead, displaced):
    """Bytes of its last save that its destination had at the command for what was sent there ahead and for nothing
    else."""
    sent = {one["generation"]: one["at"] for one in ahead
            if (one["job"], one["to"]) == (job["job"], displaced["to"])}

    def lacked(had_then):
        had = [saved_step(job, row["created"]) for row in job["generations"]
               if row["committed"] <= displaced["begun"] and displaced["to"] in row["holders"]
               and had_then(row["generation"])]
        return delta_of(job, max(had, default=0), displaced["last_save"])
    return lacked(lambda one: one not in sent) - lacked(
        lambda one: sent.get(one, displaced["begun"]) <= displaced["begun"])


def ahead_of(record, scheduled):
    """What was sent ahead in all, and for which evacuations less was missing."""
    ahead = sent_ahead(record)
    if ahead is None:
        return None
    less = [lacked_less(record["jobs"][one["job"]], ahead, one) for one in scheduled if one["to"]]
    return {"n": len(ahead), "bytes": sum(one["bytes"] for one in ahead),
            "evacuations": share(sum(one > 0 for one in less), len(less)), "lacked_less": sum(less)}


# --- promises

def promises(events):
    """Of the coordinator's events, for a record: when it promised that an evacuation arrives, and when it took that
    back."""
    def word_of(event):
        if event["kind"] == "evacuation.admitted":
            return "made"
        is_withdrawn = event["kind"] == "evacuation.refused" and event["data"]["was_promised"] == "true"
        return "withdrawn" if is_withdrawn else None
    return [{"job": one["job"], "to": one["data"]["to"], "at": one["at_wall_ms"] / 1e3, "word": word_of(one),
             "message": one.get("message", "")} for one in events if word_of(one)]


def words_on(record, displaced):
    """What was promised to this evacuation and taken back, between the owner's word and the end of the notice."""
    job = record["jobs"][displaced["job"]]["job"]
    return [one for one in record.get("promises", [])
            if one["job"] == job and displaced["begun"] <= one["at"] <= displaced["deadline"]]


def is_promised(record, displaced):
    """Whether a promise that was made after the owner's word stood when the notice was over."""
    to = set()
    for one in words_on(record, displaced):
        (to.add if one["word"] == "made" else to.discard)(one["to"])
    return bool(to)


def promised(record, scheduled):
    """`missed` and `withdrawn`: of all promises, by the coordinator's own word. `late`: of the evacuations whose
    promise stood until the deadline, by what was seen. None where the record has no promises written down."""
    made = record["deadlines"].get("evacuation.admitted", 0)
    found = {"missed": share(record["deadlines"].get("evacuation.missed", 0), made), "withdrawn": None, "late": None}
    if "promises" in record:
        stood = [one for one in scheduled if is_promised(record, one)]
        found["withdrawn"] = share(sum(one["word"] == "withdrawn" for one in record["promises"]), made)
        found["late"] = share(sum(not one["is_inside"] for one in stood), len(stood))
    return found


# --- owners

def owner_times(record, act):
    """From the command to the last guest packet that a peer saw, to cut and cleared by the node's record; and what the
    peer saw after the deadline."""
    address = record["nodes"][act["node"]]
    times = [time for job in record["jobs"].values() for one in job["starts"] if one["source"] == address
             for time, _ in one["packets"]]
    end = act["begun"] + act["notice_s"]
    seen = [time for time in times if act["begun"] < time <= end + CUT_LOOK_S and time < act["given_back"]]
    found = {"last_packet_s": max(seen) - act["begun"] if seen else 0.0,
             "packets_after_deadline": sum(time > end + SLACK_S + act["command_s"] for time in seen)}
    report = act.get("report")
    for name in ("cut", "cleared"):
        value = report and report[f"{name}_ns"] and report["declared_ns"]
        found[f"{name}_s"] = (report[f"{name}_ns"] - report["declared_ns"]) / 1e9 if value else None
    return found


# --- other people's traffic

def phase_of(record, evacuations, time):
    for begin, end in record["baseline"]:
        if begin <= time <= end:
            return "baseline"
    begin, end = record["played"]
    if not begin <= time <= end:
        return None
    return "evacuating" if any(first <= time <= last for first, last in evacuations) else "steady"


def harm(record, evacuations):
    """Of each flow, by phase; the change is against the same run without guests."""
    found = []
    for flow in record["flows"]:
        phases = {}
        for time, value in flow["samples"]:
            phases.setdefault(phase_of(record, evacuations, time), []).append(value)
        one = {"kind": flow["kind"], "from": flow["from"], "to": flow["to"], "rate": flow.get("rate"), "phases": {}}
        for phase in ("baseline", "steady", "evacuating"):
            values = phases.get(phase, [])
            good = [value for value in values if value is not None]
            one["phases"][phase] = {**spread(good), "mean": sum(good) / len(good) if good else None,
                                    "failed": len(values) - len(good)}
        base = one["phases"]["baseline"]
        for phase in ("steady", "evacuating"):
            there = one["phases"][phase]
            for name in ("p50", "p99", "mean"):
                there[f"{name}_change"] = there[name] / base[name] - 1 if there[name] and base[name] else None
        found.append(one)
    return found


def harm_rows(traffic):
    """What is asked of each flow: by how much bulk became slower in the mean, and small flows' p99 longer. Only
    the steady part has a goal; `is_met` is None where there is none, or nothing to judge."""
    rows = []
    for one in traffic:
        measure, sign = ("mean", -1) if one["kind"] == "bulk" else ("p99", 1)
        for phase in ("steady", "evacuating"):
            there = one["phases"][phase]
            change, goal = there[f"{measure}_change"], HARM_GOAL if phase == "steady" else None
            rows.append({
                "flow": f"{one['kind']} {one['from']} → {one['to']}",
                "pace": one["rate"] or ("all it can get" if one["kind"] == "bulk" else "random gaps"),
                "measure": measure, "phase": phase, "n": there["n"], "change": change, "goal": goal,
                "is_met": None if goal is None or change is None else sign * change <= goal})
    return rows


# --- owners who fill their line

def own_traffic(record, acts):
    """How an owner's own transfer went beside the copies of what had to leave, and after them or where nobody had to;
    and how these went. None where no owner sent any."""
    these = [act for act in acts if act.get("fills")]
    samples = {one["node"]: one["samples"] for one in record.get("own", [])}
    if not these:
        return None
    beside, alone = [], []
    for act in these:
        last = max((one["durable_at"] or one["deadline"] for one in act["displaced"]), default=act["begun"])
        end = min(last, act["begun"] + act["notice_s"])
        for time, rate in samples.get(act["node"], []):  # of the second before
            if act["begun"] + OWN_RAMP_S + 1 <= time <= end:
                beside.append(rate)
            elif end + OWN_RAMP_S + 1 <= time <= act["given_back"]:
                alone.append(rate)
    left = [one for act in these for one in act["displaced"]]
    stood = [one for one in left if is_promised(record, one)]
    words = [one["word"] for each in left for one in words_on(record, each)]
    without = [one for one in left if one["fits"]]
    means = [sum(rates) / len(rates) if rates else None for rates in (beside, alone)]
    return {
        "reclaims": len(these), "displacing": sum(bool(act["displaced"]) for act in these),
        "inside": share(sum(one["is_inside"] for one in left), len(left)),
        "would_fit_without": share(sum(one["is_inside"] for one in without), len(without)),
        "withdrawn": share(words.count("withdrawn"), words.count("made")), "promised": share(len(stood), len(left)),
        "late": share(sum(not one["is_inside"] for one in stood), len(stood)),
        "beside": {**spread(beside), "mean": means[0]}, "alone": {**spread(alone), "mean": means[1]},
        "change": means[0] / means[1] - 1 if means[0] is not None and means[1] else None}


# --- all together

def share(count, of):
    return {"n": of, "count": count, "share": count / of if of else None}


def fitting_of(displaced):
    """Those whose bytes fitted the lines. Not among them: whose owner filled the line, who leaves what they want."""
    return [one for one in displaced if one["fits"] and not one["fills"]]


def by_kind(record, acts, displaced):
    found = {}
    for kind in ("announced", "notice", "emergency", "lost"):
        these = [act for act in acts if act["kind"] == kind]
        cost = [one for one in displaced if one["kind"] == kind]
        if not these:
            continue
        found[kind] = {
            "reclaims": len(these), "displaced": len(cost),
            "last_packet_s": spread([act["times"]["last_packet_s"] for act in these if act["displaced"]]),
            "cut_s": spread([act["times"]["cut_s"] for act in these]),
            "cleared_s": spread([act["times"]["cleared_s"] for act in these]),
            "packets_after_deadline": sum(act["times"]["packets_after_deadline"] for act in these if kind != "lost"),
            "silence_s": spread([one["silence_s"] for one in cost]),
            "downtime_s": spread([one["downtime_s"] for one in cost]),
            "lost_s": spread([one["lost_s"] for one in cost]),
            "lost_steps": spread([one["lost_steps"] for one in cost]),
            "never_resumed": sum(one["resumed_at"] is None for one in cost),
            "again_before_new_work": sum(one["again_before_new_work"] for one in cost)}
        if kind in SCHEDULED:
            fitting = fitting_of(cost)
            found[kind]["inside"] = share(sum(one["is_inside"] for one in cost), len(cost))
            found[kind]["inside_of_fitting"] = share(sum(one["is_inside"] for one in fitting), len(fitting))
    return found


def moved(acts):
    """Bytes that left by the peers' port, against the true delta, of scheduled reclaims whose guests all got away."""
    pairs = [(act["sent"], sum(one["delta"] for one in act["displaced"]),
              sum(one["lacking"] for one in act["displaced"])) for act in acts
             if act["kind"] in SCHEDULED and act["displaced"] and act["sent"] is not None
             and all(one["is_inside"] for one in act["displaced"])]
    pairs = [one for one in pairs if one[1] > 0]
    sent, delta, lacked = (sum(one[which] for one in pairs) for which in range(3))
    return {"n": len(pairs), "sent": sent, "delta": delta, "ratio": sent / delta if delta else None,
            "lacking": lacked, "ratio_of_lacking": sent / lacked if lacked else None,
            "each": spread([one[0] / one[1] for one in pairs])}


def evacuations_of(acts):
    """[(begin, end)]: from a command that displaced somebody until the last of them sends again."""
    return [(act["begun"], max([act["begun"] + 1] + [one["resumed_at"] or act["begun"] for one in act["displaced"]]))
            for act in acts if act["displaced"]]


def judge(record):
    """The result of a run. `record` stays as it is."""
    lines = topology.parse(record["topology"])
    acts = [{**act, "displaced": displaced_by(record, act), "times": owner_times(record, act)}
            for act in record["acts"]]
    displaced = [one for act in acts for one in act["displaced"]]
    mark_fits(lines, record["traffic"], displaced)
    scheduled = [one for one in displaced if one["kind"] in SCHEDULED]
    fitting = fitting_of(scheduled)
    traffic = harm(record, evacuations_of(acts))
    pulled = {act["node"] for act in acts if act["kind"] == "lost"}
    unasked = sum(one["end"] == "lost" and one["node"] not in pulled
                  for job in record["jobs"].values() for one in job["attempts"])
    wrong = {name: job["fault"] for name, job in record["jobs"].items() if job["fault"]}
    return {
        "about": record["about"], "kinds": by_kind(record, acts, displaced),
        "inside": share(sum(one["is_inside"] for one in scheduled), len(scheduled)),
        "inside_of_fitting": share(sum(one["is_inside"] for one in fitting), len(fitting)),
        "promised": promised(record, scheduled), "moved": moved(acts), "ahead": ahead_of(record, scheduled),
        "again_before_new_work": sum(one["again_before_new_work"] for one in displaced),
        "deadlines": record["deadlines"], "lost_without_an_owner": unasked, "traffic": traffic,
        "harm": harm_rows(traffic), "own": own_traffic(record, acts),
        "jobs": {"n": len(record["jobs"]), "bit_identical": len(record["jobs"]) - len(wrong), "wrong": wrong},
        "faults": record["faults"], "displaced": displaced}


if __name__ == "__main__":
    import summary
    print(summary.text(judge(json.loads(pathlib.Path(sys.argv[1]).read_text()))))
