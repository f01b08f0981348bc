# SPDX-License-Identifier: Apache-2.0
"""A node that comes back from a loss and speaks for an attempt that has been replaced meanwhile, as no honest agent
does: with the node's own certificate, on its own network, over the agents' protocol (docs/formats/wire.md, "Control
messages") it asks for one generation more and says that the job has ended well. The answers of the coordinator are
printed; nothing of it may count. While the node's agent is not there."""
import base64
import json
import os
import pathlib
import socket
import ssl
import struct
import sys
import time

import lan
import rn_site


def cbor(value):
    def head(kind, count):
        for size, mark, form in ((1, 24, ">B"), (2, 25, ">H"), (4, 26, ">I"), (8, 27, ">Q")):
            if count < 24:
                return bytes([kind << 5 | count])
            if count < 1 << 8 * size:
                return bytes([kind << 5 | mark]) + struct.pack(form, count)
    if isinstance(value, int):
        return head(0, value)
    if isinstance(value, bytes):
        return head(2, len(value)) + value
    if isinstance(value, str):
        return head(3, len(value.encode())) + value.encode()
    if isinstance(value, list):
        return head(4, len(value)) + b"".join(map(cbor, value))
    pairs = sorted((cbor(key), cbor(one)) for key, one in value.items())
    return head(5, len(pairs)) + b"".join(key + one for key, one in pairs)


def exactly(stream, count):
    data = stream.read(count)
    if len(data) < count:
        raise EOFError
    return data


def send(connection, kind, body):  # one WebSocket frame; a mask of zeros is a mask
    data = cbor({"type": kind, "body": body})
    size = struct.pack(">B", 0x80 | len(data)) if len(data) < 126 else struct.pack(">BH", 0xfe, len(data))
    connection.sendall(b"\x82" + size + bytes(4) + data)


def receive(stream):
    while True:
        first, size = exactly(stream, 2)
        size = {126: lambda: struct.unpack(">H", exactly(stream, 2))[0],
                127: lambda: struct.unpack(">Q", exactly(stream, 8))[0]}.get(size, lambda: size)()
        data = exactly(stream, size)
        if first == 0x82:
            return data


# Enough of CBOR to read a flag and a text of an answer.
def field(data, name, texts=False):
    at = data.find(cbor(name))
    if at < 0:
        return None
    at += len(cbor(name))
    if not texts:
        return data[at] == 0xf5
    count, at = (data[at] & 31, at + 1) if data[at] < 0x78 else (data[at + 1], at + 2)
    return data[at:at + count].decode()


def answer(stream, kind):
    while True:
        data = receive(stream)
        if cbor("type") + cbor(kind) in data:
            return data
        if cbor("type") + cbor("refused") in data:
            raise SystemExit("the coordinator lets nobody in: " + str(field(data, "message", True)))


def reached(address, patience_s=20):
    """A connection. Who asked for a neighbour in vain while the cable was out is still refused for some seconds."""
    end = time.monotonic() + patience_s
    while True:
        try:
            return socket.create_connection(address, 10)
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)  # between two tries


def say_all(told):
    context = ssl.create_default_context(cafile=told["ca"])
    context.check_hostname = False
    context.load_cert_chain(told["certificate"], told["key"])
    with reached((told["host"], told["port"])) as plain, context.wrap_socket(plain) as connection:
        stream = connection.makefile("rb")
        connection.sendall(
            f"GET /v1/agent HTTP/1.1\r\nHost: {told['host']}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}\r\n\r\n"
            .encode())
        while stream.readline() not in (b"\r\n", b""):
            pass
        send(connection, "hello", {
            "protocol": 1, "oldest_protocol": 1, "version": told["version"], "node": told["node"],
            "machine_id": told["machine_id"], "boot_id": "late", "lab": told["lab"], "lending": "not_lending"})
        answer(stream, "welcome")
        for attempt in told["attempts"]:
            of = {"job": attempt["job"], "epoch": attempt["epoch"]}
            send(connection, "commit_generation", {"generation": {
                **of, "generation": attempt["generation"], "manifest": os.urandom(32), "bytes": 1}})
            said = answer(stream, "generation_committed")
            print(json.dumps({**of, "what": "generation", "is_accepted": field(said, "is_accepted"),
                              "reason": field(said, "reason", True)}), flush=True)
            send(connection, "attempt_event", {
                "report": {**of, "state": "ended", "end": "succeeded"}, "seq": 1 << 40})
            said = answer(stream, "attempt_ack")
            print(json.dumps({**of, "what": "end", "is_accepted": field(said, "is_accepted"), "reason": ""}),
                  flush=True)


def speak_for(node, coordinator, known, attempts, timeout_s=30):
    """`known`: the node as REST tells it; `attempts`: job, epoch and the generation to be asked for of each. Answers
    what the coordinator said to each word: job, epoch, what ("generation", "end"), is_accepted, reason."""
    certificate = lan.node_certificate(node)
    identity = json.loads((node.state / "agent" / "identity" / "identity.json").read_text())
    told = {
        "ca": str(certificate.certificate.parent / "ca.pem"), "certificate": str(certificate.certificate),
        "key": str(certificate.key), "host": coordinator.address, "port": rn_site.PORT, "node": known["id"],
        "lab": node.lab, "machine_id": identity["machine_id"], "version": known["version"],
        "attempts": attempts}
    done = node.labs.call(
        node.lab, [sys.executable, "-B", pathlib.Path(__file__).resolve(), json.dumps(told)], timeout_s=timeout_s,
        check=False)
    if done.returncode != 0:
        raise AssertionError(f"nobody listened to the late words: {done.stderr[-2000:]}")
    return [json.loads(line) for line in done.stdout.splitlines()]


if __name__ == "__main__":
    say_all(json.loads(sys.argv[1]))
