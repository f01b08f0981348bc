#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The dashboard's sign-in by an account of an identity provider, in real Chromium: a real coordinator, and a provider
that is played, with a page (lib/oidc_provider.py). The browser's side of the story is web/tests/signin.mjs."""
import contextlib
import pathlib
import re
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
from browser_story import BrowserStory  # noqa: E402
from oidc_provider import Provider  # noqa: E402
from sign_in_site import SignInSite, free_port  # noqa: E402

LIMIT_S = 240


class SignInPage(BrowserStory, unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="rn-signin-page-")
        self.addCleanup(scratch.cleanup)
        folder = pathlib.Path(scratch.name)
        self.site = SignInSite(folder)
        self.provider = Provider(folder)
        self.addCleanup(self.provider.down)
        self.provider.redirect, self.provider.has_page = self.site.redirect, True
        self.addCleanup(self.site.stop)
        self.site.start(self.site.settings(self.provider))
        self.site.cli("token", "create", "--user", "ann", "--lab", "lab-a", "--ttl-s", "60", token=self.site.admin)

    def test_people_sign_in_and_out(self):
        self.port = free_port()
        others = [self.provider.issuer, f"http://127.0.0.1:{self.port}"]
        self.terminals = contextlib.ExitStack()
        self.addCleanup(self.terminals.close)
        self.play("signin.mjs", {"url": self.site.url, "others": others}, LIMIT_S)
        self.assertEqual(self.provider.complaints, [])

    # --- what the browser asks for

    def act_token_away(self):
        self.provider.has_tokens = False

    def act_token_back(self):
        self.provider.has_tokens = True

    def act_terminal(self):
        self.login, said = self.terminals.enter_context(self.site.login("--browser", "--port", self.port))
        return {"url": re.search(r"^  (https://\S+)$", said, re.M)[1],
                "word": re.search(r"if the page shows (\w+)\.", said)[1]}

    def act_terminal_ends(self):
        said = self.login.stderr.read()
        return {"status": self.login.wait(60), "said": said}


if __name__ == "__main__":
    unittest.main(verbosity=2)
