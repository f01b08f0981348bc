#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The owner's presence, from the machine to what the coordinator expects of it: somebody logs in (the real login, whose
/run and /var/log are the test's own), and a real process that NVML's recording names uses a lent GPU. The guest that is
there leaves with the contract's notice and goes on elsewhere, and the GPU is lent again when that process has gone."""
import json
import os
import pathlib
import pty
import shutil
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
from labs import ROOT, Labs, wait_until  # noqa: E402
from rn_site import Cli, Coordinator, Node, tiny_image  # noqa: E402

CONTRACT = {"guest_disk_mib": 128, "reserve_disk_mib": 64, "guest_memory_mib": 512, "notice_s": 5}
DECLARED = [{"index": 0, "uuid": "GPU-declared", "model": "declared card", "memory_mib": 24576,
             "compute_capability": "8.6"}]
SETTLES_S = 30  # a GPU that its owner has left stays empty so long
SMALL = ["--cpus", "0.2", "--cpus-min", "0.1", "--memory", "64MB", "--disk", "64MB", "--no-upload"]
BUILD = pathlib.Path(os.environ.get("RN_BUILD", ROOT / "build" / "dev"))
LOGIN = 'mount --bind "$1" /run && mount -t tmpfs none /var/log && exec login -f root'


class Login:
    """`login` on a terminal, in a mount namespace of its own: it writes `run`/utmp in place of the machine's."""

    def __init__(self, run):
        pid, self.terminal = pty.fork()
        if pid == 0:
            os.execvp("unshare", ["unshare", "-m", "--propagation", "private", "sh", "-c", LOGIN, "sh", str(run)])
        self.pid = pid
        self.reader = threading.Thread(target=self.read, daemon=True)  # else the shell waits to be read
        self.reader.start()

    def read(self):
        try:
            while os.read(self.terminal, 4096):
                pass
        except OSError:
            pass

    def end(self):
        if self.pid is None:
            return
        os.write(self.terminal, b"exit\n")
        os.waitpid(self.pid, 0)
        self.pid = None
        self.reader.join()
        os.close(self.terminal)


