# SPDX-License-Identifier: Apache-2.0
"""An HTTP server that webhooks are sent to."""
import contextlib
import hashlib
import hmac
import http.server
import json
import threading


class Hooks:
    """Notes what is posted; answers `status`. `tls`: by HTTPS, with this side of it (authority.py)."""

    def __init__(self, address="127.0.0.1", port=0, tls=None):
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
        if tls:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        self.origin = f"{'https' if tls else 'http'}://{address}:{self.server.server_port}"
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
