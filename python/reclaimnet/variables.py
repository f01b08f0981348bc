# SPDX-License-Identifier: Apache-2.0
"""Variables of a notebook that outlive its kernel: pickled by name into one file of the job's folder, which moves with
the job. The magics %reclaim_save and %reclaim_load are made of this (magics.py); a script may call it, too.

Unpickling runs what the file says. It is the user's own file, in their own job.
"""
import contextlib
import os
import pickle
from typing import Any, Dict, Iterable, List, MutableMapping, Optional

FILE = "reclaim-variables.pickle"
FORMAT = "reclaimnet variables 1"


class VariableError(Exception):
    """What cannot be saved or loaded, by name, and what to do."""


def read_file(path: str) -> Dict[str, bytes]:
    """Each variable's own pickle, by name; empty if nothing was saved."""
    try:
        with open(path, "rb") as file:
            found = pickle.load(file)
    except FileNotFoundError:
        return {}
    except Exception as error:  # pickle raises nearly anything on bytes that are none
        raise VariableError(f"{path} is not what %reclaim_save writes ({error}); delete it and save again") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise VariableError(f"{path} is not what %reclaim_save writes; delete it and save again")
    return dict(found["variables"])


def save(namespace: MutableMapping[str, Any], names: Iterable[str], path: str) -> int:
    """Writes the variables beside those saved before; all of them, or none. Answers the file's bytes.

    VariableError names the one that is not there or cannot be pickled; the file is as it was then, as after OSError.
    """
    pickled = {}
    for name in names:
        if name not in namespace:
            raise VariableError(f"there is no variable {name}: nothing was saved")
        try:
            pickled[name] = pickle.dumps(namespace[name], protocol=4)
        except Exception as error:  # whatever a type's own code raises
            raise VariableError(f"{name} cannot be saved ({type(error).__name__}: {error}): nothing was saved; "
                                "save what it is made from") from None
    if not pickled:
        raise VariableError("name the variables to save: %reclaim_save model losses")
    whole = {"format": FORMAT, "variables": {**read_file(path), **pickled}}
    temporary = f"{path}.saving"
    try:
        with open(temporary, "wb") as file:
            pickle.dump(whole, file, protocol=4)
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    return size


def load(namespace: MutableMapping[str, Any], names: Optional[Iterable[str]], path: str) -> List[str]:
    """Puts saved variables back, all or those that are named; all of them, or none. Answers their names."""
    there = read_file(path)
    if not there:
        raise VariableError(f"nothing was saved in {path}: %reclaim_save does that")
    wanted = list(names or sorted(there))
    values = {}
    for name in wanted:
        if name not in there:
            raise VariableError(f"{name} was not saved: there are {', '.join(sorted(there))}")
        try:
            values[name] = pickle.loads(there[name])
        except Exception as error:  # whatever a type's own code raises
            raise VariableError(f"{name} cannot be loaded ({type(error).__name__}: {error}): nothing was loaded; run "
                                "the cells that import or define what it is made of first") from None
    namespace.update(values)
    return wanted
