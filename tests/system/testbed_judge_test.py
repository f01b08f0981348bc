#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The pure parts of scripts/testbed: what a record and several disciplines show, when owners come, how a topology
becomes bridges and queues, and that its guests end with the same bytes whatever happened to them. No daemon, no
network."""
import argparse
import copy
import gzip
import json
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
sys.path.insert(0, str(ROOT / "scripts" / "testbed"))
import bystanders  # noqa: E402
import disciplines  # noqa: E402
import guest  # noqa: E402
import judge  # noqa: E402
import lines as topology  # noqa: E402
import owners  # noqa: E402
import scenario  # noqa: E402
import students  # noqa: E402
import summary  # noqa: E402
from lines import Bad  # noqa: E402

SITE = """
version: 1
links:
  - name: campus
  - {name: floor, parent: b, up: 50mbit, down: 40mbit}
  - {name: b, parent: campus, rate: 100mbit}
nodes:
  - {name: a-1, at: campus, rate: 100mbit}
  - {name: b-1, at: b, rate: 100mbit}
  - {name: b-2, at: floor, rate: 1gbit}
"""
MIX = {"announced": 0.5, "notice": 0.3, "emergency": 0.1, "lost": 0.1, "announced_s": [20, 40], "notice_s": 10}


def a_record():
    """b-1's owner takes it back at 100 with 10 s; its guest saves step 22 at 102, is gone then, goes on at 106 on a-1.
    Other people's flow has 20 ms before, and 30 ms from 100 to 106."""
    packets = [[80 + index, index] for index in range(23)]  # a step a second, the 22nd at 102
    going_on = [[106 + index, 22 + index] for index in range(20)]
    log = {"began": 80.0, "begin": 0, "from": "nothing", "saved": [[10, 90.0], [22, 102.0]], "done": False}
    later = {"began": 106.0, "begin": 22, "from": "checkpoint", "saved": [], "done": True}
    made = {"epoch": "1.1", "source": "b-1", "holders": ["a-1"]}
    job = {
        "job": "j1", "state": "succeeded", "fault": None,
        "spec": {"steps": 60, "save_every": 10, "state_mib": 16, "blocks": 4, "handles_term": False},
        "starts": [{"source": "10.0.0.2", "packets": packets}, {"source": "10.0.0.1", "packets": going_on}],
        "attempts": [
            {"epoch": "1.1", "node": "b-1", "end": "reclaimed", "detail": "", "resumed": 0, "log": log},
            {"epoch": "1.2", "node": "a-1", "end": "succeeded", "detail": "", "resumed": 2,
             "log": later}],
        "generations": [
            {**made, "generation": 1, "created": 90.1, "committed": 92.0},
            {**made, "generation": 2, "created": 102.1, "committed": 104.0}]}
    act = {"node": "b-1", "kind": "notice", "notice_s": 10, "begun": 100.0, "command_s": 0.1, "given_back": 130.0,
           "sent": 4 << 20, "served": 0,
           "report": {"declared_ns": 10 ** 9, "cut_ns": 4 * 10 ** 9, "cleared_ns": 5 * 10 ** 9}}
    samples = [[30 + index / 10, 0.02] for index in range(100)] + [[80 + index / 10, 0.02] for index in range(200)]
    samples += [[100.05 + index / 10, 0.03] for index in range(60)]
    samples += [[106.05 + index / 10, 0.02] for index in range(100)]
    return {"about": {}, "topology": SITE, "nodes": {"a-1": "10.0.0.1", "b-1": "10.0.0.2", "b-2": "10.0.0.3"},
            "traffic": [], "baseline": [[25, 45]], "played": [75, 200], "acts": [act], "jobs": {"g0": job},
            "deadlines": {}, "flows": [{"kind": "small", "from": "a-1", "to": "b-2", "samples": samples}], "faults": []}


def text_of(result):
    return summary.text({**result, "about": {
        "scenario": "s", "seed": 1, "minutes": 2, "owners": "", "machine": "", "load": "", "commit": "", "when": "",
        "topology": "", "nodes": 3, "shaper": "htb", "left_out": 0}})


