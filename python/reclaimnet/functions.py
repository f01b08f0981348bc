# SPDX-License-Identifier: Apache-2.0
"""A function that runs on somebody else's machine.

    @reclaimnet.remote(gpus=1, memory="8GB", image="base")
    def train(rate):
        import torch
        …
        return losses

    losses = train(0.1)            # submits, waits, answers the result
    call = train.submit(0.1)       # does not wait: call.job, call.result()

Its source and its pickled arguments go there, its pickled result comes back. What that allows and what not is in
docs/python.md; what cannot be sent is refused here, before anything is uploaded.
"""
import ast
import builtins
import dis
import functools
import inspect
import io
import json
import pathlib
import pickle
import re
import sys
import textwrap
import types
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Set, Tuple

from . import errors, folders
from .client import UPLOAD_BYTES_MAX, Client, Job, job_spec

PLACE = "_reclaimnet"  # our files in the job's folder
RESULT = f"{PLACE}/result.pickle"
PROTOCOL = 4
ARGUMENTS_BYTES_MAX = 64 << 20
RESULT_BYTES_MAX = 256 << 20
TRACEBACK_CHARACTERS_MAX = 256 << 10
ERROR_BEGINS, ERROR_ENDS = "::reclaimnet remote-error:: ", "::reclaimnet remote-error-end::"

# What a result may be made of: data, nothing that runs code of the sender's choice.
PLAIN_TYPES: Set[Tuple[str, str]] = {
    *(("builtins", name) for name in ("complex", "set", "frozenset", "bytearray", "range", "slice", "int", "float",
                                      "str", "bytes", "bool", "list", "tuple", "dict")),
    *(("collections", name) for name in ("OrderedDict", "Counter", "defaultdict", "deque")),
    *(("datetime", name) for name in ("date", "datetime", "time", "timedelta", "timezone")),
    ("decimal", "Decimal"), ("fractions", "Fraction"), ("uuid", "UUID"),
    ("numpy", "ndarray"), ("numpy", "dtype"),
    *((f"numpy.{core}.{module}", name) for core in ("core", "_core") for module, name in (
        ("multiarray", "_reconstruct"), ("multiarray", "scalar"), ("numeric", "_frombuffer")))}


class _PlainUnpickler(pickle.Unpickler):
    def __init__(self, data: bytes, allowed: Set[Tuple[str, str]]) -> None:
        super().__init__(io.BytesIO(data))
        self._allowed = allowed

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._allowed:
            raise errors.DeniedError(
                f"the result holds {module}.{name}, which is not among the types that are taken from other people's "
                "machines", "return plain data (numbers, strings, lists, dicts, NumPy arrays), or name the class in "
                "result_types=[…] if unpickling it is harmless whatever it is given")
        return super().find_class(module, name)


class _OwnUnpickler(pickle.Unpickler):
    """Reads our own arguments back, to see whether another interpreter could."""

    def find_class(self, module: str, name: str) -> Any:
        if module == "__main__":
            raise errors.InvalidError(f"the arguments hold {name} of the script itself (__main__), which is not there",
                                      "put it into a module and upload that with folder=…, or pass plain data")
        return super().find_class(module, name)


def load_result(data: bytes, result_types: Sequence[type] = ()) -> Any:
    """The result, if it is made of PLAIN_TYPES and `result_types` alone: it comes from a machine that is not ours, and
    unpickling anything else could run whatever that machine's administrator likes."""
    allowed = PLAIN_TYPES | {(one.__module__, one.__qualname__) for one in result_types}
    try:
        return _PlainUnpickler(data, allowed).load()
    except errors.ReclaimError:
        raise
    except Exception as error:  # damaged pickles raise almost anything
        raise errors.CorruptError(f"the result cannot be read: {type(error).__name__}: {error}",
                                  "is the same version of what it is made of installed here?") from error


# --- what is sent of a function


def _names_of(code: types.CodeType) -> Iterator[str]:
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield str(step.argval)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_of(constant)


def _import_of(name: str, value: Any, function: Callable[..., Any]) -> str:
    """The line that makes the global `name` there; InvalidError if there is none."""
    if isinstance(value, types.ModuleType) and value.__name__ != "__main__":
        return f"import {value.__name__}" + ("" if name == value.__name__ else f" as {name}")
    module, attribute = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if module and attribute and module not in ("__main__", function.__module__) and "." not in attribute:
        if getattr(sys.modules.get(module), attribute, None) is value:
            return f"from {module} import {attribute} as {name}"
    raise errors.InvalidError(
        f"{function.__name__}() uses {name!r} of its own file, which is not sent",
        "pass it as an argument, define it inside the function, or import it from a module")


