#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Signing in with an account of an identity provider: a real coordinator and the real command line, a provider that is
played (lib/oidc_provider.py) over real TLS, and a browser that is a few requests. No provider of others' making was
tried. Nothing is lent here."""
import http.client
import json
import os
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

USAGE, DENIED = 2, 4


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Oidc(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix="rn-oidc-")
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        cls.provider = Provider(cls.folder)
        cls.addClassCleanup(lambda: cls.provider.down())
        cls.port = free_port()
        cls.url = f"https://127.0.0.1:{cls.port}"
        cls.provider.redirect = cls.url + "/signin"
        cls.secret = cls.folder / "client.secret"
        cls.secret.write_text(Provider.SECRET + "\n")
        cls.secret.chmod(0o600)
        cls.settings = {
            "issuer": cls.provider.issuer, "name": "University", "client_id": Provider.CLIENT,
            "client_secret_file": str(cls.secret), "ca": str(cls.provider.certificate), "session_s": 600,
            "groups_claim": "groups", "labs": {"staff": "lab-b"}, "contact": "helpdesk@example.org"}
        cls.state = cls.folder / "coordinator"
        cls.config = cls.folder / "coordinator.yaml"
        cls.config.write_text(json.dumps({"url": cls.url, "oidc": cls.settings}))
        cls.log = open(cls.folder / "coordinator.log", "ab")
        cls.addClassCleanup(cls.log.close)
        cls.process = subprocess.Popen(
            [program("reclaim-coordinator"), "serve", "--config", cls.config, "--state", cls.state, "--listen",
             f"127.0.0.1:{cls.port}"], stdout=subprocess.PIPE, stderr=cls.log, text=True)
        cls.addClassCleanup(cls.stop)
        next(line for line in cls.process.stdout if line.startswith("listening on port"))
        wait_until("the administrator's token", (cls.state / "admin.token").exists, 20)
        cls.admin = (cls.state / "admin.token").read_text().strip()
        cls.fingerprint = cls.admin.rsplit(".", 1)[1]
        cls.cli("token", "create", "--user", "ann", "--lab", "lab-a", "--ttl-s", "60", token=cls.admin)

    @classmethod
    def stop(cls):
        cls.process.kill()
        cls.process.wait()
        cls.process.stdout.close()

    def setUp(self):
        self.provider.user, self.provider.more, self.provider.complaints = "ann", {}, []

    @classmethod
    def environment(cls, token=""):
        own = {"PATH": os.environ["PATH"], "HOME": str(cls.folder)}
        return {**own, "RECLAIM_URL": cls.url, "RECLAIM_TOKEN": token} if token else own

    @classmethod
    def cli(cls, *words, token="", status=0):
        done = subprocess.run([program("reclaim"), *map(str, words)], stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=90, env=cls.environment(token))
        if done.returncode != status:
            raise AssertionError(f"{words}: {done.returncode}, not {status}\n{done.stdout}{done.stderr}")
        return done

    # ---- a browser

    def ask(self, url, body=None, context=None):
        """(status, headers, body); redirects are not followed."""
        place = urllib.parse.urlsplit(url)
        line = http.client.HTTPSConnection(place.hostname, place.port, timeout=30,
                                           context=context or ssl._create_unverified_context())
        try:
            path = place.path + ("?" + place.query if place.query else "")
            line.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body),
                         {"Content-Type": "application/json"})
            answer = line.getresponse()
            return answer.status, answer.headers, answer.read().decode()
        finally:
            line.close()

    def to_the_provider_and_back(self):
        """(ticket, state, code) as the dashboard's page has them."""
        status, _, text = self.ask(self.url + "/v1/signin", {})
        self.assertEqual(status, 200, text)
        begun = json.loads(text)
        trusted = ssl.create_default_context(cafile=str(self.provider.certificate))
        status, headers, text = self.ask(begun["url"], context=trusted)
        self.assertEqual(status, 302, text)
        self.assertTrue(headers["Location"].startswith(self.url + "/signin?"), headers["Location"])
        status, headers, text = self.ask(headers["Location"])
        self.assertEqual(status, 303, text)
        path, _, words = headers["Location"].partition("#signin?")
        self.assertEqual(path, "/ui/")
        back = dict(urllib.parse.parse_qsl(words, strict_parsing=True))
        self.assertEqual(set(back), {"code", "state"})
        return begun["ticket"], back["state"], back["code"]

    def finish(self, ticket, state, code):
        status, _, text = self.ask(self.url + "/v1/signin/finish", {"ticket": ticket, "state": state, "code": code})
        return status, json.loads(text)

    def refused(self, *words):
        status, body = self.finish(*self.to_the_provider_and_back())
        self.assertEqual(status, 401, body)
        for word in words:
            self.assertIn(word, body["error"]["message"] + body["error"]["hint"])

    # ---- tests

    def test_a_browser_comes_back_as_who_the_table_says(self):
        status, body = self.finish(*self.to_the_provider_and_back())
        self.assertEqual(status, 201, body)
        self.assertEqual(self.cli("whoami", token=body["token"]).stdout, "ann (user, lab lab-a)\n")
        life_ms = body["info"]["expires_wall_ms"] - body["info"]["created_wall_ms"]
        self.assertEqual(life_ms, 600_000)
        self.assertEqual(self.provider.complaints, [])

    def test_b_a_terminal_waits_for_a_browser_elsewhere(self):
        with subprocess.Popen([program("reclaim"), "login", self.url, "--ca-fingerprint", self.fingerprint],
                              stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                              env=self.environment()) as login:
            try:
                said = ""
                while "waiting" not in said:
                    line = login.stderr.readline()
                    self.assertTrue(line, said)
                    said += line
                self.assertIn(self.provider.issuer + "/activate", said)
                self.provider.approve(re.search(r"code there: (\S+)", said)[1], "ann")
                rest = login.stderr.read()
                self.assertEqual(login.wait(60), 0, said + rest)
            finally:
                login.kill()
        self.assertIn("logged in", rest)
        self.assertEqual(self.cli("whoami").stdout, "ann (user, lab lab-a)\n")
        self.assertEqual(self.provider.complaints, [])

    def test_c_who_is_unknown_here_is_told_whom_to_ask(self):
        self.provider.user = "stranger"
        self.refused("stranger", "no account at this site", "helpdesk@example.org")
        self.provider.user = "admin"
        self.refused("is an administrator")

    def test_d_a_listed_group_makes_a_user_and_no_more(self):
        self.provider.user, self.provider.more = "eve", {"groups": ["staff", "admin"]}
        status, body = self.finish(*self.to_the_provider_and_back())
        self.assertEqual(status, 201, body)
        self.assertEqual(self.cli("whoami", token=body["token"]).stdout, "eve (user, lab lab-b)\n")

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
        status, body = self.finish(other, state, code)
        self.assertEqual(status, 401, body)
        status, body = self.finish(other, other_state, code)  # the provider sees another verifier
        self.assertEqual(status, 401, body)
        self.assertIn("the verifier is another one's", self.provider.complaints)
        status, body = self.finish(ticket, state, code)
        self.assertEqual(status, 401, body)

    def test_g_a_provider_that_is_away_holds_nobody_else_up(self):
        self.provider.down()
        try:
            ticket, state = "x", "y"
            status, _, text = self.ask(self.url + "/v1/signin/device", {})
            self.assertEqual(status, 503, text)
            self.assertIn("does not answer as it should", text)
            self.assertEqual(self.finish(ticket, state, "z")[0], 401)
            self.assertIn("admin", self.cli("whoami", token=self.admin).stdout)
        finally:
            self.provider.up()

    def test_h_what_the_operator_got_wrong_is_named_at_the_start(self):
        def serve(change, url=self.url):
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
        self.secret.chmod(0o644)
        try:
            done = serve({})
        finally:
            self.secret.chmod(0o600)
        self.assertEqual(done.returncode, DENIED, done.stderr)
        self.assertIn("others may read or change", done.stderr)
        self.assertNotIn(Provider.SECRET, done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
