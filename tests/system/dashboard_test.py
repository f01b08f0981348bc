#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The dashboard in real Chromium: a coordinator, two machines with agents and wardens, a job that is displaced. The
browser's side of the story is web/tests/browser.mjs, which asks here for what is done outside of it. With
RN_SHOTS=FOLDER its pictures are kept there."""
import json
import pathlib
import re
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
from browser_story import BrowserStory  # noqa: E402
from rn_site import Cli  # noqa: E402
from stories import Site  # noqa: E402

RATE_MBIT = 8  # of an evacuation: some seconds for each, so that the coordinator plans it
EVACUEE_MIB = 4
# All that it saves is new each time.
EVACUEE = f"""
save() {{ dd if=/dev/urandom of=new.tmp bs=1M count={EVACUEE_MIB} 2>/dev/null && mv new.tmp state.bin; }}
trap save TERM
save
while true; do sleep 1 & wait $!; done
"""
LENDS = {"guest_disk_mib": 128, "guest_memory_mib": 512, "notice_s": 20,
         "uplink_bps_normal": RATE_MBIT * 1_000_000, "uplink_bps_evacuation": RATE_MBIT * 1_000_000}
CARD = [{"index": 0, "uuid": "GPU-declared-0", "model": "declared card", "memory_mib": 24576,
         "compute_capability": "8.6"}]
LIMIT_S = 420


class Dashboard(BrowserStory, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.site = Site({"lab-a": LENDS, "lab-b": LENDS}, flags=["--min-residence-s", 600, "--rollup-s", 10],
                        node_config={"gpus": CARD})
        cls.addClassCleanup(cls.site.down)

    def token(self, user, lab, role, **more):
        return self.site.rest.post("/v1/tokens", {"kind": "user", "user": user, "lab": lab, "role": role, **more})

    def test_owner_student_and_operator_see_what_happens(self):
        site = self.site
        expired = self.token("late", "lab-s", "user", ttl_s=1)["token"]
        self.student = self.token("student", "lab-s", "user")
        site.cli = Cli(site.labs, site.coordinator, token=self.student["token"])
        site.submit("secret-name", 100000, 10, 0.2, ballast_kib=64)
        site.wait("it to run", lambda: site.lab_of("secret-name"), 90)
        site.wait("a save", lambda: site.generation("secret-name") > 0, 60)
        self.lab = site.lab_of("secret-name")
        told = {
            "url": site.coordinator.url, "lab": self.lab, "job": site.job("secret-name")["number"],
            "host": site.rest.nodes()[self.lab]["facts"]["hostname"],
            "tokens": {"owner": self.token("olga", self.lab, "owner")["token"], "student": self.student["token"],
                       "admin": (site.coordinator.state / "admin.token").read_text().strip(), "expired": expired}}
        self.play("browser.mjs", told, LIMIT_S)

    def test_the_same_order_by_a_command_ends_when_the_machine_is_cleared(self):
        site, node = self.site, self.site.nodes["lab-b"]
        told = site.rest.nodes()["lab-b"]
        owner = Cli(site.labs, site.coordinator, token=self.token("otto", "lab-b", "owner")["token"])
        before = self.orders()

        done = owner("take", "--now", told["id"])

        self.assertEqual(done.stdout, f"lab-b/{told['facts']['hostname']} is cleared\n")
        self.assertRegex(done.stderr, r"has begun\nnetwork cut after .*\n(guests ended after .*\n)?cleared after ")
        self.assertIn("cleared", [one["phase"] for one in node.view()["reclaims"]])
        node.owner("release")
        site.wait("it to be lent again", lambda: site.rest.nodes()["lab-b"]["lending"] == "open", 30)
        answer = owner.json("take", told["id"], "--gpu", "0", "--in", "2h", "--detach")
        node.owner("release")
        order = answer["order"]
        self.assertEqual((order["state"], order["in_s"], order["gpus"]), ("taken", 7200, [0]))
        student = Cli(site.labs, site.coordinator, token=self.token("stu", "lab-b", "user")["token"])
        self.assertEqual(student("take", told["id"], check=False).returncode, 4)
        self.assertEqual({outcome: count - before[outcome] for outcome, count in self.orders().items()},
                         {"given": 2, "taken": 2, "refused": 0, "expired": 0, "unanswered": 0})

    def test_a_contract_is_changed_by_a_command_and_one_that_lends_more_waits_for_the_machine(self):
        site, node = self.site, self.site.nodes["lab-b"]
        told = site.rest.nodes()["lab-b"]["id"]
        owner = Cli(site.labs, site.coordinator, token=self.token("omar", "lab-b", "owner")["token"])
        before = node.view()["contract"]
        file = site.labs.dir / "contract.yaml"

        def write(**more):
            lines = [line for line in owner("contract", "get", told).stdout.splitlines()
                     if line.split(":")[0] not in more]
            file.write_text("\n".join(lines + [f"{key}: {json.dumps(value)}" for key, value in more.items()]) + "\n")

        write(max_guests=3)
        answer = owner.json("contract", "set", told, str(file), "--yes")
        self.assertEqual(answer["state"], "in_force", answer)
        self.assertEqual(node.view()["contract"], {**before, "max_guests": 3})

        write(max_guests=16)
        waits = owner("contract", "set", told, str(file), "--yes")
        self.assertIn("waits at lab-b/", waits.stdout)
        self.assertIn("max_guests: 16 is more than 3", waits.stderr)
        self.assertEqual(node.view()["contract"]["max_guests"], 3)
        again = owner("contract", "set", told, str(file), "--yes", check=False)
        self.assertEqual(again.returncode, 5, again.stderr)
        self.assertIn("a change by omar waits", again.stderr)
        self.assertIn("--replace", again.stderr)
        self.assertIn("max_guests: 16, and it was 3", owner("contract", "diff", told).stdout)

        node.agent.stop()
        node.start_agent()
        site.wait("its agent to be back", lambda: site.rest.nodes()["lab-b"]["is_connected"], 60)
        self.assertIn("# A change by omar", node.owner("contract", "pending").stdout)
        node.owner("contract", "reject")
        self.assertEqual(node.view()["contract"]["max_guests"], 3)
        site.wait("nothing to wait", lambda: owner("contract", "diff", told).stdout == "", 30)
        self.assertEqual(owner("contract", "set", told, str(file), "--yes").returncode, 0)
        node.owner("contract", "accept", "--yes")
        self.assertEqual(node.view()["contract"], before)

        write(notice_s=901)
        bad = owner("contract", "set", told, str(file), "--yes", check=False)
        self.assertEqual(bad.returncode, 2, bad.stderr)
        self.assertIn("notice_s: is more than 900", bad.stderr)
        student = Cli(site.labs, site.coordinator, token=self.token("sue", "lab-b", "user")["token"])
        self.assertEqual(student("contract", "set", told, str(file), "--yes", check=False).returncode, 4)

    def orders(self):
        page = self.site.rest.call("GET", "/metrics").decode()
        found = re.findall(r'^reclaimnet_reclaim_orders_total\{outcome="(\w+)"\} (\d+)$', page, re.M)
        return {outcome: int(count) for outcome, count in found}

    # --- what the browser asks for

    def act_reclaim(self):
        self.site.nodes[self.lab].owner("reclaim", "--now", "-m", "a lecture")

    def act_cleared_ago(self):
        """Between the coordinator's own event and now: the page has just shown it."""
        at = max(event["at_wall_ms"] for event in self.site.rest.events() if event["kind"] == "reclaim.cleared")
        return {"shown_ms": int(time.time() * 1000) - at}

    def act_release(self):
        self.site.nodes[self.lab].owner("release")

    def act_taken(self):
        """Kinds of the reclaims that hold, as the machine itself says."""
        reclaims = self.site.nodes[self.lab].view()["reclaims"]
        return [one["kind"] for one in reclaims if one["phase"] != "returned"]

    def act_contract(self):
        return {"contract": self.site.nodes[self.lab].view()["contract"]}

    def act_accept(self):
        self.site.nodes[self.lab].owner("contract", "accept", "--yes")

    def act_stop_agent(self):
        self.site.nodes[self.lab].agent.stop()

    def act_start_agent(self):
        self.site.nodes[self.lab].start_agent()

    def act_stop_coordinator(self):
        self.site.coordinator.process.stop()

    def act_start_coordinator(self):
        self.site.coordinator.start()

    def act_evacuate(self):
        """A job that leaves the machine with all of its state, at a notice; who is told so is the coordinator."""
        site = self.site
        other = next(lab for lab in site.nodes if lab != self.lab)
        self.evacuee = job = site.rest.with_token(self.student["token"]).post("/v1/jobs", {
            "name": "evacuee", "image": "base", "command": ["sh", "-c", EVACUEE],
            "resources": {"cpu_milli": 200, "cpu_milli_min": 100, "memory_mib": 128, "disk_mib": 64},
            "only_labs": [self.lab], "notice_s": LENDS["notice_s"],
            "checkpoint": {"paths": ["state.bin"], "temporary": ["*.tmp"], "destinations": [other]}})["job"]["id"]
        site.wait("its first save to be elsewhere", lambda: site.rest.job(job)["durable"]["generation"] > 0, 90)
        site.nodes[self.lab].owner("reclaim", "-m", "a lecture")
        host = site.rest.nodes()[other]["facts"]["hostname"]
        return {"number": site.rest.job(job)["number"], "to": f"{host} ({other})"}

    def act_evacuated(self):
        """What the coordinator has told of it, each kind once."""
        return {event["kind"]: event["data"] for event in self.site.rest.events(self.evacuee)
                if event["kind"].startswith("evacuation.")}

    def act_end_evacuee(self):
        self.site.wait("the owner to have the machine", lambda: self.site.last_reclaim(self.lab)["cleared_ns"] > 0, 60)
        self.site.rest.post(f"/v1/jobs/{self.evacuee}/stop", {})
        self.site.nodes[self.lab].owner("release")

    def act_submit(self):
        self.site.submit("another", 100, 10, 0.2)
        return {"number": self.site.job("another")["number"]}

    def act_count_jobs(self, name):
        return {"count": sum(job["spec"]["name"] == name for job in self.site.rest.jobs())}

    def act_revoke_student(self):
        self.site.rest.call("DELETE", f"/v1/tokens/{self.student['info']['id']}")


if __name__ == "__main__":
    unittest.main(verbosity=2)
