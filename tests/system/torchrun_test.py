#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own torchrun, with the PyTorch of the base image, in a control group as a guest has one: the warden's
choice of whom to signal finds the ranks, and neither the launcher, which would end them, nor their forked workers.

    tests/system/torchrun_test.py CATCHERS       root; the image is unpacked into memory"""
import contextlib
import os
import pathlib
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
from guests import GUESTS  # noqa: E402
from labs import ROOT, wait_until  # noqa: E402
from rn_site import base_image  # noqa: E402

GUEST_UID = 10001
# NOTE: without --redirects and --tee PyTorch 1.13 looks for a 0 among the flags of an enumeration, and with Python 3.11
# it finds none, and ends.
LAUNCH = ["env", "GLOO_SOCKET_IFNAME=lo", "PYTHONUNBUFFERED=1", "python3", "-B", "-m", "torch.distributed.run",
          "--redirects=1", "--tee=1", "--nproc_per_node=2", "--nnodes=1", "--node_rank=0", "--master_addr=127.0.0.1",
          "--master_port=29501", "ranks.py"]


class Torchrun(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        in_memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        cls.folder = pathlib.Path(tempfile.mkdtemp(dir=in_memory))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.folder.chmod(0o711)
        cls.work = cls.folder / "work"
        for one in ("root", "work"):
            (cls.folder / one).mkdir()
        subprocess.run(["tar", "-C", cls.folder / "root", "-xf", base_image()], check=True)
        shutil.copy(GUESTS / "frameworks" / "ranks.py", cls.work)
        os.chown(cls.work, GUEST_UID, GUEST_UID)
        cls.group = f"reclaim-torchrun-{secrets.token_hex(3)}"
        cls.log = cls.folder / "log"
        cls.addClassCleanup(cls.clear)
        with cls.log.open("wb") as log:
            cls.process = subprocess.Popen(
                [CATCHERS, "run", cls.group, "bash", "-c", f'. "{ROOT}/scripts/lib/image_run.sh"; image_run "$@"',
                 "torchrun", cls.folder / "root", *LAUNCH], stdout=log, stderr=log,
                env={**os.environ, "IMAGE_WORK": str(cls.work), "IMAGE_LOOPBACK": "1"})
        wait_until("all ranks to train", cls.is_training, 120)

    @classmethod
    def is_training(cls):
        if cls.process.poll() is not None:
            raise AssertionError(f"torchrun ended: {cls.log.read_text()[-4000:]}")
        return all((cls.work / f"begun.{rank}").exists() for rank in range(2))

    @classmethod
    def pids(cls):
        found = set()
        for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/freezer"):
            with contextlib.suppress(OSError):
                found.update(map(int, (pathlib.Path(root) / cls.group / "cgroup.procs").read_text().split()))
        return found

    @classmethod
    def clear(cls):
        def is_empty():
            for pid in cls.pids():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return not cls.pids()
        wait_until("nothing to be left", is_empty, 20)
        cls.process.wait(10)
        subprocess.run([CATCHERS, "remove", cls.group], check=True)

    def signal(self, number):
        done = subprocess.run([CATCHERS, "signal", self.group, str(int(number))], check=True, capture_output=True)
        return [int(pid) for pid in done.stdout.split()]

    def words_of(self, pid):
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")

    def test_a_nobody_hears_the_sigterm_that_only_launcher_and_workers_catch(self):
        def catches(pid, number):
            status = pathlib.Path(f"/proc/{pid}/status").read_text()
            return int(status.partition("SigCgt:\t")[2].split()[0], 16) >> (number - 1) & 1
        catchers = [pid for pid in self.pids() if catches(pid, signal.SIGTERM)]
        self.assertTrue(any("torch.distributed.run" in self.words_of(pid) for pid in catchers), "no launcher to spare")

        self.assertEqual(self.signal(signal.SIGTERM), [])

        self.assertIsNone(self.process.poll())

    def test_b_each_rank_is_told_to_save_and_its_worker_and_the_launcher_are_not(self):
        alike = {pid for pid in self.pids() if self.words_of(pid)[1:] == ["-u", "ranks.py", ""]}
        self.assertEqual(len(alike), 4, "not two ranks with a worker each, which looks like its rank")

        signalled = self.signal(signal.SIGUSR1)

        self.assertEqual(len(signalled), 2)
        self.assertLess(set(signalled), alike)
        self.assertEqual(self.process.wait(60), 0, self.log.read_text()[-4000:])
        told = sorted(path.name.split(".")[1] for path in self.work.glob("told.*"))
        self.assertEqual(told, ["0", "1"])
        self.assertTrue((self.work / "model.pt").exists())
        self.assertEqual(self.log.read_text().count("saved at step"), 2)


if __name__ == "__main__":
    if os.getuid() != 0:
        print("skipped: needs root")
        sys.exit(77)
    CATCHERS = sys.argv.pop(1)
    unittest.main(verbosity=2)