class Presence(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.labs = Labs("campus", "lab-a", "lab-b", disk="1G")
        cls.addClassCleanup(cls.labs.down)
        cls.machine = cls.labs.dir / "machine"  # the machine as its agent sees it, with a /run of its own
        (cls.machine / "run").mkdir(parents=True)
        (cls.machine / "run" / "utmp").touch()
        for name in ("proc", "sys", "dev", "usr", "sbin"):
            (cls.machine / name).symlink_to(f"/{name}")
        for folder in (cls.labs.dir, cls.machine, cls.machine / "run"):
            folder.chmod(0o755)
        cls.recording = cls.labs.dir / "recording"
        cls.record("")
        os.environ["RN_FAKE_NVML"] = str(cls.recording)
        cls.coordinator = Coordinator(cls.labs).start()
        cls.cli, cls.rest = Cli(cls.labs, cls.coordinator), cls.coordinator.rest()
        cls.cli("image", "add", "base", tiny_image())
        library = cls.labs.dir / "nvml.so"  # the agent's user may not be able to look into the tree
        shutil.copy(next(BUILD.glob("src/agent/*agent_fake_nvml.so")), library)
        library.chmod(0o755)
        cls.node = Node(cls.labs, "lab-a", CONTRACT, config={
            "root": str(cls.machine), "nvml_library": str(library), "telemetry_ms": 500})
        cls.node.set_up(cls.coordinator)
        wait_until("lab-a to be up", lambda: cls.rest.nodes().get("lab-a", {}).get("is_connected"), 30)

    @classmethod
    def record(cls, first, second=""):
        """What is with the two GPUs: processes of the owner's, errors."""
        fresh = cls.recording.with_suffix(".new")
        fresh.write_text(f"RTX3090 GPU-aaa 8 6 24576 2048 37 61 215000 {first}\n"
                         f"RTX3090 GPU-bbb 8 6 24576 0 0 35 20000 {second}\n")
        fresh.chmod(0o644)
        fresh.rename(cls.recording)

    def why(self):
        return self.cli("nodes", "--why", self.rest.nodes()["lab-a"]["id"]).stdout

    def telemetry(self):
        return self.rest.nodes()["lab-a"]["telemetry"]

    def run_detached(self):
        return self.cli("run", "--detach", "--gpu", "1", *SMALL, "--", "sleep", "1000").stdout.strip()

    def wait_for(self, job, state, timeout_s=60):
        wait_until(f"{job} to be {state}", lambda: self.rest.job(job)["state"] == state, timeout_s)

    def lab_of(self, job):
        node = self.rest.job(job)["node"]
        return next((lab for lab, one in self.rest.nodes().items() if one["id"] == node), "")

    def gpu_of(self, job):
        """Of its newest attempt on lab-a, as its owner sees it."""
        attempts = json.loads(self.node.owner("status", "--json").stdout)["attempts"]
        return next((one["gpus"][0] for one in reversed(attempts) if one["report"]["job"] == job), None)

    def newest_reclaim(self):
        return max(self.rest.reclaims(), key=lambda one: one["declared_wall_ms"], default=None)

    def newest_phase(self):
        """Of the newest reclaim; empty while none is known."""
        record = self.newest_reclaim()
        return record["phase"] if record else ""

    def test_a_login_raises_the_hazard_until_it_ends(self):
        self.assertNotIn("owner login", self.why())
        self.assertEqual(self.telemetry()["logins"], 0)

        login = Login(self.machine / "run")
        self.addCleanup(login.end)

        wait_until("the login to be known", lambda: self.telemetry()["logins"] == 1, 30)
        wait_until("the hazard to say so", lambda: "owner login" in self.why(), 120)
        self.assertRegex(self.why(), r"owner login +x +\d+\.\d+ .* somebody is logged in")

        login.end()  # its record stays: login leaves that to init
        wait_until("nobody to be there", lambda: self.telemetry()["logins"] == 0, 30)
        wait_until("the hazard to say so", lambda: "owner login" not in self.why(), 120)
        records = subprocess.run(["utmpdump", str(self.machine / "run" / "utmp")], capture_output=True, text=True,
                                 check=True).stdout
        self.assertIn("[root ", records)

    def test_b_a_process_of_the_owners_on_a_lent_gpu_raises_it_too(self):
        self.assertNotIn("foreign process", self.why())
        theirs = subprocess.Popen(["sleep", "600"])
        self.addCleanup(theirs.wait)
        self.addCleanup(theirs.kill)

        self.record(f"{theirs.pid}:512")

        wait_until("the hazard to say so", lambda: "foreign process" in self.why(), 120)
        self.assertEqual(self.telemetry()["gpus"][0]["foreign_processes"], 1)
        told = json.loads(self.cli("nodes", "--why", self.rest.nodes()["lab-a"]["id"], "--json").stdout)
        self.assertIn("foreign process", [factor["name"] for factor in told["factors"]])
        self.record("")
        wait_until("the hazard to say so", lambda: "foreign process" not in self.why(), 120)

    def test_c_a_guest_leaves_the_gpu_on_which_its_owner_computes_and_it_is_lent_again(self):
        jobs = [self.run_detached(), self.run_detached()]
        for job in jobs:
            self.wait_for(job, "running")
        there = {self.gpu_of(job): job for job in jobs}
        self.assertEqual(sorted(there), [0, 1])
        guest, neighbour = there[0], there[1]
        elsewhere = Node(self.labs, "lab-b", CONTRACT, config={"gpus": DECLARED})
        elsewhere.set_up(self.coordinator)
        wait_until("lab-b to be up", lambda: self.rest.nodes().get("lab-b", {}).get("is_connected"), 30)
        theirs = subprocess.Popen(["sleep", "600"])
        self.addCleanup(theirs.wait)
        self.addCleanup(theirs.kill)

        self.record(f"{theirs.pid}:512")  # a look, as nvidia-smi's
        time.sleep(1)
        self.record("")
        time.sleep(8)
        self.assertEqual((self.newest_reclaim(), len(self.rest.ran(guest))), (None, 1))

        self.record(f"{theirs.pid}:512")

        wait_until("it to go on elsewhere", lambda: self.lab_of(guest) == "lab-b" and
                   self.rest.job(guest)["state"] == "running", 60)
        self.assertEqual(self.rest.ran(guest)[0]["end"], "reclaimed")
        self.assertEqual((self.rest.job(neighbour)["state"], len(self.rest.ran(neighbour))), ("running", 1))
        wait_until("the GPU to be cleared", lambda: self.newest_phase() == "cleared", 30)
        record = self.newest_reclaim()
        self.assertEqual((record["kind"], record["gpus"], record["message"]),
                         ("announced", [0], "the owner computes on GPU 0"))
        self.assertGreater(record["deadline_ns"] - record["declared_ns"], 4e9, "the contract's notice")

        third = self.run_detached()
        wait_until("a look at the queue", lambda: self.rest.job(third)["reason"], 20)
        self.assertEqual(self.rest.attempts(third), [])
        begun = time.monotonic()
        self.record("")
        self.wait_for(third, "running", SETTLES_S + 60)
        self.assertGreater(time.monotonic() - begun, SETTLES_S - 2, "it was lent at once")
        self.assertEqual((self.lab_of(third), self.gpu_of(third)), ("lab-a", 0))
        wait_until("that to be known", lambda: self.newest_phase() == "returned", 30)
        self.assertEqual(len(self.rest.ran(neighbour)), 1)

    def test_d_a_sick_gpu_loses_its_guest_and_is_lent_again_when_its_owner_says_so(self):
        for job in self.cli.json("ps")["jobs"]:
            self.cli("stop", job["id"])
        wait_until("nobody to be there", lambda: not self.cli.json("ps")["jobs"], 60)
        here = ("run", "--detach", "--gpu", "1", "--lab", "lab-a", *SMALL, "--", "sleep", "1000")
        job = self.cli(*here).stdout.strip()
        self.wait_for(job, "running")
        gpu = self.gpu_of(job)

        self.record("" if gpu else "ecc:1", "ecc:1" if gpu else "")

        wait_until("it to go on with the other GPU", lambda: len(self.rest.ran(job)) == 2 and
                   self.gpu_of(job) == 1 - gpu, 60)
        self.assertEqual(self.rest.ran(job)[0]["end"], "reclaimed")
        self.assertIn(f"GPU {gpu} is sick: 1 errors of its memory", self.why())
        self.assertRegex(self.node.owner("status").stdout, rf"GPU {gpu} .* sick: 1 errors of its memory")
        events = [event for event in self.rest.events() if event["kind"] == "gpu.sick"]
        self.assertIn(f"GPU {gpu} is sick", events[-1]["message"])
        wait_until("the GPU to be cleared", lambda: self.newest_phase() == "cleared", 30)

        self.assertIn(f"GPU {gpu} is lent again", self.node.owner("gpu", "ok", str(gpu)).stdout)

        wait_until("it to be lent again", lambda: self.newest_phase() == "returned", 60)
        self.assertNotIn("is sick", self.node.owner("status").stdout)
        self.wait_for(self.cli(*here).stdout.strip(), "running")


if __name__ == "__main__":
    unittest.main(verbosity=2)
