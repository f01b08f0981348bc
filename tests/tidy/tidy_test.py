#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tidy_test.py [ROOT]: rules of the repository that neither the compiler nor clang-format knows. Exit 1 on a finding.

Each rule is a function RULE(tree) that yields findings as text; `Tree` is what git tracks. tidy_rules_test.py breaks
each rule once and expects to be told. Files over 500 lines are mentioned, over 800 refused.
"""
import ast
import pathlib
import re
import subprocess
import sys

CODE = {".cc", ".h", ".c", ".py", ".sh", ".cmake", ".ts", ".tsx", ".mjs", ".css"}
MAX_LINE, MAX_FUNCTION, MAX_TEST_FUNCTION = 120, 70, 120
WARN_FILE, MAX_FILE = 500, 800
MAX_LIST_LINE = 140  # lists of files in CMakeLists.txt
# Written in two halves, so that this file may be checked by its own rule.
UNFINISHED = ["TO" + "DO", "FIX" + "ME", "XX" + "X", "st" + "ub", "place" + "holder", "not " + "implemented yet"]
MACHINE_PATHS = re.compile(r"/wo" + r"rk/(?:main|wt|shared|\.\w+)\b|/ro" + r"ot/\.py\w+")

# Files of the machine that tests and scripts use, by the package that brings each one.
PACKAGE_OF = {"/bin/busybox": "busybox-static", "/usr/lib/glewlwyd": "glewlwyd", "libfaketime.so": "libfaketime"}


class Tree:
    """Tracked files of a folder, read once. Paths are relative, with forward slashes."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        command = ["git", "-C", str(root), "-c", "safe.directory=*", "ls-files", "-z"]
        listed = subprocess.run(
            command + ["--cached", "--others", "--exclude-standard"], check=True, capture_output=True).stdout
        names = sorted(set(listed.decode().split("\0")) - {""})
        self.paths = [name for name in names if (self.root / name).is_file()]
        self.texts = {}
        for name in self.paths:
            data = (self.root / name).read_bytes()
            if b"\0" not in data[:8192]:
                self.texts[name] = data.decode("utf-8", errors="replace")

    def code(self):
        for name, text in self.texts.items():
            if pathlib.PurePath(name).suffix in CODE or is_script(name, text) or name.endswith("CMakeLists.txt"):
                yield name, text


def is_script(name, text):
    return text.startswith("#!") and "." not in pathlib.PurePath(name).name.lstrip(".")


def lines_are_short(tree):
    for name, text in tree.code():
        limit = MAX_LIST_LINE if name.endswith("CMakeLists.txt") else MAX_LINE
        for number, line in enumerate(text.splitlines(), 1):
            if len(line) > limit and 'R"' not in line:  # a raw string cannot be broken
                yield f"{name}:{number}: {len(line)} characters (limit {limit})"


def whitespace_is_clean(tree):
    for name, text in tree.code():
        if text and not text.endswith("\n"):
            yield f"{name}: no newline at the end"
        for number, line in enumerate(text.splitlines(), 1):
            if line != line.rstrip():
                yield f"{name}:{number}: blank at the end of the line"
            if "\t" in line and not name.endswith((".c", "_abi.h")):  # kernel style
                yield f"{name}:{number}: tab"


def files_are_short(tree):
    for name, text in tree.code():
        count = text.count("\n")
        if count > MAX_FILE:
            yield f"{name}: {count} lines (limit {MAX_FILE})"
        elif count > WARN_FILE:
            print(f"note: {name} has {count} lines (target {WARN_FILE})")


C_NOT_A_FUNCTION = ["if", "for", "while", "switch", "else", "do", "catch", "return", "class", "struct", "namespace"]
C_START = re.compile(rf"^(\s*)(?!\s|(?:{'|'.join(C_NOT_A_FUNCTION)})\b|}}|//).*\{{$")
C_TAIL = re.compile(r"^\s*\).*\{$")


def c_functions(text):
    """(first line, lines) of each function body: in formatted code the closing brace has its start's indentation.
    Only functions at namespace or class level count, not the blocks and lambdas inside them."""
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        line = lines[number]
        is_start = (C_START.match(line) and ")" in line and "= {" not in line) or C_TAIL.match(line) or line == "{"
        if not is_start:
            number += 1
            continue
        indent = indent_of_declaration(lines, number)
        end = number + 1
        while end < len(lines) and not re.match(re.escape(indent) + r"\}", lines[end]):
            end += 1
        yield number + 1, end - number + 1
        number = end + 1


def indent_of_declaration(lines, number):
    """Of the line that opens a body; a constructor's initializers stand four further right than its name."""
    for line in (lines[number], *reversed(lines[max(0, number - 40):number])):
        if line.lstrip().startswith(": "):
            return line[4:len(line) - len(line.lstrip())]
        if line is not lines[number] and not line.endswith(","):
            break
    return lines[number][:len(lines[number]) - len(lines[number].lstrip())]


def python_functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.lineno, node.end_lineno - node.lineno + 1