class Judged(unittest.TestCase):
    def test_an_evacuation_that_kept_everything_in_time_is_inside(self):
        result = judge.judge(a_record())
        self.assertEqual(result["inside"], {"n": 1, "count": 1, "share": 1.0})
        cost = result["displaced"][0]
        self.assertEqual((cost["lost_steps"], cost["silence_s"], cost["downtime_s"], cost["to"]), (0, 4, 5, "a-1"))
        self.assertEqual((cost["known_step"], cost["last_save"], cost["delta"]), (10, 22, 12 * 4 * guest.BLOCK))
        self.assertEqual(result["moved"]["ratio"], (4 << 20) / cost["delta"])
        self.assertEqual(result["moved"]["ratio_of_lacking"], result["moved"]["ratio"])
        one = result["kinds"]["notice"]
        self.assertEqual((one["cut_s"]["p50"], one["cleared_s"]["p50"], one["last_packet_s"]["p50"]), (3, 4, 2))
        self.assertEqual((one["packets_after_deadline"], result["again_before_new_work"]), (0, 0))
        self.assertIn("inside their notice: 1 of 1", text_of(result))

    def test_a_destination_that_had_nothing_lacked_the_whole_state(self):
        record = a_record()
        record["jobs"]["g0"]["generations"][0]["holders"] = ["b-2"]
        result = judge.judge(record)
        self.assertEqual(result["displaced"][0]["lacking"], 16 << 20)
        self.assertEqual(result["moved"]["ratio_of_lacking"], 1 / 4)
        self.assertEqual(result["displaced"][0]["delta"], 12 * 4 * guest.BLOCK)

    def test_what_was_sent_ahead_is_what_the_destination_lacks_less(self):
        record = a_record()
        self.assertIsNone(judge.judge(record)["ahead"], "a record of before")
        self.assertNotIn("sent ahead", text_of(judge.judge(record)))
        copy = {"node": "b-1", "to": "b-2", "job": "j1", "generation": 1, "bytes": 17 << 20, "at": 91.9}
        record["jobs"]["g0"]["generations"][0]["holders"] = ["b-2", "a-1"]
        record["copies"] = [copy, {**copy, "generation": 2, "to": "a-1", "at": 103.9}]
        none = {"n": 0, "bytes": 0, "evacuations": {"n": 1, "count": 0, "share": 0.0}, "lacked_less": 0}
        self.assertEqual(judge.judge(record)["ahead"], none)  # the one by which it became durable, and the evacuation

        record["copies"].append({**copy, "to": "a-1", "at": 95.0})
        result = judge.judge(record)
        less = (16 << 20) - 12 * 4 * guest.BLOCK
        self.assertEqual(result["ahead"], {"n": 1, "bytes": 17 << 20, "lacked_less": less,
                                           "evacuations": {"n": 1, "count": 1, "share": 1.0}})
        self.assertIn("sent ahead of a reclaim: 1 copies, 17.8 MB; for it 1 of 1 (100.0 %) evacuations had less to "
                      f"move, {less / 1e6:.1f} MB in all", text_of(result))

        record["copies"][-1]["at"] = 101.0  # the owner has spoken by then
        self.assertEqual(judge.judge(record)["ahead"], none)
        record["copies"][-1].update(at=95.0, to="b-2")  # elsewhere than it went
        self.assertEqual(judge.judge(record)["ahead"], {**none, "n": 1, "bytes": 17 << 20})

    def test_each_run_says_what_was_promised_and_missed(self):
        record = a_record()
        none = {"n": 0, "count": 0, "share": None}
        self.assertEqual(judge.judge(record)["promised"], {"missed": none, "withdrawn": None, "late": None})
        self.assertIn("promised and missed: 0 of 0\n", text_of(judge.judge(record)), "a record of before")
        record["deadlines"] = {"evacuation.admitted": 200, "evacuation.missed": 3, "evacuation.refused": 9}
        self.assertIn("promised and missed: 3 of 200 (1.5 %)\n", text_of(judge.judge(record)))

    def test_a_promise_is_kept_withdrawn_or_broken(self):
        record = a_record()

        def told(kind, at, to="a-1", **data):
            return {"kind": f"evacuation.{kind}", "job": "j1", "at_wall_ms": at * 1000, "data": {"to": to, **data}}

        def judged(*events, committed=104.0):
            record["promises"] = judge.promises(events)
            record["deadlines"] = {one["kind"]: sum(two["kind"] == one["kind"] for two in events) for one in events}
            record["jobs"]["g0"]["generations"][1]["committed"] = committed
            result = judge.judge(record)["promised"]
            return {name: (one["count"], one["n"]) for name, one in result.items()}
        made, other = told("admitted", 101), told("admitted", 102, "b-2")
        gone = told("refused", 103, was_promised="true")
        never = told("refused", 101, was_promised="false")
        self.assertEqual(judged(told("chosen", 101), made), {"missed": (0, 1), "withdrawn": (0, 1), "late": (0, 1)})
        self.assertEqual(judged(made, committed=112), {"missed": (0, 1), "withdrawn": (0, 1), "late": (1, 1)})
        self.assertEqual(judged(made, told("missed", 111), committed=112),
                         {"missed": (1, 1), "withdrawn": (0, 1), "late": (1, 1)})
        self.assertEqual(judged(made, gone, committed=112), {"missed": (0, 1), "withdrawn": (1, 1), "late": (0, 0)})
        self.assertEqual(judged(made, other, gone), {"missed": (0, 2), "withdrawn": (1, 2), "late": (0, 1)})
        self.assertEqual(judged(never), {"missed": (0, 0), "withdrawn": (0, 0), "late": (0, 0)})
        self.assertEqual(judged(told("admitted", 99)), {"missed": (0, 1), "withdrawn": (0, 1), "late": (0, 0)})
        self.assertIn("promised and missed: 1 of 1 (100.0 %); promised, and no longer promised later: 0 of 1 (0.0 %); "
                      "promised until the deadline, and late as judged here: 1 of 1 (100.0 %)\n", text_of(
                          (judged(made, told("missed", 111), committed=112), judge.judge(record))[1]))

    def test_a_copy_that_is_durable_after_the_deadline_is_late(self):
        record = a_record()
        record["jobs"]["g0"]["generations"][1]["committed"] = 110.2
        self.assertEqual(judge.judge(record)["inside"]["count"], 0)

    def test_a_save_that_did_not_travel_is_not_inside(self):
        record = a_record()
        record["jobs"]["g0"]["attempts"][1]["resumed"] = 1
        record["jobs"]["g0"]["starts"][1]["packets"] = [[106 + index, 10 + index] for index in range(20)]
        result = judge.judge(record)
        self.assertEqual((result["inside"]["count"], result["displaced"][0]["lost_steps"]), (0, 12))
        self.assertEqual(result["displaced"][0]["lost_s"], 12)

    def test_who_was_ended_before_it_said_that_it_had_saved_is_judged_by_what_was_made_of_it(self):
        record = a_record()
        record["jobs"]["g0"]["spec"]["handles_term"] = True
        record["jobs"]["g0"]["attempts"][0]["log"]["saved"] = [[10, 90.0]]
        result = judge.judge(record)
        self.assertEqual(result["inside"]["count"], 1)
        self.assertEqual((result["displaced"][0]["ready"], result["displaced"][0]["last_save"]), (102.1, 22))

    def test_who_saves_when_told_and_did_not_get_to_it_is_not_inside(self):
        record = a_record()
        record["jobs"]["g0"]["spec"]["handles_term"] = True
        self.assertEqual(judge.judge(record)["inside"]["count"], 1)
        record["jobs"]["g0"]["attempts"][0]["log"]["saved"].pop()
        record["jobs"]["g0"]["attempts"][1]["resumed"] = 1
        record["jobs"]["g0"]["starts"][1]["packets"] = [[106 + index, 10 + index] for index in range(20)]
        result = judge.judge(record)
        self.assertEqual((result["inside"]["count"], result["inside_of_fitting"]["n"]), (0, 0))
        record["jobs"]["g0"]["spec"]["handles_term"] = False  # for it, the last whole save is all that can be kept
        self.assertEqual(judge.judge(record)["inside"]["count"], 1)

    def test_losses_that_no_owner_made_are_told(self):
        record = a_record()
        record["jobs"]["g0"]["attempts"][0]["end"] = "lost"
        self.assertEqual(judge.judge(record)["lost_without_an_owner"], 1)
        record["acts"][0].update(kind="lost", notice_s=0, report=None)
        self.assertEqual(judge.judge(record)["lost_without_an_owner"], 0)

    def test_a_guest_that_goes_down_again_before_new_work_is_told(self):
        record = a_record()
        short = {"source": "10.0.0.3", "packets": [[105, 22]]}
        record["jobs"]["g0"]["starts"].insert(1, short)
        self.assertEqual(judge.judge(record)["again_before_new_work"], 1)

    def test_packets_after_the_deadline_are_counted(self):
        record = a_record()
        record["jobs"]["g0"]["starts"][0]["packets"].append([111, 23])
        self.assertEqual(judge.judge(record)["kinds"]["notice"]["packets_after_deadline"], 1)

    def test_other_machines_and_finished_guests_are_not_displaced(self):
        record = a_record()
        record["acts"][0]["node"] = "b-2"
        self.assertEqual(judge.judge(record)["displaced"], [])
        record = a_record()
        record["jobs"]["g0"]["attempts"][0]["end"] = "succeeded"
        self.assertEqual(judge.judge(record)["displaced"], [])

    def test_a_guest_that_has_left_before_is_not_displaced_again(self):
        record = a_record()
        record["acts"][0]["begun"] = 115.0  # it runs on a-1 then
        self.assertEqual(judge.judge(record)["displaced"], [])

    def test_a_pulled_cable_is_no_scheduled_departure(self):
        record = a_record()
        record["acts"][0].update(kind="lost", notice_s=0, report=None)
        result = judge.judge(record)
        self.assertEqual((result["inside"]["n"], result["kinds"]["lost"]["displaced"]), (0, 1))
        self.assertNotIn("inside", result["kinds"]["lost"])

    def test_harm_is_told_by_phase(self):
        flow = judge.judge(a_record())["traffic"][0]["phases"]
        found = [flow["baseline"]["p50"], flow["steady"]["p99"], flow["evacuating"]["p50"]]
        self.assertEqual(found, [0.02, 0.02, 0.03])
        self.assertAlmostEqual(flow["evacuating"]["p50_change"], 0.5)
        self.assertEqual(flow["steady"]["p99_change"], 0)

    def test_of_somebody_who_takes_all_he_can_get_is_judged_what_he_got(self):
        record = a_record()
        greedy = {"kind": "bulk", "from": "a-1", "to": "b-1", "rate": None, "samples": [
            [at, 90e6] for at in range(26, 46)] + [[at, 89e6 if at < 100 or at > 106 else 30e6] for at in
                                                   range(76, 126)]}
        record["flows"].append(greedy)
        rows = {(one["flow"], one["phase"]): one for one in judge.judge(record)["harm"]}
        self.assertEqual(len(rows), 4)
        steady, evacuating = (rows["bulk a-1 → b-1", phase] for phase in ("steady", "evacuating"))
        self.assertAlmostEqual(steady["change"], -1 / 90)
        self.assertEqual((steady["pace"], steady["measure"], steady["goal"], steady["is_met"]),
                         ("all it can get", "mean", 0.01, False))
        self.assertAlmostEqual(evacuating["change"], 30 / 90 - 1)
        self.assertEqual((evacuating["goal"], evacuating["is_met"]), (None, None))
        small = rows["small a-1 → b-2", "steady"]
        self.assertEqual((small["measure"], small["change"], small["is_met"]), ("p99", 0, True))
        words = text_of(judge.judge(record))
        self.assertIn("bulk a-1 → b-1 (all it can get), mean steady: -1.1 % (n=43; goal 1 %: missed)\n", words)
        self.assertIn("bulk a-1 → b-1 (all it can get), mean evacuating: -66.7 % (n=7; reported)\n", words)
        greedy["samples"] = [[at, 89.5e6] for at in range(26, 46)] + [[at, 89.3e6] for at in range(76, 99)]
        self.assertTrue(next(one for one in judge.judge(record)["harm"] if one["measure"] == "mean")["is_met"])

    def test_what_an_owner_who_fills_the_line_gets_beside_the_evacuation_and_after_it(self):
        record = a_record()
        self.assertIsNone(judge.judge(record)["own"])
        record["acts"][0]["fills"] = True  # from 100; the last save is durable at 104
        record["own"] = [{"node": "b-1", "to": "a-1", "samples": [[99, 1e6], [101, 2e6]] + [
            [at, 40e6] for at in (102, 103, 104)] + [[105, 70e6]] + [[at, 90e6] for at in range(106, 131)] + [
            [131, 5e6]]}]
        record["promises"] = [{"job": "j1", "to": "a-1", "at": 101, "word": "made"}]
        result = judge.judge(record)
        own, one = result["own"], {"n": 1, "count": 1, "share": 1.0}
        self.assertEqual((own["reclaims"], own["displacing"], own["inside"], own["would_fit_without"]),
                         (1, 1, one, one))
        self.assertEqual((own["promised"], own["withdrawn"]), (one, {"n": 1, "count": 0, "share": 0.0}))
        self.assertEqual(own["late"], {"n": 1, "count": 0, "share": 0.0})
        self.assertEqual((own["beside"]["n"], own["beside"]["mean"]), (3, 40e6))
        self.assertEqual((own["alone"]["n"], own["alone"]["mean"]), (25, 90e6))
        self.assertAlmostEqual(own["change"], 40 / 90 - 1)
        self.assertEqual(result["inside_of_fitting"]["n"], 0, "what the owner leaves is not known")
        self.assertEqual((result["inside"]["n"], result["kinds"]["notice"]["inside_of_fitting"]["n"]), (1, 0))
        self.assertIn("the owner's transfer, mean: 40.0 Mbit/s (n=3 s) beside the evacuation, 90.0 Mbit/s (n=25 s) "
                      "after it: -55.6 %", text_of(result))
        record["jobs"]["g0"]["generations"][1]["committed"] = 112.0  # after the deadline: beside it until then
        own = judge.judge(record)["own"]
        self.assertEqual((own["inside"]["count"], own["late"]["count"]), (0, 1))
        record["promises"] += [{**record["promises"][0], "at": 103, "word": "withdrawn"}]
        told = judge.judge(record)["own"]
        self.assertEqual((told["withdrawn"]["count"], told["promised"]["count"], told["late"]["n"]), (1, 0, 0))
        record["jobs"]["g0"]["attempts"][0]["end"] = "succeeded"  # nobody had to leave
        none = judge.judge(record)["own"]
        self.assertEqual((none["reclaims"], none["displacing"], none["beside"]["n"], none["alone"]["n"]), (1, 0, 0, 29))
        self.assertEqual((own["beside"]["n"], own["alone"]["n"]), (9, 19))

    def test_wrong_bytes_of_a_job_are_named(self):
        record = a_record()
        record["jobs"]["g0"]["fault"] = "result is not that of an undisturbed run"
        self.assertEqual(judge.judge(record)["jobs"], {
            "n": 1, "bit_identical": 0, "wrong": {"g0": "result is not that of an undisturbed run"}})


