# SPDX-License-Identifier: Apache-2.0
"""What sbatch remembers of a job until its files are home, and how sacct brings them: docs/slurm-scripts.md."""
import contextlib
import dataclasses
import fcntl
import json
import os
import pathlib
import pwd
import re
import secrets
import sys
import time
from typing import Any, Dict, Iterator, List, Optional

from . import errors, folders, functions
from .client import Client, Job
from .login import Login

RECORDS_MAX = 10_000
RECORD_BYTES_MAX = 64 << 20
FETCH_S = 60.0  # of one call; a file that has begun is brought to its end


def now() -> float:
    """As files' times of change have it."""
    return time.time()


def deadline() -> float:
    """Of a call that begins now, on the monotonic clock. RECLAIM_SLURM_FETCH_S in place of FETCH_S."""
    text = os.environ.get("RECLAIM_SLURM_FETCH_S", "")
    return time.monotonic() + (float(text) if re.fullmatch(r"[0-9]{1,6}(\.[0-9]+)?", text) else FETCH_S)


@dataclasses.dataclass
class Record:
    """A submitted job. `output`: where its log is to be written; `results`: the folder, relative to `folder`, of which
    `NUMBER_…_result.pkl` are written last, because somebody waits for them; `done`: what is here already."""

    number: str
    folder: str
    output: str
    results: str
    since: float
    is_home: bool = False
    exit_code: int = 0
    done: List[str] = dataclasses.field(default_factory=list)


