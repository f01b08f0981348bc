# SPDX-License-Identifier: Apache-2.0
"""The daemons' logs, read as src/base/log.cc writes them: time, level, event, then key=value."""
import datetime
import re

FIELD = re.compile(r'(\w+)=(?:"((?:[^"\\]|\\.)*)"|(\S*))')


def _lines(log, event):
    for line in log.splitlines():
        head, _, rest = line.partition(f" {event} ")
        if rest and "=" not in head:
            yield head, {key: re.sub(r"\\(.)", r"\1", quoted) or plain for key, quoted, plain in FIELD.findall(rest)}


def events(log, event):
    """Of every line with this event its fields, as text, in order."""
    return [fields for _, fields in _lines(log, event)]


def timed_events(log, event):
    """The same with the time of each, the wall clock of this machine in seconds."""
    return [(datetime.datetime.fromisoformat(head.split(" ")[0]).timestamp(), fields)
            for head, fields in _lines(log, event)]
