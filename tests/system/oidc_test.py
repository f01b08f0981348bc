#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Signing in with an account of an identity provider: a real coordinator and the real command line, a provider that is
played (lib/oidc_provider.py) over real TLS, and a browser that is a few requests. With a provider of others' making:
sign_in_real_test.py. Nothing is lent here."""
import json
import pathlib
import re
import socket
import ssl
import subprocess
import sys
import tempfile
import unittest
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
from labs import wait_until  # noqa: E402
from oidc_provider import Provider  # noqa: E402
from rn_site import program  # noqa: E402
from sign_in_site import SignInSite, ask  # noqa: E402

USAGE, DENIED, CONFLICT, TIMEOUT = 2, 4, 5, 7


class Oidc(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix="rn-oidc-")
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        cls.site = SignInSite(cls.folder)
        cls.provider = Provider(cls.folder)
        cls.addClassCleanup(lambda: cls.provider.down())
        cls.provider.redirect = cls.site.redirect
        cls.trusted = ssl.create_default_context(cafile=str(cls.provider.certificate))
        cls.settings = cls.site.settings(cls.provider)
        cls.addClassCleanup(cls.site.stop)
        cls.site.start(cls.settings)
        cls.site.cli("token", "create", "--user", "ann", "--lab", "lab-a", "--ttl-s", "60", token=cls.site.admin)

    def setUp(self):
        self.provider.user, self.provider.more, self.provider.complaints = "ann", {}, []
        self.provider.refuses, self.provider.has_devices = False, True

    def at_the_provider(self, url):
        """Where it sends the browser back to."""
        status, headers, text = ask(url, context=self.trusted)
        self.assertEqual(status, 302, text)
        return headers["Location"]

    def to_the_provider_and_back(self):
        """(ticket, state, code) as the dashboard's page has them."""
        url, ticket = self.site.begin()
        back = self.site.back(self.at_the_provider(url))
        self.assertEqual(set(back), {"code", "state"})
        return ticket, back["state"], back["code"]

    def refused(self, *words):
        status, body = self.site.finish(*self.to_the_provider_and_back())
        self.assertEqual(status, 401, body)
        for word in words:
            self.assertIn(word, body["error"]["message"] + body["error"]["hint"])

    # ---- tests

    def test_a_browser_comes_back_as_who_the_table_says(self):
        status, body = self.site.finish(*self.to_the_provider_and_back())
        self.assertEqual(status, 201, body)
        self.assertEqual(self.site.whoami(body["token"]), "ann (user, lab lab-a)\n")
        life_ms = body["info"]["expires_wall_ms"] - body["info"]["created_wall_ms"]
        self.assertEqual(life_ms, 600_000)
        self.assertEqual(self.provider.complaints, [])

    def test_b_a_terminal_waits_for_a_browser_elsewhere(self):
        with self.site.login() as (login, said):
            self.assertIn(self.provider.issuer + "/activate", said)
            self.provider.approve(re.search(r"code there: (\S+)", said)[1], "ann")
            rest = login.stderr.read()
            self.assertEqual(login.wait(60), 0, said + rest)
        self.assertIn("logged in", rest)
        self.assertEqual(self.site.cli("whoami").stdout, "ann (user, lab lab-a)\n")
        self.assertEqual(self.provider.complaints, [])

    def test_c_who_is_unknown_here_is_told_whom_to_ask(self):
        self.provider.user = "stranger"
        self.refused("stranger", "no account at this site", "helpdesk@example.org")
        self.provider.user = "admin"
        self.refused("is an administrator")

    def test_d_a_listed_group_makes_a_user_and_no_more(self):
        self.provider.user, self.provider.more = "eve", {"groups": ["staff", "admin"]}
        status, body = self.site.finish(*self.to_the_provider_and_back())
        self.assertEqual(status, 201, body)
        self.assertEqual(self.site.whoami(body["token"]), "eve (user, lab lab-b)\n")

    def test_e_tokens_that_are_not_for_this_site_are_refused(self):
        for more, words in (({"aud": "other"}, "for another program"),
                            ({"iss": "https://127.0.0.1"}, "another provider"),
                            ({"exp": 1}, "has expired"), ({"nonce": "other"}, "of another sign-in"),
                            ({"nbf": 9_999_999_999}, "not count yet")):
            with self.subTest(more=more):
                self.provider.more = more
                self.refused(words)

    def test_f_a_code_is_of_use_once_and_to_the_window_that_asked_for_it(self):
        ticket, state, code = self.to_the_provider_and_back()
        other, other_state, _ = self.to_the_provider_and_back()
        status, body = self.site.finish(other, state, code)
        self.assertEqual(status, 401, body)
        status, body = self.site.finish(other, other_state, code)  # the provider sees another verifier
        self.assertEqual(status, 401, body)
        self.assertIn("the verifier is another one's", self.provider.complaints)
        status, body = self.site.finish(ticket, state, code)
        self.assertEqual(status, 401, body)

    def test_g_a_provider_that_is_away_holds_nobody_else_up(self):
        self.provider.down()
        try:
            ticket, state = "x", "y"
            status, _, text = ask(self.site.url + "/v1/signin/device", {})
            self.assertEqual(status, 503, text)
            self.assertIn("does not answer as it should", text)
            self.assertEqual(self.site.finish(ticket, state, "z")[0], 401)
            self.assertIn("admin", self.site.whoami(self.site.admin))
        finally:
            self.provider.up()

    def test_h_what_the_operator_got_wrong_is_named_at_the_start(self):
        def serve(change, url=self.site.url):
            path = self.folder / "wrong.yaml"
            path.write_text(json.dumps({**({"url": url} if url else {}), "oidc": {**self.settings, **change}}))
            return subprocess.run(
                [program("reclaim-coordinator"), "serve", "--config", path, "--state", self.folder / "wrong",
                 "--listen", "127.0.0.1:0"], capture_output=True, text=True, timeout=60)

        for change, words in (({"issuer": "http://127.0.0.1"}, "oidc: issuer"), ({"claim": "name"}, "oidc: claim"),
                              ({"client_id": ""}, "oidc: client_id"), ({"isuer": "x"}, "oidc.isuer: no such field"),
                              ({"session_s": 5}, "oidc: session_s")):
            with self.subTest(change=change):
                done = serve(change)
                self.assertEqual(done.returncode, USAGE, done.stderr)
                self.assertIn(words, done.stderr)
        done = serve({}, url="")
        self.assertEqual(done.returncode, USAGE, done.stderr)
        self.assertIn("register URL/signin with the provider", done.stderr)
        secret = pathlib.Path(self.settings["client_secret_file"])
        secret.chmod(0o644)
        try:
            done = serve({})
        finally:
            secret.chmod(0o600)
        self.assertEqual(done.returncode, DENIED, done.stderr)
        self.assertIn("others may read or change", done.stderr)
        self.assertNotIn(Provider.SECRET, done.stderr)

    # ---- a terminal, and a browser on the same machine (RFC 8252)

    def to_the_terminal(self, said):
        """What a person does with the address that was printed; where their browser goes in the end."""
        return self.site.go_on(self.at_the_provider(re.search(r"^  (https://\S+)$", said, re.M)[1]), said)

    def test_i_a_terminal_is_signed_in_by_a_browser_on_its_machine(self):
        # A browser that is asked to open an address, and does no more.
        opened = self.folder / "opened"
        browser = self.folder / "browser"
        browser.write_text(f"#!/bin/sh\nprintf %s \"$1\" >'{opened}.new' && mv '{opened}.new' '{opened}'\n")
        browser.chmod(0o755)
        with self.site.login("--browser", BROWSER=str(browser)) as (login, said):
            self.assertIn("A browser should open", said)
            place = self.to_the_terminal(said)
            self.assertRegex(place, r"^http://127\.0\.0\.1:\d+/signin\?code=[^&]+&state=[^&]+$")
            self.assertIn(f"waiting at 127.0.0.1:{urllib.parse.urlsplit(place).port};", said)
            # What anybody on the network can have a browser do: it is refused, and waited on.
            status, _, text = ask(place.partition("?")[0] + "?code=theirs&state=theirs")
            self.assertEqual(status, 400, text)
            status, headers, text = ask(place)
            self.assertEqual(status, 200, text)
            self.assertEqual(headers["Cache-Control"], "no-store")
            rest = login.stderr.read()
            self.assertEqual(login.wait(60), 0, said + rest)
        self.assertIn("logged in", rest)
        self.assertEqual(self.site.cli("whoami").stdout, "ann (user, lab lab-a)\n")
        wait_until("the browser to be asked", opened.exists, 20)
        self.assertEqual(opened.read_text(), re.search(r"^  (https://\S+)$", said, re.M)[1])
        self.assertEqual(self.provider.complaints, [])

    def test_j_without_a_browser_and_a_code_flow_it_prints_the_address(self):
        self.provider.has_devices = False
        other = SignInSite(self.folder)  # one that has not read the provider's document yet
        other.state = self.folder / "other"
        registered, self.provider.redirect = self.provider.redirect, other.redirect
        self.addCleanup(setattr, self.provider, "redirect", registered)
        self.addCleanup(other.stop)
        other.start(self.settings)
        other.cli("token", "create", "--user", "ann", "--lab", "lab-a", "--ttl-s", "60", token=other.admin)
        with other.login() as (login, said):
            self.assertIn("has no sign-in from a terminal", said)
            self.assertIn("Open this in a browser on this machine:", said)
            rest_of_line = login.stderr.readline()
            self.assertRegex(rest_of_line, r"ssh -L (\d+):127\.0\.0\.1:\1 ")
            self.assertEqual(ask(self.to_the_terminal(said))[0], 200)
            rest = login.stderr.read()
            self.assertEqual(login.wait(60), 0, said + rest)

    def test_k_what_goes_wrong_at_the_terminal_says_what_to_do(self):
        words = ["login", self.site.url, "--ca-fingerprint", self.site.fingerprint]
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            done = self.site.cli(*words, "--port", port, status=CONFLICT)
        self.assertIn(f"port {port} of this machine is in use", done.stderr)
        self.assertIn("--port", done.stderr)
        done = self.site.cli(*words, "--browser", "--wait-s", 1, status=TIMEOUT)
        self.assertIn("nobody came back from the browser within 1 s", done.stderr)
        self.assertEqual(self.site.cli(*words, "--browser", "--token", "x", status=USAGE).stdout, "")

        self.provider.refuses = True
        with self.site.login("--browser") as (login, said):
            url = re.search(r"^  (https://\S+)$", said, re.M)[1]
            status, headers, text = ask(self.at_the_provider(url))
            self.assertEqual(status, 303, text)  # a refusal gives nobody anything: nothing is asked
            self.assertEqual(ask(headers["Location"])[0], 200)
            rest = login.stderr.read()
            self.assertEqual(login.wait(60), DENIED, said + rest)
        self.assertIn("the identity provider says access_denied", rest)


if __name__ == "__main__":
    unittest.main(verbosity=2)