class Disciplines(unittest.TestCase):
    def result(self, name, committed=104.0, word="made"):
        record = a_record()
        record["about"] = {"discipline": name, "scenario": "s", "seed": 7, "minutes": 2, "topology": "t", "nodes": 3,
                           "shaper": "htb", "load": "0.1", "commit": "c"}
        record["jobs"]["g0"]["generations"][1]["committed"] = committed
        record["promises"] = [{"job": "j1", "to": "a-1", "at": 101, "word": word}] if word else []
        record["deadlines"] = {"evacuation.admitted": 1 if word else 0, "evacuation.missed": int(committed > 110)}
        return judge.judge(record)

    def test_each_is_judged_by_what_it_let_begin_and_what_came_in_time(self):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder)
            for name, result in (("fair", self.result("fair", 112.0)), ("ours", self.result("ours", 112.0, None)),
                                 ("edf", self.result("edf"))):
                (out / name).mkdir()
                (out / name / "result.json").write_text(json.dumps(result))
            disciplines.write(out)
            ours, fair, edf = json.loads((out / "disciplines.json").read_text())
            words = (out / "disciplines.txt").read_text()
            other = self.result("edf")
            other["about"]["seed"] = 8
            (out / "edf" / "result.json").write_text(json.dumps(other))
            with self.assertRaisesRegex(Bad, "not of one scenario"):
                disciplines.write(out)
            with self.assertRaisesRegex(Bad, "no result lies in"):
                disciplines.write(out / "ours")
        self.assertEqual([one["discipline"] for one in (ours, fair, edf)], ["ours", "fair", "edf"])
        self.assertEqual((ours["promised"], ours["late"]["n"], ours["work_inside"]), (0, 0, 0.0))
        self.assertEqual((fair["late"], fair["missed"]["count"]), ({"n": 1, "count": 1, "share": 1.0}, 1))
        self.assertEqual((edf["late"]["count"], edf["inside"]["count"], edf["work_inside"]), (0, 1, 1.0))
        self.assertRegex(words, r"TCP fair share +0 of 1 \(0.0 %\) +0 of 1 \(0.0 %\) +0.0 % +1 of 1 \(100.0 %\): goal "
                                "missed, but few +1 of 1")
        self.assertRegex(words, r"EDF without admission .* 0 of 1 \(0.0 %\): goal met, but few ")
        self.assertRegex(words, r"admission and deadline rates .* 0 of 0: - ")
        self.assertRegex(words, r"small a-1 → b-2 \(random gaps\), p99 evacuating +\+50.0 % +\+50.0 % +\+50.0 %")

    def test_the_work_that_a_save_carries_is_what_was_not_durable_yet(self):
        self.assertAlmostEqual(self.result("ours")["displaced"][0]["worth_s"], 102.0 - 90.1)

    def test_names_are_those_that_there_are_each_once(self):
        self.assertEqual(disciplines.names("all"), ["ours", "fair", "priority", "edf"])
        self.assertEqual(disciplines.names("edf,ours"), ["edf", "ours"])
        for wrong in ("", "tcp", "ours,ours", "ours,"):
            with self.assertRaisesRegex(argparse.ArgumentTypeError, "wants some of"):
                disciplines.names(wrong)


