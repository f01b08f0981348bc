#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What goes wrong while a job is evacuated, on real daemons: three laboratories behind declared lines of 24 Mbit/s, one
guest whose last save takes some seconds of that. Its destination's disk fills, its owner pauses it or takes it back,
both ends are taken back at once, a holder serves other bytes, a machine's clock is hours ahead. A story begins where
the one before it ended; at the end the result is that of an undisturbed run."""
import os
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
import wrong_clock  # noqa: E402
from in_a_row import InARow  # noqa: E402
from labs import wait_until  # noqa: E402
from liar import Liar  # noqa: E402
from outcome import Wanted, check_jobs, number  # noqa: E402
from stories import ALIVE, Site  # noqa: E402

NOTICE_S = 30  # all that a busy machine needs for what takes some seconds
LINE_BPS = 24_000_000
LAST_SAVE_KIB = 12 << 10  # four seconds and more of the line
UNDER_WAY_BYTES = 500_000  # of it, when something happens
STEPS, SAVE_EVERY, STEP_S = 900, 10, 0.2
LABS = ("lab-a", "lab-b", "lab-c")
LENDS = {"notice_s": NOTICE_S, "guest_disk_mib": 256, "guest_memory_mib": 256, "guest_cpu_milli": 600}
TOPOLOGY = "version: 1\nlinks:\n  - name: campus\nnodes:\n"


class Evacuations(InARow):
    @classmethod
    def setUpClass(cls):
        cls.site = Site(dict.fromkeys(LABS, LENDS), flags=["--min-residence-s", 3600])  # nothing goes home meanwhile
        cls.addClassCleanup(cls.site.down)
        cls.ids = {lab: node["id"] for lab, node in cls.site.rest.nodes().items()}
        cls.declare_the_lines()
        cls.site.submit("chain", STEPS, SAVE_EVERY, STEP_S, handles_term=True,
                        flags=["--env", f"LAST_BALLAST_KIB={LAST_SAVE_KIB}"])

    @classmethod
    def declare_the_lines(cls):
        """The senders' own sockets keep to them."""
        file = cls.site.labs.dir / "topology.yaml"
        file.write_text(TOPOLOGY + "".join(
            f"  - {{name: {node}, at: campus, rate: {LINE_BPS // 1_000_000}mbit}}\n" for node in cls.ids.values()))
        cls.site.coordinator.kill()
        cls.site.coordinator.flags += ["--topology", file]
        cls.site.coordinator.start()
        cls.site.wait("all nodes to be back", lambda: all(
            node["state"] == "up" and node["is_connected"] for node in cls.site.rest.nodes().values()))

    # --- looking

    def name_of(self, node):
        return self.site.lab_of_node(node)

    def events(self, kind):
        return [event for event in self.site.rest.events(self.site.guests["chain"].job) if event["kind"] == kind]

    def wait_until_it_runs(self, *labs):
        """On one of them, with a generation made there, and all owners lend; answers the lab."""
        site = self.site
        site.wait(f"the guest to run on {labs}", lambda: site.lab_of("chain") in labs, 60)
        before = site.generation("chain")
        site.wait("a generation of it", lambda: site.generation("chain") > before and site.told("chain").saved, 60)
        return site.lab_of("chain")

    def begin_evacuation(self, lab):
        """Its owner gives notice; answers the choice, when a part of the last save is on its way."""
        site, before, sent = self.site, len(self.events("evacuation.chosen")), self.site.sent(lab)
        site.nodes[lab].owner("reclaim")
        site.wait("a choice", lambda: len(self.events("evacuation.chosen")) > before, NOTICE_S)
        choice = self.events("evacuation.chosen")[-1]
        site.wait("its copy to be on its way", lambda: site.sent(lab) - sent > UNDER_WAY_BYTES, NOTICE_S, 0.02)
        return choice

    def attempt(self):
        """The newest one's number."""
        return number(self.site.attempts("chain")[-1]["epoch"])

    def check_resumed(self, attempt, labs, least=None):
        """The one after that attempt runs on one of the labs, from the last save, or where that was lost from
        generation `least` or a newer one."""
        site = self.site
        site.wait(f"the job to go on at {labs}", lambda: (
            self.attempt() > attempt and site.lab_of("chain") in labs and site.told("chain").steps), 60)
        old, new = site.told("chain", attempt), site.told("chain")
        self.assertEqual(old.wrong + new.wrong, [])
        self.assertTrue(new.is_resumed)
        resumed = site.attempts("chain")[-1]["resumed_generation"]
        if least is None:
            self.assertEqual(new.begin, old.last, "its last save was lost")
        else:
            self.assertGreaterEqual(resumed, least, "a durable generation was lost")
        print(f"  {old.last} steps told, goes on at step {new.begin} (generation {resumed}) on {site.lab_of('chain')}; "
              f"{[event['message'] for event in self.events('evacuation.chosen')][-2:]}", flush=True)

    def release(self, *labs):
        for lab in labs:
            self.site.wait(f"{lab} to be cleared", lambda lab=lab: self.site.last_reclaim(lab)["cleared_ns"], 60)
            self.site.nodes[lab].owner("release")
        self.wait_until_all_lend()

    def wait_until_all_lend(self):
        self.site.wait("all to lend", lambda: all(
            node["lending"] == "open" and node["is_connected"] for node in self.site.rest.nodes().values()), 30)

    def others(self, *labs):
        return [lab for lab in LABS if lab not in labs]

    # --- the stories

    def test_a_a_choice_is_told_with_its_numbers(self):
        site, source = self.site, self.wait_until_it_runs(*LABS)
        attempt = self.attempt()

        choice = self.begin_evacuation(source)

        why = site.cli("why", site.guests["chain"].job).stdout
        told, others = choice["data"], self.others(source)
        self.assertIn(choice["message"], why)
        self.assertEqual(told["way"], "destination")
        place = self.name_of(told["destination"])
        self.assertIn(place, others)
        self.assertEqual(told["holder"], told["destination"])
        self.assertTrue(0 < float(told["rate_q10"]) <= LINE_BPS / 8, told)
        self.assertTrue(0 < float(told["notice_s"]) <= NOTICE_S, told)
        self.assertTrue(0 < float(told["chance"]) <= 1 and float(told["utility"]) > 0, told)
        self.assertIn(self.others(source, place)[0], told["next_best"])
        self.assertGreaterEqual(float(told["regret"]), 0)
        self.assertRegex(choice["message"], rf"straight to {place}\S*: \d+ MB at [\d.]+ MB/s arrive in [\d.]+ s of "
                                            rf"\d+ s of notice .*, {told['next_best']} is worse by \d+ useful seconds")
        self.check_resumed(attempt, [place])
        self.release(source)

    def test_b_a_destination_whose_disk_fills_is_left(self):
        source = self.wait_until_it_runs(*LABS)
        attempt = self.attempt()
        place = self.name_of(self.begin_evacuation(source)["data"]["destination"])

        filler = self.fill(self.site.labs.disk(place))
        try:
            self.check_resumed(attempt, self.others(source, place))
        finally:
            filler.unlink()

        if self.ids[place] in self.newest_holders(source):  # its last bytes were faster than those that fill the disk
            refused = self.site.attempts("chain")[attempt]
            self.assertEqual((self.name_of(refused["node"]), refused["end"]), (place, "refused"))
            self.assertIn("disk", refused["detail"])
        self.release(source)

    @staticmethod
    def fill(folder):
        """Takes all that is free there but a megabyte; answers the file that does."""
        file, free = folder / "filler", os.statvfs(folder)
        subprocess.run(["fallocate", "-l", str(free.f_bavail * free.f_frsize - (1 << 20)), file], check=True)
        return file

    def test_c_a_destination_that_lends_nothing_any_more_is_left(self):
        source = self.wait_until_it_runs(*LABS)
        attempt = self.attempt()
        place = self.name_of(self.begin_evacuation(source)["data"]["destination"])

        self.site.nodes[place].owner("pause")

        self.check_resumed(attempt, self.others(source, place))
        self.site.nodes[place].owner("resume")
        self.release(source)

    def test_d_a_destination_that_is_taken_back_itself_is_left(self):
        source = self.wait_until_it_runs(*LABS)
        attempt = self.attempt()
        place = self.name_of(self.begin_evacuation(source)["data"]["destination"])

        self.site.nodes[place].owner("reclaim", "--now")

        self.check_resumed(attempt, self.others(source, place))
        self.release(source, place)

    def test_e_with_both_ends_taken_back_at_once_the_last_durable_generation_counts(self):
        site, source = self.site, self.wait_until_it_runs(*LABS)
        attempt = self.attempt()
        place, third = self.others(source)
        site.nodes[third].owner("pause")
        site.wait("the third to lend nothing", lambda: site.rest.nodes()[third]["lending"] == "paused", 30)
        choice = self.begin_evacuation(source)
        self.assertEqual(self.name_of(choice["data"]["destination"]), place)
        durable = site.generation("chain")

        for lab in (source, place):
            site.nodes[lab].owner("reclaim", "--now")

        site.wait("the job to wait", lambda: site.job("chain")["state"] == "queued", 30)
        why = site.cli("why", site.guests["chain"].job).stdout
        print(f"  {why.strip()}", flush=True)
        self.assertRegex(why, r"the files of generation \d+ are put back for it")
        self.assertGreaterEqual(site.generation("chain"), durable)
        self.assertEqual(site.guest_processes(source), set())
        site.nodes[third].owner("resume")
        self.check_resumed(attempt, [third], least=durable)
        self.release(source, place)

    def test_f_a_holder_that_lies_is_named_and_not_believed(self):
        site, source = self.site, self.wait_until_it_runs(*LABS)
        attempt, others = self.attempt(), self.others(source)
        for lab in others:  # they keep copies, and take nobody
            site.nodes[lab].owner("pause")
        site.wait("nobody to lend", lambda: all(
            site.rest.nodes()[lab]["lending"] == "paused" for lab in others), 30)
        self.begin_evacuation(source)
        site.wait("the job to wait", lambda: site.job("chain")["state"] == "queued", NOTICE_S + 20)
        [holder] = [self.name_of(node) for node in self.newest_holders(source)]
        [third] = self.others(source, holder)

        liar = Liar(site.nodes[holder], wait_until)
        try:
            site.nodes[third].owner("resume")
            self.check_resumed(attempt, [third])
        finally:
            liar.stop()

        self.assertGreaterEqual(liar.lies(), 1, "it was not asked")
        named = f"what {self.ids[holder]} served of it was not believed (the peer sent a chunk with other bytes)"
        self.assertIn(named, site.attempts("chain")[-1]["detail"])
        self.assertIn(named, site.cli("why", site.guests["chain"].job).stdout)
        site.nodes[holder].owner("resume")
        self.release(source)

    def newest_holders(self, source):
        rows = self.site.rest.generations(self.site.guests["chain"].job)
        newest = max(rows, key=lambda row: row["generation"]["generation"])
        return [node for node in newest["holders"] if node != self.ids[source]]

    def test_g_a_machine_whose_clock_is_hours_ahead_holds_its_notice(self):
        if not wrong_clock.FAKETIME.exists():
            self.skipTest(f"no {wrong_clock.FAKETIME}: scripts/install-deps.sh")
        site, source = self.site, self.wait_until_it_runs(*LABS)
        attempt, node = self.attempt(), site.nodes[source]
        for daemon in (node.agent, node.warden):
            daemon.kill()
        node.start_warden(env=wrong_clock.environment("+5h"))
        node.agent = wrong_clock.spawn_agent(node, "+5h")
        for daemon in (node.agent, node.warden):
            self.addCleanup(wrong_clock.remove_leftovers, daemon.pid)
        site.wait("the clock to be seen", lambda: wrong_clock.is_off(site.rest, node, "+5h"), 30)
        self.assertEqual(self.wait_until_it_runs(*LABS), source)

        choice = self.begin_evacuation(source)

        self.assertTrue(0 < float(choice["data"]["notice_s"]) <= NOTICE_S, choice["data"])
        self.check_resumed(attempt, self.others(source))
        site.wait("the record", lambda: site.last_reclaim(source)["cleared_ns"], NOTICE_S + 10)
        record = site.last_reclaim(source)
        self.assertAlmostEqual((record["deadline_ns"] - record["declared_ns"]) / 1e9, NOTICE_S, delta=1)
        self.assertLessEqual(record["cleared_ns"], record["deadline_ns"])

    def test_z_the_result_is_that_of_an_undisturbed_run(self):
        site, job = self.site, self.site.guests["chain"].job
        self.assertIn(site.job("chain")["state"], ALIVE, "it ended too soon to be disturbed")
        site.cli("exec", job, "--", "touch", "hurry")
        site.wait("the job to end", lambda: site.job("chain")["state"] in ("succeeded", "failed"), 120)
        self.assertEqual(site.job("chain")["state"], "succeeded", site.job("chain")["reason"])
        self.assertEqual(check_jobs(site, {"chain": Wanted("rename-term", STEPS, SAVE_EVERY)}), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
