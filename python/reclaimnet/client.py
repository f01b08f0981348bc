# SPDX-License-Identifier: Apache-2.0
"""A coordinator and its jobs, from Python: docs/python.md."""
import logging
import math
import os
import re
import secrets
import time
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union, overload
from urllib.parse import quote

from . import errors, folders
from .arrays import After, Array, Indices, after_of, indices_of, receivers_of, throttle_of
from .login import load_login
from .transport import Transport

LOG = logging.getLogger("reclaimnet")
UPLOAD_BYTES_MAX = 512 << 20
LINE_BYTES_MAX = 1 << 20
POLL_S = 0.5
AWAY_S = 300.0  # so long a follower waits for a coordinator that does not answer
NOT_WRITTEN_NAMED = 20
ENDED = ("succeeded", "failed", "cancelled")

Size = Union[int, float, str]


def mebibytes(value: Size) -> int:
    """"512MB", "4GB" or a number of GiB, as MiB (1 GB is 1024 MB, as in a job file)."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?)(?:i?B)?", str(value).strip(), re.IGNORECASE)
    if not found or isinstance(value, bool):
        raise errors.InvalidError(f"{value!r} is no amount of memory", "for example '512MB' or '4GB'")
    unit = found[2].upper() or "G"
    amount = math.ceil(float(found[1]) * {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1 << 20}[unit])
    if not 0 < amount < 1 << 32:
        raise errors.InvalidError(f"{value!r} is no amount of memory that a machine has", "for example '4GB'")
    return amount


def seconds(value: Size) -> int:
    """90, "90s", "5m", "2h", "1d" as whole seconds."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([smhd]?)", str(value).strip())
    amount = math.ceil(float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[found[2]]) if found else 0
    if not 0 < amount < 1 << 32 or isinstance(value, bool):
        raise errors.InvalidError(f"{value!r} is no time", "for example 90, '90s', '5m', '2h' or '1d'")
    return amount


def _gpus(value: Union[int, str], memory: Optional[Size]) -> Dict[str, int]:
    count, each = value, memory
    if isinstance(value, str):
        found = re.fullmatch(r"([0-9]+)|([0-9.]+\s*[MG]i?B)(?::([0-9]+))?", value, re.IGNORECASE)
        if not found:
            raise errors.InvalidError(f"gpus={value!r} is not understood", "for example gpus=1 or gpus='24GB:2'")
        count, each = int(found[1] or found[3] or 1), found[2] or memory
    return {"gpus": int(count), **({"gpu_memory_mib": mebibytes(each)} if each is not None else {})}


def job_spec(command: Union[str, Sequence[str]], *, name: Optional[str] = None, image: Optional[str] = None,
             gpus: Union[int, str] = 0, gpu_memory: Optional[Size] = None, cpus: Optional[float] = None,
             cpus_min: Optional[float] = None, memory: Optional[Size] = None, disk: Optional[Size] = None,
             env: Optional[Mapping[str, str]] = None, checkpoint: Sequence[str] = (),
             complete_marker: Optional[str] = None, temporary: Sequence[str] = (), outputs: Sequence[str] = (),
             copies: Optional[int] = None, copies_at: Sequence[str] = (), stateless: bool = False,
             tell_api: bool = False, tell_file: Optional[str] = None, tell_hook: Optional[str] = None,
             signal: Optional[str] = None, tell: bool = False, data: Sequence[str] = (), labs: Sequence[str] = (),
             notice: Optional[Size] = None, max_duration: Optional[Size] = None, idle_stop: Optional[Size] = None,
             max_restarts: Optional[int] = None, priority: Optional[int] = None,
             after: Optional[After] = None) -> Dict[str, Any]:
    """The REST interface's JobSpec; what is left out keeps the coordinator's default. A command that is one string is
    a line for `/bin/sh -c`. The names are those of the command line's flags and of job files (docs/guests.md)."""
    words = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
    words = [os.fspath(word) if isinstance(word, os.PathLike) else word for word in words]
    if not command or not words[0] or not all(isinstance(word, str) for word in words):
        raise errors.InvalidError("the command is empty, or not a list of strings",
                                  "for example submit(['python3', 'train.py'])")
    for what, names in (("checkpoint", checkpoint), ("temporary", temporary), ("outputs", outputs), ("data", data),
                        ("labs", labs), ("copies_at", copies_at)):
        if isinstance(names, str):
            raise errors.InvalidError(f"{what}={names!r} is one string, not a list of them", f"{what}=[{names!r}]")
    resources = {
        **_gpus(gpus, gpu_memory), "cpu_milli": None if cpus is None else round(1000 * cpus),
        "cpu_milli_min": None if cpus_min is None else round(1000 * cpus_min),
        "memory_mib": None if memory is None else mebibytes(memory),
        "disk_mib": None if disk is None else mebibytes(disk)}
    saving = {
        "is_stateless": stateless, "paths": list(checkpoint), "complete_marker": complete_marker,
        "temporary": list(temporary), "outputs": list(outputs), "copies": copies, "destinations": list(copies_at),
        "signal": signal and signal.lower(), "is_told": tell, "tell_file": tell_file, "tell_hook": tell_hook,
        "tell_api": tell_api}
    spec: Dict[str, Any] = {
        "command": words, "name": name, "image": image, "env": dict(env or {}), "data": list(data),
        "only_labs": list(labs), "notice_s": None if notice is None else seconds(notice),
        "max_duration_s": None if max_duration is None else seconds(max_duration),
        "idle_stop_s": None if idle_stop is None else seconds(idle_stop), "max_restarts": max_restarts,
        "priority": priority, "after": after_of(after), "resources": _said(resources), "checkpoint": _said(saving)}
    return _said(spec)


