#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What every program says of words that it does not know, and which libraries all of them need. docs/commands.md and
docs/lending.md say what to expect."""
import os
import pathlib
import re
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
from labs import ROOT  # noqa: E402
from rn_site import program  # noqa: E402

USAGE, NO_PLAN = 2, 255


class Usage(unittest.TestCase):
    """What all four say of words that they do not know."""

    PROGRAMS = ("reclaim", "reclaim-agent", "reclaim-coordinator", "reclaim-warden")

    def say(self, *words, **variables):
        done = subprocess.run([program(words[0]), *words[1:]], stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=60, env={**os.environ, **variables})
        status = NO_PLAN if words[:2] in (("reclaim", "plan"), ("reclaim", "exec")) else USAGE
        self.assertEqual(done.returncode, status, (words, done.stdout, done.stderr))
        return done.stderr

    def commands(self):
        """Every command of every program, with the names of those below it, by its help."""
        left = [(name,) for name in self.PROGRAMS]
        while left:
            command = left.pop()
            text = subprocess.run([program(command[0]), *command[1:], "--help"], capture_output=True, text=True,
                                  check=True).stdout
            below = re.findall(r"^  ([a-z-]+)", text.partition("\nSubcommands:\n")[2], re.M)
            left += [(*command, word) for word in below]
            yield command, below

    def test_an_unknown_command_is_named_with_those_that_there_are(self):
        tried = 0
        for command, below in self.commands():
            if below:
                tried += 1
                given = " ".join([*command[1:], "frobnicate"])
                self.assertRegex(self.say(*command, "frobnicate"),
                                 f"there is no command '{given}'[.] There (is|are): {', '.join(below)}\n")
        self.assertGreaterEqual(tried, 8)
        self.assertRegex(self.say("reclaim-agent", "--config", "show", "contract", "chek", "x"),
                         "no command 'contract chek'; did you mean 'check'[?] There are: show, check, set, pending, "
                         "accept, reject\n")

    def test_what_is_not_understood_says_what_to_do_next(self):
        for command, _ in self.commands():
            help_of = re.escape(" ".join(command)) + " --help"
            self.assertRegex(self.say(*command, "--frobnicate"),
                             f"^{command[0]}: .*--frobnicate\n  next: see '{help_of}'\n$")
        for words, near in ((("reclaim", "run", "--gpus", "1", "--", "true"), "--gpu"),
                            (("reclaim", "run", "--gpus=1"), "--gpu"),
                            (("reclaim", "ps", "--jsn"), "--json"),
                            (("reclaim-warden", "serve", "--lobs", "a"), "--lab")):
            flag, help_of = words[2].partition("=")[0], " ".join(words[:2]) + " --help"
            self.assertEqual(self.say(*words).splitlines(), [
                f"{words[0]}: The following argument was not expected: {flag}",
                f"  next: did you mean {near}? Else see '{help_of}'"])
        self.assertIn("--lab is required", self.say("reclaim-warden", "serve", "--agent-uid", "7"))
        self.assertIn("not expected: --lob", self.say("reclaim-warden", "serve", "--agent-uid", "7", "--lob=a"))
        self.assertIn("node is required", self.say("reclaim", "nodes", "revoke", "--json"))
        self.assertEqual(self.say("reclaim", "ps", "--limit", "010").splitlines(), [
            "reclaim: -n,--limit: '010' is no whole number from 1 to 1000", "  next: leave out the zeros in front"])
        for name in self.PROGRAMS:  # told, and done all the same: `reclaim-warden kill` is one of them
            said = self.say(name, "--frobnicate", RN_LOG_LEVEL="loud").splitlines()
            self.assertEqual(said[:2], [
                f"{name}: RN_LOG_LEVEL: 'loud' is none of debug and info, and counts as info",
                "  next: unset the variable"])
            self.assertIn("--frobnicate", said[2])
        self.assertIn("\\x1b[2J", self.say("reclaim", "ps", "--\x1b[2J"))


class Programs(unittest.TestCase):
    """What docs/lending.md says that a machine needs which only runs them."""

    PROGRAMS = ("reclaim", "reclaim-coordinator", "reclaim-agent", "reclaim-warden", "reclaim-init")

    @staticmethod
    def output(*command):
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def with_dependencies(self, packages):
        known, left = set(), list(packages)
        while left:
            name = left.pop()
            if name not in known:
                known.add(name)
                listed = subprocess.run(["dpkg-query", "-W", "-f=${Depends}\n", name], capture_output=True, text=True)
                left += re.findall(r"(?:^|, )([a-z0-9][a-z0-9.+-]*)", listed.stdout)
        return known

    def test_each_library_comes_with_the_packages_that_the_page_names(self):
        page = (ROOT / "docs" / "lending.md").read_text()
        named = [word for line in re.findall(r"^apt-get install --no-install-recommends (.*)$", page, re.MULTILINE)
                 for word in line.split()]
        there = self.with_dependencies(named)
        programs = [program(name) for name in self.PROGRAMS]
        programs.append(program("reclaim-warden").parent / "whole" / "reclaim-warden")  # what is called has none
        needed = {library for path in programs for library in re.findall(
            r"NEEDED.*\[(.*)\]", self.output("readelf", "-d", path))}
        self.assertIn("libbpf.so.1", needed)

        owners = {}
        for line in self.output("dpkg", "-S", *(f"*/{library}" for library in needed)).splitlines():
            package, path = line.split(":")[0], line.rsplit("/", 1)[1]
            owners.setdefault(path, set()).add(package)
        missing = {library: owners[library] for library in needed if not owners[library] & there}

        self.assertEqual(missing, {})


if __name__ == "__main__":
    unittest.main(verbosity=2)
