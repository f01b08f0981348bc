#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Signing in with accounts of a real identity provider of others' making, Debian's glewlwyd: a real coordinator, the
real command line, people who type a password there, and a browser that is a few requests. Nothing is lent here."""
import pathlib
import re
import signal
import sys
import tempfile
import time
import unittest
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
import glewlwyd  # noqa: E402
from labs import wait_until  # noqa: E402
from sign_in_site import SignInSite, ask  # noqa: E402

SKIPPED, DENIED = 77, 4


class RealProvider(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix="rn-signin-")
        cls.addClassCleanup(scratch.cleanup)
        folder = pathlib.Path(scratch.name)
        cls.site = SignInSite(folder)
        cls.provider = glewlwyd.Glewlwyd(folder, cls.site.redirect)
        cls.addClassCleanup(lambda: cls.provider.down())
        for name, more in (("ann", {}), ("boss", {}), ("eve", {"groups": ["other", "staff"]}), ("stranger", {}),
                           ("mallory", {"groups": ["staff"], "verified": "no"}),
                           ("far", {"groups": ["staff"], "email": "far@example.com"})):
            cls.provider.add_person(name, **more)
        cls.addClassCleanup(cls.site.stop)
        cls.site.start(cls.site.settings(cls.provider, claim="email", domain="example.org",
                                         users={"boss@example.org": "admin"}))
        for user, lab, role in (("ann", "lab-a", "owner"), ("late", "lab-a", "user")):
            cls.site.cli("token", "create", "--user", user, "--lab", lab, "--role", role, "--ttl-s", "60",
                         token=cls.site.admin)

    def go(self, name):
        """(ticket, what came back) of somebody who signs in at the provider."""
        url, ticket = self.site.begin()
        return ticket, self.site.back(self.provider.send_back(name, url))

    def sign_in(self, name):
        """(status, answer)"""
        ticket, back = self.go(name)
        return self.site.finish(ticket, back["state"], back["code"])

    def refused(self, name, *words):
        status, body = self.sign_in(name)
        self.assertEqual(status, 401, body)
        for word in words:
            self.assertIn(word, body["error"]["message"] + body["error"]["hint"])

    # ---- tests, which go on from each other

    def test_a_people_are_who_the_sites_table_says(self):
        for name, who in (("ann", "ann (owner, lab lab-a)"), ("boss", "admin (admin, lab "),
                          ("eve", "eve (user, lab lab-b)")):
            with self.subTest(name=name):
                status, body = self.sign_in(name)
                self.assertEqual(status, 201, body)
                self.assertTrue(self.site.whoami(body["token"]).startswith(who), self.site.whoami(body["token"]))

    def test_b_who_is_nobody_here_gets_nothing(self):
        self.refused("stranger", "stranger, who has no account at this site", "helpdesk@example.org")
        self.refused("mallory", "has verified your address")
        self.refused("far", "only addresses of example.org")

    def test_c_a_code_is_of_use_once_in_time_and_to_who_began_it(self):
        ticket, back = self.go("ann")
        other, other_back = self.go("ann")
        status, body = self.site.finish(other, other_back["state"], back["code"])  # another verifier
        self.assertEqual(status, 401, body)
        self.assertIn("did not let you in", body["error"]["message"])
        ticket, back = self.go("ann")
        self.assertEqual(self.site.finish(ticket, back["state"], back["code"])[0], 201)
        status, body = self.site.finish(ticket, back["state"], back["code"])
        self.assertEqual(status, 401, body)
        self.provider.change(**{"code-duration": 1})
        try:
            ticket, back = self.go("ann")
            time.sleep(2.5)  # as long as it takes to be over
            status, body = self.site.finish(ticket, back["state"], back["code"])
        finally:
            self.provider.change(**{"code-duration": 60})
        self.assertEqual(status, 401, body)
        self.assertIn("did not let you in", body["error"]["message"])

    def test_d_nobody_is_sent_to_an_address_that_is_not_registered(self):
        url, _ = self.site.begin()
        own = urllib.parse.quote(self.site.redirect, safe="")
        self.assertIn(own, url)
        wrong = url.replace(own, urllib.parse.quote("https://127.0.0.1:1/signin", safe=""))
        with self.assertRaisesRegex(AssertionError, "no way to its login page: 403"):
            self.provider.send_back("ann", wrong)

    def test_e_a_terminal_and_a_browser_on_its_machine(self):
        with self.site.login("--browser") as (login, said):
            url = re.search(r"^  (https://\S+)$", said, re.M)[1]
            self.assertEqual(ask(self.site.go_on(self.provider.send_back("ann", url), said))[0], 200)
            rest = login.stderr.read()
            self.assertEqual(login.wait(60), 0, said + rest)
        self.assertEqual(self.site.cli("whoami").stdout, "ann (owner, lab lab-a)\n")

    def test_f_a_terminal_and_a_browser_elsewhere(self):
        with self.site.login() as (login, said):
            url = re.search(r"^  (https://\S+)$", said, re.M)[1]
            code = re.search(r"code there: (\S+)", said)[1]
            self.provider.send_back("eve", url + "?code=" + code)
            rest = login.stderr.read()
            self.assertEqual(login.wait(60), 0, said + rest)
        self.assertEqual(self.site.cli("whoami").stdout, "eve (user, lab lab-b)\n")

    def test_g_a_provider_that_hangs_or_is_away_is_named_in_time(self):
        (ticket, back), (other, other_back) = self.go("ann"), self.go("ann")
        self.provider.process.send_signal(signal.SIGSTOP)
        try:  # ask() itself gives up after 30 s
            status, body = self.site.finish(ticket, back["state"], back["code"])
        finally:
            self.provider.process.send_signal(signal.SIGCONT)
        self.assertEqual(status, 503, body)
        self.assertIn("the identity provider does not answer as it should", body["error"]["message"])
        self.provider.down()
        try:
            status, body = self.site.finish(other, other_back["state"], other_back["code"])
            self.assertEqual(status, 503, body)
            self.assertIn("a local token works meanwhile", body["error"]["hint"])
            self.assertIn("admin", self.site.whoami(self.site.admin))
        finally:
            self.provider.up()
        status, body = self.sign_in("ann")
        self.assertEqual(status, 201, body)

    def test_h_a_key_that_changes_is_found_without_a_restart(self):
        self.provider.rotate("ecdsa")  # and RS256 becomes ES256 with it

        def signed_in():
            status, body = self.sign_in("ann")
            if status == 201:
                return body
            # Its keys were read less than half a minute ago, and are not read again for each who comes.
            self.assertEqual(status, 401, body)
            self.assertIn("signed by a key that it does not publish", body["error"]["message"])
            self.assertIn("sign in again in a minute", body["error"]["hint"])
            return None

        body = wait_until("the new key to be read", signed_in, 90, every_s=3)
        self.assertEqual(self.site.whoami(body["token"]), "ann (owner, lab lab-a)\n")


if __name__ == "__main__":
    if glewlwyd.missing():
        print(f"skipped: {glewlwyd.missing()}", file=sys.stderr)
        sys.exit(SKIPPED)
    unittest.main(verbosity=2)
