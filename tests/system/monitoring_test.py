#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Alert rules and Grafana's dashboards (packaging/prometheus, packaging/grafana): judged by the real promtool, and each
metric and label in them is one that docs/metrics.md names (system.metrics compares that page with what is printed)."""
import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
ALERTS = ROOT / "packaging" / "prometheus" / "alerts.yml"
SCRAPING = ROOT / "packaging" / "prometheus" / "prometheus.yml"
BOARDS = sorted((ROOT / "packaging" / "grafana").glob("*.json"))
WORDS_OF_PROMETHEUS = {"instance", "job", "le"}
VARIABLES = {"$__rate_interval": "5m", "$__range": "1d"}


def documented():
    """{metric: its labels} of both tables of docs/metrics.md, each of a histogram's series too."""
    told = {}
    for line in (ROOT / "docs" / "metrics.md").read_text().splitlines():
        if not line.startswith("| `"):
            continue
        name, kind, labels = [cell.strip(" `") for cell in line.strip("|").split("|")][:3]
        found = set(filter(None, labels.split(", ")))
        for suffix in ("_bucket", "_sum", "_count") if kind == "histogram" else ("",):
            told[name + suffix] = found
    return told


def complaints(expression, told):
    """What a query asks for that nothing prints."""
    found = []
    for metric, selector in re.findall(r"\b(reclaimnet_\w+)(\{[^}]*\})?", expression):
        if metric not in told:
            found.append(f"no metric {metric}")
            continue
        asked = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector))
        found += [f"{metric} has no label {label}" for label in asked - told[metric] - WORDS_OF_PROMETHEUS]
    known = set().union(*told.values()) | WORDS_OF_PROMETHEUS
    for group in re.findall(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)", expression):
        found += [f"nothing has a label {label}" for label in set(re.split(r"[\s,]+", group.strip())) - known - {""}]
    return found


def promtool(*words):
    done = subprocess.run(["promtool", *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


@unittest.skipUnless(shutil.which("promtool"), "needs Debian's package prometheus")
class Monitoring(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="rn-monitoring.")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.told = documented()

    def expressions_of_alerts(self):
        import yaml
        groups = yaml.safe_load(ALERTS.read_text())["groups"]
        return {rule["alert"]: rule for group in groups for rule in group["rules"]}

    def test_promtool_finds_nothing_to_say_of_the_rules_and_they_fire_when_they_should(self):
        for file in (ALERTS, ROOT / "tests" / "monitoring" / "alerts_test.yml"):
            shutil.copy(file, self.folder)
        self.assertEqual(promtool("check", "rules", "--lint-fatal", self.folder / "alerts.yml")[0], 0)
        code, said = promtool("test", "rules", self.folder / "alerts_test.yml")
        self.assertEqual(code, 0, said)

    def test_a_rule_that_fires_too_late_would_be_found(self):
        shutil.copy(ROOT / "tests" / "monitoring" / "alerts_test.yml", self.folder)
        rules = ALERTS.read_text()
        (self.folder / "alerts.yml").write_text(rules.replace("for: 2m", "for: 2h"))
        code, said = promtool("test", "rules", self.folder / "alerts_test.yml")
        self.assertNotEqual(code, 0)
        self.assertIn("ReclaimNetCoordinatorGone", said)

    def test_alerts_ask_for_what_is_printed_and_say_what_to_do(self):
        rules = self.expressions_of_alerts()
        self.assertGreater(len(rules), 12)
        for name, rule in rules.items():
            self.assertEqual(complaints(rule["expr"], self.told), [], name)
            self.assertEqual(set(rule["annotations"]), {"summary", "next"}, name)
            self.assertIn(rule["labels"]["severity"], ("page", "ticket"), name)

    def test_the_example_for_scraping_is_understood(self):
        for file in (ALERTS, SCRAPING):
            shutil.copy(file, self.folder)
        text = (self.folder / "prometheus.yml").read_text()
        for name in ("ca.pem", "node.pem", "node.key", "viewer.token"):
            (self.folder / name).write_text("")
            text = text.replace(f"/etc/reclaimnet/{name}", str(self.folder / name))
        (self.folder / "prometheus.yml").write_text(text)
        code, said = promtool("check", "config", "--syntax-only", self.folder / "prometheus.yml")
        self.assertEqual(code, 0, said)

    def test_dashboards_ask_for_what_is_printed_and_promtool_understands_each_query(self):
        self.assertEqual([board.stem for board in BOARDS], ["machines", "owner", "site"])
        rules = []
        for file in BOARDS:
            for panel in json.loads(file.read_text())["panels"]:
                for target in panel["targets"]:
                    expression = target["expr"]
                    self.assertEqual(complaints(expression, self.told), [], (file.name, panel["title"]))
                    for variable, value in VARIABLES.items():
                        expression = expression.replace(variable, value)
                    rules.append({"record": f"panel:{len(rules)}", "expr": re.sub(r"\$\w+", ".*", expression)})
        self.assertGreater(len(rules), 30)
        (self.folder / "queries.yml").write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
        code, said = promtool("check", "rules", self.folder / "queries.yml")
        self.assertEqual(code, 0, said)

    def test_panels_are_told_apart_described_and_do_not_lie_on_each_other(self):
        uids = set()
        for file in BOARDS:
            board = json.loads(file.read_text())
            uids.add(board["uid"])
            self.assertEqual(board["templating"]["list"][0]["type"], "datasource")
            panels = board["panels"]
            self.assertEqual(len({panel["id"] for panel in panels}), len(panels), file.name)
            taken = set()
            for panel in panels:
                self.assertTrue(panel["title"] and panel["description"], (file.name, panel["id"]))
                at = panel["gridPos"]
                cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
                self.assertFalse(taken & cells, (file.name, panel["title"]))
                self.assertLessEqual(at["x"] + at["w"], 24, (file.name, panel["title"]))
                taken |= cells
        self.assertEqual(len(uids), len(BOARDS))

    def test_a_query_for_what_nobody_prints_would_be_found(self):
        self.assertEqual(complaints('rate(reclaimnet_jobs[5m])', self.told), ["no metric reclaimnet_jobs"])
        self.assertEqual(complaints('reclaimnet_nodes{lab="a"}', self.told), ["reclaimnet_nodes has no label lab"])
        self.assertEqual(complaints("sum by (colour) (reclaimnet_nodes)", self.told), ["nothing has a label colour"])
        self.assertEqual(complaints('reclaimnet_placement_seconds{le="1"}', self.told),
                         ["no metric reclaimnet_placement_seconds"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
