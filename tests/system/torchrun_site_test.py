#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own torchrun on a real site: two ranks over gloo in a guest, with its first process and its namespaces and
the PyTorch of the base image. An owner wants the machine back, both ranks are told and the launcher is not, it leaves
and goes on on the other laboratory's machine from that save, to the same bits as a run that nobody disturbed.

Root. Most of its time the base image is on its way to the two nodes; the undisturbed run brings it to the second."""
import os
import pathlib
import re
import shutil
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
from guests import GUESTS  # noqa: E402
from labs import ROOT  # noqa: E402
from rn_site import base_image  # noqa: E402
from stories import Site  # noqa: E402

NOTICE_S = 40
BRINGS_S = 240  # the image to a node, and torch begins; much less on a quiet machine
ENDS_S = 120
# As long as a save may take to be told and copied, and then some: 20 s at least.
STEPS, PACE_S = 160, 0.15
LENDS = {"guest_disk_mib": 1024, "guest_memory_mib": 2048, "notice_s": NOTICE_S}
# NOTE: why with --redirects and --tee: torchrun_test.py.
LAUNCH = ["python3", "-B", "-m", "torch.distributed.run", "--redirects=1", "--tee=1", "--nproc_per_node=2",
          "--nnodes=1", "--node_rank=0", "--master_addr=127.0.0.1", "--master_port=29501", "ddp_train.py"]


class TorchrunOnASite(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        archive = base_image()
        cls.site = Site({"lab-a": LENDS, "lab-b": LENDS}, disk="10G")
        cls.addClassCleanup(cls.site.down)
        cls.site.cli("image", "add", "torch", archive, timeout_s=600)
        cls.site.nodes["lab-a"].owner("pause")
        cls.undisturbed = cls.submit("undisturbed")
        cls.site.wait("the undisturbed run to have a node", lambda: cls.ran(cls.undisturbed), BRINGS_S)
        cls.site.nodes["lab-b"].owner("pause")
        cls.site.nodes["lab-a"].owner("resume")
        cls.moved = cls.submit("moved")
        for job in (cls.undisturbed, cls.moved):
            cls.site.wait("both ranks to train", lambda job=job: len(cls.begins(job, 1)) == 2, BRINGS_S)

    @classmethod
    def submit(cls, name):
        folder = cls.site.labs.dir / f"student-{name}"
        folder.mkdir()
        shutil.copy(GUESTS / "frameworks" / "ddp_train.py", folder)
        for shared in ("ranks.py", "training.py"):
            shutil.copy(ROOT / "tests" / "gpu" / "frameworks" / shared, folder)
        return cls.site.cli(
            "run", "--detach", "--name", name, "--image", "torch", "--cpus", "1", "--cpus-min", "0.2", "--memory",
            "768MB", "--disk", "128MB", "--env", "GLOO_SOCKET_IFNAME=lo", "--env", f"RN_STEPS={STEPS}", "--env",
            f"RN_PACE_S={PACE_S}", "--", *LAUNCH, cwd=folder).stdout.strip()

    @classmethod
    def ran(cls, job):
        """Its attempts that began, with their numbers: one that a node refused has said nothing."""
        return [(number, one) for number, one in enumerate(cls.site.rest.attempts(job), 1) if one["started_wall_ms"]]

    @classmethod
    def log(cls, job, attempt):
        """Of the first attempt that began (1), of the second (2), … torchrun puts a rank's name before its lines."""
        ran = cls.ran(job)
        if len(ran) < attempt:
            return ""
        return re.sub(r"(?m)^\[\w+\]:", "", cls.site.rest.log(job, ran[attempt - 1][0]).decode())

    @classmethod
    def begins(cls, job, attempt):
        return [int(step) for step in re.findall(r"(?m)^rank=\d begin step=(\d+)$", cls.log(job, attempt))]

    def done(self, job):
        """The last line of a run that has succeeded: step, weights, loss."""
        self.site.wait("its end", lambda: self.site.rest.job(job)["state"] in ("succeeded", "failed"), ENDS_S)
        logs = [self.log(job, attempt) for attempt in (1, 2)]
        found = re.findall(r"(?m)^done step=.*$", "".join(logs))
        self.assertEqual(len(found), 1, "\n".join(logs)[-4000:])
        return found[0]

    def test_both_ranks_are_told_at_a_notice_and_it_goes_on_elsewhere_to_the_same_bits(self):
        self.assertEqual((self.begins(self.undisturbed, 1), self.begins(self.moved, 1)), ([0, 0], [0, 0]))
        self.site.nodes["lab-b"].owner("resume")
        self.site.wait("lab-b to lend", lambda: self.site.rest.nodes()["lab-b"]["lending"] == "open", 30)

        self.site.nodes["lab-a"].owner("reclaim", "-m", "a lecture")
        self.site.wait("it to leave", lambda: self.ran(self.moved)[0][1]["end"] == "reclaimed", NOTICE_S + 30)
        self.site.wait("it to go on", lambda: len(self.begins(self.moved, 2)) == 2, BRINGS_S)
        ends = self.done(self.moved)

        # NOTE: what the first attempt printed in its last tenths of a second torchrun has kept; the save knows it.
        again = self.log(self.moved, 2)
        self.assertEqual(sorted(re.findall(r"(?m)^rank=(\d) goes on told=\[1, 1\]$", again)), ["0", "1"], again[-4000:])
        saved = self.begins(self.moved, 2)
        self.assertEqual(len(set(saved)), 1, "from two different saves")
        self.assertGreater(saved[0], 0, "from nothing")
        self.assertLess(saved[0], STEPS)
        (_, here), (_, there) = self.ran(self.moved)
        self.assertEqual([here["end"], there["end"]], ["reclaimed", "succeeded"])
        self.assertEqual([self.site.lab_of_node(one["node"]) for one in (here, there)], ["lab-a", "lab-b"])
        self.assertEqual(self.site.rest.job(self.moved)["restarts"], 0, "an owner's notice is no failure of the job")
        self.assertEqual(ends, self.done(self.undisturbed))
        self.assertEqual(len(self.ran(self.undisturbed)), 1, "it was disturbed")


if __name__ == "__main__":
    if os.getuid() != 0:
        print("skipped: needs root")
        sys.exit(77)
    unittest.main(verbosity=2)