class Store:
    """A folder with a file for each job, of one site and user: $XDG_STATE_HOME/reclaimnet/slurm/SITE."""

    def __init__(self, login: Login) -> None:
        state = os.environ.get("XDG_STATE_HOME", "")
        if not state.startswith("/"):
            state = (os.environ.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir) + "/.local/state"
        self.folder = pathlib.Path(state) / "reclaimnet" / "slurm" / login.ca_fingerprint[:16]

    def prepare(self) -> None:
        """Makes the folder; OSError if nothing can be written there."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        probe = self.folder / f".probe-{secrets.token_hex(8)}"
        probe.touch()
        probe.unlink()

    def read(self, number: str) -> Optional[Record]:
        """None: it was not submitted by this sbatch, or too long ago."""
        path = self.folder / f"{number}.json"
        try:
            with path.open("rb") as file:
                fields = json.loads(file.read(RECORD_BYTES_MAX))
            record = Record(**fields)
        except FileNotFoundError:
            return None
        except (ValueError, TypeError):
            raise errors.CorruptError(f"{path} is no record of a job",
                                      f"delete it, and fetch by hand: reclaim cp {number}: FOLDER") from None
        texts = [record.number, record.folder, record.output, record.results, *record.done]
        if not all(isinstance(one, str) for one in texts) or not isinstance(record.since, (int, float)):
            raise errors.CorruptError(f"{path} is no record of a job",
                                      f"delete it, and fetch by hand: reclaim cp {number}: FOLDER")
        return record

    def write(self, record: Record) -> None:
        """Whole or not at all. The oldest goes when there are too many."""
        path = self.folder / f"{record.number}.json"
        temporary = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
        temporary.write_text(json.dumps(dataclasses.asdict(record)))
        os.replace(temporary, path)
        numbers = sorted((int(one.stem) for one in self.folder.glob("[0-9]*.json") if one.stem.isdigit()), reverse=True)
        for number in numbers[RECORDS_MAX:]:
            for name in (f"{number}.json", f"{number}.lock"):
                with contextlib.suppress(FileNotFoundError):
                    (self.folder / name).unlink()

    @contextlib.contextmanager
    def locked(self, number: str) -> Iterator[bool]:
        """Whether nobody else brings this job's files at the moment. Does not wait."""
        with (self.folder / f"{number}.lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True


def _is_result(record: Record, path: str) -> bool:
    folder, _, name = path.rpartition("/")
    return bool(record.results) and (folder or ".") == record.results and bool(
        re.fullmatch(rf"{re.escape(record.number)}_[0-9_]*result\.pkl", name))


class _Homecoming:
    """One call's part of bringing one job's files home."""

    def __init__(self, client: Client, job: Job, record: Record) -> None:
        self._job, self._record = job, record
        place = pathlib.Path(record.folder)
        self._place, self._transport = place, client.transport
        self._home = folders.Fetcher(client.transport, place)
        self._aside = place / ".reclaim" / job.id / "outputs"
        self.left: List[str] = []

    def bring(self, until: float) -> bool:
        """Whether all of it is here. UnavailableError, TimedOutError: the coordinator is away."""
        files = self._job.outputs() if self._job.state == "succeeded" else []
        files.sort(key=lambda file: (_is_result(self._record, file["path"]), file["path"]))
        done = set(self._record.done)
        results = [file for file in files if _is_result(self._record, file["path"])]
        for file in files[:len(files) - len(results)]:
            if not self._bring_file(file, done, until):
                return False
        if self._record.output and "" not in done:
            if time.monotonic() > until:
                return False
            self._bring_log()
            self._record.done.append("")
        return all(self._bring_file(file, done, until) for file in results)

    def _bring_file(self, file: Dict[str, Any], done: "set[str]", until: float) -> bool:
        path = str(file["path"])
        if path in done:
            return True
        if time.monotonic() > until:
            return False
        try:
            self._write(file, path)
        except (errors.UnavailableError, errors.TimedOutError):
            raise
        except (errors.ReclaimError, OSError) as error:
            self.left.append(f"{path}: {getattr(error, 'message', error)}")
        self._record.done.append(path)
        return True

    def _write(self, file: Dict[str, Any], path: str) -> None:
        if folders.is_reserved(path):
            raise errors.DeniedError("git's and our own folders are not written to")
        if file["kind"] != "folder" and self._was_changed_here(path):
            folders.Fetcher(self._transport, self._aside).fetch(file)
            self.left.append(f"{path} was changed here: the job's lies in {self._aside}")
        else:
            self._home.fetch(file)

    def _was_changed_here(self, path: str) -> bool:
        try:
            return folders.is_safe(path) and os.lstat(self._place / path).st_mtime > self._record.since
        except OSError:
            return False

    def _bring_log(self) -> None:
        """What it printed, over the file that its line --output names, as sbatch does."""
        path = pathlib.Path(self._record.output)
        if not path.name:
            self.left.append(f"{path}: no file's name (--output)")
            return
        temporary = path.with_name(f".reclaim-{secrets.token_hex(8)}")
        try:
            with temporary.open("xb") as out:
                for piece in self._job.log_bytes():
                    out.write(piece)
            os.replace(temporary, path)
        except OSError as error:
            self.left.append(f"{path}: {error.strerror}")
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()

    def exit_code(self) -> int:
        """Which a job of submitit's has written down, because its own says only that there is a result."""
        if not self._record.results or self._job.state != "succeeded":
            return 0
        try:
            with (self._place / self._record.results / f"{self._record.number}_exit_code").open() as file:
                return int(file.read(8))
        except (OSError, ValueError):
            return 0


def bring_home(client: Client, job: Job, store: Store, record: Record, until: float) -> Optional[int]:
    """Brings what is missing of a job that has ended; answers the exit code that it has written down. None: not all of
    it is here yet, or another call is at it. What cannot be written is named on standard error, once."""
    if record.is_home:
        return record.exit_code
    with store.locked(record.number) as is_ours:
        again = store.read(record.number) if is_ours else None  # another call may have been at it until now
        if again is None or again.is_home:
            return again.exit_code if again else None
        homecoming = _Homecoming(client, job, again)
        try:
            again.is_home = homecoming.bring(until)
            if again.is_home:
                again.exit_code, again.done = homecoming.exit_code(), []
        finally:
            store.write(again)
            for one in homecoming.left:
                # A name that a foreign machine gave must not steer a terminal.
                print(f"sacct: job {record.number}: {functions.printable(one)}", file=sys.stderr)
        return again.exit_code if again.is_home else None