class Fits(unittest.TestCase):
    def mark(self, flows=(), **changes):
        lines = topology.parse(SITE)
        one = {"node": "b-1", "to": "a-1", "ready": 0, "deadline": 10, "delta": 60 * 10 ** 6}
        two = {"node": "b-2", "to": "a-1", "ready": 0, "deadline": 10, "delta": 50 * 10 ** 6, **changes}
        displaced = [one, two]
        judge.mark_fits(lines, list(flows), displaced)
        return [each["fits"] for each in displaced]

    def test_each_alone_fits_and_both_do_not_on_one_building_line(self):
        self.assertEqual(self.mark(deadline=30, ready=20), [True, True])  # one after the other
        self.assertEqual(self.mark(delta=52 * 10 ** 6), [True, True])  # 112 MB of 112.5 MB
        self.assertEqual(self.mark(delta=53 * 10 ** 6), [False, False])

    def test_the_floors_own_line_is_the_narrow_one(self):
        self.assertEqual(self.mark(delta=57 * 10 ** 6, deadline=10, ready=0)[1], False)
        self.assertEqual(self.mark(to=None, delta=100 * 10 ** 6), [True, True])  # only its own line is looked at

    def test_what_others_send_at_a_fixed_rate_is_not_there(self):
        self.assertEqual(self.mark([{"from": "b-1", "to": "a-1", "rate": "80mbit"}]), [False, False])

    def test_what_was_saved_after_the_deadline_cannot_fit(self):
        self.assertEqual(self.mark(ready=11)[1], False)


