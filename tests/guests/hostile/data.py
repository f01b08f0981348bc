# SPDX-License-Identifier: Apache-2.0
"""Tries to change a data set of the owner, to read what others may not, and to become more through what lies there."""
import ctypes
import os
import stat
import subprocess

from verdict import finish, verdict

libc = ctypes.CDLL(None, use_errno=True)
MS_RDONLY, MS_REMOUNT, MS_BIND = 1, 32, 4096
FOLDER = os.environ["DATA"]


def attempt(name, action):
    """The claim is that the action fails."""
    try:
        action()
        verdict(name, True)
    except OSError as error:
        verdict(name, False, error.strerror)


def at(*names):
    return os.path.join(FOLDER, *names)


def write(path, flags):
    os.close(os.open(path, flags, 0o666))


def changes():
    with open(at("train")) as file:
        print(file.read(), flush=True)
    attempt("a new file", lambda: write(at("new"), os.O_WRONLY | os.O_CREAT))
    attempt("a new file in everybody's folder", lambda: write(at("more", "new"), os.O_WRONLY | os.O_CREAT))
    attempt("appending to everybody's file", lambda: write(at("everybodys"), os.O_WRONLY | os.O_APPEND))
    attempt("emptying everybody's file", lambda: os.truncate(at("everybodys"), 0))
    attempt("removing a file", lambda: os.unlink(at("more", "test")))
    attempt("renaming a file", lambda: os.rename(at("more", "test"), at("more", "mine")))
    attempt("making a folder", lambda: os.mkdir(at("more", "folder")))
    attempt("a hard link out of it", lambda: os.link(at("train"), "linked"))
    attempt("changing a mode", lambda: os.chmod(at("everybodys"), 0o777))
    attempt("changing a time", lambda: os.utime(at("everybodys"), (0, 0)))
    attempt("writing by the root link", lambda: write("/proc/self/root" + at("everybodys"), os.O_WRONLY))
    attempt("removing the mount's folder", lambda: os.rmdir(FOLDER))


def more_than_given():
    attempt("the owner's private file", lambda: write(at("private"), os.O_RDONLY))
    attempt("a device", lambda: write(at("null"), os.O_RDONLY))
    attempt("the folder above it", lambda: os.listdir(at("..", "..", "owner")))
    remounted = libc.mount(b"none", FOLDER.encode(), None, MS_REMOUNT | MS_BIND, None) == 0
    verdict("remounting it for writing", remounted)
    verdict("unmounting it", libc.umount2(FOLDER.encode(), 2) == 0)
    told = subprocess.run([at("setuid-id"), "-u"], stdout=subprocess.PIPE, text=True)
    # One that cannot run here at all says nothing about it.
    verdict("a set-user-id program", told.stdout.strip() != str(os.getuid()), f"uid {told.stdout.strip()}")
    flags = os.statvfs(FOLDER).f_flag
    wanted = os.ST_RDONLY | os.ST_NOSUID | os.ST_NODEV
    verdict("flags of the mount", flags & wanted != wanted, hex(flags))
    verdict("its own root", stat.S_ISLNK(os.lstat(FOLDER).st_mode))


if __name__ == "__main__":
    changes()
    more_than_given()
    finish()
