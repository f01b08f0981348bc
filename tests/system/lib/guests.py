# SPDX-License-Identifier: Apache-2.0
"""The training scripts as seen by tests: folders to submit, their own step logs, comparison with undisturbed runs."""
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import sys

from labs import ROOT

GUESTS = ROOT / "tests" / "guests"
sys.path.insert(0, str(GUESTS))
import compare_runs  # noqa: E402  (lies beside the guests)

BEGIN = re.compile(r"^begin step=(\d+) from=(\w+) time=([\d.]+)$", re.MULTILINE)
STEP = re.compile(r"^step=(\d+) loss=(\S+) time=([\d.]+)$", re.MULTILINE)
OUTPUT = re.compile(
    r"^\w+: (?:(started|resumed) at step (\d+) of \d+|step (\d+) loss \S+|saved step (\d+)|done, .*)$", re.MULTILINE)


@dataclasses.dataclass
class Told:
    """What one attempt wrote to its standard output, which is its own and does not travel with a checkpoint."""

    begin: int = None  # the step from which it went on; None while it has not said so
    is_resumed: bool = False
    last: int = 0  # the last step that it told of: each tenth is told, before it is saved
    saved: list = dataclasses.field(default_factory=list)

    def may_resume_at(self, save_every):
        """Where a successor goes on that got the last whole save. The guest may have been stopped between its save and
        the line that tells of it."""
        newest = max(self.saved, default=self.begin or 0)
        return {newest, self.last} if self.last % save_every == 0 and self.last > newest else {newest}


@dataclasses.dataclass(frozen=True)
class Begin:
    step: int
    is_resumed: bool
    time: float


@dataclasses.dataclass(frozen=True)
class Step:
    step: int
    loss: str
    time: float


def told(output):
    """From the text of an attempt's log; torn lines are left out."""
    found = Told()
    for origin, begin, step, saved in OUTPUT.findall(output):
        if origin:
            found.begin, found.is_resumed = int(begin), origin == "resumed"
        elif step:
            found.last = int(step)
        elif saved:
            found.saved.append(int(saved))
    return found


def begins(log):
    """Starts of the guest, oldest first, from the text of its steps.log."""
    return [Begin(int(step), origin == "checkpoint", float(time)) for step, origin, time in BEGIN.findall(log)]


def steps(log):
    """Steps in the order in which they were executed; a step may come again after a resume."""
    return [Step(int(step), loss, float(time)) for step, loss, time in STEP.findall(log)]


def make_folder(folder, guest):
    """A folder as a student would have it: train.py and what it imports. `guest` is cnn or transformer."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True)
    shutil.copy(GUESTS / f"train_{guest}.py", folder / "train.py")
    shutil.copy(GUESTS / "training.py", folder / "training.py")
    return folder


def unpack_image(archive, root):
    """The base image as a folder, for undisturbed runs without an engine."""
    root.mkdir(parents=True)
    subprocess.run(["tar", "-C", str(root), "-xf", str(archive)], check=True)


def run_undisturbed(root, folder, arguments, log, run):
    """Starts `python train.py ARGUMENTS` in the unpacked image; answers the Popen. Uid 10001, as in the container. It
    ends with the labs of `run` at the latest."""
    for path in [folder, *folder.iterdir()]:
        os.chown(path, 10001, 10001)
    script = f'source {ROOT}/scripts/lib/image_run.sh; image_run "$@"'
    with open(log, "wb") as out:
        return subprocess.Popen(
            ["bash", "-c", script, "run", str(root), "python", "train.py", *arguments],
            env={**os.environ, "IMAGE_WORK": str(folder), "RN_RUN": run}, stdout=out, stderr=subprocess.STDOUT)


def digest_of_weights(folder):
    """The first 16 hexadecimal digits of the SHA-256 of the final model, or "absent"."""
    return compare_runs.digest(pathlib.Path(folder) / "final.pt")[:16]


def differences(undisturbed, other):
    """Lines that say how the second run's curve, step log or weights differ; empty when they are bit-identical."""
    return compare_runs.differences(undisturbed, other)
