# SPDX-License-Identifier: Apache-2.0
"""Writes LOG_MIB (default 256) to standard output as fast as it goes. It gives no verdict: whether the host kept its
limit can only be measured from outside. How much it wrote is left in flooded.txt."""
import os


def main():
    wanted = int(os.environ.get("LOG_MIB", "256"))
    block = (("x" * 1023) + "\n").encode() * 1024
    written = 0
    try:
        while written < wanted:
            view = memoryview(block)
            while view:
                view = view[os.write(1, view):]
            written += 1
    except OSError:
        pass
    with open("flooded.txt", "w") as file:
        file.write(f"{written}\n")


if __name__ == "__main__":
    main()
