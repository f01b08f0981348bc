# SPDX-License-Identifier: Apache-2.0
"""What must be true of jobs that are over, however often they were disturbed: results as of an undisturbed run, whole
logs, and machines on which nothing of them is left. Faults are lines of text."""
import dataclasses
import subprocess

import chain

COUNT = "i=0; while [ $i -lt {steps} ]; do i=$((i+1)); echo line $i; sleep {step_s}; done; echo $i >result"


@dataclasses.dataclass(frozen=True)
class Wanted:
    """A job as it was asked for. `kind`: stateless (COUNT), or one of chain.sh's ways."""

    kind: str
    steps: int
    save_every: int


def number(epoch):
    """An attempt's number, from its epoch "DATABASE.ATTEMPT"."""
    return int(epoch.split(".")[1])


def check_chain_log(name, text, is_last):
    """Faults in what one attempt of a chain guest wrote: holes, repetitions, wrong hashes, a second start."""
    faults = []
    lines = text.splitlines()
    if not is_last and lines and not text.endswith("\n"):
        lines.pop()  # torn where the attempt was killed
    told = chain.read("\n".join(lines) + "\n")
    begins = sum(line.startswith("begin ") for line in lines)
    if begins > 1 or (lines and not lines[0].startswith("begin ")):
        faults.append(f"{begins} begins; the first line is {lines[0]!r}")
    steps = [int(line.split()[0][len("step="):]) for line in lines if line.startswith("step=")]
    if begins == 1 and steps != list(range(told.begin + 1, told.begin + 1 + len(steps))):
        odd = [(one, other) for one, other in zip([told.begin, *steps], steps) if other != one + 1]
        faults.append(f"the log is not one run from {told.begin}: {odd[:5]}")
    if told.wrong:
        faults.append(f"wrong hashes at {told.wrong[:5]}")
    return [f"{name}: {fault}" for fault in faults], told


def check_stateless(site, name, wanted, home):
    guest = site.guests[name]
    attempts = site.attempts(name)
    faults = []
    if (home / "result").read_text() != f"{wanted.steps}\n":
        faults.append(f"result is {(home / 'result').read_text()!r}")
    for one in attempts:
        text = site.rest.log(guest.job, number(one["epoch"])).decode()
        whole = "".join(f"line {i + 1}\n" for i in range(wanted.steps))
        if one is attempts[-1] and text != whole or not whole.startswith(text):
            faults.append(f"attempt {one['epoch']} ({one['end']}) has a log of {len(text)} bytes: …{text[-60:]!r}")
    return [f"{name}: {fault}" for fault in faults]


def check_chain(site, name, wanted, home):
    guest = site.guests[name]
    attempts = site.attempts(name)
    faults, tolds = [], []
    for one in attempts:
        text = site.rest.log(guest.job, number(one["epoch"])).decode()
        found, told = check_chain_log(f"attempt {one['epoch']} ({one['end']})", text, one is attempts[-1])
        faults += found
        tolds.append(told)
    result = (home / "result").read_text()
    if result != f"{chain.CHAIN[wanted.steps]}\n":
        faults.append(f"result is {result!r}")
    state = (home / "state.ckpt").read_text()
    saved = wanted.steps - wanted.steps % wanted.save_every
    if state != f"{saved} {chain.CHAIN[saved]}\n\nend\n":
        faults.append(f"state.ckpt is {state[:100]!r}")
    own = (home / "steps.log").read_text()
    if text != own[own.rindex("begin "):]:
        faults.append(f"the last attempt's log ({len(text)} bytes) is not what it wrote ({len(own)} bytes in all)")
    for one, old, new in zip(attempts, tolds, tolds[1:]):
        has_run = old.begin is not None and new.begin is not None
        if one["end"] in ("reclaimed", "migrated") and has_run and old.last < new.begin:
            faults.append(f"attempt {one['epoch']} ({one['end']}) told until {old.last}, {new.begin} was reached")
    story = [f"{told.begin}-{told.last} {one['end']}" + (f" ({one['detail']})" if one["end"] == "refused" else "")
             for one, told in zip(attempts, tolds)]
    print(f"  {name}: {', '.join(story)}", flush=True)
    return [f"{name}: {fault}" for fault in faults]


def check_jobs(site, wanted):
    """`wanted`: {name: Wanted}. All of them have succeeded."""
    faults = []
    names = [job["spec"]["name"] for job in site.rest.jobs()]
    for name, one in wanted.items():
        if names.count(name) != 1:
            faults.append(f"{name}: {names.count(name)} jobs came of one submit")
        home = site.labs.dir / f"home-{name}"
        site.cli("cp", f"{site.guests[name].job}:", home)
        faults += (check_stateless if one.kind == "stateless" else check_chain)(site, name, one, home)
    return faults


def leftovers(site, labs):
    """What guests left on machines that are up: processes, disks, attempts, containers."""
    found = []
    for lab in labs:
        node = site.nodes[lab]
        found += [f"{lab}: process {pid}" for pid in site.guest_processes(lab)]
        found += [f"{lab}: {path}" for path in (node.state / "warden" / "attempts").glob("*")]
        found += [f"{lab}: guest {one}" for one in site.status(lab)["attempts"]]
        engine = node.run / "engine" / "docker.sock"
        listed = subprocess.run(["docker", "-H", f"unix://{engine}", "ps", "-aq"], capture_output=True, text=True)
        found += [f"{lab}: container {one}" for one in listed.stdout.split()]
        if listed.returncode != 0:
            found.append(f"{lab}: docker ps: {listed.stderr}")
    return found
