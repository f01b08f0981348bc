# SPDX-License-Identifier: Apache-2.0
"""What a browser does with a notebook, by the standard library: an address that begins a session, Jupyter's interface
with its cookie against forgery, and a kernel at a WebSocket."""
import base64
import http.client
import json
import os
import socket
import struct
import time
import urllib.parse
import uuid

MESSAGE_MAX = 16 << 20


class Browser:
    """One session; cookies as a browser keeps them."""

    def __init__(self, tls, url, timeout_s=90):
        """Opens the address and follows where it leads."""
        parts = urllib.parse.urlsplit(url)
        self.tls, self.host, self.port, self.timeout_s = tls, parts.hostname, parts.port, timeout_s
        self.cookies = {}
        status, headers, _ = self.call("GET", f"{parts.path}?{parts.query}")
        assert status == 303, status
        self.place = headers["Location"]
        assert "key=" not in self.place, self.place

    def connect(self):
        return http.client.HTTPSConnection(self.host, self.port, timeout=self.timeout_s, context=self.tls)

    def headers(self):
        found = {"Origin": f"https://{self.host}:{self.port}"}
        if self.cookies:
            found["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        if "_xsrf" in self.cookies:
            found["X-XSRFToken"] = self.cookies["_xsrf"]
        return found

    def call(self, method, path, body=None, accept="application/json"):
        """Status, headers and bytes of the answer; OSError when there is none."""
        connection = self.connect()
        try:
            connection.request(method, path, None if body is None else json.dumps(body),
                               {**self.headers(), "Accept": accept, "Content-Type": "application/json"})
            answer = connection.getresponse()
            data = answer.read()
        except http.client.HTTPException as error:
            raise OSError(f"{method} {path}: {error!r}") from error
        finally:
            connection.close()
        for cookie in answer.headers.get_all("Set-Cookie") or ():
            name, _, value = cookie.split(";")[0].partition("=")
            self.cookies[name.strip()] = value.strip()
        return answer.status, answer.headers, data

    def get(self, path, accept="application/json"):
        return self.call("GET", self.place + path, accept=accept)

    def json(self, method, path, body=None):
        status, _, data = self.call(method, self.place + path, body)
        if not 200 <= status < 300:
            raise OSError(f"{method} {path}: {status} {data[:300]!r}")
        return json.loads(data) if data else None

    def is_there(self):
        """Whether Jupyter itself answers, and not the coordinator in its place."""
        try:
            status, _, data = self.get("api")
            return status == 200 and "version" in json.loads(data)
        except (OSError, ValueError):
            return False

    def state(self):
        return self.json("GET", ".reclaim/state")


class Kernel:
    """A new kernel, and its channels by a WebSocket."""

    def __init__(self, browser):
        browser.get("tree", accept="text/html")  # a page sets the cookie against forgery
        self.browser = browser
        self.id = browser.json("POST", "api/kernels", {"name": "python3"})["id"]
        self.session = uuid.uuid4().hex
        self.socket = self.upgrade(f"{browser.place}api/kernels/{self.id}/channels?session_id={self.session}")
        self.bytes = b""

    def upgrade(self, path):
        browser = self.browser
        raw = socket.create_connection((browser.host, browser.port), timeout=browser.timeout_s)
        wrapped = browser.tls.wrap_socket(raw, server_hostname=browser.host)
        headers = {**browser.headers(), "Host": f"{browser.host}:{browser.port}", "Connection": "Upgrade",
                   "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
                   "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode()}
        lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        wrapped.sendall("\r\n".join(lines).encode())
        head = b""
        while b"\r\n\r\n" not in head:
            piece = wrapped.recv(1)
            assert piece, f"the connection ended: {head!r}"
            head += piece
        assert head.startswith(b"HTTP/1.1 101 "), head
        return wrapped

    def send_text(self, text):
        data = text.encode()
        mask = os.urandom(4)
        size = bytes([0x80 | len(data)]) if len(data) < 126 else b"\xfe" + struct.pack(">H", len(data))
        self.socket.sendall(b"\x81" + size + mask + bytes(byte ^ mask[i % 4] for i, byte in enumerate(data)))

    def exactly(self, count):
        while len(self.bytes) < count:
            piece = self.socket.recv(65536)
            if not piece:
                raise ConnectionError("the WebSocket ended")
            self.bytes += piece
        taken, self.bytes = self.bytes[:count], self.bytes[count:]
        return taken

    def receive(self):
        """The next message, whole: pings are passed over, an end is a ConnectionError."""
        message = b""
        while True:
            first, second = self.exactly(2)
            size = second & 127
            if size == 126:
                size = struct.unpack(">H", self.exactly(2))[0]
            elif size == 127:
                size = struct.unpack(">Q", self.exactly(8))[0]
            assert size <= MESSAGE_MAX, size
            payload = self.exactly(size)
            kind = first & 15
            if kind == 8:
                raise ConnectionError("the WebSocket was closed")
            if kind in (9, 10):
                continue
            message += payload
            if first & 0x80:
                return message

    def run(self, code, timeout_s=90):
        """What the code prints, when the kernel is idle again."""
        head = {"msg_id": uuid.uuid4().hex, "msg_type": "execute_request", "username": "", "session": self.session,
                "version": "5.3", "date": ""}
        self.send_text(json.dumps({
            "header": head, "parent_header": {}, "metadata": {}, "channel": "shell", "buffers": [],
            "content": {"code": code, "silent": False, "store_history": False, "user_expressions": {},
                        "allow_stdin": False, "stop_on_error": True}}))
        printed, until = "", time.monotonic() + timeout_s
        while time.monotonic() < until:
            message = json.loads(self.receive())
            if message["parent_header"].get("msg_id") != head["msg_id"]:
                continue
            content = message["content"]
            if message["msg_type"] == "stream":
                printed += content["text"]
            elif message["msg_type"] == "error":
                raise AssertionError("\n".join(content["traceback"]))
            elif message["msg_type"] == "status" and content["execution_state"] == "idle":
                return printed
        raise AssertionError(f"the kernel was not done in {timeout_s} s: {printed}")

    def close(self):
        self.socket.close()