class Owners(unittest.TestCase):
    def test_acts_follow_from_the_seed_and_do_not_overlap(self):
        spec, nodes = {"mean_free_s": 20, "hold_s": [5, 10], "group": 0.5}, ["a-1", "a-2", "b-1"]
        acts, left_out = owners.made_up(spec, MIX, nodes, 3, 600)
        self.assertEqual((acts, left_out), owners.made_up(spec, MIX, nodes, 3, 600))
        self.assertNotEqual(acts, owners.made_up(spec, MIX, nodes, 4, 600)[0])
        self.assertGreater(left_out, 0)
        for node in nodes:
            mine = [act for act in acts if act.node == node]
            self.assertGreater(len(mine), 5)
            self.assertTrue(all(one.until_s + owners.SETTLE_S <= two.at_s for one, two in zip(mine, mine[1:])))
            self.assertTrue(all(act.until_s <= 600 for act in mine))
        self.assertEqual({act.kind for act in acts}, set(owners.KINDS))

    def test_a_node_is_taken_when_its_lab_uses_it_after_it_was_free_for_long_enough(self):
        idle = [16] * 12 + [8] * 3 + [16] * 4 + [0] * 2 + [16] * 12 + [0] * 5
        trace = list(enumerate(idle))
        self.assertEqual(owners.busy_spells(trace, 0, 0, len(trace), 10), [(19, 2), (33, 5)])
        self.assertEqual(owners.busy_spells(trace, 1, 0, len(trace), 10), [(12, 3), (33, 5)])  # 4 minutes are too short
        spec = {"speed": 60, "min_free": 10, "hold_s": [1, 3], "nodes": {"b-1": {"lab": "x", "index": 0}}}
        mix = {"notice": 1, "notice_s": 2}
        acts, _ = owners.from_traces(spec, mix, ["a-1", "b-1"], {"x": trace}, 1, 37)
        # The other one would end too late.
        self.assertEqual([(act.at_s, act.node, act.hold_s) for act in acts], [(19, "b-1", 2)])
        with self.assertRaisesRegex(Bad, "the slice ends at"):
            owners.from_traces(spec, MIX, ["b-1"], {"x": trace}, 1, 3600)

    def test_who_fills_the_line_follows_from_the_seed_and_changes_nothing_else(self):
        spec = {"owners": {"mean_free_s": 20, "hold_s": [5, 10], "take": ["a-1", "b-1"]}, "mix": MIX}
        acts, _, _ = scenario.schedule(spec, ["a-1", "b-1", "c-1"], 3, 600, None)
        self.assertEqual({act.node for act in acts}, {"a-1", "b-1"})
        half = owners.filling(acts, 0.5, 3)
        self.assertEqual(half, owners.filling(acts, 0.5, 3))
        self.assertEqual([act.at_s for act in half], [act.at_s for act in acts])
        self.assertTrue(any(act.fills for act in half))
        self.assertEqual({act.kind for act in owners.filling(acts, 1, 3) if not act.fills}, {"emergency", "lost"})
        self.assertFalse(any(act.fills for act in owners.filling(acts, 0, 3)))

    def test_a_trace_with_a_gap_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "lab.csv.gz")
            rows = "time,idle_gpus\n2020-05-01 00:00:00,3\n2020-05-01 00:01:00,4\n"
            path.write_bytes(gzip.compress(rows.encode()))
            self.assertEqual(owners.read_trace(path), [(0, 3), (1, 4)])
            path.write_bytes(gzip.compress((rows + "2020-05-01 00:03:00,4\n").encode()))
            with self.assertRaisesRegex(Bad, "gap"):
                owners.read_trace(path)
            path.write_bytes(b"no gzip")
            with self.assertRaisesRegex(Bad, "no trace"):
                owners.read_trace(path)


