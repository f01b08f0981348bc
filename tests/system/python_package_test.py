#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python package without a site: what a coordinator that fails, lies or is somebody else is met with (a TLS server
of the test's own), what of a folder and of a function is sent, and the in-job part on files and a socket of the test's.
With a real site: python_test.py."""
import hashlib
import http.server
import json
import os
import pathlib
import pickle
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
import reclaimnet  # noqa: E402
from reclaimnet import arrays, folders, functions, injob, login, transport  # noqa: E402
from reclaimnet.ignore import IgnoreRules  # noqa: E402

JOB = {"id": "j-1", "number": 1, "state": "running", "epoch": "1.1", "node": "n"}
EMPTY = hashlib.sha256(b"").hexdigest()
A_GLOBAL = [1]


def openssl(*words, **options):
    subprocess.run(["openssl", *words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)


def make_site(folder, identity=transport.COORDINATOR):
    """A CA, and a chain of a certificate for `identity` with the CA behind it; answers the CA's fingerprint."""
    folder.mkdir()
    openssl("req", "-x509", "-newkey", "ed25519", "-nodes", "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=site",
            "-addext", "keyUsage=critical,keyCertSign", cwd=folder)
    openssl("req", "-newkey", "ed25519", "-nodes", "-keyout", "key.pem", "-out", "csr", "-subj", "/CN=x", cwd=folder)
    (folder / "ext").write_text(f"subjectAltName=URI:{identity}\nextendedKeyUsage=serverAuth\n")
    openssl("x509", "-req", "-in", "csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
            "-extfile", "ext", "-out", "leaf.pem", cwd=folder)
    ca = (folder / "ca.pem").read_text()
    (folder / "chain.pem").write_text((folder / "leaf.pem").read_text() + ca)
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(ca)).hexdigest()


