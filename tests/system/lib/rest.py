# SPDX-License-Identifier: Apache-2.0
"""The coordinator's REST API for tests: plain calls, JSON in and out, the site's own CA and a deadline on each."""
import http.client
import json
import pathlib
import ssl
import urllib.parse


class Refused(Exception):
    """An answer other than 2xx: status, and the body's error (code, message, hint)."""

    def __init__(self, status, body):
        self.status = status
        try:
            self.error = json.loads(body)["error"]
        except (ValueError, KeyError, TypeError):
            self.error = {"code": "", "message": body.decode(errors="replace"), "hint": ""}
        super().__init__(f"{status}: {self.error}")


class Rest:
    def __init__(self, host, port, ca_file, token=None, timeout_s=30):
        self.host, self.port, self.token, self.timeout_s = host, port, token, timeout_s
        self.tls = ssl.create_default_context(cafile=str(ca_file))

    def with_token(self, token):
        other = Rest.__new__(Rest)
        other.__dict__.update(self.__dict__, token=token)
        return other

    def call(self, method, path, body=None, headers=None, **query):
        """The answer's bytes; Refused for an error answer, OSError when nobody answers in time."""
        if query:
            path += "?" + urllib.parse.urlencode(query)
        sent = {"Content-Type": "application/json", **(headers or {})}
        if self.token:
            sent["Authorization"] = f"Bearer {self.token}"
        payload = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        connection = http.client.HTTPSConnection(self.host, self.port, timeout=self.timeout_s, context=self.tls)
        try:
            connection.request(method, path, payload, sent)
            answer = connection.getresponse()
            data = answer.read()
        except http.client.HTTPException as error:
            raise OSError(f"{method} {path}: {error!r}") from error
        finally:
            connection.close()
        if not 200 <= answer.status < 300:
            raise Refused(answer.status, data)
        return data

    def get(self, path, **query):
        return json.loads(self.call("GET", path, **query))

    def post(self, path, body, **headers):
        data = self.call("POST", path, body, headers={name.replace("_", "-"): value for name, value in headers.items()})
        return json.loads(data) if data else None

    # --- what tests ask for most

    def is_ready(self):
        try:
            self.call("GET", "/readyz")
            return True
        except (OSError, Refused):
            return False

    def nodes(self):
        """By lab, so that tests need not know the nodes' identifiers."""
        return {node["lab"]: node for node in self.get("/v1/nodes")["nodes"]}

    def job(self, job):
        return self.get(f"/v1/jobs/{job}")

    def jobs(self):
        """All jobs, newest first, page by page."""
        found, before = [], 0
        while page := self.get("/v1/jobs", all=1, before=before, limit=200)["jobs"]:
            found += page
            before = page[-1]["number"]
        return found

    def attempts(self, job):
        return self.get(f"/v1/jobs/{job}/attempts")["attempts"]

    def ran(self, job):
        """Those that began. A node that is late may refuse what it was just given: then another attempt is made."""
        return [one for one in self.attempts(job) if one["started_wall_ms"]]

    def log_of(self, job, number):
        """Of the attempt that began as the first (1), second …; empty if there is none."""
        ran = self.ran(job)
        return self.log(job, ran[number - 1]["epoch"].split(".")[1]) if len(ran) >= number else b""

    def generations(self, job):
        return self.get(f"/v1/jobs/{job}/generations")["generations"]

    def events(self, job=None):
        """All events (of one job), oldest first, page by page."""
        path = f"/v1/jobs/{job}/events" if job else "/v1/events"
        found, after = [], 0
        while True:
            page = self.get(path, after=after, limit=200)
            if not page["events"]:
                return found
            found += page["events"]
            after = page["next_after"]

    def reclaims(self):
        return self.get("/v1/reclaims")["reclaims"]

    def log(self, job, attempt=None):
        query = {} if attempt is None else {"attempt": attempt}
        return self.call("GET", f"/v1/jobs/{job}/logs", **query)

    def join_token(self, lab):
        return self.post("/v1/tokens", {"kind": "join", "lab": lab})["token"]


def from_state(folder, host, port):
    """As the administrator of a coordinator whose state folder is at hand."""
    folder = pathlib.Path(folder)
    token = (folder / "admin.token").read_text().strip()
    return Rest(host, port, folder / "pki" / "ca.pem", token)
