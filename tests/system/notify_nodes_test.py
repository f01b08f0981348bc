#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What owners and users are told by mail when machines do not do what they should, each caused on real daemons: a GPU
is sick (by a recorded NVML), something of a guest is left after a reclaim, a machine's warden does not answer an order,
a job needs a machine that is paused, machines are lost with a job's last save, and outputs that nobody fetches go."""
import json
import os
import pathlib
import re
import shutil
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
import chain  # noqa: E402
from labs import ROOT, Labs, wait_until  # noqa: E402
from one_node import CONTRACT  # noqa: E402
from processes import user_of  # noqa: E402
from rn_site import Cli, Coordinator, Node, tiny_image  # noqa: E402
from smtp_server import Mailbox  # noqa: E402

PATIENCE_S = 60
WANTED_AFTER_S = 10  # looked at once a minute
KEEP_OUTPUTS_S = 60  # the warning comes when three quarters are over
REFUSED = 5
SMALL = ("--cpus", "0.2", "--cpus-min", "0.1", "--disk", "64MB", "--memory", "64MB")
BUILD = pathlib.Path(os.environ.get("RN_BUILD", ROOT / "build" / "dev"))


class NotifyNodes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.labs = Labs("campus", "lab-a", "lab-b", "storage", disk="6G")
        cls.addClassCleanup(cls.labs.down)
        cls.mailbox = Mailbox(cls.labs.dir, cls.labs.host)
        cls.addClassCleanup(cls.mailbox.down)
        config = cls.labs.dir / "coordinator.yaml"
        config.write_text(json.dumps({
            "smtp": cls.mailbox.settings(cls.labs.dir), "wanted_after_s": WANTED_AFTER_S, "precopy_mib_per_hour": 0}))
        cls.coordinator = Coordinator(cls.labs, flags=[
            "--config", config, "--keep-ended-s", KEEP_OUTPUTS_S, "--keep-outputs-s", KEEP_OUTPUTS_S]).start()
        cls.rest, cls.admin = cls.coordinator.rest(), Cli(cls.labs, cls.coordinator)
        cls.admin("image", "add", "base", tiny_image())
        cls.labs.dir.chmod(0o755)
        cls.recording = cls.labs.dir / "recording"
        cls.record("")
        os.environ["RN_FAKE_NVML"] = str(cls.recording)
        library = cls.labs.dir / "nvml.so"  # the agent's user may not be able to look into the tree
        shutil.copy(next(BUILD.glob("src/agent/*agent_fake_nvml.so")), library)
        library.chmod(0o755)
        cls.node = Node(cls.labs, "lab-a", CONTRACT, config={"nvml_library": str(library), "telemetry_ms": 500})
        cls.storage = Node(cls.labs, "storage", {"lends": False})
        for node in (cls.node, cls.storage):
            node.set_up(cls.coordinator)
        cls.ann = cls.person("ann", "user", "waiting,expiring")
        cls.oli = cls.person("oli", "owner", "sick,wedged,refused,wanted,lost")
        cls.wait_for_lending("lab-a")
        cls.kept = cls.run_job("kept", "echo 42 >answer", "--stateless")  # looked for by the last test

    @classmethod
    def person(cls, name, role, words):
        """Somebody of lab-a, who is told of these by mail."""
        token = cls.admin("token", "create", "--user", name, "--role", role, "--lab", "lab-a", "--ttl-s", 0)
        cli = Cli(cls.labs, cls.coordinator, token=token.stdout.strip())
        cli("notify", "add", "--mail", f"{name}@example.org", "--on", words)
        code = wait_until("the mail with the code", lambda: re.findall(
            r"reclaim (notify confirm \S+ \S+)", "".join(cls.mailbox.texts(f"{name}@example.org"))), PATIENCE_S)
        cli(*code[0].split())
        return cli

    @classmethod
    def record(cls, first):
        """What is with the GPU of lab-a."""
        fresh = cls.recording.with_suffix(".new")
        fresh.write_text(f"RTX3090 GPU-aaa 8 6 24576 2048 0 61 215000 {first}\n")
        fresh.chmod(0o644)
        fresh.rename(cls.recording)

    @classmethod
    def run_job(cls, name, command, *flags):
        return cls.ann("run", "--detach", "--name", name, "--no-upload", *SMALL, *flags, "--", "sh", "-c",
                       command).stdout.strip()

    @classmethod
    def wait_for_lending(cls, lab):
        wait_until(f"{lab} to lend", lambda: cls.rest.nodes().get(lab, {}).get("lending") == "open", PATIENCE_S)

    def wait_for(self, job, state, timeout_s=PATIENCE_S):
        wait_until(f"{job} to be {state}", lambda: self.rest.job(job)["state"] == state, timeout_s)

    def mail_to(self, name, subject, timeout_s=PATIENCE_S):
        """The text of the first with such a subject."""
        return wait_until(f"a mail to {name}: {subject}", lambda: next((
            mail.get_content() for to, mail in self.mailbox.mails
            if to == [f"{name}@example.org"] and re.search(subject, mail["Subject"])), None), timeout_s)

    # ---- tests

    def test_a_a_gpu_that_is_sick(self):
        self.record("ecc:1")

        told = self.mail_to("oli", r"ReclaimNet: a GPU of \S+$", 90)

        self.assertIn("GPU 0 is sick: 1 errors of its memory", told)
        self.assertIn("next: reclaim-agent gpu ok N", told)
        self.record("")
        self.node.owner("gpu", "ok", "0")

    def test_b_something_of_a_guest_is_left_after_a_reclaim(self):
        self.wait_for_lending("lab-a")
        job = self.run_job("left", "sleep 1007", "--stateless")
        self.wait_for(job, "running")
        uid = wait_until("its command to run", lambda: user_of(b"sleep\x001007\x00"), 20)
        # With the guest's user id, outside of every guest, so that nobody may end it for the owner.
        stray = self.labs.spawn("lab-a", "stray", ["setpriv", "--reuid", str(uid), "--clear-groups", "sleep", "300"])

        order = self.labs.spawn("lab-a", "order", self.node.agent_program("reclaim", "--now"))

        told = self.mail_to("oli", r"\S+ was taken back and could not be verified free$", 90)
        self.assertIn("next: reclaim-agent status --why", told)
        stray.kill()
        self.assertNotEqual(order.popen.wait(60), 0, order.output())
        wait_until("the machine to be cleared", lambda: "cleared" in self.node.owner("status").stdout, PATIENCE_S)
        self.ann("stop", job)
        self.node.owner("release")
        self.wait_for_lending("lab-a")

    def test_c_an_order_from_afar_that_is_not_carried_out(self):
        self.node.warden.kill()

        said = self.oli("take", self.rest.nodes()["lab-a"]["id"], check=False)

        self.assertEqual(said.returncode, REFUSED, said.stderr)
        told = self.mail_to("oli", r"an order to take \S+ back was not carried out$")
        self.assertIn("its warden does not answer", told)
        self.assertIn("next: reclaim-agent reclaim --now", told)
        wait_until("its agent to lend nothing without it", lambda: self.rest.nodes()["lab-a"]["lending"] != "open",
                   PATIENCE_S)
        self.node.start_warden()
        self.wait_for_lending("lab-a")

    def test_d_a_job_that_only_a_paused_machine_could_take(self):
        self.node.owner("pause")
        wait_until("it to be paused", lambda: self.rest.nodes()["lab-a"]["lending"] == "paused", PATIENCE_S)
        job = self.run_job("wanting", "true", "--stateless", "--lab", "lab-a")

        told = self.mail_to("oli", r"a job waits for \S+$", 60 + WANTED_AFTER_S + PATIENCE_S)

        self.assertRegex(told, r"job \d+ of ann \(lab-a\) has waited for .*only machines of this lab could take it")
        self.assertEqual(self.rest.attempts(job), [])
        self.node.owner("resume")
        self.wait_for(job, "succeeded")

    def test_e_machines_that_are_lost_with_the_last_save_of_a_job(self):
        folder = chain.make_folder(self.labs.dir / "student")
        job = self.ann(
            "run", "--detach", "--name", "saved", *SMALL, "--checkpoint", "*.ckpt", "--temporary", "*.tmp",
            "--copies-at", "storage", "--", *chain.command(100000, 10, 0.2), cwd=folder).stdout.strip()
        wait_until("a durable generation", lambda: self.rest.job(job)["durable"]["generation"] > 0, 90)
        elsewhere = Node(self.labs, "lab-b", CONTRACT)
        elsewhere.set_up(self.coordinator)
        self.wait_for_lending("lab-b")

        for node in (self.storage, self.node):
            node.agent.kill()

        told = self.mail_to("ann", r"job \d+ \(saved\) waits for a machine that has its files$", 90)
        self.assertRegex(told, r"alone ha(s|ve) generation \d+")
        self.assertIn("next: reclaim events --node", self.mail_to("oli", r"\S+ is not heard any more$"))
        self.assertEqual(self.rest.job(job)["state"], "queued", "it went on without its files")
        self.storage.start_agent()
        self.wait_for(job, "running", 120)
        newest = self.rest.attempts(job)[-1]
        self.assertEqual(newest["node"], self.rest.nodes()["lab-b"]["id"])
        number = int(newest["epoch"].split(".")[1])
        wait_until("it to say that it has its files", lambda: chain.read(
            self.rest.log(job, number).decode(errors="replace")).is_resumed, 30)
        self.node.start_agent()
        self.ann("stop", job)

    def test_f_outputs_that_nobody_fetches(self):
        told = self.mail_to("ann", r"outputs of job \d+ \(kept\) will be removed$", 2 * KEEP_OUTPUTS_S)

        self.assertIn("nobody has fetched its outputs", told)
        self.assertEqual(self.rest.job(self.kept)["state"], "succeeded")


if __name__ == "__main__":
    unittest.main(verbosity=2)
