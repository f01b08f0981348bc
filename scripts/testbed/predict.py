# SPDX-License-Identifier: Apache-2.0
"""The simulator against the testbed: each real migration of a record beside what `reclaim-sim replay` says of it.

    predict.py RECORD.json... [--fit RECORD.json] [--machine FILE] [--out FOLDER] [--sim PROGRAM]

--fit takes what one machine's starts, saves and messages take from that record, and from no other; --machine takes it
from a file that --fit wrote. docs/evaluation.md tells more."""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import judge  # noqa: E402
import prediction_page  # noqa: E402
import replayed  # noqa: E402
from lines import Bad  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
UNFITTED = {
    "making_rate": 540e6, "making_s": 0.0, "sending_rate": 1e9, "restoring_rate": 500e6, "copy_begins_s": 0.02,
    "fetch_begins_s": 0.0, "receipt_s": 0.05, "preparing_s": 0.3, "container_s": 0.3, "queue_s": 0.05,
    "message_s": 0.001, "told_s": 0.1, "told_rate": 200e6, "first_start_s": 1.5}
MEASURES = {"total_s": "from the command to going on", "transfer_s": "from the last save to durable",
            "bytes": "bytes that left for others, of a reclaim"}
FITS = 3  # rounds


def read(path):
    try:
        record = json.loads(pathlib.Path(path).read_text())
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise Bad(f"{path}: {error}; next: name a whole record.json of `testbed.sh run`") from None
    try:
        replayed.replay(record, dict(UNFITTED))
        judge.judge(record)
    except Bad as error:
        raise Bad(f"{path}: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, StopIteration) as error:
        raise Bad(f"{path}: it is no whole record: {error!r}") from None
    return record


def simulate(program, record, machine, is_given):
    """What happened, by guest's number, and what copies sent, by owner's number."""
    told, begin = replayed.replay(record, machine)
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(told, file)
        file.flush()
        found = subprocess.run([program, "replay", file.name] + (["--given"] if is_given else []),
                               capture_output=True, text=True)
    if found.returncode:
        raise Bad(f"{program} replay: {found.stderr.strip()[-600:]}")
    rows = [json.loads(line) for line in found.stdout.splitlines()]
    by_guest = {one["name"]: [] for one in told["guests"]}
    names = [one["name"] for one in told["guests"]]
    for row in rows:
        if row["what"] != "sent":
            by_guest[names[row["guest"]]].append({**row, "at": row["at_s"] + begin})
    return by_guest, {row["owner"]: row["bytes"] for row in rows if row["what"] == "sent"}


# --- one migration, here and there

def real_of(record, one):
    job = record["jobs"][one["job"]]
    old = judge.old_attempt(job, one["node"], one["begun"])
    later = [two for two in job["attempts"][job["attempts"].index(old) + 1:] if two["log"]["began"]]
    resumed = judge.resumed_from(job, old)
    is_last = resumed and resumed["created"] > one["begun"] and resumed["source"] == one["node"]
    return {
        "to": later[0]["node"] if later else None, "holder": resumed["holders"][0] if is_last else None,
        "total_s": later[0]["log"]["began"] - one["begun"] if later else None,
        "saved_s": resumed["created"] - one["begun"] if is_last else None,
        "transfer_s": resumed["committed"] - resumed["created"] if is_last else None,
        "start_s": later[0]["log"]["began"] - resumed["committed"] if is_last and later else None}


def simulated_of(rows, one, machine, state_bytes):
    """None if the guest was not there when the owner said it."""
    begun = one["begun"]
    before = [row for row in rows if row["what"] in ("began", "ended") and row["at"] < begun]
    if not before or before[-1]["what"] != "began" or before[-1]["node"] != one["node"]:
        return None
    later = next((row for row in rows if row["what"] == "began" and row["at"] >= begun), None)
    until = later["at"] if later else float("inf")
    takes = machine["making_s"] + state_bytes / machine["making_rate"]
    made = [row for row in rows if row["what"] == "made" and row["node"] == one["node"]
            and begun < row["at"] - takes and row["at"] < until]
    durable = {row["generation"]: row["at"] for row in rows if row["what"] == "durable" and row["at"] < until}
    last = next((row for row in reversed(made) if row["generation"] in durable), None)
    copied = [row for row in rows if last and row["what"] == "copied" and row["generation"] == last["generation"]]
    return {
        "to": later["node"] if later else None, "holder": copied[0]["to"] if copied else None,
        "total_s": later["at"] - begun if later else None,
        "saved_s": last["at"] - takes - begun if last else None,
        "transfer_s": durable[last["generation"]] - last["at"] + takes if last else None,
        "start_s": later["at"] - durable[last["generation"]] if last and later else None}


def compare(record, displaced, by_guest, sent, machine):
    """[{what it was, real, simulated}] of migrations, and the same of each reclaim's bytes."""
    migrations, reclaims = [], []
    for one in displaced:
        state = record["jobs"][one["job"]]["spec"]["state_mib"] << 20
        migrations.append({
            **{name: one[name] for name in ("job", "kind", "node", "begun")}, "real": real_of(record, one),
            "simulated": simulated_of(by_guest.get(one["job"], []), one, machine, state)})
    for number, act in enumerate(record["acts"]):
        these = [one for one in migrations if one["begun"] == act["begun"] and one["node"] == act["node"]]
        if act["kind"] in judge.SCHEDULED and these and act.get("sent") is not None and all(
                one["simulated"] for one in these):
            reclaims.append({"node": act["node"], "kind": act["kind"], "begun": act["begun"],
                             "guests": len(these), "real": {"bytes": act["sent"]},
                             "simulated": {"bytes": sent.get(number, 0) * replayed.WIRE}})
    return migrations, reclaims


def pairs_of(rows, measure):
    return [(row["real"][measure], row["simulated"][measure]) for row in rows
            if row["simulated"] and row["real"].get(measure) and row["simulated"].get(measure) is not None]


def errors(pairs):
    """Relative ones: of the simulated against the real."""
    found = [simulated / real - 1 for real, simulated in pairs]
    size = [abs(one) for one in found]
    return {"n": len(found), "median": judge.quantile(size, 0.5), "p90": judge.quantile(size, 0.9),
            "bias": judge.quantile(found, 0.5), "real_p50": judge.quantile([real for real, _ in pairs], 0.5),
            "simulated_p50": judge.quantile([one for _, one in pairs], 0.5)}


def summary(migrations, reclaims):
    scheduled = [one for one in migrations if one["kind"] in judge.SCHEDULED]
    at_once = [one for one in migrations if one["kind"] not in judge.SCHEDULED]
    there = [one for one in migrations if one["simulated"]]
    same = [one for one in there if one["simulated"]["to"] == one["real"]["to"]]
    return {"migrations": len(migrations), "simulated": len(there), "same_destination": len(same),
            "total_s": errors(pairs_of(scheduled, "total_s")), "transfer_s": errors(pairs_of(scheduled, "transfer_s")),
            "saved_s": errors(pairs_of(scheduled, "saved_s")), "start_s": errors(pairs_of(scheduled, "start_s")),
            "same_total_s": errors(pairs_of([one for one in scheduled if one in same], "total_s")),
            "at_once_s": errors(pairs_of(at_once, "total_s")), "bytes": errors(pairs_of(reclaims, "bytes"))}


def predict(program, record, machine):
    """{"given": …, "free": …}: each with migrations, reclaims, summary."""
    displaced, found = judge.judge(record)["displaced"], {}
    for name, is_given in (("given", True), ("free", False)):
        by_guest, sent = simulate(program, record, machine, is_given)
        migrations, reclaims = compare(record, displaced, by_guest, sent, machine)
        found[name] = {"migrations": migrations, "reclaims": reclaims, "summary": summary(migrations, reclaims)}
    return found


# --- what is of the machine

def gap(rows, measure):
    """By how much the real one is longer, in the median."""
    return judge.quantile([real - simulated for real, simulated in pairs_of(rows, measure)], 0.5) or 0.0


def fit(program, record):
    """A machine's times, from one record: each so that the median of the part that it stands for agrees."""
    machine, displaced = dict(UNFITTED), judge.judge(record)["displaced"]
    for _ in range(FITS):
        by_guest, sent = simulate(program, record, machine, True)
        rows, _ = compare(record, displaced, by_guest, sent, machine)
        rows = [one for one in rows if one["kind"] in judge.SCHEDULED and one["simulated"]]
        told = [one for one in rows if record["jobs"][one["job"]]["spec"]["handles_term"]]
        beside = [one for one in rows if one["real"]["to"] == one["real"]["holder"] == one["simulated"]["holder"]]
        machine["told_s"] = max(machine["told_s"] + gap(told, "saved_s"), 0)
        beyond = [one for one in rows if one["real"]["to"] == one["simulated"]["to"] and all(
            one[side]["holder"] not in (None, one[side]["to"]) for side in ("real", "simulated"))]
        if beyond:
            more = gap(beyond, "start_s") - gap(beside, "start_s")
            machine["fetch_begins_s"] = max(machine["fetch_begins_s"] + more, 0)
        machine["container_s"] = max(machine["container_s"] + gap(beside, "start_s"), 0.05)
        machine["first_start_s"] = machine["preparing_s"] + machine["container_s"] + 0.3
    return machine


# --- telling it

def percent(share):
    return "-" if share is None else f"{share * 100:.1f} %"


def words(name, found):
    lines = [f"{name}"]
    for mode, title in (("given", "destinations given"), ("free", "the simulator's own destinations")):
        one = found[mode]["summary"]
        lines.append(f"  {title}: {one['migrations']} migrations, {one['simulated']} of them simulated, "
                     f"{one['same_destination']} to the same machine")
        for measure in ("total_s", "saved_s", "transfer_s", "start_s", "bytes", "at_once_s"):
            e = one[measure]
            if e["n"]:
                lines.append(f"    {measure:<11} n={e['n']}, error median {percent(e['median'])}, p90 "
                             f"{percent(e['p90'])}, bias {percent(e['bias'])}; real p50 {e['real_p50']:.4g}, "
                             f"simulated {e['simulated_p50']:.4g}")
    return "\n".join(lines)


def find_program(given):
    build = os.environ.get("RN_BUILD")
    places = [given] if given else ([f"{build}/apps/reclaim-sim/reclaim-sim"] if build else [
        ROOT / "build" / tree / "apps/reclaim-sim/reclaim-sim" for tree in ("release", "ci", "dev")])
    for place in places:
        if os.access(place, os.X_OK) and pathlib.Path(place).is_file():
            return str(place)
    raise Bad(f"no program at {', '.join(map(str, places))}; next: cmake --preset release && cmake --build "
              "build/release --target reclaim-sim, or name it by --sim")


def read_machine(path):
    try:
        found = json.loads(pathlib.Path(path).read_text())
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise Bad(f"{path}: {error}") from None
    if not isinstance(found, dict) or set(found) != set(UNFITTED) or not all(
            isinstance(one, (int, float)) for one in found.values()):
        raise Bad(f"{path}: a machine's times are {', '.join(sorted(UNFITTED))}; --fit writes such a file")
    return found


def parse_arguments():
    parser = argparse.ArgumentParser(prog="compare-sim.sh", description="see scripts/compare-sim.sh --help")
    parser.add_argument("records", nargs="+", type=pathlib.Path)
    times = parser.add_mutually_exclusive_group()
    times.add_argument("--fit", type=pathlib.Path)
    times.add_argument("--machine", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("sim-against-testbed"))
    parser.add_argument("--sim")
    return parser.parse_args()


def run(flags):
    program = find_program(flags.sim)
    records = {str(path): read(path) for path in flags.records}
    machine = dict(UNFITTED)
    if flags.machine:
        machine = read_machine(flags.machine)
    elif flags.fit:
        machine = fit(program, read(flags.fit))
    flags.out.mkdir(parents=True, exist_ok=True)
    (flags.out / "machine.json").write_text(json.dumps(machine, indent=1) + "\n")
    result = {"machine": machine, "fitted_on": str(flags.fit or flags.machine or ""), "runs": {}}
    for path, record in records.items():
        found = predict(program, record, machine)
        result["runs"][path] = {"about": record["about"], **found}
        is_same = flags.fit and pathlib.Path(path).resolve() == flags.fit.resolve()
        print(words(path + (" (the run that the machine's times are of)" if is_same else ""), found), flush=True)
    (flags.out / "prediction.json").write_text(json.dumps(result, indent=1) + "\n")
    (flags.out / "prediction.html").write_text(prediction_page.page(result))
    print(f"written to {flags.out}")
    return 0


def main():
    try:
        return run(parse_arguments())
    except Bad as error:
        print(f"compare-sim: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