class Lines(unittest.TestCase):
    def test_a_path_goes_up_to_the_lowest_switch_that_both_share(self):
        lines = topology.parse(SITE)
        way = [one[:2] for one in lines.path("b-2", "b-1")]
        self.assertEqual(way, [("b-2", "up"), ("floor", "up"), ("b-1", "down")])
        self.assertEqual(lines.path("a-1", "b-2"), [
            ("a-1", "up", 100e6), ("b", "down", 100e6), ("floor", "down", 40e6), ("b-2", "down", 1e9)])

    def test_each_direction_is_shaped_where_bytes_enter_it(self):
        made = [" ".join(command) for command in topology.commands(topology.parse(SITE), "tb1", "tbf")]
        self.assertIn("ip -n rn-tb1-switch link set d2 master s1 up", made)  # floor's line hangs at b, which came first
        self.assertTrue(any("dev u2 root" in one and "rate 50000000bit" in one for one in made))
        self.assertTrue(any("dev d2 root" in one and "rate 40000000bit" in one for one in made))
        self.assertTrue(any("-n rn-tb1-b-2 " in one and "dev eth0" in one and "1000000000bit" in one for one in made))
        self.assertIn("ip -n rn-tb1-switch link set p-b-2 master s2", made)

    def test_the_number_of_nodes_must_be_there(self):
        self.assertEqual(topology.count_nodes(topology.parse(SITE), None), 3)
        with self.assertRaisesRegex(Bad, "give 1 to 3"):
            topology.count_nodes(topology.parse(SITE), 4)


