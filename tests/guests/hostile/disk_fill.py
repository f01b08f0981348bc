# SPDX-License-Identifier: Apache-2.0
"""Fills what it may write to, with bytes and with files: at most DISK_MIB (default 4096) and FILES (default 500000).
Its own working folder must end before that, and so must /tmp; what it wrote is deleted again."""
import os
import shutil

from verdict import finish, verdict


def fill_bytes(folder, limit_mib):
    path, block, written = os.path.join(folder, "fill"), os.urandom(1 << 20), 0
    try:
        with open(path, "wb", buffering=0) as file:
            while written < limit_mib:
                file.write(block)
                written += 1
    except OSError as error:
        return written, error.strerror
    finally:
        if os.path.exists(path):
            os.unlink(path)
    return written, None


def fill_files(folder, limit):
    place, made = os.path.join(folder, "many"), 0
    try:
        os.mkdir(place)
        while made < limit:
            os.close(os.open(os.path.join(place, str(made)), os.O_CREAT | os.O_WRONLY))
            made += 1
    except OSError as error:
        return made, error.strerror
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return made, None


def main():
    limit_mib = int(os.environ.get("DISK_MIB", "4096"))
    limit_files = int(os.environ.get("FILES", "500000"))
    for folder in (".", "/tmp", "/dev/shm"):
        if not os.access(folder, os.W_OK):
            continue
        written, error = fill_bytes(folder, limit_mib)
        verdict(f"fill {folder} with bytes", error is None, f"{written} MiB, then {error}")
        made, error = fill_files(folder, limit_files)
        verdict(f"fill {folder} with files", error is None, f"{made} files, then {error}")
    finish()


if __name__ == "__main__":
    main()
