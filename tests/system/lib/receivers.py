# SPDX-License-Identifier: Apache-2.0
"""Receivers of notifications: a real SMTP server with STARTTLS and a login (aiosmtpd), and an HTTP server for webhooks.
Both can be slow, refuse, be gone and come back on the same port."""
import asyncio
import contextlib
import email
import email.policy
import hashlib
import hmac
import http.server
import json
import socket
import ssl
import subprocess
import threading

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult

USER, PASSWORD = "reclaimnet", "open sesame"


def make_certificate(folder, address):
    """(certificate, key) of a server that is its own authority."""
    certificate, key = folder / "smtp.pem", folder / "smtp.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-keyout", key, "-out", certificate, "-subj", "/CN=mail", "-addext", f"subjectAltName=IP:{address}"],
        check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return certificate, key


class Mailbox:
    def __init__(self, folder, address="127.0.0.1"):
        self.address, self.mails, self.port = address, [], 0
        self.delay_s, self.refused = 0, {}  # address: what is answered to it
        self.certificate, key = make_certificate(folder, address)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(self.certificate, key)
        self.controller = None
        self.logins = 0
        self.up()

    def up(self):
        """On the port that it had before, if it had one."""
        if not self.port:
            with socket.socket() as one:
                one.bind((self.address, 0))
                self.port = one.getsockname()[1]
        self.controller = Controller(
            self, hostname=self.address, port=self.port, tls_context=self.context, require_starttls=True,
            auth_required=True, authenticator=self._check)
        self.controller.start()

    def down(self):
        if self.controller:
            self.controller.stop()
        self.controller = None

    @property
    def url(self):
        return f"smtp://{self.address}:{self.port}"

    def settings(self, folder):
        """Of coordinator.yaml."""
        password = folder / "smtp.password"
        password.write_text(PASSWORD + "\n")
        return {"url": self.url, "from": "site@example.org", "user": USER, "password_file": str(password),
                "ca": str(self.certificate)}

    def _check(self, server, session, envelope, mechanism, data):
        good = (data.login, data.password) == (USER.encode(), PASSWORD.encode())
        self.logins += good
        return AuthResult(success=good)

    async def handle_RCPT(self, server, session, envelope, address, options):
        if address in self.refused:
            return self.refused[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):
        await asyncio.sleep(self.delay_s)
        mail = email.message_from_bytes(envelope.content, policy=email.policy.default)
        self.mails.append((envelope.rcpt_tos, mail))
        return "250 taken"

    def subjects(self, address):
        return [mail["Subject"] for to, mail in self.mails if to == [address]]

    def texts(self, address):
        return [mail.get_content() for to, mail in self.mails if to == [address]]


class Hooks:
    """Notes what is posted; answers `status`."""

    def __init__(self, address="127.0.0.1", port=0):
        self.posts, self.status, self.location = [], 200, None
        hooks = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                hooks.posts.append((self.path, dict(self.headers.items()), body))
                self.send_response(hooks.status)
                if hooks.location:
                    self.send_header("Location", hooks.location)
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_GET = do_POST

            def log_message(self, *words):
                pass

        self.server = http.server.ThreadingHTTPServer((address, port), Handler)
        self.origin = f"http://{address}:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def down(self):
        with contextlib.suppress(Exception):
            self.server.shutdown()
            self.server.server_close()

    def told(self, path):
        """What was posted there, in the order in which it came."""
        return [json.loads(body) for where, _, body in self.posts if where == path]


def signature_of(secret, headers, body):
    """As docs/notifications.md says it is to be checked."""
    text = headers["X-Reclaimnet-Timestamp"].encode() + b"." + body
    return "sha256=" + hmac.new(secret.encode(), text, hashlib.sha256).hexdigest()