class Guests(unittest.TestCase):
    def test_an_interrupted_guest_ends_with_the_bytes_of_an_undisturbed_one(self):
        with tempfile.TemporaryDirectory() as folder:
            one, two = (pathlib.Path(folder, name) for name in ("one", "two"))
            one.mkdir(), two.mkdir()
            guest.undisturbed("g", 30, 1, 3, one)
            for stop in (7, 19, 30):
                again = guest.Guest("g", 1, 3, two)
                again.resume()
                while again.step < stop:
                    again.do_step()
                again.save()
                again.do_step()  # which is lost
            last = guest.Guest("g", 1, 3, two)
            self.assertEqual(last.resume(), "checkpoint")
            last.finish()
            for file in ("result", "state.ckpt"):
                self.assertEqual((one / file).read_bytes(), (two / file).read_bytes(), file)

    def test_the_true_delta_is_what_differs(self):
        one = guest.Guest("g", 1, 3)
        for _ in range(4):
            one.do_step()
        before = bytes(one.state)
        for _ in range(3):
            one.do_step()
        differing = sum(before[at:at + guest.BLOCK] != one.state[at:at + guest.BLOCK]
                        for at in range(0, len(before), guest.BLOCK))
        self.assertEqual(guest.dirty_bytes(1, 3, 4, 7), differing * guest.BLOCK)
        self.assertEqual(guest.dirty_bytes(1, 3, 4, 400), 1 << 20)

    def test_a_torn_state_is_no_state(self):
        with tempfile.TemporaryDirectory() as folder:
            guest.undisturbed("g", 3, 1, 3, folder)
            state = pathlib.Path(folder, "state.ckpt")
            state.write_bytes(state.read_bytes()[:-1])
            with self.assertRaises(SystemExit):
                guest.Guest("g", 1, 3, folder).resume()


