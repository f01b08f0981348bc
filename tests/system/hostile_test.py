#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Hostile guests, submitted like any job, on a real node: none gets out of its profile, its network or its limits."""
import pathlib
import re
import shutil
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
import data_set  # noqa: E402
from capture import PORT, Capture  # noqa: E402
from guests import GUESTS  # noqa: E402
from labs import Labs, wait_until  # noqa: E402
from rn_site import Cli, Coordinator, Node, python_image  # noqa: E402

# Takes TCP connections and sends each datagram back, so that a guest which gets through is answered in either way.
LISTENER = """
import socket, sys, threading

def echo(server):
    while True:
        data, sender = server.recvfrom(2000)
        print("heard at", server.getsockname()[0], flush=True)
        server.sendto(data, sender)

def take(server):
    while True:
        server.accept()
        print("heard at", server.getsockname()[0], flush=True)

for address in sys.argv[2:]:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    for kind, serve in ((socket.SOCK_STREAM, take), (socket.SOCK_DGRAM, echo)):
        server = socket.socket(family, kind)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        server.bind((address, int(sys.argv[1])))
        if kind == socket.SOCK_STREAM:
            server.listen()
        threading.Thread(target=serve, args=(server,), daemon=True).start()
    print("listening on", address, flush=True)
threading.Event().wait()
"""
METADATA = "169.254.169.254"
TRAP_PORT = 9797
ECHO_PORT = 7  # where a guest's broadcast and multicast go


