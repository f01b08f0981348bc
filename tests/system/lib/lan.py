# SPDX-License-Identifier: Apache-2.0
"""The agents' addresses on the LAN (REST at 7444, peers' data at 7445) as anybody in the laboratory reaches them: with
a certificate of one's choice, or none."""
import dataclasses
import http.client
import json
import pathlib
import socket
import ssl
import subprocess

API, PEER = 7444, 7445


@dataclasses.dataclass(frozen=True)
class Certificate:
    """Files of a certificate and its key, PEM."""

    certificate: pathlib.Path
    key: pathlib.Path

    def show(self, *fields):
        """What openssl says of it, such as show("serial")."""
        return _openssl("x509", "-in", self.certificate, "-noout", *(f"-{field}" for field in fields))

    def names(self):
        return _openssl("x509", "-in", self.certificate, "-noout", "-ext", "subjectAltName")

    def expires_within(self, seconds):
        done = subprocess.run(
            ["openssl", "x509", "-in", str(self.certificate), "-noout", "-checkend", str(int(seconds))],
            stdout=subprocess.DEVNULL)
        return done.returncode == 1


def node_certificate(node):
    folder = node.state / "agent" / "identity"
    return Certificate(folder / "node.pem", folder / "node.key")


def _openssl(*words):
    return subprocess.run(
        ["openssl", *map(str, words)], check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True).stdout


def make_authority(folder, name):
    """A CA of one's own."""
    made = Certificate(folder / "ca.pem", folder / "ca.key")
    folder.mkdir(parents=True, exist_ok=True)
    _openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
             f"/CN={name}", "-keyout", made.key, "-out", made.certificate)
    return made


def issue(authority, folder, name, uri):
    """A client's certificate with the identity `uri`, made by `authority` (the site's own, or a foreign one)."""
    folder.mkdir(parents=True, exist_ok=True)
    made = Certificate(folder / f"{name}.pem", folder / f"{name}.key")
    request, extensions = folder / f"{name}.csr", folder / f"{name}.ext"
    extensions.write_text(f"subjectAltName=URI:{uri}\nextendedKeyUsage=clientAuth\nkeyUsage=digitalSignature\n")
    _openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}",
             "-keyout", made.key, "-out", request)
    _openssl("x509", "-req", "-in", request, "-CA", authority.certificate, "-CAkey", authority.key, "-days", "1",
             "-extfile", extensions, "-out", made.certificate)
    return made


def _context(ca_file, client):
    context = ssl.create_default_context(cafile=str(ca_file))
    context.check_hostname = False  # nodes' names are URIs
    if client:
        context.load_cert_chain(client.certificate, client.key)
    return context


def served_certificate(address, port, ca_file, client, folder):
    """What the server shows, checked against the site's CA (so it has not expired)."""
    with socket.create_connection((address, port), timeout=30) as plain:
        with _context(ca_file, client).wrap_socket(plain) as tls:
            path = folder / f"served-{address}-{port}.pem"
            path.write_text(ssl.DER_cert_to_PEM_cert(tls.getpeercert(binary_form=True)))
    return Certificate(path, None)


def call(address, ca_file, client, method, path, body=None, timeout_s=30):
    """Status and JSON (or text) of the answer. ssl.SSLError or ConnectionError where the connection is refused."""
    connection = http.client.HTTPSConnection(address, API, timeout=timeout_s, context=_context(ca_file, client))
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        data = answer.read().decode()
        is_json = answer.getheader("Content-Type", "").startswith("application/json")
        return answer.status, json.loads(data) if is_json else data
    finally:
        connection.close()
