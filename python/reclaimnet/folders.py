# SPDX-License-Identifier: Apache-2.0
"""Folders to the coordinator and outputs home: listings, pieces of 4 MiB by their SHA-256."""
import concurrent.futures
import contextlib
import hashlib
import os
import pathlib
import pwd
import re
import secrets
import stat
import struct
from typing import Any, BinaryIO, Callable, Dict, Iterator, List, Optional, Tuple, Union

from . import errors
from .ignore import IgnoreRules
from .transport import Transport

PIECE_BYTES = 4 << 20
UPLOADS_AT_ONCE = 4
DIGESTS_PER_QUESTION = 5000
ENTRIES_MAX = 60_000  # as the command line's
LEFT_OUT = {".git", ".reclaim", "__pycache__"}
PathLike = Union[str, "os.PathLike[str]"]


def cbor(value: Any) -> bytes:
    """Deterministic CBOR (RFC 8949) of what a listing is made of; maps are sorted by key."""
    def head(kind: int, number: int) -> bytes:
        if number < 24:
            return bytes([kind << 5 | number])
        for code, form, limit in ((24, ">B", 1 << 8), (25, ">H", 1 << 16), (26, ">I", 1 << 32)):
            if number < limit:
                return bytes([kind << 5 | code]) + struct.pack(form, number)
        return bytes([kind << 5 | 27]) + struct.pack(">Q", number)

    if isinstance(value, int):
        return head(0, value)
    if isinstance(value, bytes):
        return head(2, len(value)) + value
    if isinstance(value, str):
        data = value.encode()
        return head(3, len(data)) + data
    if isinstance(value, list):
        return head(4, len(value)) + b"".join(map(cbor, value))
    return head(5, len(value)) + b"".join(cbor(key) + cbor(value[key]) for key in sorted(value))


