# SPDX-License-Identifier: Apache-2.0
"""An identity provider that is played: strict where OpenID Connect and RFC 6749, 7636 and 8628 are, over real TLS,
with tokens that `openssl` signs by RS256. Who asks for an address at /auth is whoever `user` says, or types their name
into a page: nobody types a password."""
import base64
import hashlib
import html
import http.server
import json
import secrets
import ssl
import subprocess
import threading
import time
import urllib.parse


def encoded(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def make_certificate(folder):
    """(certificate, key) of a server on 127.0.0.1 that is its own authority."""
    certificate, key = folder / "provider.pem", folder / "provider.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-keyout", key, "-out", certificate, "-subj", "/CN=provider", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return certificate, key


class Provider:
    CLIENT, SECRET = "reclaimnet", "open sesame & more"

    def __init__(self, folder):
        self.folder = folder
        self.certificate, key = make_certificate(folder)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(self.certificate, key)
        self.signing = folder / "signing.pem"
        subprocess.run(["openssl", "genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out",
                        self.signing], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        modulus = subprocess.run(["openssl", "rsa", "-in", self.signing, "-noout", "-modulus"], check=True,
                                 capture_output=True, text=True).stdout.strip().split("=")[1]
        self.keys = {"keys": [{"kty": "RSA", "use": "sig", "alg": "RS256", "kid": "k-1", "e": "AQAB",
                               "n": encoded(bytes.fromhex(modulus))}]}
        self.user, self.more = "ann", {}
        self.refuses = False  # whoever comes says no
        self.has_devices = True
        self.has_tokens = True
        self.has_page = False  # for people who type who they are; else nobody is asked
        self.redirect = ""  # the one that is registered
        self.codes, self.devices = {}, {}
        self.complaints = []  # what a client did that no client may do
        self.server = None
        self.port = 0
        self.up()

    @property
    def issuer(self):
        return f"https://127.0.0.1:{self.port}"

    def up(self):
        """On the port that it had before, if it had one."""
        provider = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                provider.get(self)

            def do_POST(self):
                length = int(self.headers.get("Content-Length", 0))
                form = self.rfile.read(length).decode()
                provider.post(self, dict(urllib.parse.parse_qsl(form, keep_blank_values=True)))

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.port = self.server.server_address[1]
        self.server.socket = self.context.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def down(self):
        if self.server:
            self.server.shutdown()
            self.server.server_close()
        self.server = None

    def approve(self, user_code, user):
        """In the browser that a person opened."""
        next(one for one in self.devices.values() if one["user_code"] == user_code)["user"] = user

    # ---- answers

    @staticmethod
    def answer(request, status, body, **headers):
        data = json.dumps(body).encode()
        request.send_response(status)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(data)

    def refuse(self, request, word, why):
        self.complaints.append(why)
        self.answer(request, 400, {"error": word, "error_description": why})

    def get(self, request):
        path, _, query = request.path.partition("?")
        if path == "/.well-known/openid-configuration":
            devices = {"device_authorization_endpoint": self.issuer + "/device"} if self.has_devices else {}
            return self.answer(request, 200, {
                "issuer": self.issuer, "authorization_endpoint": self.issuer + "/auth",
                "token_endpoint": self.issuer + "/token", "jwks_uri": self.issuer + "/keys", **devices,
                "token_endpoint_auth_methods_supported": ["client_secret_basic"]})
        if path == "/keys":
            return self.answer(request, 200, self.keys)
        if path != "/auth":
            return self.answer(request, 404, {})
        asked = dict(urllib.parse.parse_qsl(query, strict_parsing=True))
        expected = {"response_type": "code", "client_id": self.CLIENT, "redirect_uri": self.redirect,
                    "code_challenge_method": "S256"}
        for name, value in expected.items():
            if asked.get(name) != value:
                return self.refuse(request, "invalid_request", f"{name} is {asked.get(name)!r}, not {value!r}")
        if "openid" not in asked.get("scope", "").split() or len(asked.get("state", "")) < 20 or \
                len(asked.get("nonce", "")) < 20 or len(asked.get("code_challenge", "")) != 43:
            return self.refuse(request, "invalid_request", "scope, state, nonce or code_challenge")
        if self.has_page:
            return self.show_page(request, asked)
        return self.send_back(request, asked, "" if self.refuses else self.user)

    def send_back(self, request, asked, user):
        """The browser, to the site; without a user as one who said no."""
        back = {"error": "access_denied"}
        if user:
            code = secrets.token_urlsafe(24)
            self.codes[code] = {"challenge": asked["code_challenge"], "nonce": asked["nonce"], "user": user}
            back = {"code": code, "session_state": "x.y", "iss": self.issuer}
        back = urllib.parse.urlencode({**back, "state": asked["state"]})
        return self.answer(request, 302, {}, Location=f"{self.redirect}?{back}")

    def show_page(self, request, asked):
        hidden = "".join(f'<input type="hidden" name="{name}" value="{html.escape(asked[name])}">'
                         for name in ("state", "nonce", "code_challenge"))
        data = (f'<!doctype html><html lang="en"><title>University</title><h1>University</h1>'
                f'<form method="post" action="/login">{hidden}<label>User <input name="user"></label>'
                '<button>Sign in</button><button name="no" value="no">Cancel</button></form></html>').encode()
        request.send_response(200)
        request.send_header("Content-Type", "text/html; charset=utf-8")
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        request.wfile.write(data)

    def is_client(self, request, form):
        wanted = ":".join(urllib.parse.quote(one, safe="") for one in (self.CLIENT, self.SECRET))
        return request.headers.get("Authorization") == "Basic " + base64.b64encode(wanted.encode()).decode() and \
            "client_secret" not in form

    def post(self, request, form):
        if request.path == "/login":
            return self.send_back(request, form, "" if "no" in form else form.get("user", ""))
        if not self.is_client(request, form):
            return self.refuse(request, "invalid_client", "the client's secret")
        if request.path == "/device":
            code, user_code = secrets.token_urlsafe(24), secrets.token_hex(4).upper()
            self.devices[code] = {"user_code": user_code, "user": None, "asked": 0.0}
            return self.answer(request, 200, {
                "device_code": code, "user_code": user_code, "verification_uri": self.issuer + "/activate",
                "expires_in": 60, "interval": 1})
        if request.path != "/token":
            return self.answer(request, 404, {})
        if not self.has_tokens:
            return self.answer(request, 503, {})
        if form.get("grant_type") == "authorization_code":
            return self.redeem(request, form)
        return self.look(request, form)

    def redeem(self, request, form):
        known = self.codes.pop(form.get("code"), None)
        if known is None or form.get("redirect_uri") != self.redirect:
            return self.refuse(request, "invalid_grant", "the code is unknown or was used")
        if encoded(hashlib.sha256(form.get("code_verifier", "").encode()).digest()) != known["challenge"]:
            return self.refuse(request, "invalid_grant", "the verifier is another one's")
        return self.give(request, known["user"], nonce=known["nonce"])

    def look(self, request, form):
        known = self.devices.get(form.get("device_code"))
        if known is None or form.get("grant_type") != "urn:ietf:params:oauth:grant-type:device_code":
            return self.refuse(request, "invalid_grant", "no such device")
        since, known["asked"] = time.monotonic() - known["asked"], time.monotonic()
        if since < 0.8:
            return self.refuse(request, "slow_down", "a client that asks more often than it may")
        if known["user"] is None:
            return self.answer(request, 400, {"error": "authorization_pending"})
        self.devices.pop(form["device_code"])
        return self.give(request, known["user"])

    def give(self, request, user, **more):
        now = int(time.time())
        claims = {"iss": self.issuer, "aud": self.CLIENT, "sub": user, "iat": now, "exp": now + 120, **more,
                  **self.more}
        self.answer(request, 200, {"access_token": "unused", "token_type": "Bearer", "id_token": self.token(claims)})

    def token(self, claims, **header):
        head = {"alg": "RS256", "kid": "k-1", "typ": "JWT", **header}
        covered = ".".join(encoded(json.dumps(part).encode()) for part in (head, claims))
        signature = subprocess.run(["openssl", "dgst", "-sha256", "-sign", self.signing], input=covered.encode(),
                                   check=True, capture_output=True).stdout
        return covered + "." + encoded(signature)
