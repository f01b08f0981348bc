# SPDX-License-Identifier: Apache-2.0
"""A script for sbatch as it is on the submitter's machine, and what becomes of it where it runs. What the lines #SBATCH
mean is asked of `reclaim submit --dry-run`; what is here is the script that submitit's client writes: its paths are
the submitter's, its pickle has no job's number yet, and what it raises is a result that must come home, too."""
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
from typing import Any, Dict, List, Optional

from . import errors, folders
from .client import UPLOAD_BYTES_MAX

SCRIPT_BYTES_MAX = 64 << 10
DRY_RUN_S = 60
WORK = "/work"
FIRST = ".reclaimnet-submitted.pkl"  # the pickle in the job's folder until the job gives it its own number
MODULE = "submitit.core._submit"
AT_ONCE_NS = 2_000_000_000  # two pickles this near to each other may be of two clients
NUMBER = r"[0-9]+(?:_[0-9]+)*"
# What the client and its jobs have in their folder; of earlier jobs nothing has to travel.
CLIENT_FILE = re.compile(
    rf"[0-9a-f]{{32}}\.pkl|submission_file_[0-9a-f]{{32}}\.sh|{NUMBER}_(?:submitted|result)\.pkl"
    rf"|{NUMBER}_submission\.sh|{NUMBER}_log\.(?:out|err)|{NUMBER}_exit_code")


class Script:
    """One that is submitted as it is: any that sbatch would take."""

    def __init__(self, path: pathlib.Path, text: str, folder: pathlib.Path) -> None:
        self.path, self.text, self.folder = path, text, folder

    def options(self) -> List[str]:
        """The words of its lines #SBATCH."""
        found: List[str] = []
        for line in self.text.splitlines():
            if line.startswith("#SBATCH "):
                try:
                    found += shlex.split(line[len("#SBATCH "):], comments=True)
                except ValueError:
                    pass  # `reclaim submit` says what is wrong with it
        return found

    def value_of(self, long: str, short: str) -> Optional[str]:
        """Of the last such option."""
        words, value = self.options(), None
        for i, word in enumerate(words):
            if word.startswith(f"--{long}="):
                value = word.partition("=")[2]
            elif word in (f"--{long}", f"-{short}") and i + 1 < len(words):
                value = words[i + 1]
            elif word.startswith(f"-{short}") and len(word) > 2 and not word.startswith("--"):
                value = word[2:]
        return value

    def output_of(self, number: str) -> str:
        """Where sbatch would write what it prints, absolute; empty: nowhere but in the job's log."""
        pattern = self.value_of("output", "o")
        if not pattern:
            return ""
        name = self.value_of("job-name", "J") or self.path.name
        values = {"j": number, "A": number, "J": number, "a": "0", "t": "0", "s": "0", "n": "0", "N": "localhost",
                  "x": name.replace("/", "_"), "%": "%"}
        return str(self.folder / re.sub(r"%([jAJatsnNx%])", lambda found: values[found[1]], pattern))

    def words_for_submit(self) -> "tuple[List[str], Optional[str]]":
        """Arguments of `reclaim submit`, and its standard input."""
        return [str(self.path)], None

    def results_of(self, number: str) -> str:
        """The folder, relative, whose result files are written last; empty: there are none."""
        del number
        return ""

    def workspace(self) -> folders.Workspace:
        """What travels."""
        workspace = folders.Workspace()
        workspace.add_folder(self.folder, UPLOAD_BYTES_MAX)
        return workspace