class Workspace:
    """What a job finds in its folder: a listing, and where the bytes of its pieces are."""

    def __init__(self) -> None:
        self.files: Dict[str, Dict[str, Any]] = {}
        self.left_out: List[str] = []
        self.bytes = 0
        self._pieces: Dict[bytes, Tuple[Union[bytes, str], int, int]] = {}

    # --- what is in it

    def add_bytes(self, path: str, data: bytes, mode: int = 0o644) -> None:
        """A file with these contents."""
        digests = []
        for offset in range(0, len(data), PIECE_BYTES):
            piece = data[offset:offset + PIECE_BYTES]
            digests.append(hashlib.sha256(piece).digest())
            self._pieces[digests[-1]] = (piece, 0, len(piece))
        self._add(path, "regular", mode, len(data), "", digests)

    def add_folder(self, folder: PathLike, bytes_max: int,
                   leaves_out: Callable[[str], bool] = lambda path: False) -> None:
        """All that the command line would upload, but for what `leaves_out` says of a path relative to the folder.
        ExhaustedError, before anything is read, if that is too much."""
        root = os.fspath(folder)
        if not os.path.isdir(root):
            raise errors.NotFoundError(f"there is no folder {root}", "make it, or name another one")
        _refuse_whole(root)
        found: List[Tuple[str, os.stat_result]] = []
        self._scan(root, "", IgnoreRules(), found)
        found = [(path, there) for path, there in found if not leaves_out(path)]
        total = sum(there.st_size for _, there in found if stat.S_ISREG(there.st_mode))
        if total > bytes_max:
            big = sorted(((there.st_size, path) for path, there in found if stat.S_ISREG(there.st_mode)), reverse=True)
            raise errors.ExhaustedError(
                f"the folder has {total >> 20} MiB, more than the limit of {bytes_max >> 20} MiB; its biggest files: "
                + ", ".join(f"{path} ({size >> 20} MiB)" for size, path in big[:5]),
                "leave files out with .reclaimignore, or raise the limit with upload_max_bytes=…")
        for path, there in found:
            mode = stat.S_IMODE(there.st_mode)
            if stat.S_ISDIR(there.st_mode):
                self._add(path, "folder", mode, 0, "", [])
            elif stat.S_ISLNK(there.st_mode):
                self._add(path, "symlink", mode, 0, os.readlink(os.path.join(root, path)), [])
            else:
                self._add_file(root, path, mode, there.st_size)

    def _add(self, path: str, kind: str, mode: int, size: int, target: str, blobs: List[bytes]) -> None:
        try:
            path.encode(), target.encode()
        except UnicodeEncodeError:
            raise errors.InvalidError(f"{path!r} has a name that is not UTF-8",
                                      "rename it, or name it in .reclaimignore") from None
        self.files[path] = {"path": path, "kind": kind, "mode": mode, "bytes": size, "target": target, "blobs": blobs}
        self.bytes += size

    def _scan(self, root: str, folder: str, rules: IgnoreRules, found: List[Tuple[str, os.stat_result]]) -> None:
        place = os.path.join(root, folder)
        for name in (".gitignore", ".reclaimignore"):
            with contextlib.suppress(OSError), open(os.path.join(place, name), "rb") as file:
                rules.add(folder, file.read(1 << 20).decode(errors="replace"))
        try:
            names = sorted(os.listdir(place))
        except OSError as error:
            raise _unreadable(folder or root, error) from error
        for name in names:
            path = f"{folder}/{name}" if folder else name
            try:
                there = os.lstat(os.path.join(root, path))
            except OSError:
                continue  # went away meanwhile
            is_folder = stat.S_ISDIR(there.st_mode)
            if name in LEFT_OUT:
                continue
            if rules.ignores(path, is_folder):
                self.left_out.append(path + "/" * is_folder)
                continue
            if is_folder or stat.S_ISREG(there.st_mode) or stat.S_ISLNK(there.st_mode):
                found.append((path, there))
                if len(found) > ENTRIES_MAX:
                    raise errors.ExhaustedError(f"the folder has more than {ENTRIES_MAX} files and folders",
                                                "leave folders out with .reclaimignore, or pack small files")
            if is_folder:
                self._scan(root, path, rules, found)

    def _add_file(self, root: str, path: str, mode: int, size: int) -> None:
        place, digests, offset = os.path.join(root, path), [], 0
        try:
            with open(place, "rb") as file:
                while True:
                    piece = file.read(PIECE_BYTES)
                    if not piece:
                        break
                    digests.append(hashlib.sha256(piece).digest())
                    self._pieces[digests[-1]] = (place, offset, len(piece))
                    offset += len(piece)
        except OSError as error:
            raise _unreadable(path, error) from error
        if offset != size:
            raise errors.ConflictError(f"{path} changed while it was read",
                                       "wait until nobody writes to it, or leave it out with .reclaimignore")
        self._add(path, "regular", mode, size, "", digests)

    # --- the way there

    def upload(self, transport: Transport) -> str:
        """Sends what the coordinator lacks; answers the listing's name for JobSpec.workspace."""
        listing = cbor({"files": [self.files[path] for path in sorted(self.files, key=str.encode)]})
        if len(listing) > PIECE_BYTES:
            raise errors.ExhaustedError(
                f"the folder has too many files: the list of its {len(self.files)} names has {len(listing) >> 10} KiB, "
                f"at most {PIECE_BYTES >> 10} go", "leave folders out with .reclaimignore, or pack small files")
        missing: List[str] = []
        names = [digest.hex() for digest in self._pieces]
        for first in range(0, len(names), DIGESTS_PER_QUESTION):
            query = {"digests": names[first:first + DIGESTS_PER_QUESTION]}
            missing += transport.json("POST", "/v1/blobs/missing", query).get("missing", [])
        with concurrent.futures.ThreadPoolExecutor(max(1, min(UPLOADS_AT_ONCE, len(missing)))) as pool:
            sent = [pool.submit(self._put, transport, name) for name in missing]
            try:
                for one in sent:
                    one.result()
            except BaseException:
                for one in sent:
                    one.cancel()
                raise
        name = hashlib.sha256(listing).hexdigest()
        transport.call("PUT", f"/v1/blobs/{name}", listing)
        return name

    def _put(self, transport: Transport, name: str) -> None:
        source, offset, size = self._pieces[bytes.fromhex(name)]
        if isinstance(source, bytes):
            data = source
        else:
            try:
                with open(source, "rb") as file:
                    file.seek(offset)
                    data = file.read(size)
            except OSError as error:
                raise _unreadable(source, error) from error
            if hashlib.sha256(data).hexdigest() != name:
                raise errors.ConflictError(f"{source} changed while it was uploaded", "wait until nobody writes to it")
        transport.call("PUT", f"/v1/blobs/{name}", data, headers={"Content-Type": "application/octet-stream"})


def _unreadable(path: str, error: OSError) -> errors.ReclaimError:
    return errors.InvalidError(f"{path} cannot be read: {error.strerror}",
                               "make it readable, or name it in .reclaimignore")


