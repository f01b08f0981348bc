#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bad input on a real coordinator, agent and warden: each gets an error that says what to do next, and nothing that
was acknowledged is lost. docs/bad-input.md lists the items and where each is tested."""
import hashlib
import json
import os
import pathlib
import shutil
import sqlite3
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
import chain  # noqa: E402
import wrong_clock  # noqa: E402
from labs import TimedOut, wait_until  # noqa: E402
from one_node import CONTRACT, OneNode  # noqa: E402
from rest import Refused  # noqa: E402
from rn_site import PORT, Node, program  # noqa: E402


class BadInput(OneNode):
    OTHER_LABS = ("lab-b",)
    DISK = "1G"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.witness = cls.submit(cls.folder("witness"), "true", "--detach").stdout.strip()  # what must not get lost

    @classmethod
    def submit(cls, folder, script, *flags, **options):
        return cls.cli("run", "--disk", "64MB", "--memory", "64MB", *flags, "--", "sh", "-c", script, cwd=folder,
                       **options)

    def tearDown(self):
        """Whatever the input was: what was acknowledged is there."""
        rest = self.coordinator.rest()
        self.assertEqual(rest.job(self.witness)["id"], self.witness)
        self.assertEqual([image["name"] for image in rest.get("/v1/images")["images"]], ["base"])

    def refused(self, status, message, method, path, body=None):
        with self.assertRaises(Refused) as caught:
            self.coordinator.rest().call(method, path, body)
        self.assertEqual(caught.exception.status, status, caught.exception)
        self.assertRegex(caught.exception.error["message"], message)
        self.assertTrue(caught.exception.error["hint"], caught.exception)  # what to do next

    def fails(self, lab, command, *patterns):
        done = self.labs.call(lab, command, check=False)
        self.assertNotEqual(done.returncode, 0, done.stdout)
        for pattern in patterns:
            self.assertRegex(done.stderr, pattern)
        return done

    # ---- requests

    def test_unknown_and_malformed_fields_are_named(self):
        job = {"command": ["true"], "resources": {"memroy_mib": 1}}
        self.refused(400, "resources.memroy_mib: no such field", "POST", "/v1/jobs", job)
        self.refused(400, "priority: expected a whole number", "POST", "/v1/jobs", {**job, "resources": {},
                                                                                     "priority": "high"})
        self.refused(400, ".", "POST", "/v1/jobs", b'{"command": [')

    def test_an_oversize_body_is_refused(self):
        self.refused(413, "too large|larger|limit|bytes", "POST", "/v1/jobs", b" " * ((1 << 20) + 1))

    def test_bytes_with_another_digest_are_refused_and_not_kept(self):
        name = hashlib.sha256(b"these").hexdigest()

        self.refused(422, "the bytes have SHA-256", "PUT", f"/v1/blobs/{name}", b"those")

        self.assertEqual(self.coordinator.rest().post("/v1/blobs/missing", {"digests": [name]})["missing"], [name])

    def test_an_image_off_the_list_is_refused_with_the_list(self):
        done = self.submit(self.folder("off-list"), "true", "--image", "unheard-of", check=False)

        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, "unheard-of")
        self.assertRegex(done.stderr, "base|image ls")

    def test_a_script_that_never_saves_is_said_at_submit(self):
        done = self.submit(self.folder("lost", **{"train.py": "1\n"}), "python train.py", "--max-restarts", "0",
                           "--detach")

        self.assertRegex(done.stderr, "no script here shows a sign of saving")
        self.assertRegex(done.stderr, "--checkpoint GLOB")

    def test_a_token_used_twice_joins_one_node(self):
        token = self.coordinator.rest().join_token("lab-b")
        for place, works in (("first", True), ("second", False)):
            node = Node(self.labs, "lab-b", CONTRACT)
            node.state = self.labs.disk("lab-b") / place
            node.config = {"machine_id_file": str(node.state / "id")}
            node.state.mkdir()
            (node.state / "id").write_text(place)
            node.prepare()
            join = node.as_agent(node.agent_program("join", self.coordinator.url, "--token", token))
            if works:
                self.labs.call("lab-b", join)
            else:
                self.fails("lab-b", join, "used", "reclaim token create")

    # ---- the owner's contract

    def test_a_contract_that_contradicts_itself_leaves_the_old_one_in_force(self):
        bad = self.labs.dir / "bad.yaml"
        bad.write_text(json.dumps({**CONTRACT, "max_guests": 0, "uplink_bps_normal": 10, "uplink_bps_evacuation": 5}))
        before = self.labs.call("lab-a", self.node.agent_program("contract", "show")).stdout

        self.fails("lab-a", self.node.agent_program("contract", "set", bad), "uplink_bps_evacuation", "next:|check")

        self.assertEqual(self.labs.call("lab-a", self.node.agent_program("contract", "show")).stdout, before)

    # ---- machines

    def make_clone(self, machine_id):
        """A copy of the node's identity on another machine."""
        clone = Node(self.labs, "lab-b", CONTRACT)
        clone.state = self.labs.disk("lab-b") / f"clone-{machine_id}"
        shutil.copytree(self.node.state / "agent" / "identity", clone.state / "agent" / "identity")
        subprocess.run(["chown", "-R", "64991:64991", clone.state / "agent"], check=True)
        (clone.state / "machine-id").write_text(f"{machine_id}\n")
        clone.prepare()
        return clone

    def test_a_machine_cloned_with_its_identity_is_refused_and_the_original_stays(self):
        clone = self.make_clone("another-machine")

        serve = clone.as_agent(clone.agent_program("serve"))
        self.fails("lab-b", serve, "belongs to another machine", "join this machine on its own")
        shutil.copy(self.node.state / "machine-id", clone.state / "machine-id")  # the whole disk was copied
        (clone.state / "boot_id").write_text("00000000-0000-4000-8000-000000000000\n")  # each machine boots by itself
        script = f'mount --bind {clone.state}/boot_id /proc/sys/kernel/random/boot_id && exec "$@"'
        agent = self.labs.spawn("lab-b", "clone", ["unshare", "--mount", "sh", "-c", script, "sh", *serve])
        try:
            wait_until("the clone to be told", lambda: "if it is a copy, join it by its own" in agent.output(), 60)
        finally:
            agent.stop()

        wait_until("the original to be up", lambda: self.coordinator.rest().nodes()["lab-a"]["state"] == "up", 30)
        self.assertEqual(self.submit(self.folder("beside-clone"), "echo ok", "--stateless").stdout, "ok\n")

    def test_a_machine_cloned_while_it_runs_is_told_apart_and_one_of_both_stays(self):
        clone = self.make_clone("copied")
        shutil.copy(self.node.state / "machine-id", clone.state / "machine-id")  # and this test's machines boot as one
        clone.start_agent()
        both = (self.node, clone)
        words = "two machines use this identity at the same time"
        try:
            wait_until("one of both to be told", lambda: any(words in node.agent.output() for node in both), 90)
            refused = wait_until("its owner to be told", lambda: next(
                (node for node in both if words in node.owner("status", "--why").stdout), None), 30)
            doctor = self.labs.call(refused.lab, refused.agent_program("doctor"), check=False).stdout
            self.assertRegex(doctor, f"MISSING welcome .*{words}")
            self.assertIn("reclaim-agent join", doctor)
            connections = self.connections()
            time.sleep(6)  # several tries of the refused one: the other must not be thrown out by them
            self.assertEqual(self.connections(), connections)
        finally:
            clone.agent.stop()
        self.assertEqual(self.submit(self.folder("beside-twin"), "echo ok", "--stateless").stdout, "ok\n")

    def connections(self):
        return sum(event["kind"] == "node.connected" for event in self.coordinator.rest().events())

    def test_a_guests_private_files_come_home(self):
        folder = self.folder("private")

        self.submit(folder, "umask 077; mkdir deep; echo 42 > deep/answer; ls -l deep")

        self.assertEqual((folder / "deep" / "answer").read_text(), "42\n")

    def test_zz_a_clock_that_is_hours_off_is_shown_and_jobs_run(self):
        if not wrong_clock.FAKETIME.exists():
            self.skipTest(f"no {wrong_clock.FAKETIME}: scripts/install-deps.sh")
        self.addCleanup(self.node.start_agent)
        self.addCleanup(lambda: self.node.agent.kill())
        for hours in ("+5h", "-5h"):
            self.node.agent.kill()
            self.start_agent_with_clock(self.node, hours)
            self.assertEqual(self.submit(self.folder(f"clock{hours}"), "echo ok", "--stateless").stdout, "ok\n")
            way = "ahead of" if hours == "+5h" else "behind"
            self.assertIn(f"CLOCK: its clock is 5 h {way} the coordinator's; no hours of its contract hang on that\n"
                          "  next: see which of the two is wrong", self.node.owner("status").stdout)
        told = [event for event in self.coordinator.rest().events() if event["kind"] == "node.clock_apart"]
        self.assertEqual(len(told), 1, "once an hour at most")
        self.assertIn("its clock is 5 h ahead of the coordinator's", told[0]["message"])

    def start_agent_with_clock(self, node, hours):
        """With its wall clock so far off, and until the coordinator has seen that."""
        node.agent = wrong_clock.spawn_agent(node, hours)
        self.addCleanup(wrong_clock.remove_leftovers, node.agent.pid)
        try:
            wait_until(f"the node {hours} off", lambda: wrong_clock.is_off(self.coordinator.rest(), node, hours), 30)
        except TimedOut as error:
            self.fail(f"{error}; its agent runs: {node.agent.is_running()}, and said:\n{node.agent.output()[-3000:]}")

    def test_zzz_a_node_whose_clock_is_hours_off_holds_copies(self):
        if not wrong_clock.FAKETIME.exists():
            self.skipTest(f"no {wrong_clock.FAKETIME}: scripts/install-deps.sh")
        found = {"advertise_peer": "", "advertise_api": ""}  # the address that the agent finds by itself
        holder = Node(self.labs, "lab-b", {"lends": False, "reserve_disk_mib": 64}, config=found)
        holder.prepare()
        holder.join(self.coordinator)
        holder.start_warden()
        job = self.cli(
            "run", "--detach", "--disk", "64MB", "--memory", "64MB", "--checkpoint", "*.ckpt", "--", *chain.command(
                100000, 10, 0.2), cwd=chain.make_folder(self.labs.dir / "copied")).stdout.strip()
        rest = self.coordinator.rest()
        try:
            for hours in ("+5h", "-5h"):
                self.start_agent_with_clock(holder, hours)
                before = rest.job(job)["durable"]["generation"]
                wait_until(f"copies at a node {hours} off", lambda least=before: (
                    rest.job(job)["durable"]["generation"] >= least + 2), 150)
                holder.agent.kill()
        finally:
            self.cli("stop", job)

    # ---- disks and the database

    @staticmethod
    def fill(folder):
        """Takes all that is free there; answers the file that does. Others may take of it meanwhile: the engine of a
        node still writes when its first test begins. One that got a part is no file that stays."""
        file = folder / "filler"

        def is_taken():
            free = os.statvfs(folder)
            wanted = str(free.f_bavail * free.f_frsize - (1 << 20))
            done = subprocess.run(["fallocate", "-l", wanted, file], stderr=subprocess.DEVNULL)
            if done.returncode != 0:
                file.unlink(missing_ok=True)
            return done.returncode == 0

        wait_until("the disk to be filled", is_taken, 20, 0.2)
        return file

    def test_a_full_disk_of_the_coordinator_refuses_uploads_and_keeps_what_it_has(self):
        filler = self.fill(self.labs.disk("campus"))
        self.addCleanup(filler.unlink)
        body = os.urandom(2 << 20)

        self.refused(507, "disk|full|free", "PUT", f"/v1/blobs/{hashlib.sha256(body).hexdigest()}", body)

        self.assertTrue(self.coordinator.rest().is_ready())

    def test_a_full_disk_of_a_node_refuses_guests_and_they_run_when_there_is_room(self):
        filler = self.fill(self.labs.disk("lab-a"))
        job = self.submit(self.folder("no-room"), "echo ok", "--stateless", "--detach").stdout.strip()
        rest = self.coordinator.rest()
        try:
            wait_until("the reason to be told", lambda: "disk" in self.cli("why", job).stdout, 30)
            self.assertEqual(rest.job(job)["state"], "queued")
        finally:
            filler.unlink()

        wait_until("the job to succeed", lambda: rest.job(job)["state"] == "succeeded", 60)

    def test_a_second_coordinator_on_the_database_is_refused(self):
        self.fails("campus", [program("reclaim-coordinator"), "serve", "--state", self.coordinator.state, "--listen",
                              "127.0.0.1:7999"], "another coordinator", "--state")

        self.assertTrue(self.coordinator.rest().is_ready())

    def serve_in_vain(self, *patterns):
        self.fails("campus", [program("reclaim-coordinator"), "serve", "--state", self.coordinator.state, "--listen",
                              f"0.0.0.0:{PORT}"], *patterns)

    def test_a_locked_database_is_said_and_all_is_there_afterwards(self):
        self.coordinator.kill()
        try:
            lock = sqlite3.connect(self.coordinator.state / "coordinator.db", isolation_level=None)
            lock.execute("BEGIN EXCLUSIVE")
            self.serve_in_vain("locked", "next: ")
            lock.close()
        finally:
            self.coordinator.start()

    def test_a_read_only_database_is_said_and_all_is_there_afterwards(self):
        self.coordinator.kill()
        disk = self.labs.disk("campus")
        try:
            subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
            self.serve_in_vain("read-only|written|Read-only", "next: ")
        finally:
            subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
            self.coordinator.start()


if __name__ == "__main__":
    unittest.main(verbosity=2)
