#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Notifications of a real coordinator to a real SMTP server (STARTTLS, login) and real servers of HTTP and HTTPS, all
on loopback. Nothing is lent here: what is told of is jobs that are stopped. notify_jobs_test.py has jobs that run."""
import http.client
import json
import os
import pathlib
import re
import ssl
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
from authority import Authority  # noqa: E402
from hooks import Hooks, signature_of  # noqa: E402
from labs import wait_until  # noqa: E402
from rn_site import program  # noqa: E402
from smtp_server import Mailbox  # noqa: E402

DENIED = 4
PATIENCE_S = 30


class Notify(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix="rn-notify-")
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        cls.mailbox = Mailbox(cls.folder)
        cls.addClassCleanup(lambda: cls.mailbox.down())
        cls.hooks = Hooks()
        cls.addClassCleanup(cls.hooks.down)
        cls.authorities = {name: Authority(cls.folder, name) for name in ("ours", "somebody")}
        cls.secure_hooks = Hooks(tls=cls.authorities["ours"].server("127.0.0.1"))
        cls.addClassCleanup(cls.secure_hooks.down)
        cls.state = cls.folder / "coordinator"
        cls.config = cls.folder / "coordinator.yaml"
        cls.configure("somebody")
        cls.port = 0
        cls.start()
        cls.addClassCleanup(lambda: cls.stop())
        archive = cls.folder / "image.tar"
        (cls.folder / "hello").write_text("hello\n")
        with tarfile.open(archive, "w") as tar:
            tar.add(cls.folder / "hello", "bin/hello")
        cls.cli("admin", "image", "add", "base", archive)
        cls.cli("ann", "notify", "add", "--mail", "ann@example.org", "--on", "cancelled")
        cls.confirm("ann", "ann@example.org")

    @classmethod
    def configure(cls, authority):
        """Whose certificates webhooks' servers may have; of the next start."""
        cls.config.write_text(json.dumps({
            "smtp": {**cls.mailbox.settings(cls.folder), "domains": ["example.org"]},
            "webhooks": {"allow": [cls.hooks.origin, cls.secure_hooks.origin],
                         "ca": str(cls.authorities[authority].certificate)}}))

    @classmethod
    def start(cls):
        cls.log = open(cls.folder / "coordinator.log", "ab")
        cls.process = subprocess.Popen(
            [program("reclaim-coordinator"), "serve", "--config", cls.config, "--state", cls.state, "--listen",
             f"127.0.0.1:{cls.port}"], stdout=subprocess.PIPE, stderr=cls.log, text=True)
        cls.port = next(int(found[1]) for found in (
            re.match(r"listening on port (\d+)", line) for line in cls.process.stdout) if found)
        wait_until("the administrator's token", (cls.state / "admin.token").exists, 20)
        cls.tokens = {"admin": (cls.state / "admin.token").read_text().strip(), **getattr(cls, "tokens", {})}
        for user in ("ann", "bob"):
            if user not in cls.tokens:
                cls.tokens[user] = cls.cli("admin", "token", "create", "--user", user, "--lab", "lab-a", "--ttl-s",
                                           0).stdout.strip()

    @classmethod
    def stop(cls):
        cls.process.kill()
        cls.process.wait()
        cls.process.stdout.close()
        cls.log.close()

    @classmethod
    def cli(cls, user, *words, status=0):
        done = subprocess.run(
            [program("reclaim"), *map(str, words)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=90, cwd=cls.folder, env={
                "PATH": os.environ["PATH"], "HOME": str(cls.folder), "RECLAIM_URL": f"https://127.0.0.1:{cls.port}",
                "RECLAIM_TOKEN": cls.tokens[user]})
        if done.returncode != status:
            raise AssertionError(f"{words}: {done.returncode}, not {status}\n{done.stdout}{done.stderr}")
        return done

    @classmethod
    def rules(cls, user):
        return json.loads(cls.cli(user, "notify", "list", "--json").stdout)["rules"]

    @classmethod
    def confirm(cls, user, address):
        """As the mail says it."""
        words = wait_until("the mail with the code", lambda: next((found for text in reversed(
            cls.mailbox.texts(address)) for found in re.findall(r"reclaim (notify confirm \S+ \S+)", text)), None),
            PATIENCE_S)
        cls.cli(user, *words.split())

    @classmethod
    def cancel_a_job(cls, user, *flags):
        """Its number."""
        job = cls.cli(user, "run", "--detach", "--no-upload", "--stateless", *flags, "--", "true").stdout.strip()
        cls.cli(user, "stop", job)
        return json.loads(cls.cli(user, "show", job, "--json").stdout)["number"]

    def waits_for_mail(self, address, pattern, timeout_s=PATIENCE_S):
        return wait_until(f"a mail to {address}: {pattern}", lambda: [
            one for one in self.mailbox.subjects(address) if re.search(pattern, one)], timeout_s)

    # ---- tests

    def test_a_mail_comes_once_with_what_happened(self):
        number = self.cancel_a_job("ann", "--name", "Zürich\r\nBcc: eve@example.org")

        self.waits_for_mail("ann@example.org", f"job {number} .*was cancelled")
        time.sleep(1)  # another one would have come by now

        mails = [(to, mail) for to, mail in self.mailbox.mails if f"job {number} " in mail["Subject"]]
        self.assertEqual([to for to, _ in mails], [["ann@example.org"]])
        mail = mails[0][1]
        self.assertIn("Zürich\\", mail["Subject"])
        self.assertIsNone(mail["Bcc"])
        self.assertEqual(mail["Auto-Submitted"], "auto-generated")
        self.assertIn(f"next: reclaim logs {number}", mail.get_content())
        self.assertGreater(self.mailbox.logins, 0)

    def test_an_address_is_told_nothing_before_its_code_is_given(self):
        made = self.cli("bob", "notify", "add", "--mail", "bob@example.org", "--on", "cancelled")
        rule = made.stdout.strip()
        self.waits_for_mail("bob@example.org", "confirm this address")
        self.cancel_a_job("bob")
        self.cli("bob", "notify", "confirm", rule, "00000000", status=DENIED)
        self.cli("ann", "notify", "confirm", rule, "00000000", status=3)
        self.confirm("bob", "bob@example.org")

        number = self.cancel_a_job("bob")

        self.waits_for_mail("bob@example.org", f"job {number} was cancelled")
        told = [one for one in self.mailbox.subjects("bob@example.org") if "was cancelled" in one]
        self.assertEqual(len(told), 1, "the job of before was told of")
        self.cli("bob", "notify", "remove", rule)

    def test_a_webhook_is_signed_and_its_host_must_be_allowed(self):
        made = json.loads(self.cli("ann", "notify", "add", "--webhook", f"{self.hooks.origin}/ann", "--on", "cancelled",
                                   "--json").stdout)
        number = self.cancel_a_job("ann")

        told = wait_until("the webhook", lambda: self.hooks.told("/ann"), PATIENCE_S)[0]

        self.assertEqual((told["what"], told["kind"], told["job_number"]), ("cancelled", "job.cancelled", number))
        _, headers, body = next(post for post in self.hooks.posts if post[0] == "/ann")
        self.assertEqual(headers["X-Reclaimnet-Signature"], signature_of(made["secret"], headers, body))
        self.assertEqual(headers["X-Reclaimnet-Delivery"], told["id"])
        said = self.cli("ann", "notify", "add", "--webhook", "http://127.0.0.1:22/", status=DENIED).stderr
        self.assertIn(f"the operator allows {self.hooks.origin}", said)
        said = self.cli("ann", "notify", "add", "--mail", "ann@elsewhere.org", status=DENIED).stderr
        self.assertIn("use an address of example.org", said)
        self.cli("ann", "notify", "remove", made["rule"]["id"])

    def test_a_server_of_an_authority_that_is_not_the_sites_is_told_nothing_until_it_is(self):
        """By HTTPS; what waits is sent when the operator names the right authority, and signed."""
        made = json.loads(self.cli("bob", "notify", "add", "--webhook", f"{self.secure_hooks.origin}/bob", "--on",
                                   "cancelled", "--json").stdout)
        rule = made["rule"]["id"]
        number = self.cancel_a_job("bob")

        said = self.cli("bob", "notify", "test", rule, status=6).stderr

        self.assertRegex(said, "has not taken it: .*certificate")
        self.assertIn("it is tried again", said)
        mine = wait_until("both to wait", lambda: next((
            one for one in self.rules("bob") if one["id"] == rule and one["waiting"] == 2), None), PATIENCE_S)
        self.assertEqual(mine["sent"], 0)
        self.assertIn("certificate", mine["last_error"])
        self.assertEqual(self.secure_hooks.posts, [])

        self.configure("ours")
        self.stop()
        self.start()

        told = wait_until("the webhook", lambda: [
            one for one in self.secure_hooks.told("/bob") if one["what"] == "cancelled"], PATIENCE_S)
        self.assertEqual([one["job_number"] for one in told], [number])
        for _, headers, body in self.secure_hooks.posts:
            self.assertEqual(headers["X-Reclaimnet-Signature"], signature_of(made["secret"], headers, body))
        self.cli("bob", "notify", "test", rule)
        self.cli("bob", "notify", "remove", rule)

    def test_a_redirect_is_not_followed(self):
        elsewhere = Hooks()
        self.addCleanup(elsewhere.down)
        made = self.cli("ann", "notify", "add", "--webhook", f"{self.hooks.origin}/moved").stdout.strip()
        self.hooks.status, self.hooks.location = 302, f"{elsewhere.origin}/inside"
        try:
            said = self.cli("ann", "notify", "test", made, status=6).stderr
        finally:
            self.hooks.status, self.hooks.location = 200, None
        self.assertIn("redirects are not followed", said)
        self.assertEqual(elsewhere.posts, [])
        self.cli("ann", "notify", "remove", made)

    def test_one_job_is_told_of_to_who_is_named_with_it(self):
        number = self.cancel_a_job("bob", "--notify", f"{self.hooks.origin}/one")
        self.cli("bob", "notify", "list")
        self.cancel_a_job("bob")

        # cancelled is not among the usual words: a rule of its own says so, after the end.
        self.cli("bob", "notify", "add", "--webhook", f"{self.hooks.origin}/late", "--job", number, "--on", "cancelled")

        told = wait_until("the webhook", lambda: self.hooks.told("/late"), PATIENCE_S)
        self.assertEqual([one["job_number"] for one in told], [number])
        self.assertEqual(self.hooks.told("/one"), [])

    def test_a_receiver_that_refuses_for_good_is_said_in_the_list(self):
        self.mailbox.refused["ann@example.org"] = "550 no such user"
        try:
            number = self.cancel_a_job("ann")
            wait_until("the refusal", lambda: any("550" in one["last_error"] for one in self.rules("ann")), PATIENCE_S)
        finally:
            self.mailbox.refused.clear()
        self.assertEqual(self.rules("ann")[0]["waiting"], 0)
        self.assertFalse([one for one in self.mailbox.subjects("ann@example.org") if f"job {number} " in one])

    def test_a_server_that_is_away_gets_it_when_it_is_back_and_a_crash_loses_none(self):
        self.mailbox.down()
        number = self.cancel_a_job("ann")
        wait_until("that it is not taken", lambda: self.rules("ann")[0]["waiting"] == 1 and self.rules("ann")[0][
            "last_error"], PATIENCE_S)
        self.stop()
        self.start()
        self.assertEqual(self.rules("ann")[0]["waiting"], 1)

        self.mailbox.up()

        self.waits_for_mail("ann@example.org", f"job {number} was cancelled")
        wait_until("that it is noted", lambda: self.rules("ann")[0]["waiting"] == 0, PATIENCE_S)

    def test_a_slow_server_slows_nothing_else(self):
        hook = self.cli("bob", "notify", "add", "--webhook", f"{self.hooks.origin}/quick", "--on",
                        "cancelled").stdout.strip()
        self.mailbox.is_held = True
        try:
            mine = self.cancel_a_job("ann")
            self.cancel_a_job("bob")
            wait_until("the webhook", lambda: self.hooks.told("/quick"), PATIENCE_S)
            self.assertEqual(self.mailbox.given_up, 0, "the webhook waited for the mail")
        finally:
            self.mailbox.is_held = False
        self.waits_for_mail("ann@example.org", f"job {mine} was cancelled")
        self.cli("bob", "notify", "remove", hook)

    def test_what_was_sent_is_counted(self):
        context = ssl.create_default_context(cafile=str(self.state / "pki" / "ca.pem"))
        connection = http.client.HTTPSConnection("localhost", self.port, context=context, timeout=20)
        connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {self.tokens['admin']}"})
        page = connection.getresponse().read().decode()
        connection.close()
        for name in ("sent_total", "failed_total", "dropped_total", "held_back_total", "waiting"):
            self.assertRegex(page, rf"(?m)^reclaimnet_notifications_{name} \d+$")


if __name__ == "__main__":
    unittest.main(verbosity=2)
