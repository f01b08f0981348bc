#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Man page or bash completion of a program, from what its --help and its commands' say: one table for all three.

    help_pages.py man PROGRAM [COMMAND…] --name NAME --section N --version V
    help_pages.py bash PROGRAM…

`man` writes the page of PROGRAM, or of a COMMAND of it that is called NAME by itself; its date is SOURCE_DATE_EPOCH.
"""
import argparse
import dataclasses
import os
import pathlib
import re
import subprocess
import sys
import time

TERM = re.compile(r"^  (\S.*?)(?:  +(\S.*))?$")
FLAG = re.compile(r"(?:^|[\s,])(--?[A-Za-z][\w-]*)")


@dataclasses.dataclass
class Help:
    """One command's --help."""
    description: str = ""
    details: str = ""  # what follows it, up to the usage
    usage: str = ""  # behind the program's name
    entries: dict = dataclasses.field(default_factory=dict)  # heading: [(term, text)]
    footer: str = ""

    def commands(self):
        return [term for term, _ in self.entries.get("Subcommands", ())]

    def flags(self):
        terms = (re.split(r" (?:Excludes|Needs):", term)[0] for term, _ in self.entries.get("Options", ()))
        return [flag for term in terms for flag in FLAG.findall(term)]


def parse(text):
    found, heading, footer = Help(), None, []
    head, _, rest = text.partition("Usage: ")
    first, _, details = head.strip().partition("\n\n")
    found.description, found.details = " ".join(first.split()), details.strip("\n")
    usage, _, rest = rest.partition("\n")
    found.usage = usage.partition(" ")[2]
    for line in rest.splitlines():
        begins = re.fullmatch(r"(Positionals|Options|Subcommands):", line)
        term = TERM.match(line)
        if begins:
            heading = begins[1]
            found.entries[heading] = []
        elif heading and term:
            found.entries[heading].append((term[1], term[2] or ""))
        elif heading and line.startswith("   "):
            before, words = found.entries[heading][-1]
            found.entries[heading][-1] = (before, f"{words} {line.strip()}".strip())
        elif footer or (line and not line.startswith(" ")):
            heading = None
            footer.append(line)
    found.footer = "\n".join(footer).strip()
    return found


def read_help(program, words):
    said = subprocess.run([program, *words, "--help"], check=True, capture_output=True, text=True)
    return parse(said.stdout)


def walk(program, words=()):
    """(words, help) of a command and of all below it, in their own order."""
    own = read_help(program, words)
    yield words, own
    for command in own.commands():
        yield from walk(program, (*words, command))


def roff(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"(?m)^(?=[.'])", r"\\&", text)


def paragraphs(text):
    """What has lines that are indented, as examples have, stays line by line; the rest is filled."""
    for one in re.split(r"\n{2,}", text):
        yield ".PP"
        yield f".nf\n{roff(one)}\n.fi" if re.search(r"(?m)^ ", one) else roff(one)


def listed(entries, heading):
    for term, text in entries.get(heading, ()):
        yield f".TP\n.B {roff(term)}\n{roff(text)}"


def man_page(program, words, name, section, version):
    day = time.strftime("%Y-%m-%d", time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))))
    (_, own), *below = walk(program, words)
    usage = own.usage.partition(" ".join(words))[2] if words else own.usage
    yield f'.TH {name.upper()} {section} {day} "ReclaimNet {version}" "ReclaimNet"'
    yield f".SH NAME\n{roff(name)} \\- {roff(own.description.rstrip('.'))}"
    yield f".SH SYNOPSIS\n.B {roff(name)}\n{roff(usage.strip())}"
    if own.details:
        yield ".SH DESCRIPTION"
        yield from paragraphs(own.details)
    for title, heading in (("ARGUMENTS", "Positionals"), ("OPTIONS", "Options")):
        if own.entries.get(heading):
            yield f".SH {title}"
            yield from listed(own.entries, heading)
    if below:
        yield ".SH COMMANDS"
    for path, found in below:
        last = found.usage.partition(" ".join(path))[2].strip()
        yield f".SS {roff(name)} {roff(' '.join(path))}\n{roff(found.description)}"
        yield f".PP\n.B {roff(name)} {roff(' '.join(path))}\n{roff(last)}"
        for heading in ("Positionals", "Options"):
            yield from listed(found.entries, heading)
        if found.footer != own.footer and found.footer:
            yield from paragraphs(found.footer)
    if own.footer:
        yield ".SH NOTES"
        yield from paragraphs(own.footer)


COMPLETION = """\
_{function}() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} path= next i
  local -A words=(
{words}
  )
  for ((i = 1; i < COMP_CWORD; i++)); do
    [[ ${{COMP_WORDS[i]}} != -- ]] || return 0
    next=${{path:+$path }}${{COMP_WORDS[i]}}
    [[ -z ${{words[=$next]+is}} ]] || path=$next
  done
  mapfile -t COMPREPLY < <(compgen -W "${{words[=$path]}}" -- "$word")
}}
complete -o default -F _{function} {name}
"""


def bash_completion(program):
    """Commands and flags; where neither fits, files. (The = keeps the first command's key from being empty.)"""
    name = pathlib.Path(program).name
    words = [f'    ["={" ".join(path)}"]="{" ".join([*found.commands(), *found.flags()])}"'
             for path, found in walk(program)]
    return COMPLETION.format(function=name.replace("-", "_"), name=name, words="\n".join(words))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(dest="kind", required=True)
    man = kinds.add_parser("man")
    man.add_argument("program")
    man.add_argument("words", nargs="*")
    for flag in ("--name", "--section", "--version"):
        man.add_argument(flag, required=True)
    kinds.add_parser("bash").add_argument("programs", nargs="+")
    said = parser.parse_args()
    if said.kind == "man":
        lines = man_page(said.program, tuple(said.words), said.name, said.section, said.version)
        print("\n".join(lines))
        return
    for program in said.programs:
        sys.stdout.write(bash_completion(program))


if __name__ == "__main__":
    main()
