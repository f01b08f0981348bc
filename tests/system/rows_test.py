#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/rows.md: the tests that it names exist, and its counts are those of its rows."""
import collections
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "rows.md").read_text()


def rows():
    cells = [[cell.strip() for cell in line.strip().strip("|").split("|")]
             for line in PAGE.splitlines() if re.match(r"\| \d+ \|", line)]
    return [(int(number), state, re.findall(r"`([^`]+)`", tests), lacks) for number, _, state, tests, lacks in cells]


def gtests():
    found = set()
    for folder in ("src", "apps", "tests"):
        for file in (ROOT / folder).rglob("*_test.cc"):
            found |= {f"{suite}.{name}" for suite, name in re.findall(
                r"\bTEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\s*\)", file.read_text())}
    return found


class Rows(unittest.TestCase):
    def test_there_are_forty_five_and_they_are_counted_right(self):
        self.assertEqual([number for number, *_ in rows()], list(range(1, 46)))
        counts = collections.Counter(state for _, state, *_ in rows())
        self.assertIn(f"\nWhole: {counts['whole']}. Part: {counts['part']}. None: {counts['none']}.\n", PAGE)
        self.assertEqual(set(counts), {"whole", "part", "none"})

    def test_what_is_shown_names_a_test_and_what_is_partly_shown_names_what_lacks(self):
        for number, state, tests, lacks in rows():
            with self.subTest(number):
                self.assertEqual(bool(tests), state != "none")
                if state == "part":
                    self.assertTrue(lacks)

    def test_each_named_test_is_there(self):
        known = gtests()
        self.assertGreater(len(known), 1000)
        for number, _, tests, _ in rows():
            for test in tests:
                with self.subTest(number, test=test):
                    self.assertTrue(self.is_there(test, known))

    @staticmethod
    def is_there(test, known):
        if test.endswith(".scn"):
            return (ROOT / "tests" / "scenarios" / test).is_file()
        if "::" not in test:
            return test in known
        file, name = test.split("::")
        paths = [ROOT / "tests" / folder / file for folder in ("system", "gpu")]
        return any(path.is_file() and f"    def {name}(self" in path.read_text() for path in paths)

    def test_a_test_that_is_not_there_would_be_found(self):
        for test in ("99_no_story.scn", "Suite.no_test", "rows_test.py::test_no_test", "no_test.py::test_x"):
            self.assertFalse(self.is_there(test, gtests()))


if __name__ == "__main__":
    unittest.main(verbosity=2)
