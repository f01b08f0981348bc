#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""/metrics of the coordinator and of an agent, read by the real Prometheus and judged by the real promtool. No service
of the distribution is started: Prometheus runs on loopback, with its data below the test's own folder."""
import json
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import unittest
import urllib.parse
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
import lan  # noqa: E402
from labs import wait_until  # noqa: E402
from rn_site import PORT  # noqa: E402
from stories import Site  # noqa: E402

NOTICE_S = 8


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def documented(daemon):
    """The table of docs/metrics.md: {metric: (type, what, labels)}."""
    page = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "metrics.md").read_text()
    table = page.split(f"\n## {daemon.capitalize()}\n")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")]
            for line in table.splitlines() if line.startswith("| `")]
    return {name.strip("`"): (kind, what, labels) for name, kind, labels, what in rows}


class Prometheus:
    """A server of our own, which scrapes the coordinator with a token and an agent with a certificate."""

    def __init__(self, site, node):
        self.folder = site.labs.dir / "prometheus"
        self.folder.mkdir()
        self.port = free_port()
        certificate, ca = lan.node_certificate(node), str(site.coordinator.state / "pki" / "ca.pem")
        agent_tls = {"ca_file": ca, "cert_file": str(certificate.certificate), "key_file": str(certificate.key),
                     "insecure_skip_verify": True}  # a node's name is a URI, for which Prometheus has no check
        jobs = [
            {"job_name": "coordinator", "scheme": "https", "tls_config": {"ca_file": ca},
             "authorization": {"credentials_file": str(site.coordinator.state / "admin.token")},
             "static_configs": [{"targets": [f"{site.coordinator.address}:{PORT}"]}]},
            {"job_name": "agent", "scheme": "https", "tls_config": agent_tls,
             "static_configs": [{"targets": [f"{node.address}:{lan.API}"]}]}]
        self.config = self.folder / "prometheus.yml"
        self.config.write_text(json.dumps({
            "global": {"scrape_interval": "3s", "scrape_timeout": "3s"}, "scrape_configs": jobs}))
        subprocess.run(["promtool", "check", "config", str(self.config)], check=True, stdout=subprocess.DEVNULL)
        self.process = site.labs.spawn(None, "prometheus", [
            "prometheus", f"--config.file={self.config}", f"--storage.tsdb.path={self.folder}/data",
            f"--web.listen-address=127.0.0.1:{self.port}", "--storage.tsdb.retention.time=1h"])

    def get(self, path, **query):
        url = f"http://127.0.0.1:{self.port}{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            return json.load(answer)["data"]

    def value(self, query):
        """Of a query with one sample; None while there is none."""
        try:
            found = self.get("/api/v1/query", query=query)["result"]
        except OSError:
            return None
        return float(found[0]["value"][1]) if len(found) == 1 else None

    def known(self, query):
        """The same as soon as there is one: what a busy machine was too late for is not there until the next time."""
        found = wait_until(query, lambda: [value for value in [self.value(query)] if value is not None], 60, every_s=1)
        return found[0]

    def targets(self):
        try:
            return {one["labels"]["job"]: (one["health"], one["lastError"])
                    for one in self.get("/api/v1/targets")["activeTargets"]}
        except OSError:
            return {}


@unittest.skipUnless(shutil.which("promtool") and shutil.which("prometheus"), "needs Debian's package prometheus")
class Metrics(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        lends = {"guest_disk_mib": 128, "guest_memory_mib": 512, "notice_s": NOTICE_S}
        cls.site = Site({"lab-a": lends, "storage": {"lends": False}}, flags=["--min-residence-s", 3])
        cls.addClassCleanup(cls.site.down)
        cls.node = cls.site.nodes["lab-a"]
        cls.site.submit("plain", 100000, 10, 0.2, ballast_kib=256)
        cls.site.wait("a durable generation", lambda: cls.site.generation("plain") > 0, 60)

    def pages(self):
        ca, peer = self.site.coordinator.state / "pki" / "ca.pem", lan.node_certificate(self.node)
        return {"coordinator": self.site.rest.call("GET", "/metrics").decode(),
                "agent": lan.call(self.node.address, ca, peer, "GET", "/metrics")[1]}

    def test_a_promtool_finds_nothing_to_say(self):
        for name, page in self.pages().items():
            done = subprocess.run(["promtool", "check", "metrics"], input=page, text=True, capture_output=True)

            self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""), name)
            self.assertGreater(page.count("# TYPE reclaimnet_"), 15, name)

    def test_b_the_agents_units_are_base_units(self):
        for name, page in self.pages().items():
            for unit in ("_percent", "_milliseconds", "_milliwatts", "_mib", "_ms "):
                self.assertNotIn(unit, page, name)

    def test_c_the_document_names_what_is_printed_and_nothing_else(self):
        for name, page in self.pages().items():
            told = documented(name)

            types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", page, re.M))
            helps = dict(re.findall(r"^# HELP (\S+) (.*)$", page, re.M))
            self.assertEqual({metric: (types[metric], helps[metric]) for metric in types},
                             {metric: row[:2] for metric, row in told.items() if metric in types}, name)
            absent = {metric for metric, row in told.items() if metric not in types}
            self.assertEqual({told[metric][2] for metric in absent} - {"gpu"}, set(), (name, absent))
            for metric, labels in re.findall(r"^(\w+)\{(.*)\} \S+$", page, re.M):
                family = metric if metric in told else re.sub("_(bucket|sum|count)$", "", metric)
                found = [label for label in re.findall(r'(\w+)="', labels) if label != "le"]
                self.assertEqual(", ".join(found), told[family][2], (name, metric))

    def test_d_prometheus_scrapes_both_and_answers_questions(self):
        site, job = self.site, self.site.guests["plain"].job
        prometheus = Prometheus(site, self.node)
        try:
            wait_until("both targets to be up", lambda: prometheus.targets() == {
                "coordinator": ("up", ""), "agent": ("up", "")}, 40, every_s=1)

            self.assertEqual(prometheus.known("reclaimnet_running_jobs"), 1)
            self.assertEqual(prometheus.known(
                f'reclaimnet_agent_guest_phase{{job_id="{job}",phase="running"}}'), 1)
            durable = f'reclaimnet_agent_guest_durable_generation{{job_id="{job}"}}'
            before = prometheus.known(durable)
            self.assertGreaterEqual(before, 1)
            wait_until("a newer durable generation", lambda: prometheus.known(durable) > before, 60, every_s=1)
            self.assertGreaterEqual(prometheus.known("reclaimnet_generations_durable_total"), before)
            self.assertEqual(prometheus.known('reclaimnet_reclaims_total{kind="notice"}'), 0)

            self.node.owner("reclaim", "-m", "a lecture")

            wait_until("the reclaim to be counted", lambda: prometheus.value(
                'reclaimnet_reclaims_total{kind="notice"}') == 1, 60, every_s=1)
            wait_until("its clearing to be counted", lambda: prometheus.value(
                'reclaimnet_reclaim_to_cleared_seconds_count{kind="notice"}') == 1, 60, every_s=1)
            wait_until("the job to wait", lambda: (
                prometheus.value("reclaimnet_queue_jobs"), prometheus.value("reclaimnet_running_jobs")) == (1, 0),
                60, every_s=1)
            took_s = prometheus.known('reclaimnet_reclaim_to_cleared_seconds_sum{kind="notice"}')
            self.assertGreater(took_s, 0)
            print(f"  cleared after {took_s:.1f} s of {NOTICE_S} s of notice", flush=True)
        finally:
            prometheus.process.stop()


if __name__ == "__main__":
    unittest.main(verbosity=2)
