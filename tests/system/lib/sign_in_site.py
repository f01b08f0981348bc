# SPDX-License-Identifier: Apache-2.0
"""A real coordinator that people sign in to with an account of an identity provider, the real command line, and a
browser that is a few requests. Nothing is lent there."""
import contextlib
import html
import http.client
import json
import os
import re
import socket
import ssl
import subprocess
import urllib.parse

from labs import wait_until
from rn_site import program


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def ask(url, body=None, context=None):
    """(status, headers, body); redirects are not followed. Without a context any certificate is taken."""
    place = urllib.parse.urlsplit(url)
    if place.scheme == "http":
        line = http.client.HTTPConnection(place.hostname, place.port, timeout=30)
    else:
        line = http.client.HTTPSConnection(place.hostname, place.port, timeout=30,
                                           context=context or ssl._create_unverified_context())
    with contextlib.closing(line):
        path = place.path + ("?" + place.query if place.query else "")
        line.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body),
                     {"Content-Type": "application/json"})
        answer = line.getresponse()
        return answer.status, answer.headers, answer.read().decode()


class SignInSite:
    """At a port of this machine, known before it starts: the provider has to know it, too."""

    def __init__(self, folder):
        self.folder = folder
        self.port = free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        self.redirect = self.url + "/signin"
        self.state = folder / "coordinator"
        self.process = None

    def settings(self, provider, **more):
        """`oidc:` of its configuration."""
        secret = self.folder / "client.secret"
        secret.write_text(provider.SECRET + "\n")
        secret.chmod(0o600)
        return {"issuer": provider.issuer, "name": "University", "client_id": provider.CLIENT,
                "client_secret_file": str(secret), "ca": str(provider.certificate), "session_s": 600,
                "groups_claim": "groups", "labs": {"staff": "lab-b"}, "contact": "helpdesk@example.org", **more}

    def start(self, settings):
        config = self.folder / "coordinator.yaml"
        config.write_text(json.dumps({"url": self.url, "oidc": settings}))
        with open(self.folder / "coordinator.log", "ab") as log:
            self.process = subprocess.Popen(
                [program("reclaim-coordinator"), "serve", "--config", config, "--state", self.state, "--listen",
                 f"127.0.0.1:{self.port}"], stdout=subprocess.PIPE, stderr=log, text=True)
        if not any(line.startswith("listening on port") for line in self.process.stdout):
            raise AssertionError(f"the coordinator ended:\n{self.log()[-4000:]}")
        wait_until("the administrator's token", (self.state / "admin.token").exists, 20)
        self.admin = (self.state / "admin.token").read_text().strip()
        self.fingerprint = self.admin.rsplit(".", 1)[1]

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()
        self.process = None

    def log(self):
        return (self.folder / "coordinator.log").read_text()

    # ---- the command line

    def environment(self, token="", **more):
        own = {"PATH": os.environ["PATH"], "HOME": str(self.folder), **more}
        return {**own, "RECLAIM_URL": self.url, "RECLAIM_TOKEN": token} if token else own

    def cli(self, *words, token="", status=0):
        done = subprocess.run([program("reclaim"), *map(str, words)], stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=90, env=self.environment(token))
        if done.returncode != status:
            raise AssertionError(f"{words}: {done.returncode}, not {status}\n{done.stdout}{done.stderr}")
        return done

    def whoami(self, token):
        return self.cli("whoami", token=token).stdout

    @contextlib.contextmanager
    def login(self, *flags, **variables):
        """`reclaim login` that waits; (process, what it said until then)."""
        words = [program("reclaim"), "login", self.url, "--ca-fingerprint", self.fingerprint, *map(str, flags)]
        with subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                              env=self.environment(**variables)) as process:
            try:
                said = ""
                while "Ctrl-C" not in said:
                    line = process.stderr.readline()
                    if not line:
                        raise AssertionError(f"it ended: {said}")
                    said += line
                yield process, said
            finally:
                process.kill()

    # ---- a browser

    def begin(self):
        """(address at the provider, ticket) as the dashboard's page has them."""
        status, _, text = ask(self.url + "/v1/signin", {})
        if status != 200:
            raise AssertionError(f"{status} {text}")
        begun = json.loads(text)
        return begun["url"], begun["ticket"]

    def back(self, location):
        """What the page finds in its address when the provider has sent the browser to `location`."""
        if not location.startswith(self.redirect + "?"):
            raise AssertionError(f"the provider sends people to {location}")
        status, headers, text = ask(location)
        path, _, words = headers.get("Location", "").partition("#signin?")
        if (status, path) != (303, "/ui/"):
            raise AssertionError(f"{status} {headers} {text}")
        return dict(urllib.parse.parse_qsl(words, strict_parsing=True))

    def go_on(self, location, said):
        """Where the browser goes that the provider has sent to `location`, when a person has seen on the page what the
        terminal said."""
        status, headers, text = ask(location)
        word = re.search(r"if the page shows ([0-9A-F]{6})\.", said)
        link = re.search(r'href="(http://127\.0\.0\.1:[^"]+)"', text)
        if status != 200 or not word or not link or f"<strong>{word[1]}</strong>" not in text:
            raise AssertionError(f"no page that asks: {status} {headers} {text}")
        return html.unescape(link[1])

    def finish(self, ticket, state, code):
        """(status, answer)"""
        body = {"ticket": ticket, "state": state, "code": code}
        status, _, text = ask(self.url + "/v1/signin/finish", body)
        return status, json.loads(text)
