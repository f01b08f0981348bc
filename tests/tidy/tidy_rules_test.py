#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Breaks every rule of tidy_test.py once, in a tree of its own, and expects to be told; a good tree has no finding."""
import pathlib
import subprocess
import tempfile
import unittest

import tidy_test

SPDX = "// SPDX-License-Identifier: Apache-2.0\n"
GOOD = {
    "README.md": "# A\nscripts/demo.sh and scripts/test.sh, see [b](docs/b.md#two-words) and `docs/b.md`\n",
    "docs/b.md": "# Two words\n",
    "src/m/CMakeLists.txt": "# SPDX-License-Identifier: Apache-2.0\nrn_module(m SOURCES a.cc TESTS a_test.cc)\n",
    "src/m/a.cc": SPDX + "int f() {\n  return 1;\n}\n",
    "src/m/a_test.cc": SPDX + "int g() {\n  return 1;\n}\n",
    "scripts/run.sh": "#!/usr/bin/env bash\n# SPDX-License-Identifier: Apache-2.0\ntrue\n",
}


def long_body(count):
    return "".join(f"  x = {number};\n" for number in range(count))


class Rules(unittest.TestCase):
    def rules_broken_by(self, changes):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            subprocess.run(["git", "init", "-q", folder], check=True)
            for name, text in {**GOOD, **changes}.items():
                path = root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
                if name.startswith("scripts/") and not name.endswith("plain.sh"):
                    path.chmod(0o755)
            return {rule for rule, _ in tidy_test.findings(root)}

    def test_a_good_tree_has_no_finding(self):
        self.assertEqual(self.rules_broken_by({}), set())

    def test_each_rule_finds_what_breaks_it(self):
        word = "TO" + "DO"
        cases = {
            "lines_are_short": {"src/m/a.cc": SPDX + "// " + "y" * 130 + "\n"},
            "whitespace_is_clean": {"src/m/a.cc": SPDX + "int x; \n"},
            "files_are_short": {"src/m/a.cc": SPDX + "int x;\n" * 801},
            "licences_are_named": {"web/src/a.tsx": "export const x = 1;\n"},
            "nothing_is_unfinished": {"src/m/a.cc": SPDX + f"// {word}: later\n"},
            "sources_are_built": {"src/m/b_test.cc": SPDX},
            "links_resolve": {"docs/c.md": "[gone](gone.md)\n"},
            "paths_of_one_machine_are_absent": {"docs/c.md": "see /wo" + "rk/main/x\n"},
            "readme_names_both_commands": {"README.md": "# A\nscripts/demo.sh\n"},
            "scripts_can_run": {"scripts/plain.sh": GOOD["scripts/run.sh"]},
            "used_packages_are_installed": {"src/m/a.cc": SPDX + 'const char* shell = "/bin/busybox";\n'},
        }
        for rule, changes in cases.items():
            with self.subTest(rule):
                self.assertEqual(self.rules_broken_by(changes), {rule})

    def test_long_functions_are_found_in_each_language(self):
        cases = {
            "src/m/a.cc": SPDX + "int f() {\n" + long_body(70) + "}\n",
            "src/m/a_test.cc": SPDX + "TEST(A, b) {\n" + long_body(120) + "}\n",
            "scripts/f.py": "# SPDX-License-Identifier: Apache-2.0\ndef f():\n" + long_body(70),
            "scripts/f.sh": "# SPDX-License-Identifier: Apache-2.0\nf() {\n" + long_body(70) + "}\n",
        }
        for name, text in cases.items():
            with self.subTest(name):
                self.assertEqual(self.rules_broken_by({name: text}), {"functions_are_short"})

    def test_a_function_split_over_lines_and_a_method_are_measured(self):
        split = SPDX + "int f(\n    int a,\n    int b\n) {\n" + long_body(70) + "}\n"
        method = SPDX + "struct S {\n  int f() const {\n" + long_body(70) + "  }\n};\n"

        self.assertEqual(self.rules_broken_by({"src/m/a.cc": split}), {"functions_are_short"})
        self.assertEqual(self.rules_broken_by({"src/m/a.cc": method}), {"functions_are_short"})

    def test_a_constructor_with_initializers_is_measured_to_its_own_end(self):
        start = SPDX + "struct S {\n  S(int a)\n      : a_(a),\n        b_(a) {\n"
        more = "  }\n\n  int f();\n" + "  int x;\n" * 70 + "};\n"

        self.assertEqual(self.rules_broken_by({"src/m/a.cc": start + long_body(5) + more}), set())
        self.assertEqual(self.rules_broken_by({"src/m/a.cc": start + long_body(70) + more}), {"functions_are_short"})

    def test_heading_and_path_that_are_gone_are_found(self):
        self.assertEqual(self.rules_broken_by({"docs/c.md": "[x](b.md#three)\n"}), {"links_resolve"})
        self.assertEqual(self.rules_broken_by({"docs/c.md": "`src/m/gone.cc`\n"}), {"links_resolve"})


if __name__ == "__main__":
    unittest.main()
