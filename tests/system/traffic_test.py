#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two laboratories are taken back at once, and both states leave for one store by its line of 100 Mbit/s: the
coordinator plans them together, promises both, and both are elsewhere before their deadlines, on real sockets paced by
the kernel."""
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
from labs import SCRIPT  # noqa: E402
from stories import Site  # noqa: E402

LINE_MBIT = 100
NOTICE_S = 40
STATE_MB = {"lab-a": 30, "lab-b": 40}
LENDS = {"guest_disk_mib": 512, "guest_memory_mib": 1024, "notice_s": NOTICE_S, "max_drain_s": 60}
# Its state is small until the owner comes: what is saved then is all new.
GUEST = """
save() { dd if=/dev/urandom of=new.tmp bs=1M count=$1 2>/dev/null && mv new.tmp state.bin && echo saved $1; }
trap 'save SIZE' TERM
save 1
while true; do sleep 1 & wait $!; done
"""
TOPOLOGY = """
version: 1
links:
  - name: campus
  - name: basement
    parent: campus
    rate: {rate}mbit
nodes:
  - {{name: {lab_a}, at: campus, rate: 1gbit}}
  - {{name: {lab_b}, at: campus, rate: 1gbit}}
  - {{name: {storage}, at: basement, rate: 1gbit}}
"""


class Traffic(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.site = Site({"lab-a": LENDS, "lab-b": LENDS, "storage": {"lends": False, "store_mib": 1024}})
        cls.addClassCleanup(cls.site.down)
        cls.declare_the_line()

    @classmethod
    def declare_the_line(cls):
        """As an administrator does it: a file, and the coordinator's next start. The line itself is the kernel's."""
        ids = {lab.replace("-", "_"): node["id"] for lab, node in cls.site.rest.nodes().items()}
        file = tempfile.NamedTemporaryFile("w", suffix=".yaml")
        cls.addClassCleanup(file.close)
        file.write(TOPOLOGY.format(rate=LINE_MBIT, **ids))
        file.flush()
        cls.site.coordinator.kill()
        cls.site.coordinator.flags += ["--topology", file.name]
        cls.site.coordinator.start()
        cls.site.wait("all nodes to be back", lambda: all(
            node["state"] == "up" and node["is_connected"] for node in cls.site.rest.nodes().values()))
        subprocess.run([str(SCRIPT), "rate", cls.site.labs.run, "storage", f"{LINE_MBIT}mbit"], check=True)

    def submit(self, lab):
        spec = {
            "name": f"of-{lab}", "image": "base", "command": ["sh", "-c", GUEST.replace("SIZE", str(STATE_MB[lab]))],
            "resources": {"cpu_milli": 400, "cpu_milli_min": 100, "memory_mib": 256, "disk_mib": 256},
            "only_labs": [lab], "notice_s": NOTICE_S,
            "checkpoint": {"paths": ["state.bin"], "temporary": ["*.tmp"]}}
        return self.site.rest.post("/v1/jobs", spec)["job"]["id"]

    def events(self, job, kind):
        return [event for event in self.site.rest.events(job) if event["kind"] == kind]

    def test_a_both_are_promised_and_both_arrive_before_their_deadlines(self):
        jobs = {lab: self.submit(lab) for lab in STATE_MB}
        self.site.wait("a first generation of each", lambda: all(
            self.site.rest.job(job)["durable"]["generation"] > 0 for job in jobs.values()), 90)
        first = {job: self.site.rest.job(job)["durable"]["generation"] for job in jobs.values()}

        for lab in jobs:
            self.site.nodes[lab].owner("reclaim")
        begun = time.monotonic()
        self.site.wait("both to be durable elsewhere", lambda: all(
            self.site.rest.job(job)["durable"]["generation"] > first[job] for job in jobs.values()), NOTICE_S + 30)
        took_s = time.monotonic() - begun
        self.site.wait("both owners to have their machines", lambda: all(
            self.site.last_reclaim(lab)["cleared_ns"] > 0 for lab in jobs), NOTICE_S + 30)

        for lab, job in jobs.items():
            with self.subTest(lab):
                promised = self.events(job, "evacuation.admitted")
                self.assertEqual(len(promised), 1, self.site.rest.events(job))
                self.assertEqual(self.events(job, "evacuation.refused"), [])
                self.assertEqual(self.events(job, "evacuation.missed"), [])
                self.assertIn("arrives in time", promised[0]["message"])
                told = promised[0]["data"]
                durable = [one for one in self.events(job, "generation.durable") if
                           one["at_wall_ms"] >= promised[0]["at_wall_ms"]]
                sent_s = (durable[0]["at_wall_ms"] - promised[0]["at_wall_ms"]) / 1000
                record = self.site.last_reclaim(lab)
                self.assertLessEqual(record["cut_ns"], record["deadline_ns"] + 1_000_000_000)
                print(f"  {lab}: {int(told['bytes']) / 1e6:.1f} MB promised within {int(told['deadline_ms']) / 1e3:.1f}"
                      f" s, granted {int(told['rate_bps']) / 1e6:.1f} Mbit/s at first; durable {sent_s:.1f} s after the"
                      f" promise, {int(told['bytes']) * 8 / 1e6 / max(sent_s, 1e-3):.1f} Mbit/s on average", flush=True)
        print(f"  both {took_s:.1f} s after the second notice; the line alone needs "
              f"{sum(STATE_MB.values()) * 1.048576 * 8 / LINE_MBIT:.1f} s", flush=True)
        page = self.site.rest.call("GET", "/metrics").decode()
        self.assertIn('reclaimnet_evacuations_total{verdict="admitted"} 2', page)
        self.assertIn('reclaimnet_evacuations_total{verdict="missed"} 0', page)

    def test_b_the_senders_sockets_were_paced(self):
        """As the agents say of the newest copy, the evacuation; one that no known line bounds has rate 0."""
        for lab in STATE_MB:
            rates = [int(rate) for rate in re.findall(
                r"generation\.copied.*\brate_bps=(\d+)", self.site.nodes[lab].agent.output())]
            self.assertTrue(rates, f"no copy of {lab}")
            self.assertGreater(rates[-1], 0)
            self.assertLessEqual(rates[-1], LINE_MBIT * 1_000_000)


if __name__ == "__main__":
    unittest.main(verbosity=2)
