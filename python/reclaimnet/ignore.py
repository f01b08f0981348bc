# SPDX-License-Identifier: Apache-2.0
"""`.gitignore` and `.reclaimignore` as the command line reads them: the last match decides."""
import re
from typing import List, NamedTuple, Optional, Pattern


class _Rule(NamedTuple):
    folder: str
    pattern: Pattern[str]
    takes_back: bool
    is_for_folders: bool
    is_anchored: bool


def _class_at(pattern: str, at: int) -> "tuple[str, int]":
    """The regular expression of the class that begins at `at`, and where it ends; as a plain bracket if it is none."""
    begin = at + 1
    is_negated = pattern[begin:begin + 1] in ("!", "^")
    begin += is_negated
    end = pattern.find("]", begin + 1)
    if end < 0:
        return r"\[", at + 1
    inner = pattern[begin:end].replace("\\", r"\\").replace("[", r"\[").replace("]", r"\]").replace("^", r"\^")
    inner = inner.replace("&&", r"&\&").replace("||", r"|\|").replace("~~", r"~\~").replace("--", r"-\-")
    return f"(?!/)[{'^' if is_negated else ''}{inner}]", end + 1


def pattern_of(glob: str) -> Optional[Pattern[str]]:
    """The glob as a regular expression; None for one that can match nothing."""
    at, out = 0, ""
    while at < len(glob):
        if glob.startswith("**/", at) and (at == 0 or glob[at - 1] == "/"):
            out, at = out + "(?:[^/]*/)*", at + 3
        elif glob[at:] == "**" and (at == 0 or glob[at - 1] == "/"):
            out, at = out + ".+", at + 2
        elif glob[at] == "*":
            while glob[at:at + 1] == "*":
                at += 1
            out += "[^/]*"
        elif glob[at] == "?":
            out, at = out + "[^/]", at + 1
        elif glob[at] == "[":
            piece, at = _class_at(glob, at)
            out += piece
        else:
            at += glob[at] == "\\" and at + 1 < len(glob)
            out, at = out + re.escape(glob[at]), at + 1
    try:
        return re.compile(out, re.DOTALL)
    except re.error:
        return None


class IgnoreRules:
    """The rules of all ignore files of a folder, in the order in which they were added."""

    def __init__(self) -> None:
        self._rules: List[_Rule] = []

    def add(self, folder: str, text: str) -> None:
        """The lines of an ignore file that lies in `folder` (relative; "" is the root)."""
        for line in text.split("\n"):
            line = line.rstrip("\r ")
            if not line or line.startswith("#"):
                continue
            takes_back = line.startswith("!")
            line = line[takes_back:]
            is_for_folders = line.endswith("/")
            line = line[:-1] if is_for_folders else line
            is_anchored = "/" in line
            line = line[line.startswith("/"):]
            pattern = pattern_of(line) if line else None
            if pattern is not None:
                self._rules.append(_Rule(folder, pattern, takes_back, is_for_folders, is_anchored))

    def ignores(self, path: str, is_folder: bool) -> bool:
        """Whether the entry is left out. Who is in a folder that is left out is not asked about."""
        is_ignored = False
        for rule in self._rules:
            if rule.is_for_folders and not is_folder:
                continue
            below = path
            if rule.folder:
                if not path.startswith(rule.folder + "/"):
                    continue
                below = path[len(rule.folder) + 1:]
            if not rule.is_anchored:
                below = below.rpartition("/")[2]
            if rule.pattern.fullmatch(below):
                is_ignored = not rule.takes_back
        return is_ignored
