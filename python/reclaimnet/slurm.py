# SPDX-License-Identifier: Apache-2.0
"""sbatch, sacct, scancel and srun where one is logged in, for programs that call them (submitit's client):
docs/slurm-scripts.md#sbatch-where-you-are-logged-in.

    python3 -m reclaimnet.slurm programs FOLDER        writes the four commands there
"""
import contextlib
import pathlib
import re
import shlex
import shutil
import sys
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, TextIO, Tuple

from . import client as api
from . import errors, slurm_record, slurm_script

PROGRAMS = ("sbatch", "sacct", "scancel", "srun")
JOBS_PER_CALL_MAX = 1000
# Of a job on its way there or away Slurm says that it waits; what has ended says so only once its files are here.
STATES = {"running": "RUNNING", "noticed": "RUNNING", "saving": "RUNNING", "draining": "RUNNING",
          "failed": "FAILED", "cancelled": "CANCELLED"}
FIELDS: Dict[str, Tuple[str, Callable[["Row"], str]]] = {
    "jobid": ("JobID", lambda row: row.number),
    "jobidraw": ("JobIDRaw", lambda row: row.number),
    "jobname": ("JobName", lambda row: str(row.info.get("name") or row.info.get("spec", {}).get("name", ""))),
    "state": ("State", lambda row: row.state),
    "exitcode": ("ExitCode", lambda row: f"{row.exit_code}:0"),
    "nodelist": ("NodeList", lambda row: str(row.info.get("node") or "None assigned"))}


class Row:
    """A job as sacct shows it."""

    def __init__(self, number: str, state: str, exit_code: int, info: Dict[str, Any]) -> None:
        self.number, self.state, self.exit_code, self.info = number, state, exit_code, info


# --- sbatch


def sbatch(words: Sequence[str], out: TextIO) -> None:
    """Submits a script; the folder in which the command is given is uploaded. Prints the number as Slurm does."""
    is_short = "--parsable" in words
    files = [word for word in words if word != "--parsable"]
    options = [word for word in files if word.startswith("-")]
    if options:
        raise errors.InvalidError(f"{options[0]}: options are taken from the script alone",
                                  "write it into the script: #SBATCH --OPTION=VALUE")
    if len(files) != 1:
        raise errors.InvalidError("one script, and nothing behind it", "for example sbatch train.sh")
    script = slurm_script.read(pathlib.Path(files[0]), pathlib.Path.cwd())
    spec = slurm_script.job_spec_of(script)
    with api.Client() as client:
        store = slurm_record.Store(client.transport.login)
        store.prepare()  # before anything is submitted: without it nobody would fetch
        since = slurm_record.now()
        workspace = script.workspace()
        job = client.submit_spec(spec, workspace)
        number = str(job.info["number"])
        store.write(slurm_record.Record(number=number, folder=str(script.folder), output=script.output_of(number),
                                        results=script.results_of(number), since=since))
    out.write(f"{number}\n" if is_short else f"Submitted batch job {number}\n")


# --- sacct


def _sacct_words(words: Sequence[str]) -> Tuple[List[str], List[str], Optional[str], bool]:
    """Jobs, fields, what separates them ("|" or "||": with one at the end; None: blanks), and whether a head."""
    jobs: List[str] = []
    fields, separator, has_head = ["jobid", "jobname", "state", "exitcode"], None, True
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if word in ("-P", "--parsable2"):
            separator = "|"
        elif word in ("-p", "--parsable"):
            separator = "||"
        elif word in ("-n", "--noheader"):
            has_head = False
        elif word in ("-X", "--allocations"):
            pass  # there are no others
        elif name in ("-j", "--jobs", "-o", "--format") and (equals or rest):
            value = value if equals else rest.pop(0)
            if name in ("-j", "--jobs"):
                jobs += [one for one in value.split(",") if one]
            else:
                fields = [one.partition("%")[0].strip().lower() for one in value.split(",") if one]
        else:
            raise errors.InvalidError(f"'{word}' is not understood",
                                      "for example sacct -j 17 -o JobID,State --parsable2")
    unknown = [one for one in fields if one not in FIELDS]
    if unknown or not fields:
        raise errors.InvalidError(f"no field {', '.join(unknown) or 'at all'} here",
                                  "these are: " + ",".join(name for name, _ in FIELDS.values()))
    if not jobs:
        raise errors.InvalidError("which jobs?", "for example sacct -j 17; `reclaim ps` lists yours")
    if len(jobs) > JOBS_PER_CALL_MAX:
        raise errors.InvalidError(f"more than {JOBS_PER_CALL_MAX} jobs at a time", "ask for fewer")
    return list(dict.fromkeys(jobs)), fields, separator, has_head


