#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The pure parts of scripts/compare-slurm.sh: the plan that both sides play, Slurm's configuration, how a guest's log
is read, and what records show. No Slurm, no daemon, no network."""
import copy
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
for folder in ("tests/system/lib", "scripts/testbed", "scripts/compare_slurm"):
    sys.path.insert(0, str(ROOT / folder))
import account  # noqa: E402
import compare  # noqa: E402
import conf  # noqa: E402
import lines as topology  # noqa: E402
import plan as plans  # noqa: E402
import reclaimnet_side  # noqa: E402
import report  # noqa: E402
import slurm_side  # noqa: E402
from lines import Bad  # noqa: E402
from students import Students  # noqa: E402

NODES = {"node-1": "10.77.5.12", "node-2": "10.77.5.13"}


def packets(begin, step, count):
    """A step a second."""
    return [[begin + index, step + index] for index in range(count)]


def a_record(side="slurm", variant="s1", repetition=0):
    """node-1's owner takes it back at 130.5, when its guest has done 30 steps and saved 20. Slurm: the owner's job
    starts after a second, the guest at 140 on node-2, from step 20. ReclaimNet: cleared after 2.1 s, the guest's last
    step is kept, and it goes on at 135."""
    is_slurm = side == "slurm"
    again = (140, 20) if is_slurm else (135, 30)
    saved = [[20, 120.0]] if is_slurm else [[20, 120.0], [30, 130.4]]
    log = {"began": 100.0, "begin": 0, "from": "nothing", "saved": saved, "done": False}
    later = {"began": again[0] - 0.1, "begin": again[1], "from": "checkpoint", "saved": [], "done": True}
    act = {"node": "node-1", "kind": "notice", "notice_s": 10, "begun": 130.5, "command_s": 0.1, "given_back": 150.0,
           "sent": None, "report": None}
    if is_slurm:
        act["started"] = 131.5
    else:
        act["report"] = {"declared_wall_ms": 130600, "declared_ns": 10 ** 9, "cut_ns": 2 * 10 ** 9,
                         "cleared_ns": 3 * 10 ** 9}
    idle = {**copy.deepcopy(act), "node": "node-2", "kind": "emergency", "notice_s": 0, "begun": 110.5}
    if is_slurm:
        idle["started"] = 110.75
    else:
        idle["report"] = {**act["report"], "declared_wall_ms": 110500, "cleared_ns": 10 ** 9 + 5 * 10 ** 8}
    spec = {"steps": 60, "save_every": 20, "state_mib": 16, "blocks": 4, "handles_term": False}
    attempts = [
        {"epoch": "0", "node": "node-1", "end": "requeued", "resumed": 0, "detail": "", "log": log},
        {"epoch": "1", "node": "node-2", "end": "succeeded", "resumed": 0, "detail": "", "log": later}]
    job = {"job": "7", "state": "succeeded", "fault": None, "spec": spec, "attempts": attempts, "generations": [],
           "starts": [{"source": NODES["node-1"], "packets": packets(100, 0, 31)},
                      {"source": NODES["node-2"], "packets": packets(*again, 60 - again[1] + 1)}]}
    about = {"side": side, "variant": variant, "repetition": repetition, "seed": 1 + repetition, "machine": "2 cores",
             "load": "1.0 1.1 1.2", "commit": "abc", "when": "today", "nodes": 2, "guests": 1,
             "save_s": 30}
    about.update({"slurm": "slurm-wlm 22.05.8"} if is_slurm else {"programs": "def, Release"})
    return {"about": about, "topology": plans.topology(NODES), "nodes": NODES, "traffic": [], "baseline": [],
            "played": [90, 300], "acts": [idle, act], "jobs": {"g0": job}, "flows": [], "faults": [], "deadlines": {}}


class Plan(unittest.TestCase):
    def test_both_variants_and_sides_get_the_same_owners_and_the_same_jobs(self):
        one, two = plans.make("s1", 5, 24, 3), plans.make("s2", 5, 24, 3)
        self.assertEqual(one.acts, two.acts)
        self.assertNotEqual(one.acts, plans.make("s1", 5, 24, 4).acts)
        drawn = []
        for plan in (one, two):
            students = Students(None, plan.scenario["jobs"], plan.seed)
            drawn.append([(students.draw("steps"), students.draw("save_every"), students.draw("state_mib"),
                           students.rng.random() < plan.scenario["jobs"]["term_share"]) for _ in range(20)])
        self.assertEqual([job[:3] for job in drawn[0]], [job[:3] for job in drawn[1]])
        self.assertEqual(({job[3] for job in drawn[0]}, {job[3] for job in drawn[1]}), ({False}, {True}))

    def test_a_plan_has_as_many_reclaims_as_are_asked_for_and_none_while_the_owner_is_there(self):
        plan = plans.make("s1", 4, 30, 1)
        self.assertEqual((len(plan.acts), {act.kind for act in plan.acts}), (30, {"notice", "emergency"}))
        self.assertEqual(sorted({act.node for act in plan.acts}), list(plan.nodes))
        for node in plan.nodes:
            mine = [act for act in plan.acts if act.node == node]
            self.assertTrue(all(one.until_s < two.at_s for one, two in zip(mine, mine[1:])))
        self.assertGreaterEqual(plan.seconds, max(act.until_s for act in plan.acts))

    def test_its_topology_is_one_switch_with_every_machine_and_the_desk(self):
        lines = topology.parse(plans.make("s1", 3, 1, 1).scenario["topology"])
        self.assertEqual([one.name for one in lines.nodes], ["node-1", "node-2", "node-3", "desk"])
        self.assertEqual(lines.path("node-1", "desk"), [("node-1", "up", 1e9), ("desk", "down", 1e9)])

    def test_who_plays_first_changes_and_seeds_go_up_by_repetition(self):
        flags = compare.parse_arguments(["--reps", "2", "--reclaims", "3", "--nodes", "2", "--seed", "7"])
        found = [(repetition, side, plan.variant, plan.seed) for repetition, side, plan in compare.plays_of(flags)]
        self.assertEqual(found, [
            (0, "slurm", "s1", 7), (0, "reclaimnet", "s1", 7), (0, "reclaimnet", "s2", 7), (0, "slurm", "s2", 7),
            (1, "reclaimnet", "s1", 8), (1, "slurm", "s1", 8), (1, "slurm", "s2", 8), (1, "reclaimnet", "s2", 8)])
        only = compare.parse_arguments(["--quick", "--only", "slurm", "--variants", "s2"])
        self.assertEqual([(side, plan.variant, len(plan.acts)) for _, side, plan in compare.plays_of(only)],
                         [("slurm", "s2", 4)])
        with self.assertRaisesRegex(Bad, "no variant 's3'"):
            compare.plays_of(compare.parse_arguments(["--variants", "s3"]))


class Conf(unittest.TestCase):
    def test_guests_are_requeued_for_owners_after_their_grace(self):
        text = conf.slurm_conf("host", "10.77.5.11", NODES, "/tmp/rn-x/slurm", 10)
        for line in (
                "SlurmctldHost=host(10.77.5.11)", "PreemptType=preempt/partition_prio", "PreemptMode=REQUEUE",
                "JobRequeue=1", "AuthInfo=socket=/tmp/rn-x/slurm/munge/socket,cred_expire=5",
                "NodeName=node-2 NodeHostname=host NodeAddr=10.77.5.13 Port=6818 CPUs=1 State=UNKNOWN",
                "PartitionName=guest Nodes=node-1,node-2 MaxTime=INFINITE State=UP Default=YES PriorityTier=1 "
                "PreemptMode=REQUEUE GraceTime=10",
                "PartitionName=owner Nodes=node-1,node-2 MaxTime=INFINITE State=UP Default=NO PriorityTier=10 "
                "PreemptMode=OFF"):
            self.assertIn(line, text.splitlines())
        self.assertIn("GraceTime=0", conf.slurm_conf("host", "10.77.5.11", NODES, "/tmp/rn-x/slurm", 0))

    def test_every_file_lies_in_its_own_folder(self):
        text = conf.slurm_conf("host", "10.77.5.11", NODES, "/tmp/rn-x/slurm", 0) + conf.cgroup_conf()
        files = re.findall(r"=(/[^,\n]*)", text)
        self.assertGreater(len(files), 6)
        self.assertEqual([file for file in files if not file.startswith("/tmp/rn-x/slurm/")], [])

    def test_a_guest_that_is_told_is_a_step_and_another_one_the_script_itself(self):
        self.assertRegex(conf.guest_script(["g0", 3], True), r"\nexec srun .* /usr/bin/python3 -B guest.py g0 3\n$")
        self.assertRegex(conf.guest_script(["g0", 3], False), r"\nexec /usr/bin/python3 -B guest.py g0 3\n$")
        command = conf.guest_command("g0", "/shared/g0", "/g0.sh")
        self.assertIn("--requeue", command)
        self.assertEqual(command[command.index("--partition") + 1], "guest")
        owner = conf.owner_command("node-2", "/owner.sh", "/mark")
        self.assertEqual((owner[owner.index("--nodelist") + 1], owner[owner.index("--partition") + 1], owner[-2:]),
                         ("node-2", "owner", ["/owner.sh", "/mark"]))


class Logs(unittest.TestCase):
    def test_what_a_guests_script_writes_is_read_back_attempt_by_attempt(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(ROOT / "scripts" / "testbed" / "guest.py", folder)
            text = ""
            for restart, steps in (("", 4), ("1", 8)):
                script = conf.guest_script(["g0", steps, 2, 1, 1, 1], False)
                environment = {**os.environ, "SLURMD_NODENAME": f"node-{steps}", "SLURM_RESTART_COUNT": restart}
                text += subprocess.run(["sh", "-c", script], cwd=folder, env=environment, capture_output=True,
                                       text=True, check=True, timeout=30).stdout
        found = slurm_side.attempts_of(text)
        self.assertEqual([(one["epoch"], one["node"], one["log"]["begin"], one["log"]["from"]) for one in found],
                         [("0", "node-4", 0, "nothing"), ("1", "node-8", 4, "checkpoint")])
        self.assertEqual([step for step, _ in found[1]["log"]["saved"]], [6, 8])

    def test_an_attempt_that_was_killed_is_requeued_and_the_last_one_open(self):
        head = "attempt restart={} node=node-1 time={}.000\nbegin step=0 from=nothing time={}.100\n"
        text = head.format(0, 100, 100) + "saved step=3 time=103.000\nslurmstepd: error: CANCELLED\nsaved step=4 ti\n"
        found = slurm_side.attempts_of(text + head.format(1, 110, 110))
        self.assertEqual([one["end"] for one in found], ["requeued", ""])
        self.assertEqual([one["log"]["saved"] for one in found], [[[3, 103.0]], []])
        self.assertEqual(slurm_side.attempts_of("no attempt yet\n"), [])

    def test_a_preempted_job_is_alive(self):
        self.assertEqual([slurm_side.word_of(one) for one in (
            "PENDING", "RUNNING", "COMPLETING", "PREEMPTED", "REQUEUED", "COMPLETED", "FAILED", "CANCELLED")],
            ["running"] * 5 + ["succeeded", "failed", "failed"])


class Account(unittest.TestCase):
    def test_what_slurms_guest_lost_and_how_long_its_owner_waited(self):
        play = account.play_of(a_record("slurm"))
        (one,) = play["displaced"]
        self.assertEqual([one[name] for name in ("lost_steps", "lost_s", "silence_s", "downtime_s", "kind")],
                         [10, 10.0, 10.0, 21.0, "notice"])
        self.assertEqual([(owner["wait_s"], owner["displaced"]) for owner in play["owners"]], [(0.25, 0), (1.0, 1)])
        self.assertEqual((play["work"]["useful_steps"], play["work"]["steps_again"]), (60, 10))

    def test_what_ours_lost_is_counted_in_the_same_way(self):
        play = account.play_of(a_record("reclaimnet"))
        (one,) = play["displaced"]
        self.assertEqual([one[name] for name in ("lost_steps", "lost_s", "silence_s", "downtime_s")], [0, 0.0, 5, 6])
        self.assertEqual([round(owner["wait_s"], 6) for owner in play["owners"]], [0.5, 2.1])
        self.assertEqual((play["work"]["useful_steps"], play["work"]["steps_again"]), (60, 0))
        self.assertAlmostEqual(play["work"]["useful_share"], 60 / 65)  # a step a second, from 100 to 165

    def test_a_guest_that_had_done_its_last_step_and_must_come_again_has_lost_what_it_does_again(self):
        record = a_record("slurm")
        record["jobs"]["g0"]["spec"]["steps"] = 30
        record["jobs"]["g0"]["starts"][1]["packets"] = packets(140, 20, 11)
        (one,) = account.play_of(record)["displaced"]
        self.assertEqual((one["lost_steps"], one["lost_s"], one["downtime_s"]), (10, 10.0, None))
        del record["jobs"]["g0"]["starts"][1]  # it had saved that last step, and nobody needed it again
        self.assertEqual(account.play_of(record)["displaced"], [])

    def test_a_last_step_that_was_saved_and_not_told_is_no_negative_loss(self):
        record = a_record("reclaimnet")
        record["jobs"]["g0"]["starts"][1]["packets"] = packets(135, 31, 30)
        work = account.play_of(record)["work"]
        self.assertEqual((work["useful_steps"], work["steps_again"]), (60, 0))

    def test_a_start_after_the_last_step_costs_nothing(self):
        record = a_record("reclaimnet")
        record["jobs"]["g0"]["starts"].append({"source": NODES["node-1"], "packets": [[200, 60]]})
        self.assertAlmostEqual(account.play_of(record)["work"]["useful_share"], 60 / 65)

    def test_an_owner_whose_machine_was_never_said_to_be_free_has_no_waiting_time(self):
        record = a_record("reclaimnet")
        record["acts"][1]["report"] = None
        play = account.play_of(record)
        self.assertIsNone(play["owners"][1]["wait_s"])
        self.assertEqual(account.side_of([play])["kinds"]["all"]["wait_s"]["n"], 1)

    def test_ratios_are_ours_over_slurms_also_repetition_by_repetition(self):
        later = a_record("reclaimnet", repetition=1)
        later["jobs"]["g0"]["starts"][1]["packets"] = packets(145, 30, 31)  # ten seconds later
        result = account.result_of([a_record("slurm"), a_record("reclaimnet"), a_record("slurm", repetition=1), later])
        ratios = result["variants"]["s1"]["ratios"]["all"]
        self.assertEqual((ratios["lost_s"]["mean"], ratios["downtime_s"]["mean"]), (0.0, 11 / 21))
        self.assertEqual(ratios["downtime_s"]["mean_by_repetition"], [6 / 21, 16 / 21])
        totals = result["variants"]["s1"]["ratios_of_totals"]
        self.assertEqual(result["variants"]["s1"]["sides"]["slurm"]["lost_a_reclaim_s"], 5.0)  # 20 s of 4 reclaims
        self.assertEqual((totals["lost_a_reclaim_s"], totals["again_of_useful"]), (0, 0))
        kinds = result["variants"]["s1"]["sides"]["slurm"]["kinds"]
        self.assertEqual((kinds["emergency"]["reclaims"], kinds["emergency"]["displaced"]), (2, 0))
        self.assertEqual((kinds["notice"]["wait_with_guest_s"]["n"], kinds["all"]["wait_s"]["n"]), (2, 4))

    def test_one_side_alone_has_no_ratios_and_wrong_results_are_faults(self):
        record = a_record("slurm")
        record["jobs"]["g0"]["fault"] = "result is not that of an undisturbed run"
        result = account.result_of([record])
        self.assertNotIn("ratios", result["variants"]["s1"])
        self.assertEqual(result["faults"], ["s1 slurm 0: g0 result is not that of an undisturbed run"])
        self.assertIn("FAULT s1 slurm 0: g0", report.text(result))

    def test_a_record_is_judged_twice_with_the_same_result(self):
        records = [a_record("slurm"), a_record("reclaimnet")]
        before = copy.deepcopy(records)
        self.assertEqual(account.result_of(records), account.result_of(records))
        self.assertEqual(records, before)


class Programs(unittest.TestCase):
    def test_the_build_folder_says_from_what_it_is_made(self):
        cache = "CMAKE_BUILD_TYPE:STRING=Release\nCMAKE_HOME_DIRECTORY:INTERNAL=/sources\n"
        self.assertEqual([reclaimnet_side.cached(cache, name) for name in (
            "CMAKE_BUILD_TYPE", "CMAKE_HOME_DIRECTORY", "CMAKE_HOME")], ["Release", "/sources", ""])


class Report(unittest.TestCase):
    def test_the_page_stands_alone_and_has_every_guest_and_owner_as_a_dot(self):
        result = account.result_of([a_record("slurm"), a_record("reclaimnet")])
        page = report.page(result)
        self.assertEqual(page.count("<circle"), 2 + 2 + 4)  # lost, downtime, waits
        self.assertEqual(re.findall(r"(?:src|href)=|@import|url\(", page), [])
        self.assertEqual(page, report.page(result))

    def test_files_have_machine_commit_n_and_the_samples(self):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder)
            report.write(out, account.result_of([a_record("slurm"), a_record("reclaimnet")]))
            text = (out / "result.txt").read_text()
            self.assertRegex(text, r"machine: 2 cores; load 1 to 1; commit abc")
            self.assertIn("slurm-wlm 22.05.8; ReclaimNet's programs: def, Release; 2 nodes", text)
            self.assertRegex(text, r"all +work lost .* 10\.00 / 10\.00 / 10\.00 \(n=1\) +0\.00 / .* 0\.00\n")
            self.assertEqual(len((out / "displaced.csv").read_text().splitlines()), 3)
            self.assertEqual((out / "owners.csv").read_text().splitlines()[1],
                             "s1,slurm,0,1,node-2,emergency,110.5,0,0.25")


if __name__ == "__main__":
    unittest.main()
