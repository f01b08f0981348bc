#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Certificates that live for seconds, on real daemons: everything goes on over the end of the first ones, with the
renewed ones, and they are renewed once in a seventh of their life."""
import pathlib
import shutil
import ssl
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
import lan  # noqa: E402
from stories import Site  # noqa: E402

LIFE_S = 35
PERIOD_S = LIFE_S / 7


class Renewal(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        lends = {"guest_disk_mib": 128, "guest_memory_mib": 512}
        cls.site = Site({"lab-a": lends, "storage": {"lends": False}}, flags=["--certificate-s", LIFE_S])
        cls.addClassCleanup(cls.site.down)
        cls.ca = cls.site.coordinator.state / "pki" / "ca.pem"
        cls.first = {}
        cls.begun = time.monotonic()
        cls.early = {lab: cls.renewals(lab) for lab in cls.site.nodes}
        for lab, node in cls.site.nodes.items():
            now, kept = lan.node_certificate(node), cls.site.labs.dir / f"first-{lab}.pem"
            shutil.copy(now.certificate, kept)
            cls.first[lab] = lan.Certificate(kept, now.key)
        cls.site.submit("plain", 100000, 10, 0.2, ballast_kib=256)

    @classmethod
    def renewals(cls, lab):
        return cls.site.nodes[lab].agent.output().count("certificate.renewed")

    def test_a_all_that_a_node_does_goes_on_after_its_first_certificate_has_expired(self):
        site = self.site
        site.wait("a durable generation", lambda: site.generation("plain") > 0, 60)
        site.wait("the end of the first certificates", lambda: all(
            one.expires_within(0) for one in self.first.values()), LIFE_S + 20, every_s=0.5)

        before = site.generation("plain")
        site.wait("copies at the peer, and durable ones", lambda: site.generation("plain") >= before + 3, 60)

        self.assertEqual(len(site.rest.ran(site.guests["plain"].job)), 1, "the job was displaced")
        folder = site.labs.dir / "late"
        folder.mkdir()
        (folder / "question").write_text("6 times 7\n")
        done = site.cli("run", "--disk", "64MB", "--memory", "64MB", "--stateless", "--", "sh", "-c",
                        "cat question; echo 42 > answer", cwd=folder)
        self.assertEqual((done.stdout, (folder / "answer").read_text()), ("6 times 7\n", "42\n"))

    def test_b_the_renewed_ones_are_served_and_accepted_and_the_first_ones_are_not(self):
        site = self.site
        for lab, other in (("lab-a", "storage"), ("storage", "lab-a")):
            client, address = lan.node_certificate(site.nodes[other]), site.nodes[lab].address
            for port in (lan.API, lan.PEER):
                shown = lan.served_certificate(address, port, self.ca, client, site.labs.dir)
                self.assertNotEqual(shown.show("serial"), self.first[lab].show("serial"), f"{lab} port {port}")
            self.assertEqual(lan.call(address, self.ca, client, "GET", "/healthz")[0], 200)
            with self.assertRaises((ssl.SSLError, ConnectionError)):
                lan.call(address, self.ca, self.first[other], "GET", "/healthz")

    def test_c_each_is_renewed_once_in_a_seventh_of_its_life(self):
        passed = time.monotonic() - self.begun
        self.assertGreater(passed, LIFE_S)  # long enough to see that nothing more happens
        for lab in self.site.nodes:
            done = self.renewals(lab) - self.early[lab]
            self.assertGreaterEqual(done, passed / PERIOD_S * 2 / 3, lab)  # a busy machine's come late
            self.assertLessEqual(done, passed / PERIOD_S + 1, lab)

    def test_d_no_node_was_ever_refused(self):
        for lab, node in self.site.nodes.items():
            said = node.agent.output()
            self.assertNotIn("not_renewed", said, lab)
            self.assertNotIn("certificate.not_", said, lab)


if __name__ == "__main__":
    unittest.main(verbosity=2)
