#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A whole site on a machine with a real GPU: coordinator, agent, warden and a private container engine, and a training
with CUDA as a guest, in the strict container. Its owner takes the GPU back at once and with a notice; what the driver
says of the card afterwards, and whether the training's weights are those of an undisturbed one, is the result.
scripts/gpu-site.sh finds all that this needs and starts it."""
import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[0] / "system" / "lib"))
from labs import Labs, wait_until  # noqa: E402
from rn_site import Cli, Coordinator, Node  # noqa: E402

STEPS, SAVE_EVERY, STEP_S, HOLD_MIB = 400, 50, 0.03, 10_000
OWNERS = """
import time, torch
held = torch.ones(1 << 30, dtype=torch.uint8, device="cuda")
print("ready", flush=True)
time.sleep(600)  # until it is killed
"""
START_S = 120  # of a guest, with the import of PyTorch from a cold disk


def smi(*fields, what="gpu"):
    done = subprocess.run(["nvidia-smi", f"--query-{what}={','.join(fields)}", "--format=csv,noheader,nounits"],
                          capture_output=True, text=True, timeout=30, check=True)
    return [[word.strip() for word in line.split(",")] for line in done.stdout.splitlines() if line.strip()]


def card():
    """MiB in use, and the pids that the driver lists."""
    return int(smi("memory.used")[0][0]), [row[0] for row in smi("pid", what="compute-apps")]


class Site:
    def __init__(self, options):
        self.labs = Labs("campus", "lab-a", "lab-b", disk="24G")
        self.options, self.findings = options, []
        try:
            self.coordinator = Coordinator(self.labs).start()
            self.cli, self.rest = Cli(self.labs, self.coordinator), self.coordinator.rest()
            self.cli("image", "add", "machine", options.image, timeout_s=300)
            contract = {"guest_disk_mib": 1024, "reserve_disk_mib": 64, "notice_s": 30}
            self.node = Node(self.labs, "lab-a", contract, data={"torch": options.torch},
                             config={"nvml_library": "libnvidia-ml.so.1", "telemetry_ms": 500},
                             warden_flags=["--gpus", "driver", "--gpu-scrub", "must", "--scrub", options.scrub])
            # The card's is lab-a; lab-b keeps copies.
            self.other = Node(self.labs, "lab-b", contract, config={"gpus": 0})
            for node in (self.node, self.other):
                node.set_up(self.coordinator)
            wait_until("the GPU to be offered", self.gpus, 60)
        except BaseException:
            self.labs.down()
            raise

    def gpus(self):
        node = self.rest.nodes().get("lab-a", {})
        return node.get("is_connected") and node["facts"]["gpus"]

    def run(self, steps=STEPS):
        words = [*self.options.python.split(), "-B", "site_guest.py", steps, SAVE_EVERY, STEP_S, HOLD_MIB]
        return self.cli(
            "run", "--detach", "--image", "machine", "--gpu", "1", "--cpus", "4", "--memory", "12GB", "--disk", "1GB",
            "--data", "torch", "--signal", "USR1", "--tell", "--checkpoint", "checkpoint.pt",
            "--env", f"PYTHONPATH=/data/torch/{self.options.packages}", "--", *words,
            cwd=self.options.folder, timeout_s=300).stdout.strip()

    def log(self, job):
        return self.cli("logs", job, check=False).stdout

    def steps(self, job):
        return [int(step) for step in re.findall(r"^step=(\d+) ", self.log(job), re.MULTILINE)]

    def reached(self, job, step):
        state = self.rest.job(job)
        if state["state"] in ("failed", "cancelled", "lost"):
            raise AssertionError(f"the guest ended as {state['state']}: {state.get('reason')}\n{self.log(job)[-3000:]}")
        return any(one >= step for one in self.steps(job))

    def weights(self, job):
        """After its end."""
        wait_until(f"{job} to end", lambda: self.reached(job, STEPS) and self.rest.job(job)["state"] == "succeeded",
                   START_S, every_s=0.5)
        return re.findall(r"^weights (\w+) 1$", self.log(job), re.MULTILINE)[-1]

    def owner_takes(self, *words):
        """Seconds that the owner's command took, what the driver says right after it, and the node's own record."""
        begun = time.monotonic()
        self.node.owner("reclaim", *words)
        took = time.monotonic() - begun
        wait_until("the GPU to be cleared", lambda: self.newest()["phase"] == "cleared", 120)
        used, pids = card()
        record = self.newest()
        times = {name: round((record[name] - record["declared_ns"]) / 1e6, 3)
                 for name in ("cut_ns", "killed_ns", "cleared_ns") if record.get(name)}
        if pids or used > 64:
            self.findings.append(f"after {' '.join(words)} the driver lists {pids} and {used} MiB in use")
        return {"command_ms": round(took * 1000, 1), "after_declared_ms": times, "used_mib": used, "pids": pids}

    def newest(self):
        return max(self.node.view()["reclaims"], key=lambda one: one["declared_ns"])

    def scrubs(self):
        said = re.findall(r"gpu\.scrubbed.*?all_ms\W+([0-9.]+)", self.node.warden.output())
        return [float(one) for one in said]


def check_emergencies(site, undisturbed, rounds):
    """Taken back at once, `rounds` times in one job's life, and lent again: the job goes on each time."""
    job, rows = site.run(), []
    for number in range(rounds):
        wait_until("the guest to compute", lambda: site.reached(job, 1 + SAVE_EVERY * (number + 1)), START_S)
        used, pids = card()
        row = site.owner_takes("--now")
        rows.append({"before_mib": used, "before_pids": len(pids), **row})
        if used < HOLD_MIB or not pids:
            site.findings.append(f"before the order the driver listed {pids} and {used} MiB: no guest was there")
        site.node.owner("release")
    weights = site.weights(job)
    if weights != undisturbed:
        site.findings.append(f"after {rounds} emergencies the weights are {weights}")
    begun = re.findall(r"^begin step=(\d+)", site.log(job), re.MULTILINE)
    return {"rounds": rows, "begun_at_step": begun, "weights": weights}


