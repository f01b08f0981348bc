# SPDX-License-Identifier: Apache-2.0
"""An identity provider of others' making: Debian's glewlwyd, on loopback and over TLS, with a database and a
configuration of its own, set up by its administrators' interface. Also who uses it: people with an account there, whose
browser is a few requests that keep cookies."""
import http.client
import http.cookiejar
import json
import pathlib
import shutil
import socket
import sqlite3
import ssl
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

from oidc_provider import make_certificate

PROGRAM = shutil.which("glewlwyd")
SCHEMA = pathlib.Path("/usr/share/dbconfig-common/data/glewlwyd/install/sqlite3")
MODULES = "/usr/lib/glewlwyd"
PATIENCE_S = 20


def missing():
    """What of it this machine does not have; empty: all is there."""
    return "" if PROGRAM and SCHEMA.exists() else "Debian's glewlwyd is not installed (scripts/install-deps.sh)"


class StaysHere(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


class Person:
    """A browser's cookies, and what its pages do."""

    def __init__(self, context):
        self.jar = http.cookiejar.CookieJar()
        self.opener = urllib.request.build_opener(
            urllib.request.HTTPSHandler(context=context), urllib.request.HTTPCookieProcessor(self.jar), StaysHere)

    def ask(self, method, url, body=None):
        """(status, headers, text); redirects are not followed."""
        request = urllib.request.Request(url, None if body is None else json.dumps(body).encode(),
                                         {"Content-Type": "application/json"}, method=method)
        try:
            with self.opener.open(request, timeout=PATIENCE_S) as answer:
                return answer.status, answer.headers, answer.read().decode()
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, refused.headers, refused.read().decode()


class Glewlwyd:
    CLIENT, SECRET = "reclaimnet", "open sesame & more"
    ADMIN = {"username": "admin", "password": "password"}  # as its schema has them
    PASSWORD = "one that nobody guesses"

    def __init__(self, folder, redirect):
        self.folder, self.redirect = folder, redirect
        certificate, self.key = make_certificate(folder)
        self.certificate = certificate
        self.context = ssl.create_default_context(cafile=str(certificate))
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            self.port = one.getsockname()[1]
        self.base = f"https://127.0.0.1:{self.port}"
        self.issuer = self.base + "/api/oidc"
        database = sqlite3.connect(folder / "glewlwyd.db")
        database.executescript(SCHEMA.read_text())
        database.close()
        self.process = None
        self.write_config()
        self.up()
        self.admin = self.signed_in(self.ADMIN)
        self.set_up()

    # ---- the daemon

    def write_config(self):
        (self.folder / "glewlwyd.conf").write_text(f"""
port={self.port}
bind_address="127.0.0.1"
external_url="{self.base}"
login_url="login.html"
api_prefix="api"
log_mode="file"
log_level="INFO"
log_file="{self.folder}/glewlwyd.log"
cookie_secure=1
cookie_same_site="lax"
session_key="GLEWLWYD2_SESSION_ID"
admin_scope="g_admin"
profile_scope="g_profile"
user_module_path="{MODULES}/user"
client_module_path="{MODULES}/client"
user_auth_scheme_module_path="{MODULES}/scheme"
plugin_module_path="{MODULES}/plugin"
use_secure_connection=true
secure_connection_key_file="{self.key}"
secure_connection_pem_file="{self.certificate}"
hash_algorithm="SHA512"
database = {{ type="sqlite3"; path="{self.folder}/glewlwyd.db"; }};
""")

    def up(self):
        with open(self.folder / "glewlwyd.out", "ab") as out:
            self.process = subprocess.Popen([PROGRAM, "-c", self.folder / "glewlwyd.conf"], stdout=out, stderr=out,
                                            stdin=subprocess.DEVNULL)
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 5).close()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > end:
                    raise AssertionError(f"glewlwyd did not start: {self.words()}") from None
            time.sleep(0.05)

    def down(self):
        if self.process:
            self.process.kill()
            self.process.wait()
        self.process = None

    def words(self):
        """The end of what it said."""
        said = [(self.folder / name) for name in ("glewlwyd.out", "glewlwyd.log")]
        return "".join(one.read_text()[-2000:] for one in said if one.exists())

    # ---- its administrator

    def order(self, method, path, body=None):
        status, _, text = self.admin.ask(method, self.base + "/api" + path, body)
        if status != 200:
            raise AssertionError(f"{method} {path}: {status} {text}\n{self.words()}")
        return json.loads(text) if text else None

    def key_pair(self, kind):
        """(private, public) in PEM."""
        options = {"rsa": ["RSA", "-pkeyopt", "rsa_keygen_bits:2048"],
                   "ecdsa": ["EC", "-pkeyopt", "ec_paramgen_curve:P-256"]}[kind]
        private = subprocess.run(["openssl", "genpkey", "-algorithm", *options], check=True, capture_output=True).stdout
        public = subprocess.run(["openssl", "pkey", "-pubout"], input=private, check=True, capture_output=True).stdout
        return private.decode(), public.decode()

    def plugin(self, kind):
        private, public = self.key_pair(kind)
        verified = {"name": "email_verified", "user-property": "verified", "type": "boolean",
                    "boolean-value-true": "yes", "boolean-value-false": "no", "mandatory": True}
        return {"module": "oidc", "name": "oidc", "display_name": "University", "enabled": True, "parameters": {
            "iss": self.issuer, "jwt-type": kind, "jwt-key-size": "256", "key": private, "cert": public,
            "access-token-duration": 60, "refresh-token-duration": 60, "code-duration": 60,
            "refresh-token-rolling": False, "auth-type-code-enabled": True, "auth-type-refresh-enabled": False,
            "auth-type-device-enabled": True, "device-authorization-expiration": 60,
            "device-authorization-interval": 1, "allow-non-oidc": True, "jwks-show": True, "subject-type": "public",
            "allowed-scope": ["openid"], "pkce-allowed": True, "pkce-method-plain-allowed": False,
            "pkce-required": True, "email-claim": "mandatory", "name-claim": "no", "scope-claim": "no",
            "claims": [{"name": "groups", "user-property": "groups", "type": "string", "mandatory": True}, verified]}}

    def set_up(self):
        users = self.order("GET", "/mod/user/database")
        for name, is_list in (("groups", True), ("verified", False)):
            users["parameters"]["data-format"][name] = {
                "multiple": is_list, "read": True, "write": True, "profile-read": True, "profile-write": False}
        self.order("PUT", "/mod/user/database", users)
        self.order("PUT", "/mod/user/database/reset")
        self.order("POST", "/mod/plugin", self.plugin("rsa"))
        self.order("POST", "/client", {
            "client_id": self.CLIENT, "name": "ReclaimNet", "confidential": True, "enabled": True,
            "client_secret": self.SECRET, "redirect_uri": [self.redirect], "scope": [],
            "authorization_type": ["code", "device_authorization"],
            "token_endpoint_auth_method": ["client_secret_basic", "client_secret_post"]})

    def add_person(self, name, groups=(), verified="yes", **more):
        self.order("POST", "/user", {
            "username": name, "password": self.PASSWORD, "name": name, "email": f"{name}@example.org",
            "enabled": True, "scope": ["openid"], "groups": list(groups), "verified": verified, **more})

    def change(self, **parameters):
        plugin = self.order("GET", "/mod/plugin/oidc")
        plugin["parameters"].update(parameters)
        self.order("PUT", "/mod/plugin/oidc", plugin)
        self.order("PUT", "/mod/plugin/oidc/reset")

    def rotate(self, kind):
        """Signs by another key from now on, and forgets the one before."""
        new = self.plugin(kind)["parameters"]
        self.change(**{name: new[name] for name in ("jwt-type", "key", "cert")})

    # ---- people

    def signed_in(self, who):
        person = Person(self.context)
        status, _, text = person.ask("POST", self.base + "/api/auth", who)
        if status != 200:
            raise AssertionError(f"{who['username']} cannot sign in: {status} {text}\n{self.words()}")
        return person

    def send_back(self, name, url):
        """Where `name`'s browser is sent from `url`, in the end: to its login page first, by which they type their
        password and agree to what the client asks for."""
        person = Person(self.context)
        status, headers, text = person.ask("GET", url)
        place = headers.get("Location", "")
        if status != 302 or not place.startswith(self.base + "/login.html?"):
            raise AssertionError(f"no way to its login page: {status} {place} {text}\n{self.words()}")
        asked = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(place).query))
        for method, path, body in (
                ("POST", "/api/auth", {"username": name, "password": self.PASSWORD}),
                ("PUT", f"/api/auth/grant/{asked['client_id']}", {"scope": asked["scope"]})):
            status, _, text = person.ask(method, self.base + path, body)
            if status != 200:
                raise AssertionError(f"{name}: {path}: {status} {text}\n{self.words()}")
        callback = asked["callback_url"]
        status, headers, text = person.ask("GET", callback + ("&" if "?" in callback else "?") + "g_continue")
        if status != 302:
            raise AssertionError(f"{name} is not sent back: {status} {text}\n{self.words()}")
        return headers["Location"]
