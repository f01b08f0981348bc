#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Who is next when there is room for one: by priority, in turns, and fair, net of what the student's own laboratory
lends. The same site, its coordinator started anew with each strategy; usage is what real jobs have used on real nodes
before, and survives the restart. Each order is what `reclaim why` says beforehand, and then what happens."""
import pathlib
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
from labs import wait_until  # noqa: E402
from one_node import OneNode  # noqa: E402
from rn_site import Cli  # noqa: E402

ONE = {"cpu_milli": 500, "cpu_milli_min": 500, "memory_mib": 64, "disk_mib": 64}  # the node has room for one of them
STUDENTS = {"ann": "lab-a", "ben": "lab-b", "cem": "lab-c"}  # the node is lab-a's
BEN_S, ANN_S = 4, 6
SAVED_EVERY_S = 15  # the coordinator writes usage every ten seconds


class Queue(OneNode):
    CONTRACT = {"guest_disk_mib": 128, "reserve_disk_mib": 64, "guest_cpu_milli": 500, "guest_cpu_each_milli": 500}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.admin = cls.coordinator.rest()
        cls.students, cls.clis = {}, {}
        for user, lab in STUDENTS.items():
            token = cls.admin.post("/v1/tokens", {"kind": "user", "user": user, "lab": lab, "role": "user"})["token"]
            cls.students[user] = cls.admin.with_token(token)
            cls.clis[user] = Cli(cls.labs, cls.coordinator, token=token)

    def begin_with(self, strategy):
        """The same coordinator, started anew; it has its state, and waits for its node to report."""
        self.coordinator.process.stop()
        self.coordinator.flags = [*self.coordinator.flags[:2], "--strategy", strategy]
        self.coordinator.start()
        wait_until("the node to be back", lambda: self.admin.nodes()["lab-a"]["is_connected"], 30)

    def submit(self, user, name, command=("true",), priority=4):
        spec = {"name": name, "image": "base", "command": list(command), "resources": ONE, "priority": priority,
                "checkpoint": {"is_stateless": True}}
        return self.students[user].post("/v1/jobs", spec)["job"]["id"]

    def state(self, job):
        return self.admin.job(job)["state"]

    def fill(self, user):
        """The user's job has the whole node until it is stopped."""
        job = self.submit(user, "blocker", ("sleep", "1000"))
        self.addCleanup(self.stop, job)
        wait_until("the blocker to run", lambda: self.state(job) == "running", 60)
        return job

    def stop(self, job):
        if self.state(job) not in ("succeeded", "failed", "cancelled"):
            self.admin.post(f"/v1/jobs/{job}/stop", {})

    def order_that_why_tells(self, jobs):
        """{name: job} by the position that each one's author is told."""
        positions = {}
        for name, (user, job) in jobs.items():
            told = self.clis[user].json("why", job)
            self.assertEqual(told["state"], "queued", told)
            self.assertIn(f"number {told['queue_position']} of {len(jobs)} in the queue", told["sentence"])
            positions[told["queue_position"]] = name
        return [positions[at] for at in sorted(positions)]

    def order_of_starts(self, jobs):
        def all_over():
            return all(self.state(job) == "succeeded" for _, job in jobs.values())
        wait_until("all jobs to be over", all_over, 120, 0.2)
        starts = {name: self.admin.job(job)["started_wall_ms"] for name, (_, job) in jobs.items()}
        return sorted(starts, key=starts.get)

    def check_order(self, blocker, jobs, expected):
        """Once told, it is kept when the node has room again."""
        self.assertEqual(self.order_that_why_tells(jobs), expected)
        listed = {row["id"]: row["state"] for row in self.cli.json("ps")["jobs"]}
        self.assertEqual(listed, {blocker: "running", **{job: "queued" for _, job in jobs.values()}})
        self.stop(blocker)
        self.assertEqual(self.order_of_starts(jobs), expected)

    def test_a_fair_is_net_of_what_the_own_laboratory_lends(self):
        """ann has used more than ben, both on the node of ann's laboratory: so that one has lent, and ben's has not."""
        self.begin_with("fair")
        for user, seconds in (("ben", BEN_S), ("ann", ANN_S)):
            job = self.submit(user, f"usage-{user}", ("sleep", str(seconds)))
            wait_until(f"{user}'s usage", lambda: self.state(job) == "succeeded", 60)
        blocker = self.fill("cem")
        jobs = {"ben-1": ("ben", self.submit("ben", "ben-1")), "ann-1": ("ann", self.submit("ann", "ann-1"))}

        self.check_order(blocker, jobs, ["ann-1", "ben-1"])

    def test_b_the_usage_of_before_counts_after_a_restart_and_a_newcomer_is_first(self):
        time.sleep(SAVED_EVERY_S)  # what was used last may be forgiven, by a crash too
        self.begin_with("fair")
        blocker = self.fill("cem")
        jobs = {"ben-1": ("ben", self.submit("ben", "ben-1"))}
        fresh = self.admin.post("/v1/tokens", {"kind": "user", "user": "dee", "lab": "lab-d", "role": "user"})["token"]
        self.students["dee"] = self.admin.with_token(fresh)
        self.clis["dee"] = Cli(self.labs, self.coordinator, token=fresh)
        jobs["dee-1"] = ("dee", self.submit("dee", "dee-1"))

        self.check_order(blocker, jobs, ["dee-1", "ben-1"])

    def test_c_in_turns_whoever_has_nothing_running_is_first(self):
        """ann has used most and has the node now; her jobs came first."""
        self.begin_with("round_robin")
        blocker = self.fill("ann")
        jobs = {}
        for user, name in (("ann", "ann-1"), ("ann", "ann-2"), ("ben", "ben-1"), ("ben", "ben-2")):
            jobs[name] = (user, self.submit(user, name))

        self.check_order(blocker, jobs, ["ben-1", "ann-1", "ben-2", "ann-2"])

    def test_d_by_priority_the_lowest_number_is_first_whoever_has_used_what(self):
        self.begin_with("priority")
        blocker = self.fill("cem")
        jobs = {name: (user, self.submit(user, name, priority=priority)) for user, name, priority in (
            ("ben", "ben-late", 7), ("ann", "ann-first", 1), ("ben", "ben-second", 3), ("ann", "ann-third", 3))}

        self.check_order(blocker, jobs, ["ann-first", "ben-second", "ann-third", "ben-late"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
