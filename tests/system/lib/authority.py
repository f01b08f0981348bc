# SPDX-License-Identifier: Apache-2.0
"""An authority of a test's own, and servers' certificates that it signs (openssl)."""
import ssl
import subprocess

CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def _openssl(*words):
    subprocess.run(["openssl", *map(str, words)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class Authority:
    """`certificate` is what those trust who trust it."""

    def __init__(self, folder, name):
        self.folder, self.name = folder, name
        self.certificate, self.key = folder / f"{name}.pem", folder / f"{name}.key"
        _openssl("req", "-x509", *CURVE, "-days", 2, "-keyout", self.key, "-out", self.certificate, "-subj",
                 f"/CN={name}", "-addext", "keyUsage=critical,keyCertSign,cRLSign")

    def server(self, address):
        """The TLS side of a server at this address."""
        request, key, certificate, extensions = (
            self.folder / f"{self.name}-{address}.{end}" for end in ("csr", "server.key", "server.pem", "ext"))
        _openssl("req", *CURVE, "-keyout", key, "-out", request, "-subj", "/CN=server")
        extensions.write_text(f"subjectAltName=IP:{address}\nextendedKeyUsage=serverAuth\n")
        _openssl("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self.key, "-set_serial", 2, "-days",
                 2, "-extfile", extensions, "-out", certificate)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        return context