def shell_functions(text):
    start = None
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(r"^[a-z_0-9]+\(\) \{$", line):
            start = number
        elif line == "}" and start is not None:
            yield start, number - start + 1
            start = None


def functions_are_short(tree):
    for name, text in tree.code():
        suffix = pathlib.PurePath(name).suffix
        if suffix in (".cc", ".h", ".c"):
            found = c_functions(text)
        elif suffix == ".py":
            found = python_functions(text)
        elif suffix == ".sh" or is_script(name, text):
            found = shell_functions(text)
        else:
            continue
        limit = MAX_TEST_FUNCTION if name.endswith(("_test.cc", "_test.py")) else MAX_FUNCTION
        for number, length in found:
            if length > limit:
                yield f"{name}:{number}: function of {length} lines (limit {limit})"


def licences_are_named(tree):
    for name, text in tree.code():
        if text and "SPDX-License-Identifier: Apache-2.0" not in "\n".join(text.splitlines()[:2]):
            yield f"{name}: no SPDX line at the top"


def nothing_is_unfinished(tree):
    words = re.compile("|".join(rf"\b{word}(?:s|bed)?\b" for word in UNFINISHED), re.IGNORECASE)
    for name, text in tree.texts.items():
        if name == "LICENSE" or name.startswith("tests/fuzz/corpus/"):
            continue
        for number, line in enumerate(text.splitlines(), 1):
            match = words.search(line)
            if match:
                yield f"{name}:{number}: '{match[0]}'"


def sources_are_built(tree):
    """Every .cc below src, apps, bench and tests is named in a CMakeLists.txt of its folder or of one above it."""
    for name in tree.paths:
        path = pathlib.PurePath(name)
        if path.suffix != ".cc" or path.parts[0] not in ("src", "apps", "bench", "tests"):
            continue
        listed = "".join(tree.texts.get(str(folder / "CMakeLists.txt"), "") for folder in path.parents)
        stem = re.escape(re.sub(r"^fuzz_", "", path.stem))
        is_named_by_function = re.search(rf"rn_(?:fuzz|bench)\({stem}\b", listed)
        if not is_named_by_function and not re.search(rf"(?<![\w.-]){re.escape(path.name)}(?![\w.-])", listed):
            yield f"{name}: in no CMakeLists.txt"


def links_resolve(tree):
    for name, text in tree.texts.items():
        if not name.endswith(".md"):
            continue
        folder = (tree.root / name).parent
        prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)\s]+)\)", prose):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            file = (folder / path) if path else tree.root / name
            if not file.exists():
                yield f"{name}: link to {target}, which is not there"
            elif anchor and file.suffix == ".md" and anchor not in anchors(file.read_text()):
                yield f"{name}: link to {target}: no such heading"
        for path in re.findall(r"`((?:src|apps|docs|scripts|tests|bench|cmake|packaging)/[\w./-]+)`", prose):
            if not any((tree.root / (path + suffix)).exists() for suffix in ("", ".h", ".cc", ".py", ".sh")):
                yield f"{name}: names {path}, which is not there"


def anchors(text):
    titles = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def paths_of_one_machine_are_absent(tree):
    for name, text in tree.texts.items():
        for number, line in enumerate(text.splitlines(), 1):
            match = MACHINE_PATHS.search(line)
            if match:
                yield f"{name}:{number}: '{match[0]}' exists on one machine only"


def readme_names_both_commands(tree):
    readme = tree.texts.get("README.md", "")
    for command in ("scripts/demo.sh", "scripts/test.sh"):
        if command not in readme:
            yield f"README.md: does not name {command}"


def scripts_can_run(tree):
    for name, text in tree.texts.items():
        if not text.startswith("#!"):
            continue
        if not (tree.root / name).stat().st_mode & 0o100:
            yield f"{name}: has an interpreter line and is not executable"
        if "bash" in text.splitlines()[0]:
            checked = subprocess.run(["bash", "-n", str(tree.root / name)], capture_output=True, text=True)
            if checked.returncode != 0:
                yield f"{name}: {checked.stderr.strip()}"


def used_packages_are_installed(tree):
    installed = tree.texts.get("scripts/install-deps.sh", "").split()
    for name, text in tree.code():
        for file, package in PACKAGE_OF.items():
            if file in text and package not in installed and not name.startswith("tests/tidy/"):
                yield f"{name}: uses {file}, and scripts/install-deps.sh does not install {package}"


RULES = [
    lines_are_short, whitespace_is_clean, files_are_short, functions_are_short, licences_are_named,
    nothing_is_unfinished, sources_are_built, links_resolve, paths_of_one_machine_are_absent,
    readme_names_both_commands, scripts_can_run, used_packages_are_installed,
]


def findings(root):
    tree = Tree(root)
    for rule in RULES:
        for finding in rule(tree):
            yield rule.__name__, finding


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2]
    count = 0
    for rule, finding in findings(root):
        print(f"{finding}  [{rule}]")
        count += 1
    print(f"{count} findings" if count else "tidy")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
