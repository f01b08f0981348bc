# SPDX-License-Identifier: Apache-2.0
"""What tests of single commands stand on: a coordinator, calls of the program, and which commands and flags they
tried."""
import json
import pathlib
import re
import subprocess
import tarfile
import tempfile
import unittest

from cli_site import Site
from rn_site import program

USAGE, READER_GONE = 2, 141


class CliCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix="rn-cli-")
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        cls.site = Site(cls.folder)
        cls.addClassCleanup(cls.site.down)
        cls.used = set()
        cls.archive = cls.folder / "image.tar"
        (cls.folder / "hello").write_text("hello\n")
        with tarfile.open(cls.archive, "w") as tar:
            tar.add(cls.folder / "hello", "bin/hello")
        cls.cli("image", "add", "base", cls.archive)

    @classmethod
    def note(cls, words):
        """Remembers command and flags that were given."""
        command = []
        for word in map(str, words):
            if word == "--":
                break
            if word.startswith("-"):
                cls.used.add((tuple(command), word))
            elif tuple(command + [word]) in cls.known():
                command.append(word)
        cls.used.add(tuple(command))

    @classmethod
    def known(cls):
        """Commands, as tuples of words, with their flags: long ones, or short where there is no long one."""
        if "tree" not in cls.__dict__:
            cls.tree, left = {}, [()]
            while left:
                command = left.pop()
                text = subprocess.run([program("reclaim"), *command, "--help"], capture_output=True, text=True,
                                      check=True).stdout
                options = re.findall(r"^  (-[-\w,]+)", text, re.M)
                cls.tree[command] = [tuple(names.split(",")) for names in options]
                _, _, below = text.partition("\nSubcommands:\n")
                left += [(*command, word) for word in re.findall(r"^  ([a-z-]+)", below, re.M)]
        return cls.tree

    @classmethod
    def cli(cls, *words, status=0, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd=None, **environment):
        if status != USAGE or words[0] == "plan":
            cls.note(words)
        done = subprocess.run([program("reclaim"), *map(str, words)], stdin=stdin, stdout=stdout,
                              stderr=subprocess.PIPE, timeout=60, cwd=cwd or cls.folder, text=True,
                              env={**cls.site.environment, **environment})
        if done.returncode != status:
            raise AssertionError(f"{words}: {done.returncode}, not {status}\n{done.stdout}{done.stderr}")
        if status not in (0, READER_GONE) and words[0] != "plan":
            assert "\n  next: " in done.stderr, done.stderr
        return done

    def json(self, *words):
        return json.loads(self.cli(*words, "--json").stdout)

    def fails(self, status, pattern, *words, **options):
        self.assertRegex(self.cli(*words, status=status, **options).stderr, pattern)

    def make_folder(self, name, **files):
        folder = self.folder / name
        folder.mkdir()
        for file, text in files.items():
            (folder / file).write_text(text)
        return folder

    def submit(self, *flags):
        return self.cli("run", "--detach", "--no-upload", "--stateless", *flags, "--", "true").stdout.strip()

    # ---- jobs
