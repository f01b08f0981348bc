# SPDX-License-Identifier: Apache-2.0
"""How the hostile guests report: one line each, on standard output and in verdicts.txt of the working folder."""
import sys

_escaped = False


def verdict(name, escaped, detail=""):
    """`escaped` is a claim about one attack; the process ends with 1 when any of its attacks got through."""
    global _escaped
    _escaped = _escaped or bool(escaped)
    line = f"hostile {name}: escaped: {'YES' if escaped else 'no'}{' (' + detail + ')' if detail else ''}"
    print(line, flush=True)
    try:
        with open("verdicts.txt", "a") as file:
            file.write(line + "\n")
    except OSError:
        pass


def finish():
    sys.exit(1 if _escaped else 0)