def _said(fields: Dict[str, Any]) -> Dict[str, Any]:
    return {name: value for name, value in fields.items()
            if value is not None and value is not False and value != [] and value != {}}


class Client:
    """A coordinator, as one user. Without arguments the login of the command line is taken: `RECLAIM_URL` and
    `RECLAIM_TOKEN`, else the file that `reclaim login` wrote. Nothing is asked before the first call.

    `timeout_s` bounds each wait for an answer; while the coordinator cannot be reached a call is repeated for
    `patience_s`. `ca_file`: the site's CA in PEM form, which Python 3.9 needs (it must have the login's fingerprint).
    A client may be used by several threads.
    """

    def __init__(self, url: Optional[str] = None, token: Optional[str] = None, *,
                 ca_fingerprint: Optional[str] = None, ca_file: Optional[str] = None, timeout_s: float = 30.0,
                 patience_s: float = 10.0) -> None:
        if timeout_s <= 0 or patience_s < 0:
            raise errors.InvalidError("timeout_s must be more than 0, and patience_s not less", "leave them out")
        self.transport = Transport(load_login(url, token, ca_fingerprint), timeout_s, patience_s, ca_file)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<reclaimnet.Client {self.transport.login.url}>"

    def close(self) -> None:
        """Closes this thread's connection; a later call opens a new one."""
        self.transport.close()

    def whoami(self) -> Dict[str, Any]:
        """Who the coordinator takes us for: `user`, `lab`, `role`."""
        return dict(self.transport.json("GET", "/v1/whoami"))

    def nodes(self) -> List[Dict[str, Any]]:
        """All nodes, as `reclaim nodes --json` has them: `id`, `lab`, `state`, `facts`, `contract`, `jobs` …"""
        return list(self.transport.json("GET", "/v1/nodes").get("nodes", []))

    def job(self, job: Union[str, int]) -> "Job":
        """A job by its id or number. NotFoundError if there is none that this user may see."""
        return Job(self, self.transport.json("GET", f"/v1/jobs/{quote(str(job), safe='')}"))

    def jobs(self, *, ended: bool = False, limit: int = 100) -> List["Job"]:
        """The newest jobs that this user may see, newest first; with `ended` those that are over, too."""
        found: List[Job] = []
        query: Dict[str, Any] = {"all": 1} if ended else {}
        while len(found) < limit:
            page = self.transport.json(
                "GET", "/v1/jobs", query={**query, "limit": min(200, limit - len(found))}).get("jobs", [])
            found += [Job(self, one) for one in page]
            if not page or not ended:
                break
            query["before"] = page[-1]["number"]
        return found[:limit]

    def estimate(self, command: Union[str, Sequence[str], Mapping[str, Any]], **spec: Any
                 ) -> Dict[str, Dict[str, Any]]:
        """How much a job would use, from jobs like it that have ended well: `duration_s`, `checkpoint_mib`,
        `memory_mib`, `gpu_memory_mib`. For each an interval (`low`, `typical`, `high`) within which `share` of `jobs`
        such jobs lie, and how near they are (`likeness`); the three are None where fewer than `jobs_needed` are known.
        Takes a command and the arguments of `job_spec`, or a JobSpec of docs/openapi.yaml. Nothing is submitted."""
        wanted = dict(command, **spec) if isinstance(command, Mapping) else job_spec(command, **spec)
        plan = self.transport.json("POST", "/v1/plan", wanted)
        return {str(one["of"]): {"low": None, "typical": None, "high": None, **one}
                for one in plan.get("estimates", []) if isinstance(one, dict) and "of" in one}

    @overload
    def submit(self, command: Union[str, Sequence[str]], *, array: None = None, **arguments: Any) -> "Job": ...

    @overload
    def submit(self, command: Union[str, Sequence[str]], *, array: Indices, **arguments: Any) -> Array: ...

    def submit(self, command: Union[str, Sequence[str]], *, folder: Optional[folders.PathLike] = None,
               upload_max_bytes: int = UPLOAD_BYTES_MAX, key: Optional[str] = None, array: Optional[Indices] = None,
               throttle: Optional[int] = None, notify: Union[None, str, Sequence[str]] = None, **spec: Any
               ) -> Union["Job", Array]:
        """Submits a job and does not wait for it. `folder` is uploaded as the job's folder, without what
        `.gitignore` and `.reclaimignore` leave out; without it nothing is uploaded. The other arguments are those of
        `job_spec`: `gpus`, `memory`, `cpus`, `image`, `env`, `checkpoint`, `outputs`, `after` …

        With `array` (range(10), [1, 5], "0-20:5") it is a job for each index, all or none, and the answer an `Array`;
        each finds its index in SLURM_ARRAY_TASK_ID, and at most `throttle` of them run at once. `notify` (an address,
        a webhook, or a list) is told what becomes of a job; what fails there is a warning.

        The submit carries an Idempotency-Key (`key`, else a random one), so that repeating it makes no second job.
        Warnings of the coordinator are in `Job.warnings` and logged.
        """
        wanted, receivers, at_most = job_spec(command, **spec), receivers_of(notify), throttle_of(throttle)
        indices = None if array is None else indices_of(array)
        if at_most and indices is None:
            raise errors.InvalidError("throttle is of an array, and there is none", "array=range(10), or leave it out")
        if receivers and indices is not None:
            raise errors.InvalidError("notify: this is an array of jobs",
                                      "leave it out; 'reclaim notify add' has all your jobs told of")
        workspace = None
        if folder is not None:
            workspace = folders.Workspace()
            workspace.add_folder(folder, upload_max_bytes)
            if workspace.left_out:
                LOG.info("not uploaded, by ignore files: %s", ", ".join(workspace.left_out[:5]))
        if indices is not None:
            return self._submit_array(wanted, indices, at_most, workspace, key)
        job = self.submit_spec(wanted, workspace, key)
        job.warnings += self._told_of(job, receivers)
        return job

    def submit_spec(self, spec: Mapping[str, Any], workspace: Optional[folders.Workspace] = None,
                    key: Optional[str] = None) -> "Job":
        """The same with a JobSpec of docs/openapi.yaml, and files that are put together by hand."""
        body = dict(spec)
        if workspace is not None:
            body["workspace"] = workspace.upload(self.transport)
        headers = {"Idempotency-Key": key or secrets.token_hex(16)}
        answer = self.transport.json("POST", "/v1/jobs", body, headers=headers)
        job = Job(self, answer.get("job", {}), answer.get("warnings", []))
        for warning in job.warnings:
            LOG.warning("job %s: %s", job.id, warning)
        return job

    def _submit_array(self, spec: Dict[str, Any], indices: List[int], at_most: int,
                      workspace: Optional[folders.Workspace], key: Optional[str]) -> Array:
        if workspace is not None:
            spec = {**spec, "workspace": workspace.upload(self.transport)}
        body = {"spec": spec, "indices": indices, **({"at_most": at_most} if at_most else {})}
        answer = self.transport.json("POST", "/v1/arrays", body,
                                     headers={"Idempotency-Key": key or secrets.token_hex(16)})
        tasks = [one for one in answer.get("tasks", []) if isinstance(one, dict)]
        if not tasks or not isinstance(answer.get("array"), str):
            raise errors.CorruptError("the answer describes no array", "compare this package with the coordinator's "
                                      f"version: {self.transport.login.url}/version")
        jobs = [Job(self, {"id": one.get("job"), "number": one.get("number", 0), "state": "queued", "array": {
            "array": answer["array"], "index": one.get("index", 0)}}) for one in tasks]
        array = Array(answer["array"], jobs, [int(one.get("index", 0)) for one in tasks], answer.get("warnings", []))
        for warning in array.warnings:
            LOG.warning("array %s: %s", array.id, warning)
        return array

    def _told_of(self, job: "Job", receivers: Sequence[Dict[str, str]]) -> Tuple[str, ...]:
        """Has them told of the job, which is submitted whatever comes of this; the words of what did not work."""
        words = []
        for one in receivers:
            who = one.get("mail") or one.get("webhook")
            try:
                rule = self.transport.json("POST", "/v1/notifications", {**one, "job": job.id}).get("rule", {})
                if not rule.get("is_confirmed"):
                    words.append(f"a code was sent to {who}, and nothing else before it is given: reclaim notify "
                                 f"confirm {rule.get('id')} CODE")
            except errors.ReclaimError as error:
                words.append(f"the job is submitted, and {who} is not told of it: {error}")
        for warning in words:
            LOG.warning("job %s: %s", job.id, warning)
        return tuple(words)


