# SPDX-License-Identifier: Apache-2.0
"""Inside a job: is a save due, does the owner want the machine back, and here is what I saved.

    import reclaimnet

    for step in steps:
        train(step)
        if reclaimnet.should_save():
            with reclaimnet.saving("model.ckpt") as path:
                torch.save(state, path)

It uses what a guest finds (docs/guests.md): the socket of `--tell-api`, the file of `--tell-file`, and the notice file,
which every guest has. Outside a job nothing of it does anything, which is logged once. This file needs nothing else of
the package, and no other file: it may be copied into a job's folder.
"""
import contextlib
import dataclasses
import http.client
import json
import logging
import os
import socket
import sys
import threading
import time
from typing import Any, Dict, Iterator, Optional, Union

LOG = logging.getLogger("reclaimnet")
SAVED_LINE = b"::reclaimnet checkpoint-complete::"
ASK_EVERY_S = 0.2  # so often the platform is asked, however often the caller asks
API_TIMEOUT_S = 5.0
WORD_BYTES_MAX = 16 << 10


@dataclasses.dataclass(frozen=True)
class Notice:
    """What the owner says: the machine must be left at `deadline_unix` (seconds since 1970, by its own clock)."""

    reason: str
    deadline_unix: float
    grace_s: float
    will_migrate: Optional[bool] = None

    @property
    def seconds_left(self) -> float:
        """Until the deadline; 0 when it is over."""
        return max(0.0, self.deadline_unix - time.time())


class _Api(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=API_TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(API_TIMEOUT_S)
        self.sock.connect(self._path)


class _Job:
    """The state that one process needs: when it asked last, what it has answered."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked = -ASK_EVERY_S
        self._is_due = False
        self._answered: Optional[Dict[str, Any]] = None  # the notice that a save has answered already
        self._told: "set[str]" = set()

    def say_once(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            LOG.warning(text)

    def is_inside(self, what: str) -> bool:
        if in_job():
            return True
        self.say_once(f"not inside a job (RECLAIM_JOB_ID is not set): {what} does nothing here")
        return False

    def should_save(self) -> bool:
        with self._lock:
            now = time.monotonic()
            if now - self._asked >= ASK_EVERY_S:
                self._is_due, self._asked = self._ask(), now
            return self._is_due

    def _ask(self) -> bool:
        api, file = os.environ.get("RECLAIM_API"), os.environ.get("RECLAIM_TELL_FILE")
        if api:
            word = self._api("GET", "/v1/notice")
            if word is not None:
                return bool(word)
        elif file:
            return os.path.exists(os.path.join(checkpoint_dir(), file))
        said = read_word(os.environ.get("RECLAIM_NOTICE_FILE"))
        return said is not None and said != self._answered

    def _api(self, method: str, path: str) -> Optional[bytes]:
        """What is answered; None, said once, if that cannot be had."""
        connection = _Api(os.environ["RECLAIM_API"])
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            words = answer.read(WORD_BYTES_MAX)
            if answer.status in (200, 204):
                return words
            problem = words.decode(errors="replace").strip() or f"HTTP status {answer.status}"
        except (OSError, http.client.HTTPException) as error:
            problem = str(error) or type(error).__name__
        finally:
            connection.close()
        self.say_once(f"the job's API does not answer ({problem}); the notice file is looked at instead")
        return None

    def saved(self) -> None:
        with self._lock:
            said = read_word(os.environ.get("RECLAIM_NOTICE_FILE"))
            with contextlib.suppress(AttributeError, OSError, ValueError):
                sys.stdout.flush()
            os.write(1, b"\n" + SAVED_LINE + b"\n")  # a line of its own, whatever stands before it
            file = os.environ.get("RECLAIM_TELL_FILE")
            if os.environ.get("RECLAIM_API"):
                self._api("POST", "/v1/saved")
            elif file:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(checkpoint_dir(), file))
            self._answered = said
            self._is_due, self._asked = False, -ASK_EVERY_S


def read_word(path: Optional[str]) -> Optional[Dict[str, Any]]:
    """The JSON object of a notice file; None while there is none."""
    if not path:
        return None
    try:
        with open(path, "rb") as file:
            found = json.loads(file.read(WORD_BYTES_MAX))
    except OSError:
        return None
    except ValueError:
        return {}  # there is a notice, whatever it says
    return found if isinstance(found, dict) else {}


_JOB = _Job()


def in_job() -> bool:
    """Whether this process runs in a job of ReclaimNet."""
    return bool(os.environ.get("RECLAIM_JOB_ID"))


def is_resumed() -> bool:
    """Whether a checkpoint was put back, that is, whether this attempt may go on from one."""
    return bool(os.environ.get("RECLAIM_RESUME_FROM"))


def checkpoint_dir() -> str:
    """Where to save: the job's folder; outside a job the current one."""
    return os.environ.get("RECLAIM_CHECKPOINT_DIR") or os.getcwd()


def should_save() -> bool:
    """Whether to save now: the owner wants the machine back, or (with `--tell-api`, `--tell-file`) a save is due.

    Cheap enough for every step: the platform is asked at most five times a second. It stays true until
    `checkpoint_saved()`. Outside a job always false.
    """
    return _JOB.is_inside("should_save()") and _JOB.should_save()


def notice() -> Optional[Notice]:
    """What the owner says if they want the machine back, else None. Outside a job always None."""
    if not _JOB.is_inside("notice()"):
        return None
    said = read_word(os.environ.get("RECLAIM_NOTICE_FILE"))
    if said is None:
        return None

    def number(name: str) -> float:
        value = said.get(name, 0) if said else 0
        return float(value) if isinstance(value, (int, float)) else 0.0
    moves = said.get("will_migrate")
    return Notice(str(said.get("reason", "")), number("deadline_unix"), number("grace_s"),
                  moves if isinstance(moves, bool) else None)


def checkpoint_saved(path: Union[str, "os.PathLike[str]", None] = None) -> bool:
    """Says that everything in the job's folder is a whole checkpoint now: call it after the last byte was written and
    the file closed. What is written until a second later may be in it, too, so write to other names meanwhile.

    `path`: a file or folder that must be there, inside the job's folder (ValueError, FileNotFoundError); a file is
    flushed to the disk first. Of several processes one says it. At a notice the machine is left after it. Answers
    whether it was said: false outside a job.
    """
    place = os.path.join(checkpoint_dir(), os.fspath(path)) if path is not None else None
    if place is not None:
        _flush(place)
    if not _JOB.is_inside("checkpoint_saved()"):
        return False
    if place is not None:
        root = os.path.realpath(checkpoint_dir())
        if os.path.commonpath([root, os.path.realpath(place)]) != root:
            raise ValueError(f"{place} is not in the job's folder {root}: it is lost when the job moves; save there")
    _JOB.saved()
    return True


def _flush(place: str) -> None:
    if os.path.isdir(place):
        return
    with open(place, "rb") as file:
        os.fsync(file.fileno())


@contextlib.contextmanager
def saving(path: Union[str, "os.PathLike[str]"]) -> Iterator[str]:
    """Saves a file whole or not at all: gives a name beside `path` to write to, puts it in the place of `path` when the
    block ends, and says `checkpoint_saved`. When the block raises, `path` stays as it was. Works outside a job, too.

    The name ends with `.saving`; `--temporary '*.saving'` keeps a half written one out of checkpoints.
    """
    place = os.path.join(checkpoint_dir(), os.fspath(path))
    temporary = f"{place}.saving"
    try:
        yield temporary
        _flush(temporary)
        os.replace(temporary, place)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    checkpoint_saved(place)