def check_notice(site, undisturbed):
    """Taken back with a notice: the guest saves and leaves before the owner's time."""
    job = site.run()
    wait_until("the guest to compute", lambda: site.reached(job, SAVE_EVERY + 10), START_S)
    row = site.owner_takes("--in", "20s")
    saved = [int(step) for step in re.findall(r"^saved step=(\d+)", site.log(job), re.MULTILINE)]
    site.node.owner("release")
    weights = site.weights(job)
    begun = re.findall(r"^begin step=(\d+)", site.log(job), re.MULTILINE)
    if weights != undisturbed:
        site.findings.append(f"after a notice the weights are {weights}")
    if int(begun[-1]) % SAVE_EVERY == 0:
        site.findings.append(f"it went on from {begun[-1]}: a save of its own, and not the one it was told to make")
    return {**row, "saved_at_step": saved, "begun_at_step": begun, "weights": weights}


def check_owner(site):
    """A process of the owner's on the card is told, and no guest's is."""
    job = site.run()
    wait_until("the guest to compute", lambda: site.reached(job, 5), START_S)

    def telemetry():
        return site.rest.nodes()["lab-a"]["telemetry"]["gpus"][0]

    wait_until("the guest's memory to be seen", lambda: telemetry()["memory_used_mib"] >= HOLD_MIB, 30)
    alone = telemetry()
    owners = subprocess.Popen([*site.options.owner_python.split(), "-c", OWNERS], stdout=subprocess.PIPE, text=True)
    try:
        if owners.stdout.readline().strip() != "ready":
            site.findings.append("the owner's process did not come up")
        wait_until("the owner's process to be told", lambda: telemetry()["foreign_processes"] == 1, 30)
        both = telemetry()
    finally:
        owners.kill()
        owners.wait()
    site.cli("stop", job)
    wait_until("the guest to be gone", lambda: not card()[1], 60)
    if alone["foreign_processes"] != 0:
        site.findings.append("a guest's process counted as its owner's")
    return {"guest_alone": alone, "with_the_owners": both}


