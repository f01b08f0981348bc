#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A port inside a running job, reached from a student's machine: bytes there and back, a port where nobody listens,
somebody else's job, a job that moves, is cut off by its owner, and ends. Real daemons, engines and namespaces."""
import http.client
import pathlib
import random
import re
import socket
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
from rn_site import Cli, python_image  # noqa: E402
from stories import Site  # noqa: E402

NOTICE_S = 5
BIG = random.Random(7).randbytes(20 << 20)


class Forward(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        lends = {"guest_disk_mib": 1024, "guest_memory_mib": 1024, "notice_s": NOTICE_S}
        cls.site = Site({"lab-a": lends, "lab-b": lends}, disk="4G")
        cls.addClassCleanup(cls.site.down)
        cls.site.cli("image", "add", "python", python_image(), timeout_s=300)
        folder = cls.site.labs.dir / "student-server"
        folder.mkdir()
        (folder / "big").write_bytes(BIG)
        (folder / "small").write_text("hello from the guest\n")
        cls.job = cls.site.cli(
            "run", "--detach", "--stateless", "--image", "python", "--cpus", "0.5", "--cpus-min", "0.1", "--memory",
            "128MB", "--disk", "128MB", "--", "python3", "-u", "-m", "http.server", "8000", "--bind", "127.0.0.1",
            "--protocol", "HTTP/1.1", cwd=folder).stdout.strip()
        cls.forwards = 0
        cls.server = cls.forward("8000")
        cls.wait_for_server()

    @classmethod
    def forward(cls, ports, job=None):
        """A running `reclaim forward`, and the port that it listens on."""
        cls.forwards += 1
        process = cls.site.cli.spawn(f"forward-{cls.forwards}", "forward", job or cls.job, f"0:{ports}")
        found = cls.site.wait("the port", lambda: re.search(r"127\.0\.0\.1:(\d+) goes to", process.output()), 20)
        return process, int(found[1])

    @classmethod
    def get(cls, path, timeout_s=60):
        connection = http.client.HTTPConnection("127.0.0.1", cls.server[1], timeout=timeout_s)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    @classmethod
    def wait_for_server(cls):
        def is_there():
            try:
                return cls.get("/small", 10) == (200, b"hello from the guest\n")
            except (OSError, http.client.HTTPException):
                return False
        cls.site.wait("the server in the guest", is_there, 150)

    def node(self):
        return self.site.nodes[self.site.lab_of_node(self.site.rest.job(self.job)["node"])]

    def held(self):
        """A connection on which the server waits for more of a request."""
        connection = socket.create_connection(("127.0.0.1", self.server[1]), timeout=60)
        self.addCleanup(connection.close)
        connection.sendall(b"GET /small HTTP/1.1\r\nHost: x\r\n\r\n")
        self.assertIn(b"200 OK", connection.recv(4096))
        connection.sendall(b"GET /sm")
        return connection

    def assert_breaks(self, connection):
        """Reset, and not ended as if the server had."""
        with self.assertRaises(ConnectionResetError):
            while connection.recv(4096):
                pass

    def test_a_what_the_guest_serves_comes_whole_and_many_may_ask_at_a_time(self):
        began = time.monotonic()
        status, body = self.get("/big")
        print(f"20 MiB in {time.monotonic() - began:.2f} s")
        self.assertEqual(status, 200)
        self.assertTrue(body == BIG, f"{len(body)} bytes came")
        held = [socket.create_connection(("127.0.0.1", self.server[1]), timeout=60) for _ in range(10)]
        for connection in held:
            connection.sendall(b"GET /small HTTP/1.0\r\n\r\n")
        for connection in held:
            got = b""
            while piece := connection.recv(4096):
                got += piece
            self.assertTrue(got.endswith(b"\r\n\r\nhello from the guest\n"), got)
            connection.close()

    def test_b_a_port_where_nobody_listens_is_a_reset_and_says_so(self):
        process, port = self.forward("8001")
        self.addCleanup(process.stop)
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
                self.assert_breaks(connection)
        except ConnectionResetError:
            pass  # before connect() has returned
        self.site.wait("the words", lambda: "connection reset: nothing listens there on 127.0.0.1" in process.output())

    def test_c_nobody_else_gets_in(self):
        token = self.site.rest.post("/v1/tokens", {"kind": "user", "user": "bob", "lab": "lab-b", "role": "owner"})
        bob = Cli(self.site.labs, self.site.coordinator, token=token["token"])
        done = bob("forward", self.job, "0:8000", check=False)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn(f"no job {self.job}", done.stderr)

    def test_d_what_is_given_wrongly_is_said_before_anything_is_opened(self):
        for ports, code in (("http", 2), ("0", 2), ("65536", 2), ("8000:", 2), (f"{self.server[1]}:8000", 5)):
            done = self.site.cli("forward", self.job, ports, check=False)
            self.assertEqual(done.returncode, code, (ports, done.stderr))
            self.assertIn("\n  next: ", done.stderr)

    def test_e_a_job_that_moves_breaks_what_was_open_and_is_reached_at_the_same_port(self):
        before, held = self.node(), self.held()
        before.owner("reclaim", "-m", "an exam")
        self.assert_breaks(held)
        self.wait_for_server()
        self.assertNotEqual(self.node(), before)
        self.assertIn("connection reset: ", self.server[0].output())
        before.owner("release")

    def test_f_the_owners_cut_cuts_it(self):
        before, held = self.node(), self.held()
        began = time.monotonic()
        before.owner("reclaim", "--now")
        self.assert_breaks(held)
        print(f"broken {time.monotonic() - began:.2f} s after the order")
        self.wait_for_server()
        self.assertNotEqual(self.node(), before)
        before.owner("release")

    def test_g_it_ends_with_the_job(self):
        held = self.held()
        self.site.cli("stop", self.job)
        self.assert_breaks(held)
        self.site.wait("its end", lambda: not self.server[0].is_running(), 30)
        self.assertEqual(self.server[0].popen.returncode, 0)
        self.assertRegex(self.server[0].output(), r"job \d+ is over: cancelled\n$")
        done = self.site.cli("forward", self.job, "8000", check=False)
        self.assertEqual(done.returncode, 5, done.stderr)


if __name__ == "__main__":
    unittest.main()
