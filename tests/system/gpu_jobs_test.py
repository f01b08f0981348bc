#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs that want GPUs, on machines that have none that NVML could find: what their authors are told, and that devices
which a node's configuration declares are given out like real ones. A node with `gpus: 0` says that it has none."""
import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
from labs import Labs, wait_until  # noqa: E402
from rn_site import Cli, Coordinator, Node, tiny_image  # noqa: E402

CONTRACT = {"guest_disk_mib": 128, "reserve_disk_mib": 64, "guest_memory_mib": 512}
DECLARED = [
    {"index": index, "uuid": f"GPU-declared-{index}", "model": "declared card", "memory_mib": 24576,
     "compute_capability": "8.6"} for index in (0, 1)]
SMALL = ["--cpus", "0.2", "--cpus-min", "0.1", "--memory", "64MB", "--disk", "64MB", "--stateless", "--no-upload"]


class GpuJobs(unittest.TestCase):
    """The tests build on each other, in their order."""

    @classmethod
    def setUpClass(cls):
        cls.labs = Labs("campus", "lab-a", "lab-b", disk="1G")
        cls.addClassCleanup(cls.labs.down)
        cls.coordinator = Coordinator(cls.labs).start()
        cls.cli, cls.rest = Cli(cls.labs, cls.coordinator), cls.coordinator.rest()
        cls.cli("image", "add", "base", tiny_image())
        cls.nodes = {"lab-a": Node(cls.labs, "lab-a", CONTRACT, config={"gpus": 0}),
                     "lab-b": Node(cls.labs, "lab-b", CONTRACT, config={"gpus": DECLARED})}
        cls.join("lab-a")

    @classmethod
    def join(cls, lab):
        cls.nodes[lab].set_up(cls.coordinator)
        wait_until(f"{lab} to be up", lambda: cls.rest.nodes().get(lab, {}).get("is_connected"), 30)

    def run_detached(self, gpus, *command, flags=()):
        """Its job, and what its author is told at once."""
        done = self.cli("run", "--detach", "--gpu", str(gpus), *SMALL, *flags, "--", *command)
        return done.stdout.strip(), done.stderr

    def why(self, job):
        return self.cli("why", job).stdout

    def lab_of(self, job):
        node = self.rest.job(job)["node"]
        return next((lab for lab, one in self.rest.nodes().items() if one["id"] == node), "")

    def gpus_of(self, job):
        """Those of its attempt as the node's owner sees them."""
        attempts = json.loads(self.nodes["lab-b"].owner("status", "--json").stdout)["attempts"]
        return next((one["gpus"] for one in reversed(attempts) if one["report"]["job"] == job), None)

    def wait_for(self, job, state):
        wait_until(f"{job} to be {state}", lambda: self.rest.job(job)["state"] == state, 60)

    def test_a_where_no_node_has_a_gpu_the_author_is_told_at_once_and_the_job_waits(self):
        job, told = self.run_detached(1, "true")
        type(self).waiting = job

        node = self.rest.nodes()["lab-a"]
        self.assertEqual(node["facts"]["gpus"], [])
        self.assertIn("it waits until a node fits: 0 of 0 GPUs can ever match; closest: ", told)
        self.assertIn("lends 0 GPUs, 1 wanted", told)
        wait_until("a look at the queue", lambda: "lends 0 GPUs" in self.rest.job(job)["reason"], 30)
        self.assertRegex(self.why(job), r"number 1 of 1 in the queue: 0 of 0 GPUs can ever match; closest: .* lends 0 "
                                        r"GPUs, 1 wanted \(position 1 in the queue\)")
        self.assertEqual((self.rest.job(job)["state"], self.rest.attempts(job)), ("queued", []))

    def test_b_it_starts_as_soon_as_a_node_with_declared_devices_joins(self):
        self.join("lab-b")

        self.wait_for(self.waiting, "succeeded")

        self.assertEqual(self.lab_of(self.waiting), "lab-b")
        facts = self.rest.nodes()["lab-b"]["facts"]["gpus"]
        self.assertEqual([(one["index"], one["model"], one["is_static"]) for one in facts],
                         [(0, "declared card", True), (1, "declared card", True)])
        shown = {line.split()[2]: line for line in self.cli("nodes").stdout.splitlines()}
        self.assertRegex(" ".join(shown["lab-b"].split()), r" 2 x 24\.?0? ?GiB \(declared\) ")
        self.assertNotIn("declared", shown["lab-a"])

    def test_c_what_is_declared_does_not_have_is_named(self):
        for flags, gpus, words in (
                ((), 3, "lends 2 GPUs, 3 wanted"),
                ((), "48GB:1", "MiB of GPU memory"),
                (("--compute-capability", "9.0"), 1, "has compute capability 8.6, 9.0 wanted")):
            job, told = self.run_detached(gpus, "true", flags=flags)

            self.assertIn("0 of 2 GPUs can ever match", told)
            self.assertIn(words, told)
            self.assertIn(words, self.why(job))
            self.cli("stop", job)

    def test_d_each_job_has_a_device_of_its_own_and_counts_from_0(self):
        command = ("sh", "-c", "echo $RECLAIM_GPUS_NUM $CUDA_VISIBLE_DEVICES; sleep 1000")
        first, _ = self.run_detached(1, *command)
        second, told = self.run_detached(1, *command)
        self.assertNotIn("it waits until", told)
        for job in (first, second):
            self.wait_for(job, "running")
        third, _ = self.run_detached(1, "true")

        self.assertEqual(sorted(self.gpus_of(first) + self.gpus_of(second)), [0, 1])
        for job in (first, second):
            wait_until("its words", lambda: self.rest.log(job), 20)  # noqa: B023
            self.assertEqual(self.rest.log(job).decode(), "1 0\n")
        wait_until("the reason", lambda: "GPUs busy with other jobs" in self.why(third), 20)

        self.cli("stop", first)

        self.wait_for(third, "succeeded")
        self.assertEqual(self.rest.job(second)["state"], "running")
        type(self).second = second

    def test_e_an_owner_takes_one_declared_device_back(self):
        """The guest on it goes on with the other one; a job without GPUs on the same machine stays."""
        job, _ = self.run_detached(0, "sleep", "1000", flags=("--lab", "lab-b"))
        self.wait_for(job, "running")
        taken = self.gpus_of(self.second)[0]

        self.nodes["lab-b"].owner("reclaim", "--now", "--gpu", taken)

        wait_until("it to run on the other device", lambda: len(self.rest.attempts(self.second)) == 2 and
                   self.gpus_of(self.second) == [1 - taken], 30)
        self.wait_for(self.second, "running")
        self.assertEqual(self.rest.attempts(self.second)[0]["end"], "reclaimed")
        self.assertEqual(len(self.rest.attempts(job)), 1)
        third, _ = self.run_detached(1, "true")
        wait_until("a look at the queue", lambda: self.rest.job(third)["reason"], 20)
        self.assertEqual(self.rest.attempts(third), [])
        self.nodes["lab-b"].owner("release")
        self.wait_for(third, "succeeded")


if __name__ == "__main__":
    unittest.main(verbosity=2)
