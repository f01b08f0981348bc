# SPDX-License-Identifier: Apache-2.0
"""HTTPS to one coordinator: who it is, how long it may take, what is asked again.

The coordinator's certificate is signed by the site's own CA, which is known by its fingerprint alone, as in the command
line: the CA is looked for in the chain that the server presents, before anything is sent, and every connection is then
verified against it and must be `spiffe://reclaimnet/coordinator`.
"""
import contextlib
import hashlib
import http.client
import json
import os
import re
import socket
import ssl
import threading
import time
from typing import Any, Dict, Iterator, List, Optional, Type
from urllib.parse import urlencode

from . import errors
from .login import Login

COORDINATOR = "spiffe://reclaimnet/coordinator"
ANSWER_BYTES_MAX = 64 << 20
ERROR_BYTES_MAX = 64 << 10
LOG_PIECE_BYTES = 64 << 10

_BY_CODE: Dict[str, Type[errors.ReclaimError]] = {
    "invalid": errors.InvalidError, "not_found": errors.NotFoundError, "denied": errors.DeniedError,
    "conflict": errors.ConflictError, "exhausted": errors.ExhaustedError, "unavailable": errors.UnavailableError,
    "timeout": errors.TimedOutError, "corrupt": errors.CorruptError, "unsupported": errors.UnsupportedError}
_BY_STATUS: Dict[int, Type[errors.ReclaimError]] = {
    401: errors.DeniedError, 403: errors.DeniedError, 404: errors.NotFoundError, 410: errors.NotFoundError,
    408: errors.TimedOutError, 504: errors.TimedOutError, 409: errors.ConflictError, 412: errors.ConflictError,
    422: errors.CorruptError, 429: errors.ExhaustedError, 507: errors.ExhaustedError, 501: errors.UnsupportedError,
    502: errors.UnavailableError, 503: errors.UnavailableError}


def error_of_answer(status: int, body: bytes, url: str) -> errors.ReclaimError:
    """The exception for an answer that is no success. `body` may be anything."""
    message, hint, code = "", "", ""
    with contextlib.suppress(ValueError, RecursionError):
        inner = json.loads(body.decode(errors="replace"))
        inner = inner.get("error") if isinstance(inner, dict) else None
        if isinstance(inner, dict):
            message, hint, code = (word if isinstance(word, str) else "" for word in (
                inner.get("message"), inner.get("hint"), inner.get("code")))
    kind = _BY_CODE.get(code) or _BY_STATUS.get(status)
    if kind is None:
        kind = errors.InvalidError if 400 <= status < 500 else errors.ReclaimError
    if not message:
        message = f"the answer is HTTP status {status}, which says nothing more"
        hint = hint or f"is that the coordinator? {url}/healthz"
    if not hint and status >= 500:
        hint = "look at the coordinator's log"
    return kind(message, hint, status)


def _presented_chain(peer: ssl.SSLSocket) -> Optional[List[bytes]]:
    """What the server presented, in DER; None if this Python cannot say (3.9)."""
    if hasattr(peer, "get_unverified_chain"):  # 3.13
        return list(peer.get_unverified_chain())
    inner: Any = getattr(peer, "_sslobj", None)
    if hasattr(inner, "get_unverified_chain"):  # 3.10 to 3.12
        return [ssl.PEM_cert_to_DER_cert(one.public_bytes()) for one in inner.get_unverified_chain() or ()]
    return None


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the name is the identity below, wherever the coordinator lives
    return context


class _Connection(http.client.HTTPConnection):
    """Verified before the first byte is sent."""

    default_port = 443

    def __init__(self, login: Login, timeout: float, context: ssl.SSLContext) -> None:
        super().__init__(login.host, login.port, timeout=timeout)
        self._context = context

    def connect(self) -> None:
        super().connect()
        try:
            secure = self._context.wrap_socket(self.sock, server_hostname=self.host)
        except BaseException:
            self.close()
            raise
        self.sock = secure
        certificate: Dict[str, Any] = secure.getpeercert() or {}
        names = [value for kind, value in certificate.get("subjectAltName", ()) if kind == "URI"]
        if names[:1] != [COORDINATOR]:
            self.close()
            raise errors.DeniedError(f"the peer is {names[0] if names else 'nobody'}, not {COORDINATOR}",
                                     "somebody else of this site answers there: check the address")

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()


