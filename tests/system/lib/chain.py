# SPDX-License-Identifier: Apache-2.0
"""tests/guests/chain.sh as seen by tests: its folder, what it must compute, and what its own log says."""
import dataclasses
import hashlib
import re
import shutil

from guests import GUESTS

LINE = re.compile(
    r"^(?:begin step=(\d+) from=(\w+)|step=(\d+) loss=(\w+)|saved step=(\d+)) time=([\d.]+)$", re.MULTILINE)


def hashes():
    """The chain: hashes()[n] is that of step n. Grows as it is asked."""
    return _Chain()


class _Chain:
    def __init__(self):
        self.values = ["start"]

    def __getitem__(self, step):
        while len(self.values) <= step:
            text = f"{self.values[-1]} {len(self.values)}\n"
            self.values.append(hashlib.sha256(text.encode()).hexdigest())
        return self.values[step]


CHAIN = hashes()


def make_folder(folder):
    folder.mkdir(parents=True)
    shutil.copy(GUESTS / "chain.sh", folder / "chain.sh")
    return folder


def command(steps, save_every, step_s, is_in_place=False, handles_term=False):
    words = ["sh", "chain.sh", str(steps), str(save_every), str(step_s), "in-place" if is_in_place else "rename"]
    return words + (["handles-term"] if handles_term else [])


@dataclasses.dataclass
class Told:
    """One attempt's own words."""

    begin: int = None  # the step from which it went on
    is_resumed: bool = False
    began_at: float = None  # seconds since the machine's start, as all times here
    steps: dict = dataclasses.field(default_factory=dict)  # step: time
    saved: list = dataclasses.field(default_factory=list)
    wrong: list = dataclasses.field(default_factory=list)  # steps whose hash is not the chain's

    @property
    def last(self):
        return max(self.steps, default=self.begin or 0)


def read(log):
    """What one attempt told; torn lines are left out."""
    told = Told()
    for begin, origin, step, value, saved, time in LINE.findall(log):
        if begin:
            told.begin, told.is_resumed, told.began_at = int(begin), origin == "checkpoint", float(time)
        elif step:
            told.steps[int(step)] = float(time)
            if value != CHAIN[int(step)]:
                told.wrong.append(int(step))
        else:
            told.saved.append(int(saved))
    return told


def may_resume_at(told, save_every):
    """Steps from which a successor may go on that got the last whole save. The guest may have been stopped between
    its save and the line that tells of it."""
    last = max(told.saved, default=told.begin or 0)
    return {last, told.last} if told.last % save_every == 0 and told.last > last else {last}