def _definition_of(function: Callable[..., Any]) -> Tuple[str, ast.FunctionDef]:
    name = getattr(function, "__name__", repr(function))
    if not inspect.isfunction(function) or name == "<lambda>":
        raise errors.InvalidError(f"{name} is no plain function", "decorate one that begins with def")
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function) or \
            inspect.isasyncgenfunction(function):
        raise errors.InvalidError(f"{name}() is a generator or asynchronous", "decorate a plain function")
    if hasattr(function, "__wrapped__"):
        raise errors.InvalidError(f"{name}() has another decorator, which would be lost", "apply it inside")
    if function.__code__.co_freevars:
        raise errors.InvalidError(
            f"{name}() uses {', '.join(function.__code__.co_freevars)} of the function around it",
            "pass what it needs as arguments")
    try:
        text = textwrap.dedent(inspect.getsource(function))
        tree = ast.parse(text).body[0]
    except (OSError, TypeError, SyntaxError, IndexError) as error:
        raise errors.InvalidError(f"the source of {name}() cannot be had: {error}",
                                  "define it in a file, not at a prompt") from error
    if not isinstance(tree, ast.FunctionDef) or len(tree.decorator_list) > 1:
        raise errors.InvalidError(f"{name}() has another decorator, which would be lost", "apply it inside")
    lines = text.splitlines()
    return "\n".join(lines[tree.lineno - 1:tree.end_lineno]) + "\n", tree


def source_of(function: Callable[..., Any]) -> str:
    """A file that defines the function: imports of the modules that it uses, then its own lines."""
    text, tree = _definition_of(function)
    names = set(_names_of(function.__code__))
    for default in [*tree.args.defaults, *(one for one in tree.args.kw_defaults if one)]:
        names |= {node.id for node in ast.walk(default) if isinstance(node, ast.Name)}
    known = function.__globals__
    modules = {name: known[name] for name in names if isinstance(known.get(name), types.ModuleType)}
    lines = [_import_of(name, known[name], function) for name in sorted(names)
             if name in known and name != function.__name__ and known[name] is not getattr(builtins, name, None)]
    lines += sorted(_submodules(tree, modules))
    return "\n".join(["from __future__ import annotations", *lines, "", "", text])


def _submodules(tree: ast.AST, modules: Dict[str, types.ModuleType]) -> Set[str]:
    """Imports of a.b where the function says a.b.c: a alone does not always bring it along."""
    found = set()
    for node in ast.walk(tree):
        names: List[str] = []
        while isinstance(node, ast.Attribute):
            names.insert(0, node.attr)
            node = node.value
        if isinstance(node, ast.Name) and node.id in modules:
            path = modules[node.id].__name__
            for name in names:
                path += f".{name}"
                if path not in sys.modules:
                    break
                found.add(f"import {path}")
    return found


def _pickled(function: Callable[..., Any], args: Tuple[Any, ...], kwargs: Dict[str, Any], most: int) -> bytes:
    inspect.signature(function).bind(*args, **kwargs)  # a TypeError, as a call here would raise it
    try:
        data = pickle.dumps((args, kwargs), PROTOCOL)
    except Exception as error:  # whatever the arguments' own methods raise
        raise errors.InvalidError(f"the arguments of {function.__name__}() cannot be pickled: {error}",
                                  "pass plain data, or a path and folder=…") from error
    if len(data) > most:
        raise errors.ExhaustedError(f"the arguments have {len(data)} bytes, more than the limit of {most}",
                                    "upload them as files with folder=…, or name a data set with data=[…]")
    try:
        _OwnUnpickler(io.BytesIO(data)).load()
    except errors.ReclaimError:
        raise
    except Exception as error:
        raise errors.InvalidError(f"the arguments of {function.__name__}() cannot be unpickled: {error}",
                                  "pass plain data") from error
    return data


def _add_package(workspace: folders.Workspace) -> None:
    here = pathlib.Path(__file__).resolve().parent
    for path in sorted(here.glob("*.py")):
        workspace.add_bytes(f"{PLACE}/lib/reclaimnet/{path.name}", path.read_bytes())
    workspace.add_bytes(f"{PLACE}/call.py", (here / "_call.py").read_bytes())


# --- calls