class Submitit(Script):
    """One that submitit's client has written."""

    def __init__(self, path: pathlib.Path, text: str, folder: pathlib.Path, line: int, words: List[str]) -> None:
        super().__init__(path, text, folder)
        self._line, self._words = line, words
        self._at = words.index(MODULE)
        if self._at + 1 >= len(words):
            raise errors.InvalidError(f"{path}: names no folder behind {MODULE}", "let submitit write it")
        if self.value_of("array", "a") is not None:
            raise errors.UnsupportedError("an array of submitit's does not say which pickle is of which task",
                                          "submit() each by itself, in place of map_array() and batch()")
        self._logs = self._relative(words[self._at + 1])
        self._pickle = self._newest_pickle()

    def _relative(self, logs: str) -> str:
        """The client's folder, perhaps with %j in it, relative to ours."""
        parts = pathlib.PurePosixPath(logs).parts
        fixed = next((i for i, part in enumerate(parts) if "%" in part), len(parts))
        head = os.path.relpath(os.path.realpath(self.folder / pathlib.Path(*parts[:fixed])),
                               os.path.realpath(self.folder))
        rest = "/".join(parts[fixed:])
        if "%" in rest.replace("%j", ""):
            raise errors.UnsupportedError(f"{logs}: only %j is known in a folder's name", "leave others out")
        if head == ".." or head.startswith("../"):
            raise errors.InvalidError(
                f"submitit's folder {logs} is not below {self.folder}, which is what travels",
                "start the program in the folder with the code, and give the executor a folder below it")
        return "/".join(part for part in (head if head != "." else "", rest) if part)

    def _head(self) -> pathlib.Path:
        parts = [part for part in self._logs.split("/") if part]
        fixed = next((i for i, part in enumerate(parts) if "%" in part), len(parts))
        return self.folder.joinpath(*parts[:fixed])

    def _newest_pickle(self) -> pathlib.Path:
        """The client writes it just before it calls sbatch, and names it by the job's number afterwards."""
        found = sorted((path.stat().st_mtime_ns, path) for path in self._head().iterdir()
                       if re.fullmatch(r"[0-9a-f]{32}\.pkl", path.name) and path.is_file())
        if not found:
            raise errors.NotFoundError(f"{self._head()} has no pickle that waits for its job's number",
                                       "let submitit call sbatch; to submit it again, submit the function again")
        if len(found) > 1 and found[-1][0] - found[-2][0] < AT_ONCE_NS:
            raise errors.ConflictError(
                f"{found[-1][1].name} and {found[-2][1].name} were written at once, and one of them is another job's",
                "give each program that submits a folder of its own; delete what was left over, and submit again")
        return found[-1][1]

    def _here(self, word: str) -> str:
        """A path of this folder as the job has it."""
        own = str(self.folder)
        return WORK + word[len(own):] if word == own or word.startswith(own + "/") else word

    def in_job(self) -> str:
        """The script as it runs."""
        words = [self._here(word) for word in self._words]
        words[self._at + 1] = f"{WORK}/{self._logs}"
        # The submitter's Python is not there; the image's is.
        python = self._at - 3
        if self._words[self._at - 2:self._at] == ["-u", "-m"] and python > 0 and words[python].startswith("/") \
                and not words[python].startswith(WORK + "/"):
            words[python] = "python3"
        logs = '"$SLURM_JOB_ID"'.join(shlex.quote(part) for part in f"{WORK}/{self._logs}".split("%j"))
        lines = self.text.splitlines()
        lines[self._line:] = [
            f"_rn_logs={logs}",
            '_rn_own="$_rn_logs/$SLURM_JOB_ID"',
            'mkdir -p "$_rn_logs" || exit',
            f'[ -e "${{_rn_own}}_submitted.pkl" ] || mv {WORK}/{FIRST} "${{_rn_own}}_submitted.pkl" || exit',
            "_rn_code=0",
            " ".join(map(shlex.quote, words)) + " || _rn_code=$?",
            # What the function raised is in its result, and comes home only with a success.
            'for _rn_one in "$_rn_own"_*_result.pkl; do',
            '  if [ -e "$_rn_one" ]; then echo "$_rn_code" >"${_rn_own}_exit_code"; exit 0; fi',
            "done",
            'exit "$_rn_code"']
        return "\n".join(lines) + "\n"

    def words_for_submit(self) -> "tuple[List[str], Optional[str]]":
        return ["-"], self.in_job()

    def results_of(self, number: str) -> str:
        return self._logs.replace("%j", number) or "."

    def workspace(self) -> folders.Workspace:
        workspace = folders.Workspace()
        head = self._head().relative_to(self.folder).as_posix()
        workspace.add_folder(self.folder, UPLOAD_BYTES_MAX, lambda path: (
            head == "." or path.startswith(head + "/")) and bool(CLIENT_FILE.fullmatch(path.rpartition("/")[2])))
        # Whatever .gitignore says of it.
        workspace.add_bytes(FIRST, self._pickle.read_bytes(), 0o600)
        return workspace


def read(path: pathlib.Path, folder: pathlib.Path) -> Script:
    """The script of this file, submitted in this folder: all that is in it travels, so it is nobody's home."""
    if folder.resolve() in (pathlib.Path.home().resolve(), pathlib.Path("/")):
        raise errors.InvalidError(f"{folder}: all that is in it would travel, keys and logins too",
                                  "submit from a folder of the job's own")
    try:
        with path.open("rb") as file:
            data = file.read(SCRIPT_BYTES_MAX + 1)
        text = data.decode()
    except UnicodeDecodeError:
        raise errors.InvalidError(f"{path}: is not text in UTF-8", "correct the file") from None
    if len(data) > SCRIPT_BYTES_MAX:
        raise errors.InvalidError(f"{path}: has more than {SCRIPT_BYTES_MAX >> 10} KiB", "call a program from it")
    script = Script(path, text, folder)
    if script.value_of("chdir", "D") or script.value_of("workdir", "D"):
        raise errors.InvalidError("--chdir: the folder in which sbatch is called is what travels",
                                  "leave it out, and call sbatch in that folder")
    for number, line in enumerate(text.splitlines()):
        if MODULE not in line or line.startswith("#"):
            continue
        try:
            words = shlex.split(line)
        except ValueError:
            continue
        if MODULE in words:
            return Submitit(path, text, folder, number, words)
    return script


def job_spec_of(script: Script) -> Dict[str, Any]:
    """The JobSpec, by `reclaim submit --dry-run`, whose warnings go to standard error."""
    program = shutil.which("reclaim")
    if program is None:
        raise errors.NotFoundError("there is no `reclaim` on the PATH, which reads scripts for sbatch",
                                   "install the package reclaimnet (docs/install.md)")
    words, text = script.words_for_submit()
    try:
        done = subprocess.run([program, "submit", "--dry-run", *words], cwd=script.folder, input=text or "",
                              timeout=DRY_RUN_S, stdout=subprocess.PIPE, encoding="utf-8")
    except subprocess.TimeoutExpired:
        raise errors.TimedOutError(f"{program} has not read the script within {DRY_RUN_S} s",
                                   "try it by itself: reclaim submit --dry-run") from None
    if done.returncode != 0:
        raise errors.InvalidError(f"{script.path} was not taken", "its reason stands above")
    spec = json.loads(done.stdout)
    if "indices" in spec:
        raise errors.UnsupportedError("arrays are not submitted by this sbatch", f"reclaim submit {script.path}")
    return dict(spec)