def _refuse_whole(root: str) -> None:
    """As the command line does: not by mistake all that somebody has."""
    real = os.path.realpath(root)
    home = os.environ.get("HOME", "")
    if not home:
        with contextlib.suppress(KeyError):
            home = pwd.getpwuid(os.getuid()).pw_dir
    own = os.path.realpath(home) if home else ""
    if real == "/":
        what = "/ is the whole machine"
    elif real == own:
        what = f"{real} is your home folder"
    elif own.startswith(real + "/"):
        what = f"your home folder is in {real}"
    else:
        return
    if not os.path.isfile(os.path.join(real, ".reclaimignore")):
        raise errors.InvalidError(f"{what}, and all of it would be uploaded: nothing was sent",
                                  "name the folder with the script, or say in .reclaimignore there what stays here")


# --- the way home


def pieces_of(transport: Transport, file: Dict[str, Any]) -> Iterator[bytes]:
    """A listed file's contents, piece by piece, each compared with its digest."""
    for name in file["blobs"]:
        if not re.fullmatch(r"[0-9a-f]{64}", name):
            raise errors.CorruptError(f"the listing names {name!r}, which is no digest",
                                      "look at the coordinator's log")
        data = transport.call("GET", f"/v1/blobs/{name}", most=PIECE_BYTES)
        if hashlib.sha256(data).hexdigest() != name:
            raise errors.CorruptError(f"{file['path']} arrived damaged", "fetch it again")
        yield data


def is_safe(path: str) -> bool:
    """Whether it stays in the folder that it is relative to."""
    parts = path.split("/")
    return bool(path) and "\0" not in path and not any(part in ("", ".", "..") for part in parts)


def is_reserved(path: str) -> bool:
    """What lies in .git is git's to run, and .reclaim is ours: no output has business there."""
    parts = path.lower().split("/")
    return ".git" in parts or parts[0] == ".reclaim"


class Fetcher:
    """Writes outputs below a folder: whole or not at all, never through a link, never outside."""

    def __init__(self, transport: Transport, folder: PathLike) -> None:
        self._transport, self._folder = transport, pathlib.Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)

    def fetch(self, file: Dict[str, Any]) -> pathlib.Path:
        """Where it lies now. ReclaimError or OSError; what was there then stays as it was."""
        path = str(file["path"])
        if not is_safe(path):
            raise errors.DeniedError(f"the outputs name a path outside the folder: {path!r}")
        place = self._folder / path
        for parent in list(place.relative_to(self._folder).parents)[:-1]:
            if (self._folder / parent).is_symlink():
                raise errors.DeniedError(f"{path} goes through the symbolic link {parent}",
                                         "fetch into an empty folder")
        if file["kind"] == "folder":
            place.mkdir(parents=True, exist_ok=True)
            return place
        if place.exists() and not place.is_file() and not place.is_symlink():
            raise errors.ConflictError(f"{path} is there already, and no file", "fetch into an empty folder")
        place.parent.mkdir(parents=True, exist_ok=True)
        temporary = place.parent / f".reclaim-{secrets.token_hex(8)}"
        try:
            if file["kind"] == "symlink":
                os.symlink(file["target"], temporary)
            else:
                with open(temporary, "xb") as out:
                    self._write(file, out)
                os.chmod(temporary, file["mode"] & 0o777)
            os.replace(temporary, place)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
        return place

    def _write(self, file: Dict[str, Any], out: BinaryIO) -> None:
        for piece in pieces_of(self._transport, file):
            out.write(piece)
        out.flush()
        os.fsync(out.fileno())


def listed(answer: Dict[str, Any]) -> List[Dict[str, Any]]:
    """The files of a listing; CorruptError if it is none."""
    kinds = {"path": str, "kind": str, "mode": int, "bytes": int, "target": str, "blobs": list}
    files = answer.get("files")
    if not isinstance(files, list) or not all(
            isinstance(file, dict) and all(isinstance(file.get(name), kind) for name, kind in kinds.items())
            and all(isinstance(blob, str) for blob in file["blobs"]) for file in files):
        raise errors.CorruptError("the coordinator's list of outputs is none", "look at its log")
    return files


def find(files: List[Dict[str, Any]], path: str) -> Optional[Dict[str, Any]]:
    """The regular file with this path."""
    return next((file for file in files if file["path"] == path and file["kind"] == "regular"), None)
