#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reclaims on a real coordinator, agents, wardens and engines: one site, two guests, one story after the other. What a
guest resumed from is read from its own log. A story begins where the one before it ended."""
import datetime
import json
import pathlib
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
import chain  # noqa: E402
import late_words  # noqa: E402
from in_a_row import InARow  # noqa: E402
from stories import Site, uptime_s  # noqa: E402

NOTICE_S = 30  # guests leave long before its end
STEP_S = 0.2
MISSED_BEATS = 3
TOLD_S = 20  # from a contract to the end of its window
WINDOW_NOTICE_S = 3
FROZEN_S = 4  # how long agent and engine are, before the notice of the window's end would begin


def number(epoch):
    """An attempt's number, from its epoch "DATABASE.ATTEMPT"."""
    return int(epoch.split(".")[1])


class Reclaim(InARow):
    @classmethod
    def setUpClass(cls):
        lends = {"notice_s": NOTICE_S, "guest_disk_mib": 128, "guest_memory_mib": 512}
        cls.site = Site(
            {"lab-a": {**lends, "guest_cpu_milli": 1000}, "lab-b": {**lends, "guest_cpu_milli": 300},
             "storage": {"lends": False}},
            heartbeat_ms=2000, flags=["--min-residence-s", 3, "--home-settle-s", 3])
        cls.addClassCleanup(cls.site.down)
        cls.site.submit("plain", 100000, 10, STEP_S, ballast_kib=256)  # no handler, saves by rename

    # --- looking

    def epochs(self):
        return {name: self.site.job(name)["epoch"] for name in self.site.guests}

    def wait_for_new_generations(self):
        """One of each guest that is newer than now, so that the next story has something to lose."""
        site, before = self.site, {name: self.site.generation(name) for name in self.site.guests}
        site.wait("new durable generations", lambda: all(
            site.generation(name) > before[name] for name in site.guests), 90)

    def check_resumed(self, name, before, after=None, frozen_s=0):
        """The attempt after `before` (number) went on where the one before it had saved last; no hash is wrong. While
        the agent was frozen, nothing was saved."""
        site, guest = self.site, self.site.guests[name]
        site.wait(f"{name} to tell of its start", lambda: site.told(name).steps, 30)
        old, new = site.told(name, before), site.told(name)
        self.assertEqual(old.wrong + new.wrong, [], f"{name}: wrong hashes")
        self.assertTrue(new.is_resumed, f"{name} began from nothing")
        if after is None:
            self.assertIn(new.begin, chain.may_resume_at(old, guest.save_every), f"{name}: saved {old.saved[-3:]}")
        else:
            self.assertGreaterEqual(new.begin, after, f"{name}: a durable generation was lost")
            # What the old attempt told last comes when its agent has thawed or is back; never, if it was fenced first.
            end = next(one["end"] for one in site.attempts(name) if number(one["epoch"]) == before)
            site.wait(f"{name}'s old log", lambda: end in ("lost", "fenced") or
                      site.told(name, before).last >= new.begin, 30)
            old = site.told(name, before)
            most = 10 * guest.save_every + frozen_s / STEP_S  # three would do where processors are free
            self.assertLessEqual(old.last - new.begin, most, f"{name}: lost too much")
        return old, new

    def newest_attempt(self, name):
        return self.site.attempts(name)[-1]

    def let_the_second_guest_come(self):
        """It saves in place, and on SIGTERM. lab-b's owner lends more from now on: it has room there."""
        site = self.site
        node = site.nodes["lab-b"]
        file = site.labs.dir / "more.yaml"
        file.write_text(json.dumps({**node.contract, "guest_cpu_milli": 1000}))
        self.assertIn("in force", node.owner("contract", "set", file).stdout)
        self.assertIn("guest_cpu_milli: 1000", node.owner("contract", "show").stdout)
        node.owner("pause")
        site.wait("lab-b to be paused", lambda: site.rest.nodes()["lab-b"]["lending"] == "paused", 30)
        site.submit("careful", 100000, 20, STEP_S, is_in_place=True, handles_term=True)
        site.wait("both to run on lab-a", lambda: site.all_on("lab-a"), 60)
        node.owner("resume")

    def check_cleared(self, lab, record):
        self.assertEqual(self.site.guest_processes(lab), set(), f"processes of guests are left on {lab}")
        self.assertGreater(record["cleared_ns"], 0)
        self.assertLessEqual(record["declared_ns"], record["cut_ns"])
        self.assertLessEqual(record["cut_ns"], record["cleared_ns"])
        self.assertEqual(record["remains"], [])

    def check_that_late_words_do_not_count(self, lab, epochs):
        """The node's own certificate speaks for attempts that were replaced: a generation more, and a good end."""
        site = self.site
        attempts = [{"job": site.guests[name].job, "epoch": epoch, "generation": site.generation(name) + 1000}
                    for name, epoch in epochs.items()]

        said = late_words.speak_for(site.nodes[lab], site.coordinator, site.rest.nodes()[lab], attempts)

        self.assertEqual([(one["epoch"], one["what"], one["is_accepted"]) for one in said], [
            (epoch, what, False) for epoch in epochs.values() for what in ("generation", "end")])
        for name, epoch in epochs.items():
            self.assertLess(site.generation(name), 1000)
            self.assertEqual(site.job(name)["state"], "running")
            told = [one["message"] for one in site.rest.events(site.guests[name].job)
                    if one["kind"] == "attempt.fenced"]
            self.assertTrue(any(f"of epoch {epoch} on {lab}" in message for message in told), told)

    # --- the stories

    def test_a_a_notice_moves_the_guests_with_their_last_generation(self):
        site = self.site
        site.wait("the guest to run on lab-a", lambda: site.all_on("lab-a"), 60)
        self.wait_for_new_generations()
        before = self.epochs()

        told = site.nodes["lab-a"].owner("reclaim", "-m", "deadline of a paper")

        self.assertIn(f"within {NOTICE_S} s", told.stdout)
        site.wait("lab-a to be cleared", lambda: site.last_reclaim("lab-a")["cleared_ns"], NOTICE_S + 10)
        record = site.last_reclaim("lab-a")
        self.check_cleared("lab-a", record)
        self.assertLessEqual(record["cleared_ns"], record["deadline_ns"])
        self.assertEqual((record["kind"], record["message"]), ("notice", "deadline of a paper"))
        site.wait("both to run on lab-b", lambda: site.all_on("lab-b"), 60)
        for name in site.guests:
            old, new = self.check_resumed(name, number(before[name]))
            self.assertGreater(old.last, 0)
            print(f"  {name}: notice: {old.last} executed, resumed at {new.begin}, first step after "
                  f"{min(new.steps.values()) - max(old.steps.values()):.1f} s", flush=True)
        self.assertEqual([site.attempts(name)[-2]["end"] for name in site.guests], ["reclaimed"])

    def test_b_a_better_home_that_returns_gets_its_guests_back(self):
        site = self.site
        before = self.epochs()
        site.wait("a generation here", lambda: all(site.told(name).saved for name in site.guests), 60)

        site.nodes["lab-a"].owner("release")

        site.wait("both to be back on lab-a", lambda: site.all_on("lab-a"), 90)
        for name in site.guests:
            self.check_resumed(name, number(before[name]))
            self.assertEqual(site.attempts(name)[-2]["end"], "migrated")
        numbers = [event["message"] for event in site.rest.events() if "goes home" in event["message"]]
        self.assertTrue(any("gains" in text for text in numbers), "no event shows the numbers of the way home")

    def test_c_now_means_now_even_with_agent_and_engine_frozen(self):
        site = self.site
        self.let_the_second_guest_come()
        self.wait_for_new_generations()
        before = self.epochs()

        with site.frozen("lab-a"):
            time.sleep(0.5)  # a commit that was under way is not ours to wait for: the agent is frozen
            durable = {name: site.generation(name) for name in site.guests}
            done = site.nodes["lab-a"].owner("reclaim", "--now")
            self.assertIn("verified", done.stdout)
            self.assertEqual(site.guest_processes("lab-a"), set())
            killed_at = uptime_s()
            site.wait("both to run on lab-b", lambda: site.all_on("lab-b"), 60)
            for name in site.guests:  # or the one whose commit came late all the same
                self.assertIn(self.newest_attempt(name)["resumed_generation"], (durable[name], durable[name] + 1))
        site.wait("the record", lambda: site.last_reclaim("lab-a")["kind"] == "emergency" and
                  site.last_reclaim("lab-a")["cleared_ns"], 60)
        self.check_cleared("lab-a", site.last_reclaim("lab-a"))
        for name in site.guests:
            old, new = self.check_resumed(name, number(before[name]), after=1)
            self.assertLess(max(old.steps.values()), killed_at)
            print(f"  {name}: emergency: {old.last} told, resumed at {new.begin}", flush=True)
        self.assertEqual(site.status("lab-a")["lending"], "reclaimed")

    def test_d_a_blip_moves_nothing(self):
        site = self.site
        before = self.epochs()

        site.labs.link("lab-b", up=False)
        time.sleep((MISSED_BEATS - 1.5) * site.heartbeat_s)  # the blip itself, with a beat in it
        site.labs.link("lab-b", up=True)

        site.wait("lab-b to be connected", lambda: site.rest.nodes()["lab-b"]["is_connected"], 30)
        time.sleep(MISSED_BEATS * site.heartbeat_s)  # until a loss would have been found, if there were one
        self.assertEqual(self.epochs(), before)
        self.assertTrue(site.all_on("lab-b"), site.picture())
        self.wait_for_new_generations()
        self.assertEqual(self.epochs(), before)

    def test_e_a_vanished_node_is_lost_and_its_zombie_fenced(self):
        site = self.site
        self.wait_for_new_generations()
        before = self.epochs()
        zombies = site.guest_processes("lab-b")
        self.assertGreaterEqual(len(zombies), 2)

        vanished = time.monotonic()
        site.labs.link("lab-b", up=False)
        site.nodes["lab-b"].agent.kill()
        site.wait("lab-b to be lost", lambda: site.rest.nodes()["lab-b"]["state"] == "lost", 60)
        durable = {name: site.generation(name) for name in site.guests}
        site.nodes["lab-a"].owner("release")
        self.assertGreater(time.monotonic() - vanished, (MISSED_BEATS - 1) * site.heartbeat_s)
        site.wait("both to run on lab-a", lambda: site.all_on("lab-a"), 60)
        self.assertTrue(site.guest_processes("lab-b"), "the zombies should still be there, to be fenced")
        site.wait("the zombies to be ahead", lambda: all(
            chain.read(site.nodes["lab-b"].step_log_of(site.guests[name].job)).last > 0 for name in site.guests), 30)

        site.labs.link("lab-b", up=True)
        self.check_that_late_words_do_not_count("lab-b", before)
        site.nodes["lab-b"].start_agent()
        site.wait("the zombies to end", lambda: not site.guest_processes("lab-b"), 60)
        site.wait("the node to be clean", lambda: not site.status("lab-b")["attempts"], 60)

        for name in site.guests:
            attempts = site.attempts(name)
            self.assertIn(attempts[-2]["end"], ("lost", "fenced"))
            self.assertEqual(attempts[-2]["epoch"], before[name])
            known = [one["generation"] for one in site.rest.generations(site.guests[name].job)]
            accepted = [one for one in known
                        if one["epoch"] == before[name] and one["generation"] > durable[name]]
            self.assertEqual(accepted, [], "a zombie's generation was accepted")
            self.check_resumed(name, number(before[name]), after=1)
        self.assertTrue(site.all_on("lab-a"), site.picture())

    def test_f_the_coordinator_may_die_in_the_middle_of_a_migration(self):
        site = self.site
        self.wait_for_new_generations()
        before = self.epochs()

        site.nodes["lab-a"].owner("reclaim")
        site.wait("a guest to be noticed or gone", lambda: any(
            site.job(name)["state"] != "running" for name in site.guests), 20, 0.02)
        site.coordinator.kill()
        time.sleep(1)  # the time without a coordinator
        site.coordinator.start()

        site.wait("both to run on lab-b", lambda: site.all_on("lab-b"), 90)
        for name in site.guests:
            self.check_resumed(name, number(before[name]))
            attempts = site.attempts(name)
            self.assertEqual([number(one["epoch"]) for one in attempts], list(range(1, len(attempts) + 1)),
                             "an attempt was lost")
            between = [one["end"] for one in attempts[number(before[name]):-1]]
            self.assertEqual(between, ["refused"] * len(between), "it was placed twice")
        site.wait("the record", lambda: site.last_reclaim("lab-a")["cleared_ns"], 30)
        self.check_cleared("lab-a", site.last_reclaim("lab-a"))

    def test_g_an_owner_needs_no_coordinator(self):
        site = self.site
        self.wait_for_new_generations()
        before = self.epochs()

        site.coordinator.kill()
        site.nodes["lab-b"].owner("reclaim")
        site.nodes["lab-a"].owner("release")
        site.wait("lab-b to be free", lambda: not site.guest_processes("lab-b"), NOTICE_S + 10)
        time.sleep(3)  # the time without a coordinator, in which copies leave by the agents' own plan
        site.coordinator.start()

        site.wait("both to run on lab-a", lambda: site.all_on("lab-a"), 90)
        site.wait("the record", lambda: site.last_reclaim("lab-b")["cleared_ns"], 30)
        record = site.last_reclaim("lab-b")
        self.check_cleared("lab-b", record)
        self.assertLessEqual(record["cleared_ns"], record["deadline_ns"])
        for name in site.guests:
            self.check_resumed(name, number(before[name]))
            self.assertEqual(site.attempts(name)[-2]["end"], "reclaimed")

    # --- the owner's other commands

    def wish(self, name, lab):
        """A small job that may run only there."""
        return self.site.cli("run", "--detach", "--name", name, "--stateless", "--lab", lab, "--cpus", "0.1",
                             "--memory", "32MB", "--disk", "32MB", "--no-upload", "--", "true").stdout.strip()

    def state(self, job):
        return self.site.rest.job(job)["state"]

    def test_h_pause_snooze_resume_status_and_doctor_do_what_they_say(self):
        site = self.site
        node = site.nodes["lab-b"]
        node.owner("release")
        site.wait("lab-b to be open", lambda: site.status("lab-b")["lending"] == "open", 30)

        self.assertIn("resume", node.owner("pause").stdout)
        site.wait("lab-b to be paused", lambda: site.rest.nodes()["lab-b"]["lending"] == "paused", 30)
        job = self.wish("patient", "lab-b")
        time.sleep(2 * site.heartbeat_s)  # in which it would have been placed, if it could be
        self.assertEqual(self.state(job), "queued")
        self.assertIn("paus", site.cli("why", job).stdout.lower())
        self.assertRegex(node.owner("status", "--why").stdout, r"lending: paused(?s:.*)why: .*paus")
        node.owner("resume")
        site.wait("the job to be over", lambda: self.state(job) == "succeeded", 60)

        begun = time.monotonic()
        node.owner("snooze", "8s")
        job = self.wish("snoozing", "lab-b")
        site.wait("the snooze to end by itself", lambda: self.state(job) == "succeeded", 60)
        self.assertGreater(time.monotonic() - begun, 7)

        doctor = site.labs.call("lab-b", node.agent_program("doctor"), check=False)
        self.assertNotIn("MISSING", doctor.stdout.replace("MISSING disk", ""))  # the labs' disks are small
        self.assertRegex(doctor.stdout, r"(?m)^absent +copies at the uplink +paced by the agent alone: .*--transfers")
        for piece in ("identity", "certificate", "coordinator", "warden", "agent", "contract"):
            self.assertRegex(doctor.stdout, rf"(?m)^ok +{piece} ")
        site.nodes["lab-b"].agent.kill()
        doctor = site.labs.call("lab-b", node.agent_program("doctor"), check=False)
        self.assertEqual(doctor.returncode, 1)
        self.assertRegex(doctor.stdout, r"(?m)^MISSING +agent .*\n +next: ")
        node.start_agent()
        site.wait("lab-b to be back", lambda: site.rest.nodes()["lab-b"]["is_connected"], 30)

    def test_i_a_window_ends_at_its_minute_with_agent_and_engine_frozen(self):
        site = self.site
        node = site.nodes["lab-a"]
        site.wait("lab-b to be open", lambda: site.rest.nodes()["lab-b"]["lending"] == "open", 30)
        self.wait_for_new_generations()
        before = self.epochs()
        end = int(time.time()) + TOLD_S  # a full minute in a time zone of its own
        offset_s = -end % 60
        site.make_zone("Story", offset_s)
        minute = datetime.datetime.fromtimestamp(end + offset_s, datetime.timezone.utc)
        later = minute + datetime.timedelta(hours=1)
        file = site.labs.dir / "windows.yaml"
        file.write_text(json.dumps({**node.contract, "notice_s": WINDOW_NOTICE_S, "time_zone": "Story", "windows": [
            {"days": [], "from": later.strftime("%H:%M"), "to": minute.strftime("%H:%M")}]}))
        self.assertIn("in force", node.owner("contract", "set", file).stdout)
        site.wait("the warden to be told", lambda: site.status("lab-a")["announced_in_ms"] > 0, TOLD_S)
        self.assertEqual(self.epochs(), before, "the window has not ended yet")

        time.sleep(max(end - WINDOW_NOTICE_S - FROZEN_S - time.time(), 0))  # no longer than it takes: it backs off
        with site.frozen("lab-a"):
            time.sleep(max(end - 1 - time.time(), 0))  # nothing may happen before the window ends
            are_there = site.guest_processes("lab-a")
            self.assertTrue(are_there or time.time() >= end, "the guests were stopped too early")
            site.wait("the guests to be gone", lambda: not site.guest_processes("lab-a"), 30, 0.05)
            self.assertGreaterEqual(time.time(), end)
        site.wait("the record", lambda: site.last_reclaim("lab-a")["kind"] == "announced" and
                  site.last_reclaim("lab-a")["cleared_ns"], 60)
        record = site.last_reclaim("lab-a")
        self.check_cleared("lab-a", record)
        self.assertEqual(record["message"], "the lending window ends")
        self.assertGreaterEqual(record["cut_ns"], record["deadline_ns"])
        self.assertEqual(site.status("lab-a")["lending"], "outside_window")
        site.wait("both to run on lab-b", lambda: site.all_on("lab-b"), 60)
        for name in site.guests:
            self.check_resumed(name, number(before[name]), after=1, frozen_s=FROZEN_S + WINDOW_NOTICE_S)
        late_ms = (record["cut_ns"] - record["deadline_ns"]) / 1e6
        print(f"  window: cut {late_ms:.1f} ms after the deadline, cleared "
              f"{(record['cleared_ns'] - record['cut_ns']) / 1e6:.1f} ms later", flush=True)

        file.write_text(json.dumps(node.contract))
        self.assertIn("in force", node.owner("contract", "set", file).stdout)
        site.wait("lab-a to be open", lambda: site.rest.nodes()["lab-a"]["lending"] == "open", 30)
        # Going home would gain nothing, because lab-b lends as much by now: its owner sends them there.
        site.nodes["lab-b"].owner("reclaim")
        site.wait("both to be back on lab-a", lambda: site.all_on("lab-a"), 90)
        site.nodes["lab-b"].owner("release")

    def test_j_leaving_takes_guests_and_files_away(self):
        site = self.site
        site.wait("lab-b to be open", lambda: site.rest.nodes()["lab-b"]["lending"] == "open", 30)
        self.wait_for_new_generations()
        before = self.epochs()
        node = site.nodes["lab-a"]

        node.owner("leave", "--purge", "--reason", "moving house", timeout_s=180)

        site.wait("both to run on lab-b", lambda: site.all_on("lab-b"), 90)
        for name in site.guests:
            self.check_resumed(name, number(before[name]))
        self.assertFalse((node.state / "agent").exists())
        self.assertEqual(site.guest_processes("lab-a"), set())
        self.assertEqual(site.rest.nodes()["lab-a"]["state"], "left")
        for name, guest in site.guests.items():
            site.cli("stop", guest.job)
        site.wait("both to be over", lambda: all(site.job(name)["state"] == "cancelled" for name in site.guests), 30)

    def test_k_nothing_is_left(self):
        self.site.labs.down()
        self.assertEqual(self.site.labs.residue(), [])


if __name__ == "__main__":
    unittest.main(verbosity=2, failfast=True)