def _row_of(client: api.Client, store: slurm_record.Store, number: str, until: float) -> Optional[Row]:
    """None: there is no such job, of which sacct says nothing. Files of a job that has ended are here before it says
    so; what does not come until then comes with a later call, and it is COMPLETING meanwhile."""
    if not re.fullmatch(r"[0-9]{1,18}", number):
        raise errors.InvalidError(f"'{number}' is no job's number",
                                  "as sbatch has printed it; tasks of arrays have none here")
    try:
        job = client.job(number)
    except errors.NotFoundError:
        return None
    if not job.has_ended:
        return Row(number, STATES.get(job.state, "PENDING"), 0, job.info)
    exit_code = job.exit_code
    record = store.read(number)
    if record is not None:
        said = slurm_record.bring_home(client, job, store, record, until)
        if said is None:
            return Row(number, "COMPLETING", 0, job.info)
        exit_code = said if job.state == "succeeded" else exit_code
    if job.state == "succeeded":
        return Row(number, "FAILED" if exit_code else "COMPLETED", exit_code, job.info)
    return Row(number, STATES[job.state], exit_code, job.info)


def sacct(words: Sequence[str], out: TextIO) -> None:
    """Prints jobs, one a line, and brings home what those that have ended have made: for so long as
    slurm_record.FETCH_S, all jobs together."""
    jobs, fields, separator, has_head = _sacct_words(words)
    until = slurm_record.deadline()
    with api.Client() as client:
        store = slurm_record.Store(client.transport.login)
        rows = [row for row in (_row_of(client, store, number, until) for number in jobs) if row is not None]
    lines = [[FIELDS[one][0] for one in fields]] if has_head else []
    lines += [[FIELDS[one][1](row) for one in fields] for row in rows]
    for cells in lines:
        if separator is None:
            out.write(" ".join(cell.ljust(14) for cell in cells).rstrip() + "\n")
        else:
            out.write("|".join(cells) + separator[1:] + "\n")


# --- scancel, srun


def scancel(words: Sequence[str], out: TextIO) -> None:
    """Stops jobs by their numbers; one that has ended stays as it is."""
    del out
    for word in words:
        if not re.fullmatch(r"[0-9]{1,18}", word):
            raise errors.InvalidError(f"'{word}' is no job's number",
                                      "for example scancel 17; signals are not sent from here (`reclaim exec`)")
    if not words:
        raise errors.InvalidError("which jobs?", "for example scancel 17")
    with api.Client() as client:
        for word in words:
            client.job(word).cancel("scancel")


def srun(words: Sequence[str], out: TextIO) -> None:
    """Only there because programs look whether it is."""
    del words, out
    raise errors.InvalidError("it runs within a job alone",
                              "write it into a script, and give that to sbatch; or reclaim run -- COMMAND")


# --- the programs


def write_programs(words: Sequence[str], out: TextIO) -> None:
    """Four small files which call this module with this Python. Others of these names are not overwritten."""
    if len(words) != 1:
        raise errors.InvalidError("one folder", "for example python3 -m reclaimnet.slurm programs ~/slurm")
    folder = pathlib.Path(words[0]).expanduser().absolute()
    if not shutil.which("reclaim"):
        raise errors.NotFoundError("there is no `reclaim` on the PATH, which reads scripts for sbatch",
                                   "install the package reclaimnet (docs/install.md)")
    place = pathlib.Path(__file__).resolve().parents[1]
    folder.mkdir(parents=True, exist_ok=True)
    for name in PROGRAMS:
        path = folder / name
        if path.exists() and b"reclaimnet.slurm" not in path.read_bytes()[:4096]:
            raise errors.ConflictError(f"{path} is there, and not ours", "name an empty folder")
        # Isolated: what lies in the folder of the caller must not be taken for a module of Python's.
        program = (f"import sys; sys.path.insert(0, {str(place)!r}); from reclaimnet.slurm import main; "
                   "main(sys.argv[1:])")
        text = ("#!/bin/sh\n# Of ReclaimNet: python3 -m reclaimnet.slurm programs\n"
                f"exec {shlex.quote(sys.executable)} -I -c {shlex.quote(program)} {name} \"$@\"\n")
        path.write_text(text)
        path.chmod(0o755)
    out.write(f'export PATH={shlex.quote(str(folder))}:"$PATH"\n')


@contextlib.contextmanager
def _complaining(name: str) -> Iterator[None]:
    """What went wrong on standard error, and exit code 1, as Slurm's programs have it."""
    try:
        yield
    except errors.ReclaimError as error:
        next_line = f"\n  next: {error.hint}" if error.hint else ""
        sys.exit(f"{name}: error: {error.message}{next_line}")
    except OSError as error:
        sys.exit(f"{name}: error: {error.filename or 'a file'}: {error.strerror or error}\n"
                 "  next: look at that file or folder")


def main(words: Sequence[str]) -> None:
    """`words`: which program, and its own words."""
    commands: Dict[str, Callable[[Sequence[str], TextIO], None]] = {
        "sbatch": sbatch, "sacct": sacct, "scancel": scancel, "srun": srun, "programs": write_programs}
    name = words[0] if words else ""
    with _complaining(name if name in PROGRAMS else "reclaimnet.slurm"):
        if name not in commands:
            raise errors.InvalidError(f"'{name}' is none of {', '.join(commands)}",
                                      "for example python3 -m reclaimnet.slurm programs ~/slurm")
        commands[name](words[1:], sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