class Job:
    """A job as the coordinator described it last (`info`); `refresh()` asks again."""

    def __init__(self, client: Client, info: Dict[str, Any], warnings: Sequence[str] = ()) -> None:
        self._client, self._transport = client, client.transport
        self.warnings: Tuple[str, ...] = tuple(warnings)
        self.info: Dict[str, Any] = {}
        self._take(info)
        self.id = str(info["id"])

    def _take(self, info: Dict[str, Any]) -> None:
        if not isinstance(info.get("id"), str) or not isinstance(info.get("state"), str):
            raise errors.CorruptError("the answer describes no job", "compare this package with the coordinator's "
                                      f"version: {self._transport.login.url}/version")
        self.info = info

    def __repr__(self) -> str:
        return f"<reclaimnet.Job {self.id} {self.state}>"

    @property
    def number(self) -> int:
        """The short alias that people type."""
        return int(self.info.get("number", 0))

    @property
    def state(self) -> str:
        """queued, placing, starting, running, noticed, saving, draining, succeeded, failed or cancelled."""
        return str(self.info["state"])

    @property
    def has_ended(self) -> bool:
        """Whether the state is final."""
        return self.state in ENDED

    @property
    def exit_code(self) -> int:
        """Of the command once the job has ended; 128 and the signal's number for one that a signal ended."""
        return int(self.info.get("exit_code", 0))

    @property
    def reason(self) -> str:
        """One sentence: why it is in this state."""
        return str(self.info.get("reason", ""))

    @property
    def node(self) -> str:
        """Of the newest attempt; empty while it is queued."""
        return str(self.info.get("node", ""))

    @property
    def index(self) -> Optional[int]:
        """Among the tasks of its array; None for a job of its own."""
        array = self.info.get("array")
        return int(array["index"]) if isinstance(array, dict) else None

    def tasks(self) -> List["Job"]:
        """All tasks of the array that it is of, itself among them, by index; none for a job of its own. Those that
        ended long ago are not known any more."""
        array = self.info.get("array")
        if isinstance(array, dict) and "first_number" not in array:
            array = self.refresh().info.get("array")  # what a submit answers of an array has not all of it
        if not isinstance(array, dict):
            return []
        first, found = int(array["first_number"]), []
        before = first + int(array["tasks"])  # they were submitted at once: their numbers follow each other
        while before > first:
            page = self._transport.json("GET", "/v1/jobs", query={
                "all": 1, "limit": min(200, before - first), "before": before}).get("jobs", [])
            found += [Job(self._client, one) for one in page
                      if isinstance(one.get("array"), dict) and one["array"].get("array") == array["array"]]
            before = int(page[-1]["number"]) if page else first
        return found[::-1]

    def _stop_array(self, array: str, reason: str, save_first: bool) -> None:
        self._transport.json("POST", f"/v1/arrays/{quote(array, safe='')}/stop",
                             {"reason": reason, "saves_first": save_first})

    def _get(self, rest: str = "", **query: Any) -> Dict[str, Any]:
        return dict(self._transport.json("GET", f"/v1/jobs/{quote(self.id, safe='')}{rest}", query=query))

    def refresh(self) -> "Job":
        """Asks the coordinator; answers itself."""
        self._take(self._get())
        return self

    def attempts(self) -> List[Dict[str, Any]]:
        """The job's runs on nodes, oldest first: `node`, `state`, `end`, `detail`, `epoch` …"""
        return list(self._get("/attempts").get("attempts", []))

    def events(self, *, after: int = 0, limit: int = 200) -> List[Dict[str, Any]]:
        """What happened to it, oldest first."""
        return list(self._get("/events", after=after, limit=limit).get("events", []))

    def why(self) -> str:
        """One sentence: what the job does and why, or what it waits for."""
        return str(self._get("/why").get("sentence", ""))

    def cancel(self, reason: str = "cancelled from Python", *, save_first: bool = False) -> "Job":
        """Stops the job, at once or after a last save. One that has ended stays as it is."""
        body = {"reason": reason, "saves_first": save_first}
        self._take(self._transport.json("POST", f"/v1/jobs/{quote(self.id, safe='')}/stop", body))
        return self

    def wait(self, timeout_s: Optional[float] = None, *, check: bool = True) -> "Job":
        """Waits until the job has ended; answers itself. JobFailedError if it has not succeeded (not with
        `check=False`), TimedOutError after `timeout_s`: the job goes on then."""
        deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
        patience = _Patience()
        pause = 0.1
        while not self.has_ended:
            try:
                self.refresh()
                patience.answered()
            except (errors.UnavailableError, errors.TimedOutError) as error:
                patience.missed(error)
            left = deadline - time.monotonic()
            if not self.has_ended and left <= 0:
                raise errors.TimedOutError(f"job {self.id} has not ended after {timeout_s} s (it is {self.state})",
                                           "it goes on: wait again, ask why(), or cancel() it")
            if not self.has_ended:
                time.sleep(min(pause, left))
                pause = min(1.5 * pause, POLL_S)
        if check and self.state != "succeeded":
            raise errors.JobFailedError(self, f"job {self.id} {self.state} with exit code {self.exit_code}: "
                                        f"{self.reason}", "read what it printed: logs()")
        return self

    # --- what it prints

    def logs(self, *, follow: bool = False, attempt: Optional[int] = None) -> Iterator[str]:
        """What the job printed, line by line with the line's end, all attempts one after the other (or `attempt`).
        With `follow` it goes on until the job has ended. A line of more than 1 MiB comes in pieces."""
        rest = b""
        for piece in self.log_bytes(follow=follow, attempt=attempt):
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                yield line.decode(errors="replace") + "\n"
            if len(rest) > LINE_BYTES_MAX:
                yield rest.decode(errors="replace")
                rest = b""
        if rest:
            yield rest.decode(errors="replace")

    def log_bytes(self, *, follow: bool = False, attempt: Optional[int] = None) -> Iterator[bytes]:
        """The same as pieces of bytes, as they come."""
        patience, log_patience = _Patience(), _Patience()
        offsets: Dict[int, int] = {}
        done: "set[int]" = set()
        while True:
            try:
                self.refresh()  # before its attempts: an attempt that begins meanwhile is seen next time
                attempts = self.attempts() if self.info.get("epoch", "0.0") != "0.0" else []
                patience.answered()
            except (errors.UnavailableError, errors.TimedOutError) as error:
                patience.missed(error)
                time.sleep(POLL_S)
                continue
            wanted = [(_number_of(one), one) for one in attempts]
            wanted = [(number, one) for number, one in wanted if number not in done and attempt in (None, number)]
            if not wanted:
                if self.has_ended or not follow:
                    return
                time.sleep(POLL_S)
                continue
            number, newest = wanted[0]
            before = offsets.get(number, 0)
            try:
                yield from self._attempt_log(number, offsets, follow)
                done.add(number)
            except (errors.UnavailableError, errors.TimedOutError) as error:
                if offsets.get(number, 0) > before:
                    log_patience.answered()
                if isinstance(error, errors.TimedOutError) and follow:
                    continue  # it is silent for a while: taken up where it was
                log_patience.missed(error)
                time.sleep(POLL_S)
            except errors.ReclaimError as error:
                if isinstance(error, errors.DeniedError) or not follow:
                    raise
                if newest.get("state") == "ended":
                    LOG.warning("the log of attempt %d: %s", number, error.message)
                    done.add(number)
                time.sleep(POLL_S)

    def _attempt_log(self, number: int, offsets: Dict[int, int], follow: bool) -> Iterator[bytes]:
        query = {"attempt": number, "offset": offsets.get(number, 0), **({"follow": 1} if follow else {})}
        for piece in self._transport.stream(f"/v1/jobs/{quote(self.id, safe='')}/logs", query):
            offsets[number] = offsets.get(number, 0) + len(piece)
            yield piece

    # --- what it made

    def outputs(self) -> List[Dict[str, Any]]:
        """The published outputs: `path`, `kind`, `bytes`, `mode` … Empty before the job has succeeded."""
        if self.state != "succeeded":
            self.refresh()
        if not re.search("[1-9a-f]", str(self.info.get("outputs", ""))):
            return []
        return folders.listed(self._get("/outputs"))

    def read_output(self, path: str, *, most: int = 64 << 20) -> bytes:
        """The contents of one output. NotFoundError if there is none, ExhaustedError if it has more than `most`."""
        file = folders.find(self.outputs(), path)
        if file is None:
            raise errors.NotFoundError(f"job {self.id} ({self.state}) has no output {path!r}",
                                       "outputs() lists what it has brought home; a job that failed has none")
        if file["bytes"] > most:
            raise errors.ExhaustedError(f"{path} has {file['bytes']} bytes, more than {most}",
                                        "fetch() it into a folder, or raise most=…")
        data = b""
        for piece in folders.pieces_of(self._transport, file):
            data += piece
            if len(data) > most:
                raise errors.CorruptError(f"{path} has more bytes than the listing says", "look at the coordinator")
        return data

    def fetch(self, folder: folders.PathLike, prefix: str = "") -> List[str]:
        """Brings the outputs (those at or below `prefix`) into a folder, over what is there; answers their paths,
        relative to it. ConflictError, when the others are there, names what could not be written."""
        wanted = [file for file in self.outputs()
                  if not prefix or file["path"] == prefix or file["path"].startswith(prefix + "/")]
        if prefix and not wanted:
            raise errors.NotFoundError(f"job {self.id} has no output {prefix!r}", "outputs() lists what it has")
        fetcher = folders.Fetcher(self._transport, folder)
        written, failed = [], []
        for file in wanted:
            if folders.is_reserved(file["path"]):
                failed.append(f"{file['path']}: git's and our own folders are not written to")
                continue
            try:
                fetcher.fetch(file)
                written.append(str(file["path"]))
            except (errors.UnavailableError, errors.TimedOutError):
                raise
            except (errors.ReclaimError, OSError) as error:
                failed.append(f"{file['path']}: {getattr(error, 'message', error)}")
        if failed:
            more = f"; and {len(failed) - NOT_WRITTEN_NAMED} more" if len(failed) > NOT_WRITTEN_NAMED else ""
            raise errors.ConflictError(
                f"{len(failed)} of {len(wanted)} outputs were not written: " + "; ".join(failed[:NOT_WRITTEN_NAMED])
                + more, "the others are here; fetch these into an empty folder")
        return written


class _Patience:
    """How long a coordinator that does not answer is waited for."""

    def __init__(self) -> None:
        self._since: Optional[float] = None

    def answered(self) -> None:
        self._since = None

    def missed(self, error: errors.ReclaimError) -> None:
        now = time.monotonic()
        if self._since is None:
            LOG.warning("%s; waiting for it", error.message)
            self._since = now
        if now - self._since > AWAY_S:
            raise error


def _number_of(attempt: Dict[str, Any]) -> int:
    return int(str(attempt.get("epoch", "0.0")).rpartition(".")[2])


@overload
def submit(command: Union[str, Sequence[str]], *, array: None = None, **arguments: Any) -> Job: ...


@overload
def submit(command: Union[str, Sequence[str]], *, array: Indices, **arguments: Any) -> Array: ...


def submit(command: Union[str, Sequence[str]], **arguments: Any) -> Union[Job, Array]:
    """`Client().submit(…)` with the login of the command line."""
    return Client().submit(command, **arguments)


def nodes() -> List[Dict[str, Any]]:
    """`Client().nodes()` with the login of the command line."""
    with Client() as client:
        return client.nodes()
