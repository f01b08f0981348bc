# SPDX-License-Identifier: Apache-2.0
"""Jobs of a run: submitted one after the other as long as it lasts, followed, and compared with undisturbed ones."""
import pathlib
import random
import re
import shutil
import subprocess
import tempfile

import guest
from capture import PORT

GUEST = pathlib.Path(__file__).resolve().parent / "guest.py"
ENDED = ("succeeded", "failed", "cancelled")
LINE = re.compile(r"^(begin|saved|leaves|done) step=(\d+)(?: from=(\w+))? time=(\d+\.\d+)$", re.MULTILINE)


def read_log(text):
    """What an attempt told; torn lines are left out."""
    found = {"began": None, "begin": 0, "from": None, "saved": [], "done": False}
    for what, step, origin, time in LINE.findall(text):
        if what == "begin":
            found.update({"began": float(time), "begin": int(step), "from": origin})
        elif what == "saved":
            found["saved"].append([int(step), float(time)])
        elif what == "done":
            found["done"] = True
    return found


def difference(name, spec, home, folder):
    """Between a job's outputs in `home` and those of an undisturbed run, which is made in `folder`; None if the bytes
    are the same."""
    guest.undisturbed(name, spec["steps"], spec["state_mib"], spec["blocks"], folder)
    for file in ("result", "state.ckpt"):
        if not (home / file).exists():
            return f"{file} is not among its outputs"
        if (home / file).read_bytes() != pathlib.Path(folder, file).read_bytes():
            return f"{file} is not that of an undisturbed run"
    return None


class Students:
    CPUS = ("0.2", "0.1")  # what a guest wants, and the least

    def __init__(self, bed, spec, seed):
        self.bed, self.spec, self.rng = bed, spec, random.Random(f"students {seed}")
        self.jobs = {}  # name: job, spec, generations by (epoch, generation)

    def submit(self):
        name = f"g{len(self.jobs)}"
        one = {"steps": self.draw("steps"), "save_every": self.draw("save_every"), "state_mib": self.draw("state_mib"),
               "blocks": self.spec["blocks"], "handles_term": self.rng.random() < self.spec["term_share"]}
        folder = self.bed.dir / f"student-{name}"
        folder.mkdir()
        shutil.copy(GUEST, folder)
        peer = f"{self.bed.labs.addresses[self.bed.peer]}:{PORT}"
        words = [name, one["steps"], one["save_every"], self.spec["step_ms"], one["state_mib"], one["blocks"], peer]
        words += ["handles-term"] if one["handles_term"] else []
        job = self.hand_in(name, one, folder, peer, words)
        self.jobs[name] = {"job": job, "spec": one, "generations": {}, "state": "queued"}

    def hand_in(self, name, spec, folder, peer, words):
        """Submits `guest.py WORDS…` with its folder; answers the job's id."""
        disk, (cpus, least) = 64 + 3 * spec["state_mib"], self.CPUS
        return self.bed.cli(
            "run", "--detach", "--name", name, "--image", "python", "--cpus", cpus, "--cpus-min", least, "--memory",
            f"{64 + 3 * spec['state_mib']}MB", "--disk", f"{disk}MB", "--checkpoint", "state.ckpt", "--temporary",
            "*.tmp", "--peer", f"{peer}/udp", "--", "python", "guest.py", *words, cwd=folder).stdout.strip()

    def draw(self, name):
        low, high = self.spec[name]
        return self.rng.randint(low, high)

    def look(self):
        """Takes over what the coordinator says of the jobs that were alive at the last look; old rows may go later."""
        for one in self.jobs.values():
            if one["state"] in ENDED and one.get("was_seen_ended"):
                continue
            found = self.bed.rest.job(one["job"])
            one["state"], one["reason"] = found["state"], found["reason"]
            for row in self.bed.rest.generations(one["job"]):
                key = (row["generation"]["epoch"], row["generation"]["generation"])
                one["generations"][key] = row
            one["was_seen_ended"] = one["state"] in ENDED

    def alive(self):
        return sum(one["state"] not in ENDED for one in self.jobs.values())

    # --- afterwards

    def record(self, names_of_nodes, starts):
        """{name: what the judge needs}. `starts`: {name: [displacements.Start]}."""
        return {name: self._record_of(name, one, names_of_nodes, starts[name]) for name, one in self.jobs.items()}

    def attempts_of(self, one, names):
        attempts = []
        for attempt in self.bed.rest.attempts(one["job"]):
            log = self.bed.rest.log(one["job"], int(attempt["epoch"].split(".")[1])).decode(errors="replace")
            attempts.append({"epoch": attempt["epoch"], "node": names.get(attempt["node"], ""), "end": attempt["end"],
                             "resumed": attempt["resumed_generation"], "detail": attempt["detail"],
                             "log": read_log(log)})
        return attempts

    def _record_of(self, name, one, names, starts):
        generations = [{
            "epoch": row["generation"]["epoch"], "generation": row["generation"]["generation"],
            "source": names.get(row["source"], ""), "holders": [names.get(one, "") for one in row["holders"]],
            "created": row["generation"]["created_wall_ms"] / 1e3, "committed": row["committed_wall_ms"] / 1e3,
            "bytes": row["generation"]["bytes"], "new_bytes": row["generation"]["new_bytes"]}
            for row in one["generations"].values()]
        return {"job": one["job"], "spec": one["spec"], "state": one["state"],
                "attempts": self.attempts_of(one, names), "fault": self.fault_of(name, one),
                "generations": sorted(generations, key=lambda row: row["committed"]),
                "starts": [{"source": start.source, "packets": start.packets} for start in starts]}

    def fault_of(self, name, one):
        """None if the job has the very bytes of an undisturbed run."""
        if one["state"] != "succeeded":
            return f"is {one['state']}: {one.get('reason', '')}"
        home = self.bed.dir / f"home-{name}"
        try:
            self.bed.cli("cp", f"{one['job']}:", home)
        except subprocess.CalledProcessError as error:
            return f"its outputs did not come home: {error.stderr[-300:]}"
        with tempfile.TemporaryDirectory(dir=self.bed.dir) as folder:
            return difference(name, one["spec"], home, folder)