class Transport:
    """Calls of one client; may be used by several threads, each with a connection of its own.

    `timeout_s` bounds each wait for the network; what cannot be reached is asked again for `patience_s`. Every call of
    the API may be repeated: reads, uploads by their digest, stops, and submits by their Idempotency-Key.
    """

    def __init__(self, login: Login, timeout_s: float, patience_s: float, ca_file: Optional[str] = None) -> None:
        self.login = login
        self.timeout_s, self.patience_s = timeout_s, patience_s
        self._ca_file = ca_file
        self._lock = threading.Lock()
        self._verifying: Optional[ssl.SSLContext] = None
        self._local = threading.local()

    # --- TLS

    def _verifying_context(self) -> ssl.SSLContext:
        with self._lock:
            if self._verifying is None:
                authority = self._authority_of_file() if self._ca_file else self._authority_of_server()
                context = _context()
                context.load_verify_locations(cadata=authority)
                self._verifying = context
            return self._verifying

    def _authority_of_file(self) -> str:
        try:
            with open(str(self._ca_file), encoding="ascii", errors="replace") as file:
                text = file.read(1 << 20)
        except OSError as error:
            raise errors.InvalidError(f"{self._ca_file} cannot be read: {error.strerror}",
                                      "ca_file is the site's CA in PEM form") from error
        pattern = "-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----"
        for one in re.findall(pattern, text, re.DOTALL):
            with contextlib.suppress(ValueError):
                if hashlib.sha256(ssl.PEM_cert_to_DER_cert(one)).hexdigest() == self.login.ca_fingerprint:
                    return str(one)
        raise errors.DeniedError(f"{self._ca_file} has no certificate with the fingerprint {self.login.ca_fingerprint}",
                                 "take this site's CA, or the token of the site whose CA that is")

    def _authority_of_server(self) -> str:
        """The CA with the pinned fingerprint out of the presented chain; nothing is sent to who presents it."""
        context = _context()
        context.verify_mode = ssl.CERT_NONE
        with socket.create_connection((self.login.host, self.login.port), timeout=self.timeout_s) as raw:
            with context.wrap_socket(raw, server_hostname=self.login.host) as peer:
                chain = _presented_chain(peer)
        if chain is None:
            raise errors.UnsupportedError(
                "this Python (before 3.10) cannot see which CA a server presents",
                "use Python 3.10 or newer, or give Client(ca_file=…): the site's CA in PEM form")
        for der in chain:
            if hashlib.sha256(der).hexdigest() == self.login.ca_fingerprint:
                return ssl.DER_cert_to_PEM_cert(der)
        raise errors.DeniedError("the peer's certificate is not accepted: it is of another CA than this site's",
                                 "check the address; if the site has a new CA, log in again with a new token")

    # --- one call

    def _connection(self, timeout_s: float) -> _Connection:
        return _Connection(self.login, timeout_s, self._verifying_context())

    def _headers(self, extra: Optional[Dict[str, str]]) -> Dict[str, str]:
        return {"Authorization": f"Bearer {self.login.token}", **(extra or {})}

    def _kept(self) -> _Connection:
        kept: Optional[_Connection] = getattr(self._local, "connection", None)
        if kept is None or self._local.pid != os.getpid():  # after a fork the parent goes on with it
            kept = self._local.connection = self._connection(self.timeout_s)
            self._local.pid = os.getpid()
        return kept

    def close(self) -> None:
        """Closes the calling thread's connection; the next call opens one."""
        kept = getattr(self._local, "connection", None)
        self._local.connection = None
        if kept is not None:
            kept.close()

    def _once(self, method: str, path: str, body: Optional[bytes], headers: Dict[str, str], most: int) -> bytes:
        connection = self._kept()
        was_open = connection.sock is not None
        try:
            try:
                connection.request(method, path, body, headers)
                answer = connection.getresponse()
            except (http.client.RemoteDisconnected, ConnectionError):
                if not was_open:
                    raise
                connection.close()  # closed for its idleness meanwhile: at once on a new one
                connection.request(method, path, body, headers)
                answer = connection.getresponse()
            is_good = 200 <= answer.status < 300
            data = answer.read((most if is_good else ERROR_BYTES_MAX) + 1)
            if not answer.isclosed():
                connection.close()  # more than was read: it can carry no further call
            after = answer.getheader("Retry-After", "")
        except BaseException:
            self.close()
            raise
        if not is_good:
            raise _with_pause(error_of_answer(answer.status, data, self.login.url), after)
        if len(data) > most:
            raise errors.ExhaustedError(f"the answer to {method} {path} has more than {most} bytes",
                                        "ask for less at a time")
        return data

    def call(self, method: str, path: str, body: Optional[bytes] = None, *, headers: Optional[Dict[str, str]] = None,
             query: Optional[Dict[str, Any]] = None, most: int = ANSWER_BYTES_MAX) -> bytes:
        """The answer's bytes, at most `most`. Raises a ReclaimError."""
        if query:
            path += "?" + urlencode(query)
        deadline = time.monotonic() + self.patience_s
        pause = 0.2
        while True:
            try:
                with translated(self.login.url):
                    return self._once(method, path, body, self._headers(headers), most)
            except (errors.UnavailableError, errors.TimedOutError) as error:
                wait = max(pause, getattr(error, "pause_s", 0.0))
                if time.monotonic() + wait > deadline:
                    raise
            time.sleep(wait)
            pause = min(2 * pause, 3.0)

    def json(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        """The same with JSON in and out."""
        sent = None
        if body is not None:
            sent = json.dumps(body).encode()
            options["headers"] = {"Content-Type": "application/json", **(options.get("headers") or {})}
        data = self.call(method, path, sent, **options)
        try:
            answer = json.loads(data) if data else {}
        except (ValueError, RecursionError) as error:
            raise errors.CorruptError(f"the answer to {method} {path} is no JSON: {error}",
                                      f"is that the coordinator? {self.login.url}/healthz") from error
        if not isinstance(answer, dict):
            raise errors.CorruptError(f"the answer to {method} {path} is no object",
                                      f"is that the coordinator? {self.login.url}/healthz")
        return answer

    def stream(self, path: str, query: Dict[str, Any]) -> Iterator[bytes]:
        """The pieces of an answer as they come, once: who broke it off raises, and the caller takes it up again. A
        silence of `timeout_s` is a TimedOutError."""
        with translated(self.login.url):
            connection = self._connection(self.timeout_s)
            try:
                connection.request("GET", path + "?" + urlencode(query), headers=self._headers(None))
                answer = connection.getresponse()
                if not 200 <= answer.status < 300:
                    raise error_of_answer(answer.status, answer.read(ERROR_BYTES_MAX), self.login.url)
                while True:
                    piece = answer.read1(LOG_PIECE_BYTES)
                    if not piece:
                        return
                    yield piece
            finally:
                connection.close()


def _with_pause(error: errors.ReclaimError, retry_after: str) -> errors.ReclaimError:
    if re.fullmatch(r"[0-9]{1,3}", retry_after):
        error.pause_s = min(float(retry_after), 5.0)  # type: ignore[attr-defined]
    return error


@contextlib.contextmanager
def translated(url: str) -> Iterator[None]:
    """Errors of the network as ours."""
    try:
        yield
    except errors.ReclaimError:
        raise
    except ssl.SSLCertVerificationError as error:
        raise errors.DeniedError(f"the peer's certificate is not accepted: {error.verify_message}",
                                 "check the clocks of both machines and the address; then log in again") from error
    except (socket.timeout, TimeoutError) as error:
        raise errors.TimedOutError(f"{url} does not answer in time",
                                   "repeat it; it may have been carried out already") from error
    except http.client.HTTPException as error:
        raise errors.UnavailableError(f"{url} broke off its answer ({type(error).__name__})",
                                      f"check that the coordinator runs: curl -k {url}/healthz") from error
    except OSError as error:
        raise errors.UnavailableError(f"{url} cannot be reached: {error.strerror or error}",
                                      f"check that the coordinator runs: curl -k {url}/healthz") from error
