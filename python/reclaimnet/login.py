# SPDX-License-Identifier: Apache-2.0
"""Where the coordinator is and who asks: the command line's login file and environment variables.

`RECLAIM_URL` and `RECLAIM_TOKEN` come before the file that `reclaim login` writes
(`$XDG_CONFIG_HOME/reclaimnet/config.json`, or `~/.config/reclaimnet/config.json`).
"""
import dataclasses
import ipaddress
import json
import os
import pathlib
import pwd
import re
import stat
from typing import Any, Dict, Optional
from urllib.parse import urlsplit

from .errors import InvalidError, NotLoggedInError

FILE_BYTES_MAX = 64 << 10
DEFAULT_PORT = 7443
AGAIN = "log in again: reclaim login URL --token T"
EXAMPLE = "for example https://coordinator:7443"


@dataclasses.dataclass(frozen=True)
class Login:
    """A coordinator, a token, and the SHA-256 of the site's CA as 64 hex digits."""

    host: str
    port: int
    token: str = dataclasses.field(repr=False)
    ca_fingerprint: str

    @property
    def url(self) -> str:
        """https://HOST:PORT, an IPv6 address in brackets."""
        return f"https://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


def login_path() -> pathlib.Path:
    """The file that `reclaim login` writes."""
    folder = os.environ.get("XDG_CONFIG_HOME", "")
    if not folder.startswith("/"):
        folder = (os.environ.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir) + "/.config"
    return pathlib.Path(folder) / "reclaimnet" / "config.json"


def fingerprint_in(token: str) -> str:
    """The last part of a token if that is a fingerprint, else empty."""
    last = token.rpartition(".")[2] if "." in token else ""
    return last if re.fullmatch(r"[0-9a-f]{64}", last) else ""


def split_url(text: str, source: str) -> "tuple[str, int]":
    """Host and port of a coordinator's address; `source` says in errors who named it."""
    def wrong(what: str, hint: str = EXAMPLE) -> InvalidError:
        return InvalidError(f"{source}: the coordinator's address {what}", hint)

    if "@" in text:  # first of all, so that no other message repeats a password
        raise wrong("carries a user name or password", "leave it out; a token goes to RECLAIM_TOKEN")
    scheme, mark, place = text.partition("://")
    if not mark:
        place = text
    elif scheme.lower() != "https":
        raise wrong(f"{text!r} is not one of https", "write https:// or leave it out")
    place = place.rstrip("/")
    if not place.startswith("[") and place.count(":") > 1:
        raise wrong(f"{text!r} has more than one colon", "put an IPv6 address into brackets: https://[::1]:7443")
    try:
        parts = urlsplit("https://" + place)
        host, port = parts.hostname or "", parts.port
        if place.startswith("["):
            ipaddress.IPv6Address(host)
    except ValueError as error:
        raise wrong(f"{text!r} is none: {error}") from None
    if not re.fullmatch(r"[0-9A-Za-z_.:-]{1,253}", host):
        raise wrong(f"{text!r} names no host: {host!r}")
    if parts.path or parts.query or parts.fragment or place.endswith((":", "?", "#")) or port == 0:
        raise wrong(f"{text!r} is not just a host and a port")
    return host, port or DEFAULT_PORT


def _read_file() -> Dict[str, Any]:
    path = login_path()
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise InvalidError(f"{path} is not a regular file", "move it away; a login writes a file there")
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise InvalidError(f"{path} cannot be read: {error.strerror}", "make the file readable for you") from error
    try:
        found = json.loads(data[:FILE_BYTES_MAX + 1]) if len(data) <= FILE_BYTES_MAX else None
    except ValueError as error:
        raise InvalidError(f"{path} is no login: {error}", AGAIN) from error
    if not isinstance(found, dict) or not all(isinstance(found.get(name, ""), str)
                                              for name in ("url", "token", "ca_fingerprint")):
        raise InvalidError(f"{path} is no login", AGAIN)
    return found


def load_login(url: Optional[str] = None, token: Optional[str] = None,
               ca_fingerprint: Optional[str] = None) -> Login:
    """What the caller says, else the environment, else the login file. NotLoggedInError if that is not all."""
    told_url = url or os.environ.get("RECLAIM_URL", "")
    told_token = token or os.environ.get("RECLAIM_TOKEN", "")
    told_print = ca_fingerprint or fingerprint_in(told_token or "")
    file = {} if told_url and told_token and told_print else _read_file()
    address = told_url or file.get("url", "")
    secret = told_token or file.get("token", "")
    if not address or not secret:
        half = ""
        if told_url:
            half = ": the coordinator's address is known (RECLAIM_URL), the token (RECLAIM_TOKEN) is not"
        elif told_token:
            half = ": the token is known (RECLAIM_TOKEN), the coordinator's address (RECLAIM_URL) is not"
        raise NotLoggedInError(
            "not logged in" + half,
            "reclaim login https://COORDINATOR:7443 --token T (an admin makes T: reclaim token create), or set "
            "RECLAIM_URL and RECLAIM_TOKEN")
    if not re.fullmatch(r"[!-~]+", secret):
        raise InvalidError("the token has blanks or other characters that no token has", AGAIN)
    pin = (told_print or file.get("ca_fingerprint", "") or fingerprint_in(secret)).lower()
    if not re.fullmatch(r"[0-9a-f]{64}", pin):
        raise NotLoggedInError("the fingerprint of the site's CA is not known",
                               "take the token whole as it was shown, or give ca_fingerprint=…")
    source = "url" if url else "RECLAIM_URL" if told_url else str(login_path())
    host, port = split_url(address, source)
    return Login(host, port, secret, pin)
