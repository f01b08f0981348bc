#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A machine whose owner works on it (container engine, containers, services, rules, queues) lends itself, runs a guest,
is taken back, and leaves: afterwards it is as before, in files, users, processes, containers, network and kernel."""
import contextlib
import pathlib
import re
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
import machine  # noqa: E402
from labs import Labs, TimedOut, wait_until  # noqa: E402
from rn_site import Cli, Coordinator, Node, program, tiny_image  # noqa: E402


class OwnerUnharmed(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        machine.have_own_run_folder()
        cls.labs = Labs("campus", "lab-a", disk="2G")
        cls.addClassCleanup(cls.labs.down)
        cls.coordinator = Coordinator(cls.labs).start()
        cls.cli = Cli(cls.labs, cls.coordinator)
        image = tiny_image()
        cls.cli("image", "add", "base", image)
        cls.owner = machine.Owner(cls.labs, "lab-a", image)
        cls.owner.start_engine()
        wait_until("the owner's engine", cls.owner.is_engine_up, 60, 0.5)
        cls.owner.start_work()
        wait_until("the owner's service", lambda: "8888" in cls.owner.call("ss", "-Hltn"), 20)
        cls.before = cls.picture()
        wait_until("the machine to be quiet by itself", cls.is_quiet, 60, 1)

    @classmethod
    def picture(cls):
        return machine.picture(cls.owner, without={cls.coordinator.process.pid})

    @classmethod
    def is_quiet(cls):
        """A new engine and new addresses take some seconds to settle."""
        earlier, cls.before = cls.before, cls.picture()
        restless = machine.changes(earlier, cls.before)
        # The kernel takes a second or two to see that nobody else has an interface's IPv6 address.
        restless += [line for line in cls.before["addresses"] if " tentative" in line]
        if restless:
            print("  not yet quiet: " + "; ".join(restless)[:300], flush=True)
        return not restless

    def lend(self):
        """Joins, and has a guest that may speak to a peer, so that gates, a table and an interface are there."""
        peer = f"{self.labs.addresses['campus']}/32"
        node = Node(self.labs, "lab-a", {
            "guest_disk_mib": 128, "reserve_disk_mib": 64,
            "network": [{"prefix": peer, "port": 9, "protocol": "udp"}]})
        node.set_up(self.coordinator)
        folder = self.labs.dir / f"student-{self.id().rsplit('.')[-1]}"
        folder.mkdir()
        self.job = self.cli(
            "run", "--detach", "--disk", "64MB", "--memory", "64MB", "--stateless", "--peer",
            f"{self.labs.addresses['campus']}:9/udp", "--", "sleep", "1000", cwd=folder).stdout.strip()
        rest = self.coordinator.rest()
        wait_until("the guest to run", lambda: rest.job(self.job)["state"] == "running", 60)
        while_lent = machine.changes(self.before, self.picture())
        for section in ("links", "nft", "cgroups", "processes"):  # else the comparison would prove nothing
            self.assertTrue(any(line.startswith(f"{section}: +") for line in while_lent), section)
        self.sockets = machine.shim_sockets(node.run)
        self.assertTrue(self.sockets)
        self.bpf = machine.bpf_objects(node.run)
        self.assertIn("map", {kind for kind, _ in self.bpf})
        filters = "\n".join(self.picture()["filters"])
        self.bpf += [("prog", int(number)) for number in re.findall(r"\bid (\d+)", filters)
                     if f" id {number}" not in "\n".join(self.before["filters"])]
        self.assertTrue(any(kind == "prog" for kind, _ in self.bpf), filters)
        return node

    def leave(self, node):
        """The student stops the job first where it still runs: it is no part of the machine."""
        self.cli("stop", self.job)
        node.owner("leave", "--purge", timeout_s=180)
        told = self.labs.call("lab-a", [program("reclaim-warden"), "leave", "--state", node.state, "--run", node.run],
                              timeout_s=120, check=False)
        self.assertNotIn("STAYS", told.stdout)
        self.assertEqual(told.returncode, 0, told.stdout + told.stderr)
        for process in (node.agent, node.warden):
            wait_until(f"{process.name} to end", lambda process=process: not process.is_running(), 30)

    def what_is_left(self):
        return [*machine.changes(self.before, self.picture()),
                *(f"BPF {one}" for one in self.bpf if machine.is_bpf_alive(*one)),
                *(line for line in machine.loop_devices() if self.job in line),
                *(str(path) for path in self.sockets if path.exists())]

    def check_unharmed(self):
        """The kernel frees what nobody has any more when it has time for that."""
        found = []

        def is_unharmed():
            found[:] = self.what_is_left()
            return not found
        with contextlib.suppress(TimedOut):
            wait_until("nothing to be left", is_unharmed, 30, 1)
        self.assertEqual(found, [], "\n".join(found[:40]))
        self.assertEqual(self.owner.call("cat", self.owner.folder / "thesis.tex"), "mine\n")

    def test_1_the_kill_switch_and_then_leaving(self):
        node = self.lend()

        self.assertRegex(node.kill_switch().stdout, "^cleared")
        node.owner("release")
        self.leave(node)

        self.check_unharmed()

    def test_2_reclaim_now_and_leaving_without_a_release(self):
        node = self.lend()

        self.assertIn("verified", node.owner("reclaim", "--now").stdout)
        self.leave(node)

        self.check_unharmed()

    def test_3_agent_and_warden_killed_before_they_are_told_to_leave(self):
        node = self.lend()

        node.agent.kill()
        node.warden.kill()
        self.leave(node)

        self.check_unharmed()

    def test_4_what_is_left_would_be_seen(self):
        """One leftover of each kind, and each is named."""
        plant = {
            "nft": (["nft", "add", "table", "inet", "reclaimnet"], ["nft", "delete", "table", "inet", "reclaimnet"]),
            "links": (["ip", "link", "add", "rn0g0", "type", "veth", "peer", "name", "rn0p0"],
                      ["ip", "link", "del", "rn0g0"]),
            "routes": (["ip", "route", "add", "198.51.100.0/24", "via", self.labs.host],
                       ["ip", "route", "del", "198.51.100.0/24"]),
            "sysctls": (["sysctl", "-w", "net.ipv4.conf.eth0.forwarding=0"],
                        ["sysctl", "-w", "net.ipv4.conf.eth0.forwarding=1"]),
            "qdiscs": (["tc", "qdisc", "add", "dev", "lo", "clsact"], ["tc", "qdisc", "del", "dev", "lo", "clsact"]),
            "filters": (["sh", "-c", machine.OWN_FILTER.replace("ingress", "egress")],
                        ["tc", "filter", "del", "dev", "eth0", "egress"]),
            "cgroups": (["mkdir", f"/sys/fs/cgroup/pids/reclaim-{self.labs.run}-lab-a"],
                        ["rmdir", f"/sys/fs/cgroup/pids/reclaim-{self.labs.run}-lab-a"]),
            "mounts": (["mount", "--bind", self.owner.folder, self.owner.folder], ["umount", self.owner.folder]),
            "files": (["touch", "/etc/reclaimnet-test"], ["rm", "/etc/reclaimnet-test"]),
            "containers": (["docker", "-H", self.owner.socket, "pause", "owners-service"],
                           ["docker", "-H", self.owner.socket, "unpause", "owners-service"]),
        }
        for do, undo in plant.values():
            self.owner.call(*do)
            self.addCleanup(self.owner.call, *undo)
        found = machine.changes(self.before, self.picture())
        for section in plant:
            with self.subTest(section):
                self.assertTrue(any(line.startswith(f"{section}: ") for line in found), "\n".join(found[:40]))


if __name__ == "__main__":
    unittest.main(verbosity=2)
