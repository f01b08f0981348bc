# SPDX-License-Identifier: Apache-2.0
"""The daemons' logs, read as src/base/log.cc writes them: time, level, event, then key=value."""
import re

FIELD = re.compile(r'(\w+)=(?:"((?:[^"\\]|\\.)*)"|(\S*))')


def events(log, event):
    """Of every line with this event its fields, as text, in order."""
    found = []
    for line in log.splitlines():
        head, _, rest = line.partition(f" {event} ")
        if rest and "=" not in head:
            found.append({key: re.sub(r"\\(.)", r"\1", quoted) or plain
                          for key, quoted, plain in FIELD.findall(rest)})
    return found
