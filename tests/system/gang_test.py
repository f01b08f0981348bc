#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A training over two machines on a real site: torchrun in two guests of two laboratories, one rank in each, which meet
at the first member's name and reach each other by their agents alone. An owner wants one of the machines back: both
ranks are told, the first one saves, and both go on from that save, to the same bits as two ranks on one machine.

Root. Most of its time the base image is on its way to the two nodes."""
import os
import pathlib
import re
import shutil
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
from guests import GUESTS  # noqa: E402
from labs import ROOT  # noqa: E402
from rest import Refused  # noqa: E402
from rn_site import base_image  # noqa: E402
from stories import Site  # noqa: E402

NOTICE_S = 40
BRINGS_S = 240  # the image to a node, and torch begins; much less on a quiet machine
ENDS_S = 120
STEPS, PACE_S = 160, 0.15
LENDS = {"guest_disk_mib": 1024, "guest_memory_mib": 2048, "notice_s": NOTICE_S, "gangs": True}
# NOTE: why with --redirects and --tee: torchrun_test.py.
LAUNCH = ["python3", "-B", "-m", "torch.distributed.run", "--redirects=1", "--tee=1"]
ALONE = [*LAUNCH, "--nproc_per_node=2", "--nnodes=1", "--node_rank=0", "--master_addr=127.0.0.1",
         "--master_port=29501", "ddp_train.py"]
# As people write it.
TOGETHER = ["sh", "-c", " ".join([
    "exec", *LAUNCH, "--nproc_per_node=1", "--nnodes=$RECLAIM_NODES_NUM", "--node_rank=$RECLAIM_NODE_RANK",
    "--master_addr=$MASTER_ADDR", "--master_port=$MASTER_PORT", "ddp_train.py"])]
LABS = ["lab-a", "lab-b"]


class TorchrunOverTwoMachines(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        archive = base_image()
        cls.site = Site({lab: LENDS for lab in LABS}, disk="10G")
        cls.addClassCleanup(cls.site.down)
        cls.site.cli("image", "add", "torch", archive, timeout_s=600)
        if not all("gangs" in node["facts"]["features"] for node in cls.site.rest.nodes().values()):
            raise unittest.SkipTest("this kernel makes no network of a gang's member: reclaim-warden doctor")
        cls.alone = cls.submit_alone()
        cls.site.wait("the run on one machine to train", lambda: len(cls.begins(cls.alone, 1)) == 2, BRINGS_S)
        cls.gang, cls.members = cls.submit_gang()
        for job in cls.members:
            cls.site.wait("each member to train", lambda job=job: len(cls.begins(job, 1)) == 1, BRINGS_S)

    @classmethod
    def submit_alone(cls):
        folder = cls.site.labs.dir / "student"
        folder.mkdir()
        shutil.copy(GUESTS / "frameworks" / "ddp_train.py", folder)
        for shared in ("ranks.py", "training.py"):
            shutil.copy(ROOT / "tests" / "gpu" / "frameworks" / shared, folder)
        return cls.site.cli(
            "run", "--detach", "--name", "alone", "--image", "torch", "--cpus", "1", "--cpus-min", "0.2", "--memory",
            "768MB", "--disk", "128MB", "--env", "GLOO_SOCKET_IFNAME=lo", "--env", f"RN_STEPS={STEPS}", "--env",
            f"RN_PACE_S={PACE_S}", "--", *ALONE, cwd=folder).stdout.strip()

    @classmethod
    def submit_gang(cls):
        """The same job, with another command: how the ranks find each other is all that differs."""
        spec = cls.site.rest.job(cls.alone)["spec"]
        spec["name"], spec["command"] = "together", TOGETHER
        del spec["env"]["GLOO_SOCKET_IFNAME"]
        answer = cls.site.rest.post("/v1/gangs", {"spec": spec, "size": 2, "saves": "first"}, Idempotency_Key="gang")
        return answer["gang"], [member["job"] for member in answer["members"]]

    @classmethod
    def ran(cls, job):
        """Its attempts that began, with their numbers: one that waited in vain for the others is none."""
        return [(int(one["epoch"].split(".")[1]), one) for one in cls.site.rest.attempts(job)
                if one["started_wall_ms"]]

    @classmethod
    def log(cls, job, attempt):
        """Of the first attempt that began (1), of the second (2), … torchrun puts a rank's name before its lines."""
        ran = cls.ran(job)
        if len(ran) < attempt:
            return ""
        try:
            return re.sub(r"(?m)^\[\w+\]:", "", cls.site.rest.log(job, ran[attempt - 1][0]).decode())
        except Refused:
            return ""  # nothing of it has come yet

    @classmethod
    def begins(cls, job, attempt):
        return [int(step) for step in re.findall(r"(?m)^rank=\d begin step=(\d+)$", cls.log(job, attempt))]

    def state(self):
        return self.site.rest.get(f"/v1/gangs/{self.gang}")

    def done(self, job):
        """The last line of a run that has succeeded: step, weights, loss."""
        self.site.wait("its end", lambda: self.site.rest.job(job)["state"] in ("succeeded", "failed"), ENDS_S)
        logs = [self.log(job, attempt) for attempt in (1, 2)]
        found = re.findall(r"(?m)^done step=.*$", "".join(logs))
        self.assertEqual(len(found), 1, "\n".join(logs)[-4000:])
        return found[0]

    def test_an_owner_takes_one_machine_and_both_members_go_on_from_one_save_to_the_same_bits(self):
        self.assertEqual([self.begins(job, 1) for job in self.members], [[0], [0]])
        nodes = [self.site.lab_of_node(self.site.rest.job(job)["node"]) for job in self.members]
        self.assertEqual(sorted(nodes), LABS, "each on a machine of its own")
        self.assertEqual(self.state()["state"], "running")

        taken = self.site.nodes[nodes[1]]
        taken.owner("reclaim", "-m", "a lecture")
        for job in self.members:
            self.site.wait("both to leave", lambda job=job: self.ran(job)[0][1]["state"] == "ended", NOTICE_S + 30)
        self.site.wait("a set", lambda: self.state()["set"]["number"] == 1, NOTICE_S + 30)
        taken.owner("release")
        for job in self.members:
            self.site.wait("both to go on", lambda job=job: len(self.begins(job, 2)) == 1, BRINGS_S)
        ends = self.done(self.members[0])

        begun = [self.begins(job, 2) for job in self.members]
        self.assertEqual(begun[0], begun[1], "from two different saves")
        self.assertGreater(begun[0][0], 0, "from nothing")
        self.assertLess(begun[0][0], STEPS)
        for rank, job in enumerate(self.members):
            self.assertIn("told=[1, 1]", self.log(job, 2), f"rank {rank}: not both were told")
            self.assertEqual(self.ran(job)[1][1]["end"], "succeeded")
            self.assertEqual(self.site.rest.job(job)["restarts"], 0, "an owner's notice is no failure of the gang")
        self.assertEqual(len({self.ran(job)[1][0] for job in self.members}), 1, "not in one epoch")
        self.assertEqual(self.state()["state"], "over")
        self.assertEqual(ends, self.done(self.alone))


if __name__ == "__main__":
    if os.getuid() != 0:
        print("skipped: needs root")
        sys.exit(77)
    unittest.main(verbosity=2)
