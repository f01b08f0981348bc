# SPDX-License-Identifier: Apache-2.0
"""What the invariants say of a site that has come to rest, by its database and its disks alone: no daemon is
asked. Each check answers how many things it looked at, and faults as lines of text."""
import collections
import contextlib
import json
import sqlite3
import subprocess

from rn_site import program

TERMINAL = ("succeeded", "failed", "cancelled")


def epoch_of(text):
    """(generation of the database, number of the attempt)."""
    database, _, attempt = str(text).partition(".")
    return int(database), int(attempt)


class Database:
    """The rows of a coordinator that has ended."""

    def __init__(self, state):
        # Without immutable=1: a WAL that a killed process left is a part of it.
        with contextlib.closing(sqlite3.connect(f"file:{state}/coordinator.db?mode=ro", uri=True)) as database:
            def rows(table):
                return [json.loads(body) for (body,) in database.execute(f"SELECT body FROM {table}")]

            self.jobs = {row["job"]["id"]: row for row in rows("jobs")}
            self.attempts = collections.defaultdict(list)
            for row in rows("attempts"):
                self.attempts[row["attempt"]["job"]].append(row["attempt"])
            self.generations, self.outputs, self.usage = rows("generations"), rows("outputs"), rows("usage")
            self.events = [json.loads(body) for (body,) in database.execute("SELECT body FROM events ORDER BY seq")]
            self.generation = int(dict(database.execute("SELECT key, value FROM meta"))["generation"])
        for attempts in self.attempts.values():
            attempts.sort(key=lambda one: epoch_of(one["epoch"]))


def submitted_is_not_forgotten(database, submitted):
    """I1. `submitted`: ids that a student was told."""
    faults = []
    for job in submitted:
        row = database.jobs.get(job)
        if row is None:
            faults.append(f"{job} was acknowledged and is not in the database")
        elif row["job"]["state"] not in TERMINAL:
            faults.append(f"{job} is {row['job']['state']} when all is over")
    return len(submitted), faults


def keys_are_used_once(database, _):
    """I2."""
    keys = collections.Counter(
        (row["job"]["owner"], row["idempotency_key"]) for row in database.jobs.values() if row.get("idempotency_key"))
    return len(keys), [f"key {key} of {owner} made {count} jobs" for (owner, key), count in keys.items() if count > 1]


def one_attempt_has_the_word(database, _):
    """I3: at most one success, of the newest epoch, whose outputs they are."""
    faults = []
    for job, attempts in database.attempts.items():
        row = database.jobs[job]["job"]
        good = [one["epoch"] for one in attempts if one["end"] == "succeeded"]
        if len(good) > 1 or (row["state"] == "succeeded" and good != [row["epoch"]]):
            faults.append(f"{job}, {row['state']} in epoch {row['epoch']}, has successes {good}")
        published = [one["listing"] for one in database.outputs if (one["job"], one["epoch"]) == (job, row["epoch"])]
        if row["state"] == "succeeded" and row["outputs"] not in published:
            faults.append(f"{job} has outputs that no row of epoch {row['epoch']} names")
    return sum(map(len, database.attempts.values())), faults


def epochs_grow(database, _):
    """I4: in the order in which attempts were leased, and over the coordinator's starts."""
    faults, looks = [], 0
    starts = [event["message"] for event in database.events if event["kind"] == "coordinator.started"]
    generations = [int(words.partition("generation ")[2].partition(",")[0]) for words in starts]
    if generations != sorted(set(generations)) or (generations and database.generation < generations[-1]):
        faults.append(f"the database's generations were {generations[-20:]}, and it is {database.generation} now")
    for job, attempts in database.attempts.items():
        looks += len(attempts)
        numbers = [epoch_of(one["epoch"]) for one in attempts]
        if len(set(numbers)) != len(numbers) or [number for _, number in numbers] != sorted(n for _, n in numbers):
            faults.append(f"{job} had epochs {numbers}")
        if epoch_of(database.jobs[job]["job"]["epoch"]) < max(numbers):
            faults.append(f"{job} is in epoch {database.jobs[job]['job']['epoch']}, attempts had {numbers[-1]}")
    return looks + len(generations), faults


def copies_are_elsewhere(database, _):
    """I5: whatever is durable has the word of another machine, for this generation and no other."""
    faults = []
    for row in database.generations:
        generation = row["generation"]
        holders = {one["holder"] for one in row["receipts"]
                   if (one["job"], one["generation"], one["manifest"], one["epoch"]) == tuple(
                       generation[key] for key in ("job", "generation", "manifest", "epoch"))} - {row["source"]}
        wanted = max(1, database.jobs[generation["job"]]["job"]["spec"]["checkpoint"]["copies"])
        if len(holders) < wanted:
            faults.append(f"generation {generation['generation']} of {generation['job']} has {len(holders)} holders")
    return len(database.generations), faults


def resumes_do_not_go_back(database, _):
    """I7, as far as attempts tell: none resumes behind the one before it, but after a condemned generation."""
    condemned = {event["job"] for event in database.events if event["kind"] == "generation.condemned"}
    faults, looks = [], 0
    for job, attempts in database.attempts.items():
        resumed = [one["resumed_generation"] for one in attempts if one["started_wall_ms"]]
        looks += len(resumed)
        if resumed != sorted(resumed) and job not in condemned:
            faults.append(f"{job} resumed from generations {resumed}")
    return looks, faults


def accounts_agree(database, _):
    """I11: what users are charged, their labs are."""
    by_user = [row for row in database.usage if row["user"]]
    by_lab = [row for row in database.usage if not row["user"]]
    if len({row["as_of_wall_ms"] for row in database.usage}) > 1:
        return 0, []  # decayed to different times
    users, labs = (sum(row["used_gpu_s"] for row in rows) for rows in (by_user, by_lab))
    is_same = abs(users - labs) <= 1e-6 * (1 + users)
    return len(database.usage), [] if is_same else [f"users are charged {users} GPU-seconds, their labs {labs}"]


CHECKS = {
    "I1": submitted_is_not_forgotten, "I2": keys_are_used_once, "I3": one_attempt_has_the_word, "I4": epochs_grow,
    "I5": copies_are_elsewhere, "I7": resumes_do_not_go_back, "I11": accounts_agree}


def check_database(state, submitted):
    """{invariant: (things looked at, faults)}. I12: the coordinator's own program replays the log against tables."""
    database = Database(state)
    found = {name: check(database, submitted) for name, check in CHECKS.items()}
    done = subprocess.run([program("reclaim-coordinator"), "verify", "--state", state], capture_output=True, text=True)
    found["I12"] = (len(database.events), [] if done.returncode == 0 else [done.stdout + done.stderr])
    return {name: (looks, [f"{name}: {fault}" for fault in faults]) for name, (looks, faults) in found.items()}


def stored_generations(site):
    """What nodes still keep of jobs: nothing, some time after the last one's end (I8's other side)."""
    return [f"{lab}: {path.parent.name}/{path.name}" for lab, node in site.nodes.items()
            for path in (node.state / "agent" / "chunks" / "manifests").glob("*/*")]
