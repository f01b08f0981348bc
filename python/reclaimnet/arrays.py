# SPDX-License-Identifier: Apache-2.0
"""Jobs that belong together: the tasks of an array, whom a job waits for, and who is told of it. docs/python.md."""
import operator
import re
import time
from typing import TYPE_CHECKING, Any, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

from . import errors

if TYPE_CHECKING:
    from .client import Job

INDEX_MAX = (1 << 32) - 1
TASKS_MAX = 1000  # of one array, as the coordinator has it
WHEN = ("ok", "fail", "any", "started")

Indices = Union[str, Iterable[int]]
Other = Union[str, int, "Job", "Array"]
After = Union[Other, Tuple[str, Other], Sequence[Union[Other, Tuple[str, Other]]]]


def _index(value: Any) -> int:
    try:
        index = -1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        index = -1
    if not 0 <= index <= INDEX_MAX:
        raise errors.InvalidError(f"array: {value!r} is no index", f"whole numbers from 0 to {INDEX_MAX}")
    return index


def indices_of(array: Indices) -> List[int]:
    """range(10), [1, 5, 7], or as Slurm writes them ("0-9", "1,5,7", "0-20:5"): ascending, each once."""
    found: List[int] = []
    if isinstance(array, str):
        for part in array.split(","):
            words = re.fullmatch(r"\s*([0-9]{1,10})(?:-([0-9]{1,10})(?::([0-9]{1,10}))?)?\s*", part)
            if not words:
                raise errors.InvalidError(f"array={array!r} is not understood at {part!r}",
                                          "for example range(10), '0-9', '1,5,7' or '0-20:5'; how many run at once "
                                          "says throttle=…")
            first, last, step = int(words[1]), int(words[2] or words[1]), int(words[3] or 1)
            if step == 0 or last < first:
                raise errors.InvalidError(f"array={array!r} has no index in {part!r}", "for example '0-20:5'")
            found += range(first, min(last, first + step * TASKS_MAX) + 1, step)
    elif isinstance(array, (int, float)):
        raise errors.InvalidError(f"array={array!r} can be read in two ways",
                                  f"array=range({array}) for so many tasks, array=[{array}] for this one index")
    else:
        for index in array:
            found.append(index)
            if len(found) > TASKS_MAX:
                break
    found = [_index(one) for one in found]
    if not found:
        raise errors.InvalidError("array has no index", "leave it out, or give one index at least")
    if len(found) > TASKS_MAX:
        raise errors.InvalidError(f"array has more than {TASKS_MAX} indices, each a job of its own",
                                  "submit it in pieces, or let each task do a part of the work")
    if len(set(found)) != len(found):
        raise errors.InvalidError("array names an index twice", "give each once")
    return sorted(found)


def throttle_of(throttle: Optional[int]) -> int:
    """So many tasks at once; None: as many as there is room for."""
    if throttle is None:
        return 0
    if not isinstance(throttle, int) or isinstance(throttle, bool) or not 0 < throttle <= INDEX_MAX:
        raise errors.InvalidError(f"throttle={throttle!r} is no number of tasks", "for example throttle=2")
    return throttle


def _one_after(one: Any) -> Dict[str, str]:
    when, job = "ok", one
    if isinstance(one, tuple) and len(one) == 2:
        when, job = one
    elif isinstance(one, str) and ":" in one:
        when, _, job = one.partition(":")
    name = getattr(job, "id", job)
    is_name = isinstance(name, (str, int)) and not isinstance(name, bool) and str(name) != ""
    if when not in WHEN or not is_name:
        raise errors.InvalidError(f"after: {one!r} names no job to wait for",
                                  "a job, an array, an id or a number; or with what is to happen: 'fail:17' or "
                                  "('any', job); " + ", ".join(WHEN) + " are known")
    return {"job": str(name), "when": str(when)}


def after_of(after: Optional[After]) -> List[Dict[str, str]]:
    """The JobSpec's `after`. One alone needs no list; ("fail", job) is one, too."""
    if after is None:
        return []
    is_pair = isinstance(after, tuple) and len(after) == 2 and isinstance(after[0], str) and after[0] in WHEN
    if is_pair or isinstance(after, (str, int)) or hasattr(after, "id"):
        return [_one_after(after)]
    return [_one_after(one) for one in after]  # type: ignore[union-attr]


def receivers_of(notify: Union[None, str, Sequence[str]]) -> List[Dict[str, str]]:
    """Addresses of mail and webhooks, as /v1/notifications takes them."""
    found = []
    for one in [notify] if isinstance(notify, str) else list(notify or ()):
        if not isinstance(one, str) or not ("://" in one or "@" in one):
            raise errors.InvalidError(f"notify: {one!r} is neither an address of mail nor the URL of a webhook",
                                      "for example 'ann@example.org'")
        found.append({"webhook": one} if "://" in one else {"mail": one})
    return found


class Array(Sequence["Job"]):
    """The tasks of one submit, by their index: a sequence of jobs. `after=array` waits for all of them."""

    def __init__(self, array_id: str, tasks: Sequence["Job"], indices: Sequence[int],
                 warnings: Sequence[str] = ()) -> None:
        self.id, self.tasks = array_id, tuple(tasks)
        self.indices, self.warnings = tuple(indices), tuple(warnings)

    def __repr__(self) -> str:
        return f"<reclaimnet.Array {self.id} of {len(self.tasks)}>"

    def __len__(self) -> int:
        return len(self.tasks)

    def __iter__(self) -> Iterator["Job"]:
        return iter(self.tasks)

    def __getitem__(self, place: Any) -> Any:
        """By its place in the array, not by its index: array.task(7) has that."""
        return self.tasks[place]

    def task(self, index: int) -> "Job":
        """The task whose SLURM_ARRAY_TASK_ID this is."""
        if index not in self.indices:
            raise errors.NotFoundError(f"array {self.id} has no index {index}", "indices has them")
        return self.tasks[self.indices.index(index)]

    @property
    def has_ended(self) -> bool:
        """Whether all were over when they were last asked for."""
        return all(job.has_ended for job in self.tasks)

    def wait(self, timeout_s: Optional[float] = None, *, check: bool = True) -> "Array":
        """Waits until all tasks have ended; answers itself. JobFailedError of the first one, by index, that has not
        succeeded (not with `check=False`): all have ended then. TimedOutError after `timeout_s`: they go on."""
        begun = time.monotonic()
        for job in self.tasks:
            left = None if timeout_s is None else max(0.0, timeout_s - (time.monotonic() - begun))
            job.wait(left, check=False)
        for job in self.tasks if check else ():
            job.wait()
        return self

    def cancel(self, reason: str = "cancelled from Python", *, save_first: bool = False) -> "Array":
        """Stops all tasks that are not over, in one call; answers itself."""
        if self.tasks:
            self.tasks[0]._stop_array(self.id, reason, save_first)
        return self
