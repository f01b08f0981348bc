# SPDX-License-Identifier: Apache-2.0
"""A node whose peer data port lies: it has the node's own certificate, speaks the protocol (docs/formats/wire.md, "Peer
data") and answers each question for a chunk with that chunk's name and other bytes. Manifests it serves as they are,
from the node's own store. The node's agent goes on beside it, so that the site trusts the node; its port is turned to
the liar by nft, inside the laboratory."""
import sys

import lan

PORT = 7446
PROGRAM = """
import pathlib, socket, ssl, struct, sys

HELLO, WELCOME, CHUNK, MANIFEST, WANT_MANIFEST, WANT_CHUNKS = 1, 2, 6, 7, 9, 10
store = pathlib.Path(sys.argv[4])

def exactly(connection, count):
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise EOFError
        data += more
    return data

def send(connection, kind, body):
    connection.sendall(struct.pack("<IB", len(body), kind) + body)

def serve(connection):
    while True:
        length, kind = struct.unpack("<IB", exactly(connection, 5))
        body = exactly(connection, length)
        if kind == HELLO:
            send(connection, WELCOME, b"\\xa1\\x68protocol\\x01")
        elif kind == WANT_MANIFEST:
            for path in store.rglob("*" + body.hex() + "*"):
                send(connection, MANIFEST, b"\\1" + path.read_bytes())
        elif kind == WANT_CHUNKS:
            print("lies about", body[:32].hex(), flush=True)
            for at in range(0, length, 32):
                send(connection, CHUNK, body[at:at + 32] + b"these are no bytes of that")

context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[2], sys.argv[3])
with socket.create_server(("0.0.0.0", int(sys.argv[1]))) as server:
    print("listening", flush=True)
    while True:
        plain, _ = server.accept()
        plain.settimeout(20)
        try:
            with context.wrap_socket(plain, server_side=True) as connection:
                serve(connection)
        except (OSError, EOFError) as error:
            print("ended", repr(error), flush=True)
"""


class Liar:
    """From now until stop(): the node's data port lies. Its agent keeps what connections it has."""

    def __init__(self, node, wait_until):
        certificate = lan.node_certificate(node)
        self.node, self.told_before = node, 0
        self.process = node.labs.spawn(node.lab, "liar", [
            sys.executable, "-c", PROGRAM, PORT, certificate.certificate, certificate.key,
            node.state / "agent"])
        self.told_before = self.process.output().count("lies about")  # a log is written on
        wait_until("the liar to listen", lambda: self.process.output().endswith("listening\n"), 10)
        self._nft("add table ip liar; add chain ip liar in { type nat hook prerouting priority -100; }; "
                  f"add rule ip liar in tcp dport {lan.PEER} redirect to :{PORT}")

    def lies(self):
        """How many questions for chunks it has answered."""
        return self.process.output().count("lies about") - self.told_before

    def stop(self):
        self._nft("delete table ip liar")
        self.process.stop()

    def _nft(self, rules):
        self.node.labs.call(self.node.lab, ["nft", rules])
