# SPDX-License-Identifier: Apache-2.0
"""A folder of an owner's, lent as a data set, with what a guest could make mischief with; and what it looks like."""
import hashlib
import os
import shutil
import stat


def make(folder):
    (folder / "more").mkdir(parents=True)
    (folder / "train").write_text("0123\n")
    (folder / "more" / "test").write_text("456\n")
    (folder / "everybodys").write_text("world-writable\n")
    (folder / "everybodys").chmod(0o666)
    (folder / "more").chmod(0o777)
    (folder / "private").write_text("of the owner alone\n")
    (folder / "private").chmod(0o600)
    shutil.copy(shutil.which("id"), folder / "setuid-id")
    (folder / "setuid-id").chmod(0o6755)
    os.mknod(folder / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    return folder


def picture(folder):
    """Everything that a change would show in: names, kinds, modes, owners, sizes, times and contents."""
    seen = {}
    for path in sorted([folder, *folder.rglob("*")]):
        about = path.lstat()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        seen[str(path.relative_to(folder))] = (
            about.st_mode, about.st_uid, about.st_gid, about.st_size, about.st_mtime_ns, content)
    return seen
