# SPDX-License-Identifier: Apache-2.0
"""A container engine's socket whose version is what a test says: everything is passed on to the real engine behind it,
but for the answer to GET /version, in which the numbers are replaced. It can go away and come back."""
import contextlib
import http.client
import http.server
import json
import os
import pathlib
import socket
import socketserver
import threading


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    engine = None


class _ToReal(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("engine", timeout=60)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"

    def address_string(self):
        return "warden"

    def log_message(self, *_):
        pass

    def _pass_on(self):
        engine = self.server.engine
        body = self._body()
        real = _ToReal(engine.real)
        try:
            headers = {"Content-Type": self.headers.get("Content-Type", "application/json")}
            real.request(self.command, self.path, body, headers)
            answer = real.getresponse()
            data = answer.read()
        finally:
            real.close()
        if self.path.endswith("/version"):
            engine.asked += 1
            data = engine.with_versions(data)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # who asked has given up
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.getheader("Content-Type", "application/json"))
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    def _body(self):
        if self.headers.get("Transfer-Encoding", "") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    do_GET = do_POST = do_DELETE = do_HEAD = do_PUT = _pass_on


class OldEngine:
    """Listens at `path` for the engine at `real`. `versions` are what it claims: {"engine": …, "runc": …}."""

    def __init__(self, path, real, **versions):
        self.path, self.real, self.versions, self.asked = pathlib.Path(path), str(real), versions, 0
        self.server = None

    def with_versions(self, data):
        document = json.loads(data)
        document["Version"] = self.versions.get("engine", document["Version"])
        for component in document["Components"]:
            if component["Name"] == "Engine":
                component["Version"] = document["Version"]
            if component["Name"] == "runc":
                component["Version"] = self.versions.get("runc", component["Version"])
        return json.dumps(document).encode()

    def come(self):
        self.server = _Server(str(self.path), _Handler)
        self.server.engine = self
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def go(self):
        """Nobody listens any more, as when its service has stopped."""
        if self.server is not None:
            self.server.shutdown()
            self.server.server_close()
            self.server = None
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