class Call:
    """A function that runs, or has run, as `job`."""

    def __init__(self, job: Job, result_types: Sequence[type], result_max: int) -> None:
        self.job = job
        self._types, self._most = tuple(result_types), result_max

    def __repr__(self) -> str:
        return f"<reclaimnet.Call {self.job.id} {self.job.state}>"

    def done(self) -> bool:
        """Whether it has ended."""
        return self.job.has_ended or self.job.refresh().has_ended

    def cancel(self) -> None:
        """Stops it."""
        self.job.cancel("the call was cancelled")

    def result(self, timeout_s: Optional[float] = None) -> Any:
        """Waits for the result. RemoteError with the remote traceback if the function raised an exception,
        JobFailedError if its job ended otherwise, TimedOutError after `timeout_s` (it goes on then)."""
        self.job.wait(timeout_s, check=False)
        if self.job.state == "succeeded":
            return load_result(self.job.read_output(RESULT, most=self._most), self._types)
        error = self._remote_error() if self.job.state == "failed" else None
        if error is not None:
            raise error
        self.job.wait()  # raises
        raise AssertionError("a job that has not succeeded has")

    def _remote_error(self) -> Optional[errors.RemoteError]:
        attempts = self.job.attempts()
        if not attempts:
            return None
        newest = int(str(attempts[-1]["epoch"]).rpartition(".")[2])
        head: Optional[Dict[str, Any]] = None
        lines: List[str] = []
        size, found = 0, None
        for line in self.job.logs(follow=True, attempt=newest):
            if line.startswith(ERROR_BEGINS):
                head, lines, size = _head_of(line), [], 0
            elif head is not None and line.startswith(ERROR_ENDS):
                found = errors.RemoteError(str(head.get("type", "Exception")), printable(str(head.get("message", ""))),
                                           printable("".join(lines)))
            elif head is not None and size < TRACEBACK_CHARACTERS_MAX:
                lines.append(line)
                size += len(line)
        return found


def _head_of(line: str) -> Dict[str, Any]:
    try:
        found = json.loads(line[len(ERROR_BEGINS):])
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def printable(text: str) -> str:
    """What another machine wrote, without characters that would steer a terminal."""
    return re.sub(r"[^\n\t]", lambda one: one[0] if one[0].isprintable() else ascii(one[0])[1:-1], text)


class RemoteFunction:
    """A decorated function: called it runs elsewhere, `local` is the function itself."""

    def __init__(self, function: Callable[..., Any], client: Optional[Client], options: Dict[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self.local = function
        self._client = client
        self._folder = options.pop("folder", None)
        self._upload_max = options.pop("upload_max_bytes", UPLOAD_BYTES_MAX)
        self._any_python = options.pop("any_python", False)
        self._types = tuple(options.pop("result_types", ()))
        self._arguments_max = options.pop("arguments_max_bytes", ARGUMENTS_BYTES_MAX)
        self._result_max = options.pop("result_max_bytes", RESULT_BYTES_MAX)
        self._python = options.pop("python", "python3")
        _definition_of(function)  # what can never be sent is said where it is written
        options.setdefault("name", function.__name__)
        options["outputs"] = [RESULT, *options.get("outputs", ())]
        if options.get("checkpoint"):
            options.setdefault("tell_api", not any(options.get(one) for one in ("tell", "tell_file", "tell_hook",
                                                                                "signal")))
            options["temporary"] = ["*.saving", *options.get("temporary", ())]
        else:
            options["stateless"] = True
        self._spec = job_spec([self._python, f"{PLACE}/call.py"], **options)

    def __repr__(self) -> str:
        return f"<reclaimnet.RemoteFunction {self.local.__name__}>"

    def submit(self, *args: Any, **kwargs: Any) -> Call:
        """Begins a call and does not wait for it."""
        source = source_of(self.local)
        arguments = _pickled(self.local, args, kwargs, self._arguments_max)
        workspace = folders.Workspace()
        if self._folder is not None:
            workspace.add_folder(self._folder, self._upload_max)
        _add_package(workspace)
        about = {"function": self.local.__name__, "python": list(sys.version_info[:2]), "any_python": self._any_python,
                 "protocol": PROTOCOL, "result_max": self._result_max}
        workspace.add_bytes(f"{PLACE}/function.py", source.encode())
        workspace.add_bytes(f"{PLACE}/arguments.pickle", arguments)
        workspace.add_bytes(f"{PLACE}/call.json", json.dumps(about).encode())
        client = self._client or Client()
        return Call(client.submit_spec(self._spec, workspace), self._types, self._result_max)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs it elsewhere and waits for its result. Ctrl-C stops the job, too."""
        call = self.submit(*args, **kwargs)
        try:
            return call.result()
        except KeyboardInterrupt:
            call.cancel()
            raise


def remote(function: Optional[Callable[..., Any]] = None, *, client: Optional[Client] = None, **options: Any) -> Any:
    """Makes a function run as a job: `@remote`, or `@remote(gpus=1, memory="8GB", …)` with what `job_spec` takes.

    Beside these: `client` (else the command line's login, at the first call), `folder` (uploaded: the function runs in
    it), `checkpoint=[globs]` (it saves and goes on after a reclaim, `reclaimnet.should_save()`; without it a reclaim
    starts it over), `result_types` (classes that a result may hold beside plain data), `any_python` (run also where
    Python is another minor version than here), `python` (the interpreter there, `python3`), `arguments_max_bytes`
    (64 MiB) and `result_max_bytes` (256 MiB).
    """
    def decorate(plain: Callable[..., Any]) -> RemoteFunction:
        return RemoteFunction(plain, client, dict(options))
    return decorate if function is None else decorate(function)