def about(options):
    commit = HERE.parents[1] / "commit"
    row = smi("name", "driver_version", "memory.total")[0]
    engine = subprocess.run(["dockerd", "--version"], capture_output=True, text=True).stdout.strip()
    return {"at": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "kernel": platform.release(), "commit": commit.read_text().strip() if commit.exists() else "unknown",
            "gpu": row[0], "driver": row[1], "memory_mib": row[2], "processors": os.cpu_count(), "engine": engine,
            "guest": f"{STEPS} steps, a save each {SAVE_EVERY}, {HOLD_MIB} MiB held",
            "image_mib": os.path.getsize(options.image) >> 20}


def write(out, result):
    pathlib.Path(f"{out}.json").write_text(json.dumps(result, indent=2) + "\n")
    lines = [f"{key}: {value}" for key, value in result["about"].items()]
    for name, one in result["checks"].items():
        lines += ["", f"{name}: {'good' if not one['findings'] else 'NOT GOOD'}"]
        lines += [f"  finding: {finding}" for finding in one["findings"]]
        lines += [f"  {key}: {json.dumps(value)}" for key, value in (one["figures"] or {}).items()]
    text = "\n".join(lines) + "\n"
    pathlib.Path(f"{out}.txt").write_text(text)
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="gpu-site")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--image", required=True, help="an archive with Python, PyTorch's own files not among them")
    parser.add_argument("--torch", required=True, help="the folder that has PyTorch, a data set of the node's")
    parser.add_argument("--packages", required=True, help="below it, where Python finds it")
    parser.add_argument("--python", default="python3", help="in the image")
    parser.add_argument("--owner-python", required=True, help="a Python with PyTorch here, as the owner has one")
    parser.add_argument("--scrub", required=True, help="reclaim-scrub")
    options = parser.parse_args()
    options.out = str(pathlib.Path(options.out).absolute())
    options.folder = tempfile.mkdtemp(prefix="rn-gpu-site-")
    shutil.copy(HERE / "site_guest.py", options.folder)
    result = {"about": about(options), "checks": {}}
    site = Site(options)
    try:
        undisturbed = site.run()
        reference = site.weights(undisturbed)
        result["about"]["undisturbed"] = reference
        for name, check in (("emergencies", lambda: check_emergencies(site, reference, options.rounds)),
                            ("notice", lambda: check_notice(site, reference)), ("owner", lambda: check_owner(site))):
            known = len(site.findings)
            try:
                figures = check()
            except (AssertionError, subprocess.SubprocessError, OSError, KeyError, IndexError, ValueError) as error:
                site.findings.append(f"not done: {type(error).__name__}: {error}")
                figures = None
            result["checks"][name] = {"figures": figures, "findings": site.findings[known:]}
            write(options.out, result)
        scrubs = site.scrubs()
        result["checks"]["scrub"] = {"figures": {"before_each_start_ms": scrubs}, "findings": [] if scrubs else [
            "no start was preceded by a scrub"]}
    except BaseException:
        for job in site.rest.jobs():
            print(job["id"], job["state"], job.get("reason"), site.log(job["id"])[-2000:], sep="\n", file=sys.stderr)
        print(site.node.warden.output()[-6000:], site.node.agent.output()[-3000:], sep="\n--- agent\n", file=sys.stderr)
        raise
    finally:
        site.labs.down()
        shutil.rmtree(options.folder, ignore_errors=True)
    print(write(options.out, result), end="")
    return 1 if any(one["findings"] for one in result["checks"].values()) else 0


if __name__ == "__main__":
    sys.exit(main())
