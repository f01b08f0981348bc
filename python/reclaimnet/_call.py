# SPDX-License-Identifier: Apache-2.0
"""What runs in the job of a remote function: reads the arguments, calls it, writes the result beside them. An exception
is printed with its traceback between two lines that the caller looks for in the log, and the job fails."""
import json
import os
import pathlib
import pickle
import sys
import traceback
from typing import Any, Dict

HERE = pathlib.Path(__file__).resolve().parent
MESSAGE_CHARACTERS_MAX = 4000


class PythonMismatch(Exception):
    """The interpreter here is another one than the caller's."""


def call(about: Dict[str, Any]) -> None:
    """Leaves the result, or raises what the function raises."""
    here = list(sys.version_info[:2])
    if here != about["python"] and not about["any_python"]:
        raise PythonMismatch(
            "this image has Python {}.{}, the caller {}.{}: use an image with that one, or any_python=True if the "
            "function and its arguments do not mind".format(*here, *about["python"]))
    sys.path[:1] = [os.getcwd(), str(HERE / "lib")]
    path = HERE / "function.py"
    names: Dict[str, Any] = {"__name__": "reclaimnet_function", "__file__": str(path)}
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), names)  # the submitter's own function
    args, kwargs = pickle.loads((HERE / "arguments.pickle").read_bytes())
    answer = names[about["function"]](*args, **kwargs)
    try:
        result = pickle.dumps(answer, about["protocol"])
    except Exception as error:
        raise TypeError("the result, a {}, cannot be pickled: {}".format(type(answer).__name__, error)) from error
    if len(result) > about["result_max"]:
        raise ValueError("the result has {} bytes, more than the limit of {}: write it to a file and name that in "
                         "outputs=[…], or raise result_max_bytes=…".format(len(result), about["result_max"]))
    temporary = HERE / "result.saving"
    temporary.write_bytes(result)
    os.replace(temporary, HERE / "result.pickle")


def tell(error: Exception) -> None:
    """Prints what went wrong, without this file's own lines."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    text = "".join(traceback.format_exception(type(error), error, trace))
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ in ("builtins", "__main__", "reclaimnet_function") else \
        "{}.{}".format(kind.__module__, kind.__qualname__)
    try:
        message = str(error)[:MESSAGE_CHARACTERS_MAX]
    except Exception:
        message = ""
    sys.stdout.flush()
    print("\n::reclaimnet remote-error::", json.dumps({"type": name, "message": message}))
    print(text.rstrip("\n"))
    print("::reclaimnet remote-error-end::", flush=True)


def main() -> int:
    try:
        call(json.loads((HERE / "call.json").read_text()))
    except Exception as error:
        tell(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
