#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs that want GPUs, on machines that have none that NVML could find: what their authors are told, and that devices
which a node's configuration declares are given out like real ones. A node with `gpus: 0` says that it has none.
Of two guests that flood a peer the one whose GPU is taken back falls silent there, and the other does not. A device
with hours of its own loses its guest at their end, and the other one is lent. One device is taken back with the
coordinator dead and the agent stopped, by a notice and, the warden dead, by hand: its guest alone is cut and ends."""
import datetime
import json
import pathlib
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
from capture import PORT, Capture  # noqa: E402
from labs import Labs, TimedOut, wait_until  # noqa: E402
from rn_site import Cli, Coordinator, Node, program, tiny_image  # noqa: E402

CONTRACT = {"guest_disk_mib": 128, "reserve_disk_mib": 64, "guest_memory_mib": 512}
DECLARED = [
    {"index": index, "uuid": f"GPU-declared-{index}", "model": "declared card", "memory_mib": 24576,
     "compute_capability": "8.6"} for index in (0, 1)]
TOO_LATE_S = 0.2  # what passed the hook before the cut is at the peer before that, also beside other tests
# Sends on from a guest's namespace when the guest is dead, so that only a cut ends it; by a raw socket, because a port
# would be something of the guest that remains.
FLOOD = """
import socket, struct, sys, time
port, text = int(sys.argv[2]), sys.argv[3].encode()
raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP)
packet = struct.pack(">HHHH", port, port, 8 + len(text), 0) + text
while True:
    try:
        raw.sendto(packet, (sys.argv[1], 0))
    except OSError:
        pass  # it is cut, or its interface has gone
    time.sleep(0.0005)  # the flood's rate