class HostileGuests(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.labs = Labs("campus", "lab-a", "storage", "peer", disk="8G")
        cls.addClassCleanup(cls.labs.down)
        cls.coordinator = Coordinator(cls.labs).start()
        peer = {"prefix": f"{cls.labs.addresses['peer']}/32", "port": PORT, "protocol": "udp"}
        contracts = {
            "lab-a": {"network": [peer], "guest_cpu_milli": 1000, "guest_disk_mib": 512, "reserve_disk_mib": 64},
            "storage": {"lends": False, "reserve_disk_mib": 64}}
        cls.data = data_set.make(cls.labs.disk("lab-a") / "owner" / "digits")
        cls.nodes = {lab: Node(cls.labs, lab, contract, data={"digits": cls.data} if lab == "lab-a" else {})
                     for lab, contract in contracts.items()}
        for node in cls.nodes.values():
            node.set_up(cls.coordinator)
        cls.capture = Capture(cls.labs)
        cls.cli = Cli(cls.labs, cls.coordinator)
        cls.cli("image", "add", "base", python_image(), timeout_s=300)
        cls.open_traps()

    @classmethod
    def open_traps(cls):
        """Listeners that a guest must not reach: the host, another laboratory, IPv4 and IPv6, and the address at which
        clouds tell secrets, which the guest's own machine answers here. The guest has that address itself, and must not
        come to the machine's."""
        cls.labs.call("lab-a", ["ip", "address", "add", f"{METADATA}/32", "dev", "lo"])
        host6 = cls.labs.address6("lab-a").rsplit("::", 1)[0] + "::1"
        places = {None: [cls.labs.host, host6],
                  "storage": [cls.labs.addresses["storage"], cls.labs.address6("storage")],
                  "lab-a": [cls.labs.addresses["lab-a"], cls.labs.address6("lab-a"), METADATA]}
        cls.targets = [f"{cls.labs.addresses['campus']}:7443", f"{cls.labs.addresses['lab-a']}:7445"]
        for lab, addresses in places.items():
            cls.listen(lab, TRAP_PORT, addresses)
            cls.targets += [f"[{address}]:{TRAP_PORT}" if ":" in address else f"{address}:{TRAP_PORT}"
                            for address in addresses]
        cls.listen("lab-a", ECHO_PORT, ["::", "0.0.0.0"])

    traps = {}

    @classmethod
    def listen(cls, lab, port, addresses):
        trap = cls.labs.spawn(lab, f"trap-{port}", [sys.executable, "-c", LISTENER, port, *addresses])
        cls.traps[lab, port] = trap
        wait_until("the traps to listen", lambda: trap.output().count("listening") == len(addresses), 10)

    def attack(self, script, *flags, **environment):
        """Runs one hostile guest to its end; answers its verdict lines, and everything that it wrote."""
        folder = self.labs.dir / f"attack-{script}"
        folder.mkdir()
        for name in (f"{script}.py", "verdict.py"):
            shutil.copy(GUESTS / "hostile" / name, folder / name)
        words = ["run", "--disk", "512MB", "--memory", "1GB", *flags]
        for name, value in environment.items():
            words += ["--env", f"{name}={value}"]
        done = self.cli(*words, "--", "python", f"{script}.py", cwd=folder, timeout_s=400, check=False)
        verdicts = re.findall(r"^hostile .*: escaped: .*$", done.stdout, re.MULTILINE)
        escapes = [line for line in verdicts if "escaped: no" not in line]
        self.assertEqual(escapes, [], done.stdout[-3000:])
        return verdicts, done

    def test_profile_gives_no_capability_system_call_or_mount(self):
        verdicts, done = self.attack("profile")

        self.assertGreaterEqual(len(verdicts), 20, done.stdout + done.stderr)
        self.assertEqual(done.returncode, 0)

    def test_network_reaches_its_peer_and_nothing_else(self):
        echo = f"{self.labs.addresses['peer']}:{PORT}"
        verdicts, done = self.attack(
            "network", "--peer", f"{echo}/udp", TARGETS=",".join(self.targets), ALLOWED=echo)

        self.assertGreaterEqual(len(verdicts), 2 * len(self.targets), done.stdout + done.stderr)
        self.assertIn("allowed peer answers: yes", done.stdout)
        for (lab, port), trap in self.traps.items():
            self.assertNotIn("heard at", trap.output(), f"{lab} port {port}")
        self.labs.call("lab-a", [sys.executable, "-c", f"import socket; socket.create_connection(('{METADATA}', "
                                                       f"{TRAP_PORT}))"])
        wait_until("a trap that is met to say so", lambda: "heard at" in self.traps["lab-a", TRAP_PORT].output(), 10)

    def test_what_the_kernel_counts_for_root_too_is_bounded(self):
        echo = f"{self.labs.addresses['peer']}:{PORT}"
        verdicts, done = self.attack("kernel_objects", "--peer", f"{echo}/udp", ALLOWED=echo)

        self.assertEqual(len(verdicts), 3, done.stdout + done.stderr)
        self.assertIn("connections begun: 20000", done.stdout)
        counted = int(self.labs.call("lab-a", ["cat", "/proc/sys/net/netfilter/nf_conntrack_count"]).stdout)
        self.assertGreater(counted, 1000, "nothing of it was seen: the guest's packets went nowhere")
        self.assertLess(counted, 6000)

    def test_data_of_the_owners_is_read_and_neither_changed_nor_used_to_become_more(self):
        before = data_set.picture(self.data)

        verdicts, done = self.attack("data", "--data", "digits", DATA="/data/digits")

        self.assertGreaterEqual(len(verdicts), 15, done.stdout + done.stderr)
        self.assertIn("0123", done.stdout)
        self.assertEqual(data_set.picture(self.data), before)

    def test_fork_bomb_ends_at_the_limit(self):
        self.assertEqual(len(self.attack("fork_bomb")[0]), 1)

    def test_memory_hog_is_killed_alone(self):
        self.assertEqual(len(self.attack("memory_hog")[0]), 1)

    def test_disk_filler_fills_only_its_own_disk(self):
        self.assertGreaterEqual(len(self.attack("disk_fill", FILES=300000)[0]), 2)

    def test_log_flood_is_bounded_and_the_node_lives_on(self):
        _, done = self.attack("log_flood", LOG_MIB=256)

        self.assertLess(len(done.stdout), 200 << 20)
        wait_until("the node to be up", lambda: self.coordinator.rest().nodes()["lab-a"]["state"] == "up", 60)


if __name__ == "__main__":
    unittest.main(verbosity=2)
