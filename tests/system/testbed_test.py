#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/testbed.sh: a bed of two nodes comes up with lines of the declared speed and goes without a trace, also one
whose `up` was killed or interrupted in the middle; what is wrong with a topology is said before anything is made."""
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
from labs import ROOT, wait_until  # noqa: E402

SCRIPT = ROOT / "scripts" / "testbed.sh"
PAIR = ROOT / "tests" / "testbed" / "pair.topology.yaml"
LINE_BPS = 100e6


def testbed(*words, timeout_s=100):
    return subprocess.run([SCRIPT, *map(str, words)], capture_output=True, text=True, timeout=timeout_s)


def in_namespace(run, lab, *command, **options):
    return subprocess.run(["nsenter", f"--net=/run/netns/rn-{run}-{lab}", "--", *command],
                          capture_output=True, text=True, timeout=30, **options)


class Up:
    """`up` under way, whose id is known as soon as it says it."""

    def __init__(self, *words):
        self.popen = subprocess.Popen([SCRIPT, "up", "--topology", PAIR, "--nodes", "2", *words],
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.said = []
        threading.Thread(target=lambda: self.said.extend(self.popen.stderr), daemon=True).start()
        wait_until("up to say its id", self.id, 60)

    def id(self):
        return next((match[1] for line in self.said if (match := re.match(r"(tb\w+): 2 nodes", line))), None)


class Testbed(unittest.TestCase):
    def test_a_bed_comes_up_with_its_lines_and_goes(self):
        up = Up()
        run = up.id()
        self.addCleanup(testbed, "down", run)
        self.assertEqual(up.popen.wait(90), 0, up.said)
        shown = testbed("status", run).stdout
        self.assertRegex(shown, rf"{run}: up, https://")
        open_nodes = re.findall(r"node lab-[ab] .* 100 Mbit/s at switch-1 +up, lending open", shown)
        self.assertEqual(len(open_nodes), 2, shown)
        self.assertRegex(shown, r"host desk .* 1000 Mbit/s")
        self.assert_rate(run, "htb")
        self.assertNotEqual(testbed("residue", run).returncode, 0)
        self.assertEqual(testbed("down", run).returncode, 0)
        self.assert_nothing_is_left(run)

    def assert_rate(self, run, shaper):
        """What two seconds of UDP bring from a node to the desk: not more than the line's rate. How much less is the
        machine's matter."""
        queues = in_namespace(run, "lab-a", "tc", "qdisc", "show", "dev", "eth0").stdout
        self.assertRegex(queues, rf"qdisc {shaper} 1: root")
        address = re.search(r"host desk +(\S+)", testbed("status", run).stdout)[1]
        count = ("import socket,time\ns=socket.socket(type=socket.SOCK_DGRAM)\ns.bind(('',9000))\ns.settimeout(30)\n"
                 "print('ready',flush=True)\nn=len(s.recv(65535));b=e=time.monotonic()\ns.settimeout(1)\ntry:\n"
                 " while e<b+2: n+=len(s.recv(65535));e=time.monotonic()\nexcept TimeoutError: pass\n"
                 "print(n*8/max(e-b,1))")
        send = ("import socket,time\ns=socket.socket(type=socket.SOCK_DGRAM)\ne=time.monotonic()+3\n"
                f"while time.monotonic()<e: s.sendto(bytes(1400),('{address}',9000))")
        reader = subprocess.Popen(["nsenter", f"--net=/run/netns/rn-{run}-desk", "--", "/usr/bin/python3", "-c", count],
                                  stdout=subprocess.PIPE, text=True)
        self.assertEqual(reader.stdout.readline(), "ready\n")
        in_namespace(run, "lab-a", "/usr/bin/python3", "-c", send)
        rate = float(reader.communicate(timeout=40)[0])
        self.assertLess(rate, LINE_BPS * 1.05)
        self.assertGreater(rate, LINE_BPS * 0.1)

    def assert_nothing_is_left(self, run):
        left = testbed("residue", run)
        self.assertEqual((left.returncode, left.stdout), (0, ""))
        names = subprocess.run(["ip", "netns"], capture_output=True, text=True).stdout
        self.assertNotIn(run, names)
        self.assertFalse(pathlib.Path(f"/tmp/rn-{run}").exists())

    def test_a_killed_up_leaves_lines_by_tbf_which_go_by_down(self):
        up = Up("--shaper", "tbf")
        self.addCleanup(testbed, "down", up.id())
        up.popen.kill()
        up.popen.wait(10)
        self.assertIn("starting", testbed("status", up.id()).stdout)
        self.assert_rate(up.id(), "tbf")
        self.assertNotEqual(testbed("residue", up.id()).returncode, 0)
        self.assertEqual(testbed("down", up.id()).returncode, 0)
        self.assert_nothing_is_left(up.id())

    def test_an_interrupted_up_leaves_nothing(self):
        up = Up("--shaper", "tbf")
        up.popen.send_signal(signal.SIGINT)
        self.assertEqual(up.popen.wait(60), 130)
        self.assert_nothing_is_left(up.id())

    def test_what_is_wrong_is_said_before_anything_is_made(self):
        def refused(text, *words):
            file = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(dir="/tmp")), "topology.yaml")
            file.write_text(text)
            done = testbed("up", "--topology", file, *words)
            self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
            return done.stderr
        good = PAIR.read_text()
        loop = good.replace("- name: switch-1", "- {name: r}\n  - {name: switch-1, parent: s2, rate: 1gbit}\n"
                            "  - {name: s2, parent: switch-1, rate: 1gbit}")
        self.assertIn("a loop", refused(loop))
        self.assertIn("attic", refused(good.replace("at: switch-1, rate: 1gbit", "at: attic, rate: 1gbit")))
        self.assertIn("rate", refused(good.replace("1gbit", "9999999gbit")))
        self.assertIn("give 1 to 3", refused(good, "--nodes", "4"))
        self.assertIn("one to eleven", refused(good.replace("desk", "the-desk-of-the-secretary")))
        self.assertEqual(testbed("up", "--topology", "/nonexistent").returncode, 2)
        self.assertEqual(testbed("down", "abc").returncode, 2)
        self.assertEqual(testbed("up", "--topology", PAIR, "--nodes", "0").returncode, 2)
        for words, said in ((("--discipline", "tcp"), "wants some of ours, fair, priority, edf"),
                            (("--discipline", "ours,edf", "--keep"), "play one discipline with it")):
            done = testbed("run", PAIR.with_name("minute.yaml"), *words)
            self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
            self.assertIn(said, done.stderr)





if __name__ == "__main__":
    unittest.main()