"""
NOTICE_S = 5  # of the contract with hours for one device
SMALL = ["--cpus", "0.2", "--cpus-min", "0.1", "--memory", "64MB", "--disk", "64MB", "--stateless", "--no-upload"]


class GpuJobs(unittest.TestCase):
    """The tests build on each other, in their order."""

    @classmethod
    def setUpClass(cls):
        cls.labs = Labs("campus", "lab-a", "lab-b", "peer", disk="1G")
        cls.addClassCleanup(cls.labs.down)
        cls.coordinator = Coordinator(cls.labs).start()
        cls.cli, cls.rest = Cli(cls.labs, cls.coordinator), cls.coordinator.rest()
        cls.cli("image", "add", "base", tiny_image())
        cls.nodes = {"lab-a": Node(cls.labs, "lab-a", CONTRACT, config={"gpus": 0}),
                     "lab-b": Node(cls.labs, "lab-b", {**CONTRACT, "network": [
                         {"prefix": f"{cls.labs.addresses['peer']}/32", "port": PORT, "protocol": "udp"}]},
                                   config={"gpus": DECLARED})}
        cls.join("lab-a")

    @classmethod
    def join(cls, lab):
        cls.nodes[lab].set_up(cls.coordinator)
        wait_until(f"{lab} to be up", lambda: cls.rest.nodes().get(lab, {}).get("is_connected"), 30)

    def run_detached(self, gpus, *command, flags=()):
        """Its job, and what its author is told at once."""
        done = self.cli("run", "--detach", "--gpu", str(gpus), *SMALL, *flags, "--", *command)
        return done.stdout.strip(), done.stderr

    def why(self, job):
        return self.cli("why", job).stdout

    def lab_of(self, job):
        node = self.rest.job(job)["node"]
        return next((lab for lab, one in self.rest.nodes().items() if one["id"] == node), "")

    def gpus_of(self, job):
        """Those of its attempt as the node's owner sees them."""
        attempts = json.loads(self.nodes["lab-b"].owner("status", "--json").stdout)["attempts"]
        return next((one["gpus"] for one in reversed(attempts) if one["report"]["job"] == job), None)

    def wait_for(self, job, state):
        wait_until(f"{job} to be {state}", lambda: self.rest.job(job)["state"] == state, 60)

    def test_a_where_no_node_has_a_gpu_the_author_is_told_at_once_and_the_job_waits(self):
        job, told = self.run_detached(1, "true")
        type(self).waiting = job

        node = self.rest.nodes()["lab-a"]
        self.assertEqual(node["facts"]["gpus"], [])
        self.assertIn("it waits until a node fits: 0 of 0 GPUs can ever match; closest: ", told)
        self.assertIn("lends 0 GPUs, 1 wanted", told)
        wait_until("a look at the queue", lambda: "lends 0 GPUs" in self.rest.job(job)["reason"], 30)
        self.assertRegex(self.why(job), r"number 1 of 1 in the queue: 0 of 0 GPUs can ever match; closest: .* lends 0 "
                                        r"GPUs, 1 wanted \(position 1 in the queue\)")
        self.assertEqual((self.rest.job(job)["state"], self.rest.attempts(job)), ("queued", []))

    def test_b_it_starts_as_soon_as_a_node_with_declared_devices_joins(self):
        self.join("lab-b")

        self.wait_for(self.waiting, "succeeded")

        self.assertEqual(self.lab_of(self.waiting), "lab-b")
        facts = self.rest.nodes()["lab-b"]["facts"]["gpus"]
        self.assertEqual([(one["index"], one["model"], one["is_static"]) for one in facts],
                         [(0, "declared card", True), (1, "declared card", True)])
        shown = {line.split()[2]: line for line in self.cli("nodes").stdout.splitlines()}
        self.assertRegex(" ".join(shown["lab-b"].split()), r" 2 x 24\.?0? ?GiB \(declared\) ")
        self.assertNotIn("declared", shown["lab-a"])

    def test_c_what_is_declared_does_not_have_is_named(self):
        for flags, gpus, words in (
                ((), 3, "lends 2 GPUs, 3 wanted"),
                ((), "48GB:1", "MiB of GPU memory"),
                (("--compute-capability", "9.0"), 1, "has compute capability 8.6, 9.0 wanted")):
            job, told = self.run_detached(gpus, "true", flags=flags)

            self.assertIn("0 of 2 GPUs can ever match", told)
            self.assertIn(words, told)
            self.assertIn(words, self.why(job))
            self.cli("stop", job)

    def test_d_each_job_has_a_device_of_its_own_and_counts_from_0(self):
        command = ("sh", "-c", "echo $RECLAIM_GPUS_NUM $CUDA_VISIBLE_DEVICES; sleep 1000")
        first, _ = self.run_detached(1, *command)
        second, told = self.run_detached(1, *command)
        self.assertNotIn("it waits until", told)
        for job in (first, second):
            self.wait_for(job, "running")
        third, _ = self.run_detached(1, "true")

        self.assertEqual(sorted(self.gpus_of(first) + self.gpus_of(second)), [0, 1])
        for job in (first, second):
            wait_until("its words", lambda: self.rest.log(job), 20)  # noqa: B023
            self.assertEqual(self.rest.log(job).decode(), "1 0\n")
        wait_until("the reason", lambda: "GPUs busy with other jobs" in self.why(third), 20)

        self.cli("stop", first)

        self.wait_for(third, "succeeded")
        self.assertEqual(self.rest.job(second)["state"], "running")
        type(self).second = second

    def test_e_an_owner_takes_one_declared_device_back(self):
        """The guest on it goes on with the other one; a job without GPUs on the same machine stays."""
        job, _ = self.run_detached(0, "sleep", "1000", flags=("--lab", "lab-b"))
        self.wait_for(job, "running")
        taken = self.gpus_of(self.second)[0]

        self.nodes["lab-b"].owner("reclaim", "--now", "--gpu", taken)

        wait_until("it to run on the other device", lambda: len(self.rest.ran(self.second)) == 2 and
                   self.gpus_of(self.second) == [1 - taken], 30)
        self.wait_for(self.second, "running")
        self.assertEqual(self.rest.ran(self.second)[0]["end"], "reclaimed")
        self.assertEqual(len(self.rest.ran(job)), 1)
        third, _ = self.run_detached(1, "true")
        wait_until("a look at the queue", lambda: self.rest.job(third)["reason"], 20)
        self.assertEqual(self.rest.attempts(third), [])
        self.nodes["lab-b"].owner("release")
        self.wait_for(third, "succeeded")

    def pid_of(self, job):
        """A process of its guest; None while there is none."""
        for pid in self.nodes["lab-b"].guest_containers():
            try:
                words = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            except OSError:
                continue  # it has ended
            if f"RECLAIM_JOB_ID={job}".encode() in words:
                return pid
        return None

    def flood(self, name, job):
        pid = wait_until(f"a process of {job}", lambda: self.pid_of(job), 20)
        return self.labs.spawn(None, f"flood-{name}", [
            "nsenter", f"--net=/proc/{pid}/ns/net", "--", "/usr/bin/python3", "-c", FLOOD, self.labs.addresses["peer"],
            PORT, name])

    def wait_for_floods(self, capture, floods):
        """Until each is heard at the peer; where one is not, how its way there stands is said."""
        for name, flood in floods.items():
            try:
                wait_until(f"{name} to flood", lambda: len(capture.packets(name)) > 200, 60)  # noqa: B023
            except TimedOut as error:
                raise AssertionError(f"{error}; its flood runs: {flood.is_running()} {flood.output()}\n"
                                     f"{self.picture_of_wires()}") from None

    def picture_of_wires(self):
        """The guests' interfaces, what the cut's maps say of them, and the warden's last words."""
        node = self.nodes["lab-b"]
        commands = [["ip", "-s", "link"], ["ip", "neigh"]] + [
            ["bpftool", "map", "dump", "pinned", f"{node.run}/gates/{name}"]
            for name in ("rn_guests", "rn_node_gate", "rn_lease")]
        said = [self.labs.call("lab-b", command, check=False).stdout for command in commands]
        said.append(f"now {time.clock_gettime_ns(time.CLOCK_BOOTTIME)}")
        return "\n".join([*said, node.warden.output()[-3000:]])

    def last_reclaim_of(self, gpu):
        return max((one for one in self.rest.reclaims() if one["gpus"] == [gpu]),
                   key=lambda one: one["declared_wall_ms"],
                   default={"id": "", "kind": "", "message": "", "declared_wall_ms": 0, "cleared_ns": 0})

    def test_f_of_two_that_flood_only_the_one_whose_gpu_is_taken_falls_silent_at_the_peer(self):
        self.cli("stop", self.second)
        jobs = {name: self.run_detached(1, "sleep", "1000", flags=(
            "--peer", f"{self.labs.addresses['peer']}:{PORT}/udp"))[0] for name in ("one", "two")}
        for job in jobs.values():
            self.wait_for(job, "running")
        gpu = self.gpus_of(jobs["one"])[0]
        earlier = self.last_reclaim_of(gpu)["id"]
        capture = Capture(self.labs)
        floods = {name: self.flood(name, job) for name, job in jobs.items()}
        self.wait_for_floods(capture, floods)

        begun = time.time()
        self.nodes["lab-b"].owner("reclaim", "--now", "--gpu", gpu)
        wait_until("two seconds more of the other", lambda: capture.packets("two")[-1].time > begun + 2, 60)
        wait_until("the record", lambda: self.last_reclaim_of(gpu)["id"] != earlier and
                   self.last_reclaim_of(gpu)["cleared_ns"], 20)

        record, boot_s = self.last_reclaim_of(gpu), time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        self.assertEqual(record["kind"], "emergency")
        cut_s = boot_s + record["cut_ns"] / 1e9
        last_s = capture.packets("one")[-1].time
        others = [packet.time for packet in capture.packets("two") if packet.time > begun - 0.5]
        gap_s = max(after - one for one, after in zip(others, others[1:]))
        print(f"  the last packet {(last_s - cut_s) * 1e3:+.3f} ms after the cut; the other guest's longest pause "
              f"{gap_s * 1e3:.1f} ms of {len(others)} packets", flush=True)
        self.assertLess(last_s, cut_s + TOO_LATE_S)
        self.assertGreater(last_s, begun - 10, "it had fallen silent before")
        for flood in floods.values():
            self.assertTrue(flood.is_running(), flood.output())
        wait_until("its end", lambda: self.rest.ran(jobs["one"])[0]["end"] == "reclaimed", 20)
        self.assertEqual((self.rest.job(jobs["two"])["state"], len(self.rest.ran(jobs["two"]))), ("running", 1))
        for one in (*floods.values(), capture):
            one.stop()
        self.nodes["lab-b"].owner("release")

    def stop_all(self):
        for one in self.rest.jobs():
            if one["state"] not in ("succeeded", "failed", "cancelled"):
                self.cli("stop", one["id"])

    def test_g_a_paused_device_keeps_its_guest_and_takes_no_other(self):
        owner = self.nodes["lab-b"].owner
        owner("release")
        self.stop_all()
        first, _ = self.run_detached(1, "sleep", "1000")
        self.wait_for(first, "running")
        mine = self.gpus_of(first)[0]

        owner("pause", "--gpu", mine)
        said = owner("snooze", "--gpu", 1 - mine, "1h").stdout

        self.assertEqual(said, f"no new guests on GPU {1 - mine} for 3600 s. Running ones stay.\n")
        wait_until("both to be paused", lambda: owner("status").stdout.count("  paused\n") == 2, 20)
        second, _ = self.run_detached(1, "true")
        other, _ = self.run_detached(0, "true", flags=("--lab", "lab-b"))
        self.wait_for(other, "succeeded")  # the rest of the machine is lent
        self.assertEqual(self.rest.attempts(second), [])
        owner("resume", "--gpu", 1 - mine)
        self.wait_for(second, "succeeded")
        self.assertEqual((self.rest.job(first)["state"], len(self.rest.ran(first))), ("running", 1))
        owner("resume")
        wait_until("none to be paused", lambda: "  paused\n" not in owner("status").stdout, 20)

    def test_h_the_hours_of_one_device_end_at_their_minute_and_the_other_one_stays_lent(self):
        owner = self.nodes["lab-b"].owner
        self.stop_all()
        jobs = [self.run_detached(1, "sleep", "1000")[0] for _ in range(2)]
        for job in jobs:
            self.wait_for(job, "running")
        gpu = self.gpus_of(jobs[0])[0]
        end = (int(time.time()) + NOTICE_S + 20) // 60 * 60 + 60
        minute = datetime.datetime.fromtimestamp(end, datetime.timezone.utc)
        later = minute + datetime.timedelta(hours=1)
        contract = self.nodes["lab-b"].contract
        file = self.labs.dir / "hours-of-a-gpu.yaml"
        file.write_text(json.dumps({**contract, "notice_s": NOTICE_S, "time_zone": "UTC", "gpu_windows": [
            {"gpu": gpu, "windows": [{"days": [], "from": later.strftime("%H:%M"), "to": minute.strftime("%H:%M")}]}]}))
        self.assertIn("in force", owner("contract", "set", file).stdout)

        wait_until("its guest to be gone", lambda: self.rest.ran(jobs[0])[0]["end"] == "reclaimed", 120)

        self.assertGreater(time.time(), end - NOTICE_S - 3, "it went before its notice")
        wait_until("the record", lambda: self.last_reclaim_of(gpu)["kind"] == "announced" and
                   self.last_reclaim_of(gpu)["cleared_ns"], 30)
        self.assertEqual(self.last_reclaim_of(gpu)["message"], "the lending window of this GPU ends")
        self.assertEqual((self.rest.job(jobs[1])["state"], len(self.rest.ran(jobs[1]))), ("running", 1))
        time.sleep(max(end + 1 - time.time(), 0))
        wait_until("its owner to be told", lambda: "outside its lending windows" in owner("status").stdout, 20)
        wait_until("the reason", lambda: "GPUs outside their lending windows" in self.why(jobs[0]), 30)
        self.assertEqual(len(self.rest.ran(jobs[0])), 1)
        other, _ = self.run_detached(0, "true", flags=("--lab", "lab-b"))
        self.wait_for(other, "succeeded")  # the rest of the machine is lent

        file.write_text(json.dumps(contract))
        self.assertIn("in force", owner("contract", "set", file).stdout)
        wait_until("it to run again", lambda: len(self.rest.ran(jobs[0])) == 2, 90)  # a GPU rests for 30 s
        self.assertEqual(self.gpus_of(jobs[0]), [gpu])

    def flooding(self, gpus):
        """Jobs "one", … with these numbers of devices, which run and may send to the peer."""
        jobs = {name: self.run_detached(count, "sleep", "1000", flags=(
            "--lab", "lab-b", "--peer", f"{self.labs.addresses['peer']}:{PORT}/udp"))[0]
                for name, count in zip(("one", "two", "three"), gpus)}
        for job in jobs.values():
            self.wait_for(job, "running")
        return jobs

    def expect_only(self, name, capture, cut_s):
        """Of all that flood this one alone is not heard after `cut_s`, and has no process."""
        others = [one for one in self.floods if one != name]
        for other in others:
            wait_until(f"{other} to be heard on", lambda: capture.packets(other)[-1].time > cut_s + 0.5,  # noqa: B023
                       60)
        self.assertLess(capture.packets(name)[-1].time, cut_s + TOO_LATE_S)
        self.assertIsNone(self.pid_of(self.jobs[name]))
        for other in others:
            self.assertIsNotNone(self.pid_of(self.jobs[other]))
        self.floods.pop(name).stop()

    def test_i_with_the_rest_dead_or_stopped_a_notice_and_a_command_by_hand_take_one_device(self):
        node = self.nodes["lab-b"]
        self.stop_all()
        contract = self.labs.dir / "short-notice.yaml"
        contract.write_text(json.dumps({**node.contract, "notice_s": 1}))
        self.assertIn("in force", node.owner("contract", "set", contract).stdout)
        self.jobs = self.flooding((1, 1, 0))
        gpus = {name: self.gpus_of(self.jobs[name])[0] for name in ("one", "two")}
        capture = Capture(self.labs)
        self.floods = {name: self.flood(name, job) for name, job in self.jobs.items()}
        self.wait_for_floods(capture, self.floods)
        self.coordinator.kill()
        node.agent.freeze()

        declared_s = time.time()
        node.owner("reclaim", "--gpu", gpus["one"])
        wait_until("its guest to be gone", lambda: self.pid_of(self.jobs["one"]) is None, 20)
        gone_s = time.time()
        self.assertGreater(gone_s, declared_s + 0.9, "it went before its notice")
        self.expect_only("one", capture, gone_s)

        node.warden.kill()
        said = self.labs.call("lab-b", [program("reclaim-kill"), "--gpu", gpus["two"], "--state", node.state, "--run",
                                        node.run]).stdout
        by_hand_s = time.time()
        node.start_warden()  # before the lease of 2 s has lapsed, or after it: the third one is let go on
        self.assertIn("cleared (by hand)", said)
        self.expect_only("two", capture, by_hand_s)

        node.agent.thaw()
        self.coordinator.start()
        for name, kind in (("one", "notice"), ("two", "emergency")):
            def has_ended():
                record = self.last_reclaim_of(gpus[name])  # noqa: B023
                return (record["id"] and record["declared_wall_ms"] > declared_s * 1000 - 1000 and
                        record["cleared_ns"] and
                        self.rest.ran(self.jobs[name])[0]["end"] == "reclaimed")  # noqa: B023
            wait_until(f"{name}'s end", has_ended, 30)
            self.assertEqual(self.last_reclaim_of(gpus[name])["kind"], kind)
        self.assertEqual((self.rest.job(self.jobs["three"])["state"], len(self.rest.ran(self.jobs["three"]))),
                         ("running", 1))
        for one in (*self.floods.values(), capture):
            one.stop()
        node.owner("release")


if __name__ == "__main__":
    unittest.main(verbosity=2)
