#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An agent's REST on the LAN: who presents which certificate, what it may do, and what it is told."""
import json
import pathlib
import ssl
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
import lan  # noqa: E402
from labs import Labs, wait_until  # noqa: E402
from rn_site import Cli, Coordinator, Node  # noqa: E402

OWNER = "spiffe://reclaimnet/owner/lab-a"
STUDENT = "spiffe://reclaimnet/user/student"
CONTRACT = {"guest_disk_mib": 128, "reserve_disk_mib": 64}


class LanRest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.labs = Labs("campus", "lab-a", "lab-b", disk="1G")
        cls.addClassCleanup(cls.labs.down)
        cls.coordinator = Coordinator(cls.labs).start()
        cls.nodes = {}
        for lab in ("lab-a", "lab-b"):
            node = cls.nodes[lab] = Node(cls.labs, lab, CONTRACT, config={"owners": [OWNER]})
            node.set_up(cls.coordinator)
        rest = cls.coordinator.rest()
        wait_until("both to lend", lambda: [
            node["lending"] for node in rest.nodes().values() if node["is_connected"]] == ["open"] * 2, 90)
        pki, folder = cls.coordinator.state / "pki", cls.labs.dir / "certificates"
        cls.ca = pki / "ca.pem"
        site = lan.Certificate(pki / "ca.pem", pki / "ca.key")
        cls.owner = lan.issue(site, folder, "owner", OWNER)
        cls.student = lan.issue(site, folder, "student", STUDENT)
        foreign = lan.make_authority(folder / "foreign", "Another campus")
        cls.stranger = lan.issue(foreign, folder, "stranger", OWNER)
        cls.peer = lan.node_certificate(cls.nodes["lab-b"])

    def call(self, client, method, path, body=None):
        return lan.call(self.nodes["lab-a"].address, self.ca, client, method, path, body)

    def refused(self, client, method, path, body=None):
        """The error of an answer that is none of 2xx: its status and its words."""
        status, answer = self.call(client, method, path, body)
        self.assertIn("error", answer)
        return status, answer["error"]

    # --- the handshake

    def test_nobody_gets_in_without_a_certificate(self):
        with self.assertRaisesRegex(ssl.SSLError, "certificate required"):
            self.call(None, "GET", "/healthz")

    def test_a_certificate_of_another_ca_is_refused_whatever_name_is_in_it(self):
        with self.assertRaisesRegex(ssl.SSLError, "unknown ca|decrypt error|bad certificate"):
            self.call(self.stranger, "POST", "/v1/emergency")

        self.assertEqual(self.status()["reclaims"], [])

    def test_who_calls_sees_that_it_is_the_sites_node(self):
        shown = lan.served_certificate(self.nodes["lab-a"].address, lan.API, self.ca, self.peer, self.labs.dir)

        self.assertIn("URI:spiffe://reclaimnet/node/n-", shown.names())

    # --- reading: any certificate of the site

    def test_everybody_of_the_site_may_look(self):
        for client in (self.owner, self.student, self.peer):
            status, node = self.call(client, "GET", "/v1/node")
            self.assertEqual((status, node["lending"], node["is_coordinator_connected"]), (200, "open", True))
            self.assertEqual(self.call(client, "GET", "/healthz"), (200, {"is_ok": True}))
            self.assertEqual(self.call(client, "GET", "/v1/attempts"), (200, {"attempts": []}))
            status, page = self.call(client, "GET", "/metrics")
            self.assertEqual(status, 200)
            self.assertIn("reclaimnet_agent_lending 1\n", page)

    # --- commands: the owner alone

    def test_a_submitter_may_not_take_the_machine_back(self):
        for client in (self.student, self.peer):
            status, error = self.refused(client, "POST", "/v1/emergency")
            self.assertEqual((status, error["code"]), (403, "denied"))
            self.assertEqual(error["message"], "only the machine's owner may do this")
            self.assertIn("owners:", error["hint"])

        self.assertEqual(self.status()["reclaims"], [])

    def test_what_is_for_the_machine_itself_is_not_on_the_lan_even_for_the_owner(self):
        for method, path in (("PUT", "/v1/contract"), ("GET", "/v1/contract"), ("POST", "/v1/leave")):
            status, error = self.refused(self.owner, method, path, "x")
            self.assertEqual((status, error["code"]), (404, "not_found"), path)
            self.assertIn(f"no such path: {method} {path}", error["message"])
            self.assertIn("POST /v1/emergency", error["hint"])

    def test_a_body_that_is_none_is_told_apart_and_nothing_happens(self):
        for body in ('{"gpus": "all"}', "[1]", "{", '{"gpus": [64]}'):
            status, error = self.refused(self.owner, "POST", "/v1/emergency", body)
            self.assertEqual((status, error["code"]), (400, "invalid"), body)
            self.assertTrue(error["hint"])

        self.assertEqual(self.status()["reclaims"], [])

    def test_z_the_owner_takes_the_machine_back_from_the_next_room(self):
        status, answer = self.call(self.owner, "POST", "/v1/emergency")

        self.assertEqual(status, 200, answer)
        self.assertEqual(self.status()["lending"], "reclaimed", "who has the answer finds it in the status")
        self.nodes["lab-a"].owner("release")

    # --- a node that the site gives up

    def test_zz_a_revoked_node_is_out_until_it_joins_again(self):
        cli, node, rest = Cli(self.labs, self.coordinator), self.nodes["lab-b"], self.coordinator.rest()
        id_of = rest.nodes()["lab-b"]["id"]

        told = cli.json("nodes", "revoke", id_of)  # not on a terminal: nobody is asked
        self.assertEqual((told["node"], told["lab"], told["was_revoked"]), (id_of, "lab-b", False))
        self.assertEqual(rest.nodes()["lab-b"]["state"], "left")
        self.assertNotIn(rest.nodes()["lab-a"]["state"], ("left", "lost"))

        wait_until("it to be out", lambda: "coordinator: away" in node.owner("status").stdout, 30)
        again = cli("nodes", "revoke", id_of)
        self.assertIn("is revoked already", again.stdout)
        missing = cli("nodes", "revoke", "n-nobody", check=False)
        self.assertEqual(missing.returncode, 3)
        self.assertIn("'reclaim nodes' lists them", missing.stderr)
        self.assertEqual(rest.nodes()["lab-b"]["state"], "left")

        self.labs.call("lab-b", node.as_agent(node.agent_program(
            "join", self.coordinator.url, "--token", rest.join_token("lab-b"), "--again")))
        node.agent.stop()
        node.start_agent()
        wait_until("it to be back", lambda: rest.nodes()["lab-b"]["state"] == "up", 30)
        self.assertEqual(rest.nodes()["lab-b"]["id"], id_of)

    def status(self):
        return json.loads(self.nodes["lab-a"].owner("status", "--json").stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