class Words(unittest.TestCase):
    def test_logs_and_flows_are_read_and_torn_lines_left_out(self):
        log = students.read_log("begin step=3 from=checkpoint time=10.000\nsaved step=5 time=12.500\nsaved step=6 ti")
        self.assertEqual((log["began"], log["begin"], log["saved"], log["done"]), (10.0, 3, [[5, 12.5]], False))
        bulk = ("1795562203[  5]   0.00-1.00   sec  1.25 MBytes  10483 Kbits/sec                  \n"
                "1795562204[  5]   0.00-9.00   sec  2.50 MBytes  10476 Kbits/sec                  receiver\n")
        self.assertEqual(bystanders.bulk_samples(bulk), [(1795562203, 10483e3)])
        self.assertEqual(bystanders.small_samples("1.5000 0.010000\n2.0000 failed\n3.0"), [(1.5, 0.01), (2.0, None)])

    def test_a_scenario_with_a_mistake_is_refused_by_name(self):
        good = {"topology": "x", "nodes": 2, "minutes": 3, "peer": "p", "mix": dict(MIX),
                "owners": {"mean_free_s": 5, "hold_s": [1, 2]},
                "jobs": {"at_once": 1, "steps": [1, 2], "save_every": [1, 2], "step_ms": 5, "state_mib": [1, 2],
                         "blocks": 1, "term_share": 0}}
        scenario.check(copy.deepcopy(good), "f")
        for wrong, said in (({"minuets": 3}, "no field 'minuets'"), ({"minutes": 0}, "minutes"),
                            ({"mix": {**MIX, "lost": 0.5}}, "add up to 1"),
                            ({"owners": {"hold_s": [1, 2]}}, "mean_free_s"),
                            ({"owners": {**good["owners"], "fills": {"to": "p", "share": 2}}}, "between 0 and 1"),
                            ({"owners": {**good["owners"], "fills": "p"}}, "share: "),
                            ({"owners": {**good["owners"], "take": "a-1"}}, "a list of nodes"),
                            ({"traffic": [{"kind": "huge", "from": "a", "to": "b"}]}, "traffic"),
                            ({"mix": {**MIX, "notice_s": -5}}, "notice_s"), ({"jobs": {}}, "is missing")):
            with self.assertRaisesRegex(Bad, said):
                scenario.check({**copy.deepcopy(good), **wrong}, "f")
        for file in (ROOT / "tests" / "testbed").glob("*.yaml"):
            if not file.name.endswith(".topology.yaml"):
                self.assertTrue(pathlib.Path(scenario.read(file)["topology"]).exists(), file)


if __name__ == "__main__":
    unittest.main()
