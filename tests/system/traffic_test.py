#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two laboratories are taken back at once, and both states leave for one store by its line of 100 Mbit/s: the
coordinator plans them together, promises both, and both are elsewhere before their deadlines, on real sockets paced by
the kernel. Their owners' wardens hold each copy to its rate at the uplink, and one of them cuts it in the middle. Then
the store's line has next to nothing left for copies in the middle of an evacuation, and nobody declares that."""
import contextlib
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
from stories import Site  # noqa: E402

LINE_MBIT = 100
NOTICE_S = 40
STATE_MB = {"lab-a": 30, "lab-b": 40}
GRANT_MBIT = {"lab-a": 90, "lab-b": 50}  # of what an owner lets all copies have; the agent keeps 5 % below
TRICKLE = "8kbit"  # all that the store's line has left for copies; heartbeats go on
PEERS_PORT = 7445
UNDER_WAY_MB = 3  # of the evacuation, when the line falls
SHORT_NOTICE_S = 20
GIVES_UP_S = 10  # copies of a guest that has gone: the owner's limit when the line falls
HEADERS = 1.06  # of a packet on the wire against its payload, with the smallest of segments
LENDS = {"guest_disk_mib": 512, "guest_memory_mib": 1024, "notice_s": NOTICE_S, "max_drain_s": 60}
# Its state is small until the owner comes: what is saved then is all new.
GUEST = """
save() { dd if=/dev/urandom of=new.tmp bs=1M count=$1 2>/dev/null && mv new.tmp state.bin && echo saved $1; }
trap 'save SIZE' TERM
echo from ${RECLAIM_RESUME_GENERATION:-0}
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


def claims_in(words):
    """(purpose, Mbit/s) of each copy, as the warden has taken it: in the line of `status --why`."""
    return [(purpose, float(rate)) for purpose, rate in
            re.findall(r"(evacuation|checkpoint|prefetch) ([0-9.]+) Mbit/s", words)]


class EdgeWatch:
    """What a laboratory sends, and what each of its copies is claimed to send then, several times a second."""

    def __init__(self, site, lab):
        self.site, self.lab, self.is_over = site, lab, threading.Event()
        self.seen, self.refused = [], []  # the kernel's counters: packets over a grant
        self.thread = threading.Thread(target=self.run)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        self.thread.join()

    def run(self):
        while not self.is_over.wait(0.25):
            view = self.site.nodes[self.lab].view()["copies"]
            claims = claims_in(view)
            self.refused += [int(n) for n in re.findall(r"(\d+) packets refused", view)]
            self.seen.append((time.monotonic(), self.site.sent(self.lab), claims))

    def rates_mbit(self):
        """All that evacuations were claimed at."""
        return [rate for _, _, claims in self.seen for purpose, rate in claims if purpose == "evacuation"]

    def parts(self):
        """Sent against claimed, between two looks at which the claims were the same."""
        found = []
        for (from_s, before, claims), (to_s, after, same) in zip(self.seen, self.seen[1:]):
            if claims and claims == same:
                found.append((after - before) * 8e-6 / (to_s - from_s) / sum(rate for _, rate in claims))
        return found


class EdgeSite(Site):
    def claims(self, lab):
        return claims_in(self.nodes[lab].view()["copies"])


class Traffic(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.site = EdgeSite(
            {"lab-a": LENDS, "lab-b": LENDS, "storage": {"lends": False, "store_mib": 1024}},
            warden_flags={lab: ["--transfers", f"eth0:{mbit}mbit"] for lab, mbit in GRANT_MBIT.items()})
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
        cls.site.labs.rate("storage", f"{LINE_MBIT}mbit")

    def facts(self, lab):
        """What the coordinator knows of the node."""
        return self.site.rest.nodes()[lab]["facts"]

    def submit(self, lab, *others, notice_s=NOTICE_S):
        spec = {
            "name": f"of-{lab}", "image": "base", "command": ["sh", "-c", GUEST.replace("SIZE", str(STATE_MB[lab]))],
            "resources": {"cpu_milli": 400, "cpu_milli_min": 100, "memory_mib": 256, "disk_mib": 256},
            "only_labs": [lab, *others], "notice_s": notice_s,
            "checkpoint": {"paths": ["state.bin"], "temporary": ["*.tmp"], "destinations": ["storage"]}}
        return self.site.rest.post("/v1/jobs", spec)["job"]["id"]

    def events(self, job, kind):
        return [event for event in self.site.rest.events(job) if event["kind"] == kind]

    def wait_for_words(self, lab, count):
        """That many messages of the node, of which heartbeats are some: each time its silence has become shorter."""
        words, silent_ms = 0, self.site.rest.nodes()[lab]["silent_ms"]

        def are_heard():
            nonlocal words, silent_ms
            before, silent_ms = silent_ms, self.site.rest.nodes()[lab]["silent_ms"]
            words += silent_ms < before
            return words >= count
        self.site.wait(f"{count} messages of {lab}", are_heard, 60)

    def test_a_both_are_promised_and_both_arrive_before_their_deadlines(self):
        for lab, mbit in GRANT_MBIT.items():
            self.assertEqual(self.facts(lab)["transfers_bps"], mbit * 1_000_000)
        jobs = type(self).of = {lab: self.submit(lab) for lab in STATE_MB}
        self.site.wait("a first generation of each", lambda: all(
            self.site.rest.job(job)["durable"]["generation"] > 0 for job in jobs.values()), 90)
        first = {job: self.site.rest.job(job)["durable"]["generation"] for job in jobs.values()}

        with contextlib.ExitStack() as stack:
            watches = {lab: stack.enter_context(EdgeWatch(self.site, lab)) for lab in jobs}
            for lab in jobs:
                self.site.nodes[lab].owner("reclaim")
            begun = time.monotonic()
            self.site.wait("both to be durable elsewhere", lambda: all(
                self.site.rest.job(job)["durable"]["generation"] > first[job] for job in jobs.values()), NOTICE_S + 30)
            took_s = time.monotonic() - begun
        self.site.wait("both owners to have their machines", lambda: all(
            self.site.last_reclaim(lab)["cleared_ns"] > 0 for lab in jobs), NOTICE_S + 30)

        promises = 0
        for lab, job in jobs.items():
            with self.subTest(lab):
                promised = self.events(job, "evacuation.admitted")
                # On a machine with too much to do a copy stands still for seconds: its promise is taken back, and given
                # anew when it goes on.
                taken_back = self.events(job, "evacuation.refused")
                self.assertEqual(len(promised), 1 + len(taken_back), self.site.rest.events(job))
                for one in taken_back:
                    self.assertIn("is no longer promised", one["message"])
                    print(f"  {lab}: {one['message']}", flush=True)
                promises += len(promised)
                self.assertEqual(self.events(job, "evacuation.missed"), [])
                self.assertIn("arrives in time", promised[0]["message"])
                told = promised[0]["data"]
                self.assertLessEqual(int(told["rate_bps"]), GRANT_MBIT[lab] * 950_000, "more than its owner grants")
                durable = [one for one in self.events(job, "generation.durable") if
                           one["at_wall_ms"] >= promised[0]["at_wall_ms"]]
                sent_s = (durable[0]["at_wall_ms"] - promised[0]["at_wall_ms"]) / 1000
                print(f"  {lab}: {int(told['bytes']) / 1e6:.1f} MB promised within {int(told['deadline_ms']) / 1e3:.1f}"
                      f" s, granted {int(told['rate_bps']) / 1e6:.1f} Mbit/s at first; durable {sent_s:.1f} s after the"
                      f" promise, {int(told['bytes']) * 8 / 1e6 / max(sent_s, 1e-3):.1f} Mbit/s on average", flush=True)
        print(f"  both {took_s:.1f} s after the second notice; the line alone needs "
              f"{sum(STATE_MB.values()) * 1.048576 * 8 / LINE_MBIT:.1f} s", flush=True)
        for lab, watch in watches.items():
            with self.subTest(lab):
                self.assertTrue(watch.rates_mbit(), "no copy was claimed")
                self.assertLessEqual(max(watch.rates_mbit()), GRANT_MBIT[lab] * 0.95 + 0.1)
                parts = watch.parts()
                self.assertTrue(parts, watch.seen)
                self.assertLess(statistics.median(parts), 1.05 * HEADERS)
                # None, unless the warden needs longer than a rise waits for its claim, as on a machine with too much to
                # do: then what is sent too fast is refused until it has.
                self.assertLess(max(watch.refused), 0.2 * STATE_MB[lab] * 1_048_576 / 1448)
                print(f"  {lab}: claimed {min(watch.rates_mbit()):.1f} to {max(watch.rates_mbit()):.1f} Mbit/s; sent "
                      f"{statistics.median(parts):.3f} of that in the median of {len(parts)} looks (headers counted); "
                      f"{max(watch.refused)} packets refused", flush=True)
        page = self.site.rest.call("GET", "/metrics").decode()
        self.assertIn(f'reclaimnet_evacuations_total{{verdict="admitted"}} {promises}', page)
        self.assertIn('reclaimnet_evacuations_total{verdict="missed"} 0', page)

    def test_b_the_senders_sockets_were_paced(self):
        """As the agents say of the newest copy, the evacuation; one that no known line bounds has rate 0."""
        for lab in STATE_MB:
            rates = [int(rate) for rate in re.findall(
                r"generation\.copied.*\brate_bps=(\d+)", self.site.nodes[lab].agent.output())]
            self.assertTrue(rates, f"no copy of {lab}")
            self.assertGreater(rates[-1], 0)
            self.assertLessEqual(rates[-1], GRANT_MBIT[lab] * 950_000)

    def test_c_an_owner_cuts_the_copies_and_lets_them_go_on(self):
        lab = "lab-b"
        node, job = self.site.nodes[lab], self.of["lab-b"]
        saved = self.site.rest.job(job)["durable"]["generation"]
        node.owner("release")
        self.site.wait("the job to be back and saved", lambda: (
            self.site.rest.job(job)["state"] == "running" and
            self.site.rest.job(job)["durable"]["generation"] > saved), 60)
        before = self.site.rest.job(job)["durable"]["generation"]
        node.owner("reclaim")
        self.site.wait("the evacuation to be on its way", lambda: any(
            purpose == "evacuation" for purpose, _ in self.site.claims(lab)), NOTICE_S)

        node.kill_switch("--transfers")
        # Hearing from the coordinator takes both directions. Nothing but words to it leaves meanwhile.
        sent, begun = self.site.sent(lab), time.monotonic()
        self.wait_for_words(lab, 8)
        span_s, more = time.monotonic() - begun, self.site.sent(lab) - sent
        print(f"  cut: {more} bytes left in {span_s:.1f} s", flush=True)
        self.assertLess(more, 300_000)
        self.assertIn("CUT by the owner", node.owner("status", "--why").stdout)
        doctor = self.site.labs.call(lab, node.agent_program("doctor"), check=False).stdout
        self.assertRegex(doctor, rf"(?m)^ok +copies at the uplink +held at eth0 within {GRANT_MBIT[lab]}\.0 Mbit")
        self.assertEqual(self.site.rest.job(job)["durable"]["generation"], before)
        self.assertTrue(self.site.rest.nodes()[lab]["is_connected"])
        self.assertTrue(self.facts(lab)["are_transfers_cut"])

        node.kill_switch("--allow-transfers")
        self.site.wait("the evacuation to be durable", lambda: (
            self.site.rest.job(job)["durable"]["generation"] > before), NOTICE_S)
        self.assertFalse(self.facts(lab)["are_transfers_cut"])
        self.assertNotIn("CUT", node.owner("status", "--why").stdout)
        # What is durable elsewhere leaves at once; until it has, the machine cannot be released.
        self.site.wait("the owner to have the machine", lambda: self.site.last_reclaim(lab)["cleared_ns"] > 0,
                       NOTICE_S + 30)

    def leave_a_trickle(self):
        """For copies to the store, behind the switch; LINE_MBIT stays for all else."""
        for command in (f"class add dev p-storage parent 1: classid 1:20 htb rate {TRICKLE} quantum 1514",
                        "qdisc add dev p-storage parent 1:20 handle 20: pfifo limit 100",
                        "filter add dev p-storage parent 1: protocol ip u32 match ip protocol 6 0xff match ip dport "
                        f"{PEERS_PORT} 0xffff flowid 1:20"):
            subprocess.run(["tc", "-n", f"rn-{self.site.labs.run}-switch", *command.split()], check=True)

    def test_d_a_line_that_falls_to_nothing_takes_nothing_durable_with_it(self):
        site, lab, place = self.site, "lab-b", "lab-a"
        node = site.nodes[lab]
        for job in self.of.values():
            site.cli("stop", job)
        file = site.labs.dir / "hasty.yaml"
        file.write_text(json.dumps({**node.contract, "notice_s": SHORT_NOTICE_S, "max_drain_s": GIVES_UP_S}))
        self.assertIn("in force", node.owner("contract", "set", file).stdout)
        node.owner("release")
        job = self.submit(lab, place, notice_s=SHORT_NOTICE_S)  # the other machine is its owner's still
        site.wait("a first generation", lambda: site.rest.job(job)["durable"]["generation"] > 0, 60)
        before = site.rest.job(job)["durable"]["generation"]
        node.owner("reclaim")
        sent = site.sent(lab)
        site.wait("the evacuation to be on its way", lambda: site.sent(lab) - sent > UNDER_WAY_MB * 1_000_000, 20)
        self.assertTrue(self.events(job, "evacuation.admitted"))

        self.leave_a_trickle()
        site.wait("its node to give the copy up", lambda: site.rest.ran(job)[0]["detail"].endswith(
            f"generation {before + 1} could not be copied within {GIVES_UP_S} s"), 30)
        site.wait("word that it is no longer promised", lambda: self.events(job, "evacuation.refused"), 30)

        words = [self.events(job, kind)[-1]["message"] for kind in ("attempt.ended", "job.displaced",
                                                                    "evacuation.refused")]
        print("  " + "\n  ".join(words), flush=True)
        self.assertIn(f"could not be copied within {GIVES_UP_S} s", words[0])
        self.assertIn(f"the files of generation {before} are put back for it", words[1])
        self.assertRegex(words[2], r"to storage.* is no longer promised: \d+ MB until the deadline in [\d.]+ s need "
                                   r".*, and it has got no more than [\d.]+ Mbit/s lately")
        self.assertEqual(self.events(job, "evacuation.missed"), [])
        self.assertEqual(site.rest.job(job)["durable"]["generation"], before)
        site.wait("the owner to have the machine", lambda: site.last_reclaim(lab)["cleared_ns"] > 0, 30)
        site.labs.rate("storage", f"{LINE_MBIT}mbit")
        site.nodes[place].owner("release")
        site.wait("it to go on elsewhere", lambda: (site.rest.job(job)["state"] == "running" and
                                                    site.lab_of_node(site.rest.job(job)["node"]) == place), 60)
        site.wait("its words", lambda: b"from" in site.rest.log(job), 20)
        self.assertEqual(site.rest.log(job).decode().splitlines()[0], f"from {before}")
        self.assertEqual(len(site.rest.ran(job)), 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
