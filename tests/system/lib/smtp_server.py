# SPDX-License-Identifier: Apache-2.0
"""A real SMTP server with STARTTLS and a login (aiosmtpd): slow, refusing, gone, and back on its port."""
import asyncio
import email
import email.policy
import socket
import ssl
import subprocess

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
        self.is_held, self.refused = False, {}  # address: what is answered to it
        self.given_up = 0  # by who waited for the answer to a mail
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
        try:
            while self.is_held:
                await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            self.given_up += 1
            raise
        mail = email.message_from_bytes(envelope.content, policy=email.policy.default)
        self.mails.append((envelope.rcpt_tos, mail))
        return "250 taken"

    def subjects(self, address):
        return [mail["Subject"] for to, mail in self.mails if to == [address]]

    def texts(self, address):
        return [mail.get_content() for to, mail in self.mails if to == [address]]
