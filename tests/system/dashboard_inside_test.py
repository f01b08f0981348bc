#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Quotas, idle jobs, notebooks and ports on the dashboard, in real Chromium: a coordinator, a machine with agent,
warden and two GPUs that a recorded NVML tells of, a guest that serves a page and uses nothing, and one without a GPU.
The browser's side of the story is web/tests/inside.mjs. Called with the library that replays NVML
(src/agent/fake_nvml.c)."""
import os
import pathlib
import shutil
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
from browser_story import BrowserStory  # noqa: E402
from labs import Labs, wait_until  # noqa: E402
from rn_site import Cli, Coordinator, Node, python_image  # noqa: E402

CONTRACT = {"guest_disk_mib": 512, "reserve_disk_mib": 64, "guest_memory_mib": 512, "notice_s": 20}
PORT = 7446
IDLE_AFTER_S = 60  # the least that there is
LIMIT_S = 540
SMALL = ["--cpus", "0.2", "--cpus-min", "0.1", "--memory", "96MB", "--disk", "64MB", "--no-upload"]
# Stays until it is killed: the page has the whole notice to say so.
SERVER = """
import http.server, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = b"<!DOCTYPE html><title>page</title><p>hello from the notebook</p>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Page).serve_forever()
"""


class DashboardInside(BrowserStory, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.labs = Labs("campus", "lab-a", disk="2G")
        cls.addClassCleanup(cls.labs.down)
        cls.labs.dir.chmod(0o755)
        config = cls.labs.dir / "coordinator.yaml"
        config.write_text(f"idle_after_s: {IDLE_AFTER_S}\n")
        cls.coordinator = Coordinator(
            cls.labs, flags=["--config", config, "--notebooks-listen", f"0.0.0.0:{PORT}"]).start()
        cls.rest = cls.coordinator.rest()
        cls.cli = Cli(cls.labs, cls.coordinator)
        cls.cli("image", "add", "python", python_image(), timeout_s=300)
        cls.node = Node(cls.labs, "lab-a", CONTRACT, config={
            "root": str(cls.machine()), "nvml_library": str(cls.nvml()), "telemetry_ms": 500})
        cls.node.set_up(cls.coordinator)
        wait_until("lab-a to be up", lambda: cls.rest.nodes().get("lab-a", {}).get("is_connected"), 30)

    @classmethod
    def machine(cls):
        """The machine as its agent sees it, with processors that do nothing: those of the real one draw the page."""
        machine = cls.labs.dir / "machine"
        for folder in (machine / "run", machine / "proc"):
            folder.mkdir(parents=True)
        (machine / "run" / "utmp").touch()
        for name in ("sys", "dev", "usr", "sbin"):
            (machine / name).symlink_to(f"/{name}")
        for name in ("meminfo", "interrupts", "sys", "net"):
            (machine / "proc" / name).symlink_to(f"/proc/{name}")
        (machine / "proc" / "stat").write_text(pathlib.Path("/proc/stat").read_text())
        for folder in (machine, machine / "run", machine / "proc"):
            folder.chmod(0o755)
        return machine

    @classmethod
    def nvml(cls):
        recording = cls.labs.dir / "recording"
        recording.write_text("RTX3090 GPU-aaa 8 6 24576 0 0 35 20000\nRTX3090 GPU-bbb 8 6 24576 0 0 35 20000\n")
        recording.chmod(0o644)
        os.environ["RN_FAKE_NVML"] = str(recording)
        library = cls.labs.dir / "nvml.so"  # the agent's user may not be able to look into the tree
        shutil.copy(FAKE_NVML, library)
        library.chmod(0o755)
        return library

    def run_job(self, name, *words):
        run = ("run", "--detach", "--name", name, "--gpu", "1", "--image", "python", *SMALL, *words)
        return self.rest.job(self.student(*run).stdout.strip())["number"]

    def test_quotas_notebooks_ports_and_idle_jobs_are_on_the_page(self):
        token = self.rest.post(
            "/v1/tokens", {"kind": "user", "user": "student", "lab": "lab-s", "role": "user"})["token"]
        self.student = Cli(self.labs, self.coordinator, token=token)
        book = self.run_job("book", "--env", "NOTEBOOK_PORT=8000", "--env", "NOTEBOOK_IDLE_S=7200", "--",
                            "python3", "-u", "-c", SERVER)
        wait_until("it to run", lambda: self.rest.job(str(book))["state"] == "running", 120)

        self.play("inside.mjs", {
            "url": self.coordinator.url, "notebooks": f"https://{self.coordinator.address}:{PORT}", "job": book,
            "tokens": {"student": token, "admin": self.rest.token}}, LIMIT_S)

        kinds = [event["kind"] for event in self.rest.events()]
        self.assertIn("job.idle", kinds)
        self.assertEqual((kinds.count("quota.set"), kinds.count("quota.removed")), (3, 1))
        wait_until("its laboratory's quota to stop it", lambda: self.sleeper()["state"] == "cancelled", 120)
        self.assertIn("(idle_stop of lab lab-t)", self.sleeper()["reason"])

    def sleeper(self):
        return self.rest.job(self.asleep)

    # --- what the browser asks for

    def act_submit_second(self):
        """And one without a GPU, that uses nothing and is of a laboratory that has such jobs stopped."""
        token = self.rest.post(
            "/v1/tokens", {"kind": "user", "user": "sam", "lab": "lab-t", "role": "user"})["token"]
        self.cli("quota", "set", "lab:lab-t", "--idle-stop", "1m")
        self.sam = Cli(self.labs, self.coordinator, token=token)
        self.asleep = self.sam("run", "--detach", "--image", "python", *SMALL, "--", "sleep", "1000").stdout.strip()
        return {"number": self.run_job("second", "--", "sleep", "1000")}

    def act_reclaim(self):
        self.node.owner("reclaim", "-m", "a lecture")

    def act_release(self):
        self.node.owner("release")


if __name__ == "__main__":
    FAKE_NVML = sys.argv.pop(1)
    unittest.main(verbosity=2)