class FakeCoordinator:
    """Answers by `answer(method, path, body) -> (status, bytes)`, or does what that raises; remembers the requests."""

    def __init__(self, folder, answer):
        self.requests, self.answer = [], answer
        fake = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                fake.requests.append((self.command, self.path, dict(self.headers), body))
                fake.answer(self, body)

            do_GET = do_POST = do_PUT = handle_any

            def reply(self, status, data, **headers):
                data = data if isinstance(data, bytes) else json.dumps(data).encode()
                self.send_response(status)
                for name, value in {"Content-Length": len(data), **headers}.items():
                    self.send_header(name.replace("_", "-"), str(value))
                self.end_headers()
                self.wfile.write(data)

            def reply_torn(self, pieces, silence_s=0):
                """A chunked answer that is broken off, or falls silent first."""
                self.send_response(200)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for piece in pieces:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                self.wfile.flush()
                time.sleep(silence_s)
                self.hang_up()

            def hang_up(self):
                self.close_connection = True
                self.wfile.flush()
                self.connection.close()

            def log_message(self, *unused):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *unused: None  # peers that hang up are what is tested
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "chain.pem", folder / "key.pem")
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()
        self.url = f"https://127.0.0.1:{self.server.server_address[1]}"

    def down(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


class OnTheWire(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.pin = make_site(cls.folder / "site")
        make_site(cls.folder / "other")
        cls.node_pin = make_site(cls.folder / "node", "spiffe://reclaimnet/node/n-1")

    def serve(self, answer, site="site"):
        fake = FakeCoordinator(self.folder / site, answer)
        self.addCleanup(fake.down)
        return fake

    def client(self, fake, pin=None, **options):
        client = reclaimnet.Client(fake.url, "rnu1.t.s." + (pin or self.pin), **{
            "timeout_s": 5, "patience_s": 5, **options})
        self.addCleanup(client.close)
        return client

    def test_the_token_goes_to_nobody_but_this_sites_coordinator(self):
        for site, pin, words in (("other", self.pin, "another CA"), ("node", self.node_pin, "not spiffe://")):
            with self.subTest(site):
                fake = self.serve(lambda handler, body: handler.reply(200, {"nodes": []}), site)
                with self.assertRaisesRegex(reclaimnet.DeniedError, words):
                    self.client(fake, pin).nodes()
                self.assertEqual(fake.requests, [])
        fake = self.serve(lambda handler, body: handler.reply(200, {"nodes": []}))
        self.assertEqual(self.client(fake).nodes(), [])
        self.assertRegex(fake.requests[0][2]["Authorization"], r"^Bearer rnu1\.t\.s\.")

    def test_what_the_coordinator_says_is_what_is_raised(self):
        answers = [
            (404, {"error": {"code": "not_found", "message": "no job 7", "hint": "reclaim ps"}},
             reclaimnet.NotFoundError, "^no job 7; next: reclaim ps$"),
            (403, {"error": {"code": "denied", "message": "not yours"}}, reclaimnet.DeniedError, "^not yours$"),
            (507, b"<html>", reclaimnet.ExhaustedError, "HTTP status 507.*healthz"),
            (500, {"error": []}, reclaimnet.ReclaimError, "HTTP status 500"),
            (400, b"\xff" * 200000, reclaimnet.InvalidError, "HTTP status 400"),
            (200, b"not json", reclaimnet.CorruptError, "is no JSON"),
            (200, b"[]", reclaimnet.CorruptError, "no object"),
            (200, b"[" * 100000, reclaimnet.CorruptError, "is no JSON"),
            (200, {"id": 7}, reclaimnet.CorruptError, "describes no job")]
        for status, data, kind, words in answers:
            with self.subTest(words):
                fake = self.serve(lambda handler, body, status=status, data=data: handler.reply(status, data))
                with self.assertRaisesRegex(kind, words):
                    self.client(fake).job(7)
                self.assertEqual(len(fake.requests), 1, "what will be the same again is asked again")

    def test_a_submit_whose_answer_is_lost_is_repeated_with_the_same_key(self):
        def answer(handler, body):
            if len(fake.requests) == 1:
                return handler.hang_up()
            if len(fake.requests) == 2:
                return handler.reply(503, {"error": {"code": "unavailable", "message": "starting"}}, Retry_After=1)
            return handler.reply(200, {"job": JOB, "warnings": ["it waits"]})

        fake = self.serve(answer)
        with self.assertLogs("reclaimnet", "WARNING") as logged:
            job = self.client(fake).submit(["true"], priority=0, max_restarts=0)

        self.assertEqual((job.id, job.warnings, len(fake.requests)), ("j-1", ("it waits",), 3))
        self.assertIn("it waits", logged.output[0])
        keys = {headers["Idempotency-Key"] for _, _, headers, _ in fake.requests}
        self.assertEqual(len(keys), 1)
        self.assertEqual(json.loads(fake.requests[0][3]), {
            "command": ["true"], "max_restarts": 0, "priority": 0, "resources": {"gpus": 0}})

    def test_an_estimate_is_asked_for_and_what_is_not_known_is_none(self):
        took = {"of": "duration_s", "likeness": "command", "jobs": 30, "jobs_needed": 19, "share": 0.9, "low": 60.0,
                "typical": 80.0, "high": 100.0}
        saved = {"of": "checkpoint_mib", "likeness": "site", "jobs": 2, "jobs_needed": 19, "share": 0.9}
        fake = self.serve(lambda handler, body: handler.reply(200, {"estimates": [took, saved, 7]}))
        client = self.client(fake)

        seen = client.estimate(["python3", "train.py"], gpus=1)

        self.assertEqual(seen["duration_s"], took)
        self.assertEqual((seen["checkpoint_mib"]["high"], seen["checkpoint_mib"]["jobs"]), (None, 2))
        client.estimate({"command": ["python3", "train.py"], "resources": {"gpus": 1}})
        self.assertEqual([(method, path) for method, path, _, _ in fake.requests], [("POST", "/v1/plan")] * 2)
        first, second = (json.loads(body) for _, _, _, body in fake.requests)
        self.assertEqual(first, second)

    def test_an_array_is_one_submit_and_its_tasks_are_found_again(self):
        task = {"array": "a-1", "tasks": 3, "at_most": 2, "first_number": 5}
        rows = {number: {**JOB, "id": f"j-{number}", "number": number, "state": "succeeded", "array": {
            **task, "index": 2 * (number - 5)}} for number in (5, 6, 7)}

        def answer(handler, body):
            if handler.command == "POST":
                return handler.reply(201, {"array": "a-1", "warnings": ["it waits"], "tasks": [
                    {"job": row["id"], "number": row["number"], "index": row["array"]["index"]}
                    for row in rows.values()]})
            if handler.path.startswith("/v1/jobs?"):
                before = int(handler.path.partition("before=")[2].partition("&")[0])
                other = {**JOB, "id": "j-4", "number": 4}
                return handler.reply(200, {"jobs": [row for row in (rows[7], rows[6], rows[5], other)
                                                    if row["number"] < before][:2]})
            return handler.reply(200, rows[int(handler.path.rpartition("-")[2])])

        fake = self.serve(answer)
        with self.assertLogs("reclaimnet", "WARNING"):
            array = self.client(fake).submit(["true"], array="0-4:2", throttle=2, after=17, key="once")

        _, path, headers, body = fake.requests[0]
        self.assertEqual((path, headers["Idempotency-Key"]), ("/v1/arrays", "once"))
        self.assertEqual(json.loads(body), {"at_most": 2, "indices": [0, 2, 4], "spec": {
            "command": ["true"], "resources": {"gpus": 0}, "after": [{"job": "17", "when": "ok"}]}})
        self.assertEqual((len(array), array.indices, array.warnings), (3, (0, 2, 4), ("it waits",)))
        self.assertEqual([job.index for job in array], [0, 2, 4])
        self.assertEqual((array.task(4).id, array[0].id, array[-1].number), ("j-7", "j-5", 7))
        self.assertEqual([job.id for job in array.task(2).tasks()], ["j-5", "j-6", "j-7"])
        self.assertIs(array.wait(5), array)
        self.assertTrue(array.has_ended)
        array.cancel("enough")
        self.assertEqual([(path, json.loads(body)) for method, path, _, body in fake.requests if method == "POST"][1], (
            "/v1/arrays/a-1/stop", {"reason": "enough", "saves_first": False}))
        with self.assertRaisesRegex(reclaimnet.NotFoundError, "no index 3"):
            array.task(3)

    def test_an_array_one_of_whose_tasks_failed_raises_when_all_are_over(self):
        states = {"j-1": ["failed"], "j-2": ["running", "running", "succeeded"]}

        def answer(handler, body):
            if handler.command == "POST":
                return handler.reply(201, {"array": "a-1", "tasks": [
                    {"job": job, "number": number, "index": number} for number, job in enumerate(states)]})
            job = handler.path.rpartition("/")[2]
            state = states[job].pop(0) if len(states[job]) > 1 else states[job][0]
            return handler.reply(200, {**JOB, "id": job, "state": state, "exit_code": 3})

        array = self.client(self.serve(answer)).submit(["true"], array=[0, 1])
        with self.assertRaises(reclaimnet.JobFailedError) as failed:
            array.wait(10)

        self.assertEqual((failed.exception.job.id, array.has_ended), ("j-1", True))
        self.assertEqual(array.wait(10, check=False), array)

    def test_who_is_to_be_told_is_and_what_fails_there_is_a_warning(self):
        def answer(handler, body):
            if handler.path == "/v1/jobs":
                return handler.reply(201, {"job": JOB, "warnings": []})
            if "webhook" in json.loads(body):
                return handler.reply(403, {"error": {"code": "denied", "message": "no such host", "hint": "ask"}})
            return handler.reply(201, {"rule": {"id": "w-1", "is_confirmed": "ann" in json.loads(body)["mail"]}})

        fake = self.serve(answer)
        with self.assertLogs("reclaimnet", "WARNING") as logged:
            job = self.client(fake).submit(["true"], notify=["ann@x.org", "https://h.org/x", "bob@x.org"])

        self.assertEqual([json.loads(body) for _, path, _, body in fake.requests if path == "/v1/notifications"], [
            {"mail": "ann@x.org", "job": "j-1"}, {"webhook": "https://h.org/x", "job": "j-1"},
            {"mail": "bob@x.org", "job": "j-1"}])
        self.assertEqual(len(job.warnings), 2)
        self.assertIn("the job is submitted, and https://h.org/x is not told of it: no such host", job.warnings[0])
        self.assertIn("reclaim notify confirm w-1 CODE", job.warnings[1])
        self.assertEqual(len(logged.output), 2)

    def test_who_cannot_be_reached_or_is_silent_is_said_in_time(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))  # nobody listens
            url = f"127.0.0.1:{taken.getsockname()[1]}"
            gone = reclaimnet.Client(url, "a." + self.pin, timeout_s=1, patience_s=0.3)
            with self.assertRaisesRegex(reclaimnet.UnavailableError, "cannot be reached: .*; next: check that"):
                gone.nodes()
        release = threading.Event()
        fake = self.serve(lambda handler, body: release.wait(30))
        begun = time.monotonic()
        with self.assertRaisesRegex(reclaimnet.TimedOutError, "does not answer in time"):
            self.client(fake, timeout_s=0.5, patience_s=0).nodes()
        self.assertLess(time.monotonic() - begun, 25)
        release.set()

    def test_an_answer_larger_than_is_taken_is_refused(self):
        fake = self.serve(lambda handler, body: handler.reply(200, bytes(2000)))
        with self.assertRaisesRegex(reclaimnet.ExhaustedError, "more than 1000 bytes"):
            self.client(fake).transport.call("GET", "/v1/blobs/x", most=1000)

    def test_a_log_that_breaks_off_is_taken_up_where_it_was(self):
        def answer(handler, body):
            path = handler.path
            if path == "/v1/jobs/j-1":
                return handler.reply(200, {**JOB, "state": "succeeded"})
            if path == "/v1/jobs/j-1/attempts":
                return handler.reply(200, {"attempts": [{"epoch": "1.1", "state": "ended"}]})
            offsets.append(path.partition("offset=")[2].partition("&")[0])
            if len(offsets) == 1:
                return handler.reply_torn([b"one\ntw", b"o\nth"])
            if len(offsets) == 2:
                return handler.reply_torn([b"re"], silence_s=30)
            return handler.reply(200, b"e\nlast")

        offsets = []
        fake = self.serve(answer)
        job = reclaimnet.Job(self.client(fake, timeout_s=3), JOB)

        begun = time.monotonic()
        self.assertEqual(list(job.logs(follow=True)), ["one\n", "two\n", "three\n", "last"])
        self.assertEqual(offsets, ["0", "10", "12"])
        self.assertLess(time.monotonic() - begun, 25, "it has waited for the silence to end")

    def outputs(self, *files, blobs=None):
        """A job whose listing has these, and the folder into which they are fetched."""
        def answer(handler, body):
            if handler.path.startswith("/v1/blobs/"):
                return handler.reply(200, (blobs or {})[handler.path[10:]])
            return handler.reply(200, {"files": list(files)})

        job = reclaimnet.Job(self.client(self.serve(answer)), {**JOB, "state": "succeeded", "outputs": 64 * "1"})
        return job, pathlib.Path(tempfile.mkdtemp(dir=self.folder))

    @staticmethod
    def file(path, data=b"", **fields):
        return {"path": path, "kind": "regular", "mode": 0o4755, "bytes": len(data), "target": "",
                "blobs": [hashlib.sha256(data).hexdigest()] if data else [], **fields}

    def test_outputs_that_would_leave_their_folder_are_not_written_and_the_others_are(self):
        data = b"42\n"
        name = hashlib.sha256(data).hexdigest()
        elsewhere = self.folder / "elsewhere"
        elsewhere.mkdir()
        bad = ["../x", f"{elsewhere}/x", "a/../../x", "out/x", ".git/hooks/x", "sub/.GIT/config", ".reclaim/x"]
        job, home = self.outputs(
            self.file("out", kind="symlink", target=str(elsewhere)), *(self.file(path, data) for path in bad),
            self.file("good/answer", data), self.file("damaged", b"other"),
            blobs={name: data, hashlib.sha256(b"other").hexdigest(): b"othet"})

        with self.assertRaisesRegex(reclaimnet.ConflictError, "8 of 10 outputs were not written: .*arrived damaged"):
            job.fetch(home)

        self.assertEqual((home / "good" / "answer").read_bytes(), data)
        self.assertEqual((home / "good" / "answer").stat().st_mode & 0o7777, 0o755, "it came home setuid")
        found = sorted(str(path.relative_to(home)) for path in home.rglob("*"))
        self.assertEqual(found, ["good", "good/answer", "out"])
        self.assertEqual((list(elsewhere.iterdir()), (home.parent / "x").exists()), ([], False))

    def test_an_output_that_is_larger_than_listed_is_not_taken_into_memory(self):
        big = bytes(5000)
        job, _ = self.outputs(self.file("big", big, bytes=10), blobs={hashlib.sha256(big).hexdigest(): big})
        with self.assertRaises(reclaimnet.CorruptError):
            job.read_output("big", most=1000)
        with self.assertRaises(reclaimnet.NotFoundError):
            job.fetch(self.folder / "nowhere", "small")


class Sent(unittest.TestCase):
    def test_the_package_has_the_version_of_the_programs(self):
        project = (ROOT / "python" / "pyproject.toml").read_text()
        self.assertIn(f'\nversion = "{reclaimnet.__version__}"\n', project)
        self.assertIn(f"project(reclaimnet VERSION {reclaimnet.__version__} ", (ROOT / "CMakeLists.txt").read_text())

    def test_amounts_are_read_as_in_a_job_file(self):
        spec = reclaimnet.job_spec(["x"], gpus="24GB:2", memory="512MB", disk=3, notice="5m", cpus=0.5)
        self.assertEqual(spec["resources"], {"gpus": 2, "gpu_memory_mib": 24576, "cpu_milli": 500, "memory_mib": 512,
                                             "disk_mib": 3072})
        self.assertEqual(spec["notice_s"], 300)
        for wrong in ({"memory": "lots"}, {"memory": True}, {"gpus": "A100"}, {"notice": "soon"}, {"outputs": "*.pt"}):
            with self.subTest(wrong), self.assertRaises(reclaimnet.InvalidError):
                reclaimnet.job_spec(["x"], **wrong)

    def test_what_a_job_waits_for_is_named_in_many_ways(self):
        job = reclaimnet.Job(mock.Mock(), JOB)
        array = reclaimnet.Array("a-1", [job], [0])
        for after, wanted in (
                (17, [("17", "ok")]), ("fail:17", [("17", "fail")]), (job, [("j-1", "ok")]), (array, [("a-1", "ok")]),
                (("any", array), [("a-1", "any")]), ([job, "started:j-2", ("fail", 3)],
                                                      [("j-1", "ok"), ("j-2", "started"), ("3", "fail")]), ([], None)):
            with self.subTest(after):
                said = reclaimnet.job_spec(["x"], after=after).get("after")
                self.assertEqual(said and [(one["job"], one["when"]) for one in said], wanted)
        for wrong in ("done:17", "fail:", [None], True, ("fail", 3.5), [["ok", 17]], ""):
            with self.subTest(wrong), self.assertRaisesRegex(reclaimnet.InvalidError, "names no job to wait for"):
                reclaimnet.job_spec(["x"], after=wrong)

    def test_an_arrays_indices_are_read_as_slurm_writes_them(self):
        for array, wanted in ((range(3), [0, 1, 2]), ({7, 1}, [1, 7]), ("5", [5]), ("1,5-7", [1, 5, 6, 7]),
                              ("0-9:4", [0, 4, 8]), (range(1000), list(range(1000)))):
            self.assertEqual(arrays.indices_of(array), wanted)
        for wrong, words in ((3, "two ways"), (True, "two ways"), ("", "not understood"), ("0-9%2", "throttle="),
                             ("9-0", "no index"), ("0-9:0", "no index"), ([], "no index"), ([1, 1], "twice"),
                             ([-1], "is no index"), ([1.5], "is no index"), (["1"], "is no index"),
                             ([1 << 32], "is no index"), ("0-1000", "more than 1000"), (range(10**9), "more than 1000"),
                             ("0-4294967295", "more than 1000")):
            with self.subTest(wrong), self.assertRaisesRegex(reclaimnet.InvalidError, words):
                arrays.indices_of(wrong)
        nobody = reclaimnet.Client("https://127.0.0.1:1", "a." + 64 * "0")
        for wrong, words in (({"throttle": 2}, "there is none"), ({"array": [1], "throttle": 0}, "no number of tasks"),
                             ({"array": [1], "throttle": True}, "no number of tasks"), ({"notify": "ann"}, "neither"),
                             ({"array": [1], "notify": "ann@x.org"}, "array of jobs"), ({"notify": [7]}, "neither")):
            with self.subTest(wrong), self.assertRaisesRegex(reclaimnet.InvalidError, words):
                nobody.submit(["x"], **wrong)

    def test_cbor_is_as_the_coordinator_writes_it(self):
        self.assertEqual(folders.cbor({"b": [1, 24, 256, 1 << 40], "a": b"x"}).hex(),
                         "a2616141786162840118181901001b0000010000000000")

    def test_ignore_files_are_read_as_by_the_command_line(self):
        rules = IgnoreRules()
        rules.add("", "# words\n*.bin\n!kept.bin\n/data/\nlog[0-9].txt\nsub/**/deep\n")
        rules.add("sub", "*.c\n")
        ignored = [path for path, is_folder in (
            ("a.bin", False), ("x/a.bin", False), ("kept.bin", False), ("data", True), ("x/data", True),
            ("data", False),
            ("log1.txt", False), ("logx.txt", False), ("sub/a/b/deep", False), ("sub/deep", False), ("sub/m.c", False),
            ("m.c", False)) if rules.ignores(path, is_folder)]
        self.assertEqual(ignored, ["a.bin", "x/a.bin", "data", "log1.txt", "sub/a/b/deep", "sub/deep", "sub/m.c"])

    def test_a_folder_is_listed_without_what_has_no_business_there(self):
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            for folder in (".git", "__pycache__", "sub"):
                (root / folder).mkdir()
                (root / folder / "file").write_text("x")
            os.mkfifo(root / "pipe")
            (root / "link").symlink_to("sub")
            workspace = folders.Workspace()
            workspace.add_folder(root, 1 << 20)
            with self.assertRaisesRegex(reclaimnet.ExhaustedError, "its biggest files: sub/file"):
                folders.Workspace().add_folder(root, 0)
        self.assertEqual({path: file["kind"] for path, file in workspace.files.items()},
                         {"link": "symlink", "sub": "folder", "sub/file": "regular"})

    def test_a_whole_home_folder_is_no_jobs_folder_unless_it_says_what_stays_there(self):
        with tempfile.TemporaryDirectory() as home, mock.patch.dict(os.environ, {"HOME": home}):
            below = pathlib.Path(home) / "thesis"
            below.mkdir()
            for folder, words in ((home, "is your home folder"), (f"{home}/..", "your home folder is in"),
                                  ("/", "/ is the whole machine")):
                with self.subTest(folder), self.assertRaisesRegex(
                        reclaimnet.InvalidError, f"{words}.*nothing was sent; next: name the folder"):
                    folders.Workspace().add_folder(folder, 1 << 20)
            folders.Workspace().add_folder(below, 1 << 20)
            (pathlib.Path(home) / ".reclaimignore").write_text("*\n")
            folders.Workspace().add_folder(home, 1 << 20)
            with mock.patch.object(folders, "ENTRIES_MAX", 1), self.assertRaisesRegex(
                    reclaimnet.ExhaustedError, "more than 1 files and folders"):
                (below / "a").touch()
                (below / "b").touch()
                folders.Workspace().add_folder(below, 1 << 20)

    def test_who_is_not_logged_in_is_told_how(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, {"XDG_CONFIG_HOME": folder},
                                                                      clear=True):
            with self.assertRaisesRegex(reclaimnet.NotLoggedInError, "^not logged in; next: reclaim login"):
                login.load_login()
            path = login.login_path()
            path.parent.mkdir()
            path.write_text(json.dumps({"url": "https://there:1", "token": "t", "ca_fingerprint": EMPTY, "new": 1}))
            self.assertEqual(login.load_login().url, "https://there:1")
            os.environ["RECLAIM_URL"] = "[::1]"
            self.assertEqual(login.load_login().url, "https://[::1]:7443")
            os.environ["RECLAIM_TOKEN"] = f"a.b.{64 * '1'}"
            self.assertEqual(login.load_login().ca_fingerprint, 64 * "1")
            self.assertNotIn("a.b", repr(login.load_login()))
            for wrong in ("http://x", "https://user:secret@x", "https://x/path", "https://x:99999", "::1", "https://"):
                with self.subTest(wrong), self.assertRaises(reclaimnet.InvalidError) as raised:
                    login.load_login(wrong)
                self.assertNotIn("secret", str(raised.exception))
            path.write_text("{")
            del os.environ["RECLAIM_TOKEN"]
            with self.assertRaisesRegex(reclaimnet.InvalidError, "is no login"):
                login.load_login()


class Functions(unittest.TestCase):
    def test_a_function_is_sent_with_the_imports_that_it_needs(self):
        def uses(number, default=os.sep):
            http.server.HTTPStatus(200)
            return json.dumps([number, default, [pathlib.Path(str(one)) for one in range(number)]])

        source = functions.source_of(uses)

        self.assertIn("import http\nimport json\nimport os\nimport pathlib\nimport http.server\n", source)
        names = {}
        exec(source, names)
        self.assertEqual(names["uses"](0), json.dumps([0, os.sep, []]))

    def test_what_cannot_be_sent_is_refused_where_it_is_written(self):
        around = 1

        def closes():
            return around

        def takes_global():
            return A_GLOBAL

        def makes():
            yield 1

        for function, words in ((lambda: 1, "no plain function"), (closes, "around of the function around"),
                                (takes_global, "'A_GLOBAL' of its own file"), (makes, "generator"), (len, "no plain")):
            with self.subTest(words), self.assertRaisesRegex(reclaimnet.InvalidError, words):
                functions.source_of(function)
        with self.assertRaisesRegex(reclaimnet.InvalidError, "no plain function"):
            reclaimnet.remote(lambda: 1)

    def test_arguments_that_another_interpreter_could_not_read_are_refused(self):
        def takes(value):
            return value

        with self.assertRaises(TypeError):
            functions._pickled(takes, (), {}, 100)
        with self.assertRaisesRegex(reclaimnet.InvalidError, "cannot be pickled"):
            functions._pickled(takes, (threading.Lock(),), {}, 1000)
        with self.assertRaisesRegex(reclaimnet.ExhaustedError, "more than the limit of 100"):
            functions._pickled(takes, (bytes(200),), {}, 100)
        with mock.patch.object(Harmful, "__module__", "__main__"), \
                mock.patch.object(sys.modules["__main__"], "Harmful", Harmful, create=True):
            with self.assertRaisesRegex(reclaimnet.InvalidError, "hold Harmful of the script itself"):
                functions._pickled(takes, (Harmful,), {}, 1000)

    def test_a_result_that_would_run_something_here_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            trace = pathlib.Path(folder) / "ran"
            evil = pickle.dumps(Harmful(f"touch {trace}"), 4)
            with self.assertRaisesRegex(reclaimnet.DeniedError, r"posix\.system.*result_types"):
                functions.load_result(evil)
            self.assertFalse(trace.exists())
            pickle.loads(evil)
            self.assertTrue(trace.exists(), "it would not have run anyway")
        plain = {"a": [1, 2.5, None, (True, b"x")], "s": {1}, "p": range(3), "c": 1j}
        self.assertEqual(functions.load_result(pickle.dumps(plain, 4)), plain)
        with self.assertRaises(reclaimnet.CorruptError):
            functions.load_result(b"\x80\x04nonsense")
        self.assertIsInstance(functions.load_result(pickle.dumps(Own(), 4), [Own]), Own)

    def test_what_a_remote_machine_writes_steers_no_terminal(self):
        self.assertEqual(functions.printable("a\x1b[2Jb\u202ec\n\t"), "a\\x1b[2Jb\\u202ec\n\t")


class Harmful:
    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


class Own:
    pass


class InJob(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.notice_file = self.folder / "notice"
        self.job = injob._Job()
        self.enterContext(mock.patch.object(injob, "_JOB", self.job))
        self.enterContext(mock.patch.object(injob, "ASK_EVERY_S", 0))
        self.enterContext(mock.patch.dict(os.environ, {
            "RECLAIM_JOB_ID": "j-1", "RECLAIM_CHECKPOINT_DIR": str(self.folder),
            "RECLAIM_NOTICE_FILE": str(self.notice_file)}))
        self.printed = []
        self.enterContext(mock.patch.object(os, "write", lambda where, data: self.printed.append((where, data))))

    def test_outside_a_job_nothing_happens_and_that_is_said_once(self):
        with mock.patch.dict(os.environ):
            del os.environ["RECLAIM_JOB_ID"]
            self.notice_file.write_text("{}")
            with self.assertLogs("reclaimnet", "WARNING") as logged:
                said = [reclaimnet.should_save(), reclaimnet.should_save(), reclaimnet.notice(),
                        reclaimnet.checkpoint_saved()]
                with reclaimnet.saving(self.folder / "model") as path:
                    pathlib.Path(path).write_text("kept")
        self.assertEqual(said, [False, False, None, False])
        self.assertEqual((self.folder / "model").read_text(), "kept", "it is saved all the same")
        self.assertEqual(len(logged.output), 3, logged.output)
        self.assertEqual(self.printed, [])

    def test_a_notice_asks_for_one_save_and_a_new_one_for_another(self):
        self.assertFalse(reclaimnet.should_save())
        until = time.time() + 60
        self.notice_file.write_text(json.dumps({"reason": "a lecture", "deadline_unix": until, "grace_s": 60}))
        self.assertTrue(reclaimnet.should_save())
        self.assertEqual((reclaimnet.notice().reason, round(reclaimnet.notice().seconds_left)), ("a lecture", 60))

        with reclaimnet.saving("model") as path:
            pathlib.Path(path).write_text("1")

        self.assertEqual(self.printed, [(1, b"\n::reclaimnet checkpoint-complete::\n")])
        self.assertFalse(reclaimnet.should_save())
        self.notice_file.write_text(json.dumps({"reason": "another", "deadline_unix": time.time() + 9}))
        self.assertTrue(reclaimnet.should_save())

    def test_a_save_that_fails_is_not_said_and_the_old_one_stays(self):
        (self.folder / "model").write_text("old")
        with self.assertRaises(RuntimeError), reclaimnet.saving("model") as path:
            pathlib.Path(path).write_text("half")
            raise RuntimeError
        self.assertEqual((self.folder / "model").read_text(), "old")
        with self.assertRaises(FileNotFoundError):
            reclaimnet.checkpoint_saved("missing")
        with tempfile.NamedTemporaryFile() as elsewhere, self.assertRaisesRegex(ValueError, "not in the job's folder"):
            reclaimnet.checkpoint_saved(elsewhere.name)
        self.assertEqual(self.printed, [])
        self.assertEqual([path.name for path in self.folder.iterdir()], ["model"])

    def test_a_told_file_is_answered_by_its_end(self):
        with mock.patch.dict(os.environ, {"RECLAIM_TELL_FILE": "SAVE"}):
            self.assertFalse(reclaimnet.should_save())
            (self.folder / "SAVE").write_text("{}")
            self.assertTrue(reclaimnet.should_save())
            self.assertTrue(reclaimnet.checkpoint_saved())
            self.assertFalse((self.folder / "SAVE").exists())

    def test_an_api_that_is_not_there_is_said_once_and_the_notice_still_counts(self):
        with mock.patch.dict(os.environ, {"RECLAIM_API": str(self.folder / "api.sock")}), \
                self.assertLogs("reclaimnet", "WARNING") as logged:
            self.assertFalse(reclaimnet.should_save())
            self.notice_file.write_text("torn {")
            self.assertTrue(reclaimnet.should_save())
        self.assertEqual(len(logged.output), 1)
        self.assertEqual(reclaimnet.notice().reason, "")


class Bootstrap(unittest.TestCase):
    def run_call(self, about, source="def f(x):\n    return x + 1\n"):
        with tempfile.TemporaryDirectory() as name:
            place = pathlib.Path(name) / functions.PLACE
            workspace = folders.Workspace()
            functions._add_package(workspace)
            for path, file in workspace.files.items():
                (pathlib.Path(name) / path).parent.mkdir(parents=True, exist_ok=True)
                data = b"".join(workspace._pieces[digest][0] for digest in file["blobs"])
                (pathlib.Path(name) / path).write_bytes(data)
            (place / "function.py").write_text(source)
            (place / "arguments.pickle").write_bytes(pickle.dumps(((1,), {}), 4))
            (place / "call.json").write_text(json.dumps({
                "function": "f", "python": list(sys.version_info[:2]), "any_python": False, "protocol": 4,
                "result_max": 100, **about}))
            command = [sys.executable, "-B", str(place / "call.py")]
            done = subprocess.run(command, cwd=name, capture_output=True, text=True)
            result = place / "result.pickle"
            return done, result.read_bytes() if result.exists() else None

    def test_another_python_is_refused_unless_the_caller_does_not_mind(self):
        done, result = self.run_call({"python": [3, 1]})
        self.assertEqual((done.returncode, result), (1, None))
        self.assertIn("the caller 3.1: use an image with that one", done.stdout)
        done, result = self.run_call({"python": [3, 1], "any_python": True})
        self.assertEqual((done.returncode, pickle.loads(result)), (0, 2))

    def test_a_result_that_is_too_large_or_no_data_fails_the_job(self):
        for source, words in (("def f(x):\n    return bytes(1000)\n", "more than the limit of 100"),
                              ("def f(x):\n    return lambda: x\n", "the result, a function, cannot be pickled")):
            with self.subTest(words):
                done, result = self.run_call({}, source)
                self.assertEqual((done.returncode, result), (1, None))
                self.assertIn(words, done.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
