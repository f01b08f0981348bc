#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reclaim notebook` with the real Jupyter of Debian, on real daemons, engines and namespaces: an address for one
browser, a kernel at a WebSocket, others who are refused, an owner who comes back, the same notebook at the same address
elsewhere, variables that were kept, and one that ends for want of work."""
import concurrent.futures
import json
import pathlib
import re
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
from notebook_browser import Browser, Kernel  # noqa: E402
from rn_site import Cli, jupyter_image  # noqa: E402
from stories import Site  # noqa: E402

PORT = 7446
NOTICE_S = 40
STARTS_S = 180  # the image goes to a node, and Jupyter begins
SMALL = ("--cpus", "1", "--cpus-min", "0.1", "--memory", "640MB", "--disk", "256MB")
NOTEBOOK = {"type": "notebook", "format": "json", "content": {
    "cells": [{"cell_type": "markdown", "metadata": {}, "source": "# my thesis"}], "metadata": {}, "nbformat": 4,
    "nbformat_minor": 5}}


class Notebook(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        lends = {"guest_disk_mib": 1024, "guest_memory_mib": 1024, "notice_s": NOTICE_S}
        cls.site = Site({"lab-a": lends, "lab-b": lends}, disk="8G",
                        flags=["--notebooks-listen", f"0.0.0.0:{PORT}", "--min-residence-s", 600])
        cls.addClassCleanup(cls.site.down)
        cls.site.cli("image", "add", "notebook", jupyter_image(), timeout_s=600)
        token = cls.site.rest.post("/v1/tokens", {"kind": "user", "user": "ann", "lab": "lab-s", "role": "user"})
        cls.ann = Cli(cls.site.labs, cls.site.coordinator, token=token["token"])
        cls.folder = cls.site.labs.dir / "student-notebook"
        cls.folder.mkdir()
        (cls.folder / "data.csv").write_text("1,2,3\n")
        process = cls.ann.spawn("notebook", "notebook", *SMALL, "--name", "thesis", cwd=cls.folder)
        found = cls.site.wait("the address", lambda: re.search(r"^https://\S+$", process.output(), re.M), STARTS_S)
        cls.url = found[0]
        cls.job = re.search(r"submitted job (\S+) ", process.output())[1]
        cls.number = cls.site.rest.job(cls.job)["number"]
        cls.browser = Browser(cls.site.rest.tls, cls.url)
        cls.site.wait("Jupyter to answer", cls.browser.is_there, STARTS_S)

    def another_browser(self):
        answer = json.loads(self.ann("notebook", self.job, "--json").stdout)
        return Browser(self.site.rest.tls, answer["url"])

    def node(self):
        return self.site.nodes[self.site.lab_of_node(self.site.rest.job(self.job)["node"])]

    def test_a_the_address_is_of_one_browser_and_its_folder_is_the_jobs(self):
        self.assertEqual(self.browser.place, f"/notebooks/{self.number}/")
        status, _, page = self.browser.get("tree", accept="text/html")
        self.assertEqual(status, 200)
        self.assertIn(b"data-base-url", page)
        self.assertEqual(self.browser.json("GET", "api/contents/data.csv")["content"], "1,2,3\n")
        with self.assertRaises(AssertionError):  # it was used
            Browser(self.site.rest.tls, self.url)
        self.assertTrue(self.another_browser().is_there())

    def test_b_a_kernel_computes_at_its_websocket(self):
        kernel = Kernel(self.browser)
        self.addCleanup(kernel.close)
        self.assertEqual(kernel.run("print(6 * 7)"), "42\n")
        large = kernel.run("print('x' * 1_000_000)")
        self.assertEqual(len(large), 1_000_001, "many times what may be under way")

    def test_c_nobody_else_gets_in(self):
        token = self.site.rest.post("/v1/tokens", {"kind": "user", "user": "bob", "lab": "lab-b", "role": "owner"})
        bob = Cli(self.site.labs, self.site.coordinator, token=token["token"])
        done = bob("notebook", self.job, check=False)
        self.assertEqual(done.returncode, 3, done.stderr)
        admin = self.site.cli("notebook", self.job, check=False)
        self.assertEqual(admin.returncode, 4, admin.stderr)
        self.assertIn("reclaim forward", admin.stderr)
        mine = dict(self.browser.cookies)
        try:
            self.browser.cookies.clear()
            self.assertEqual(self.browser.get("api")[0], 403)
            self.assertEqual(self.browser.get(".reclaim/state")[0], 403)
        finally:
            self.browser.cookies.update(mine)

    def test_d_the_guest_knows_nothing_of_the_session(self):
        kernel = Kernel(self.browser)
        self.addCleanup(kernel.close)
        kernel.run("import os, urllib.request")
        seen = kernel.run("print({name: value for name, value in os.environ.items() if 'TOKEN' in name})")
        self.assertEqual(seen, "{}\n")
        name = next(name for name in self.browser.cookies if name.startswith("__Secure-"))
        self.assertNotIn(self.browser.cookies[name].encode(), self.site.rest.log(self.job))

    def test_e_at_a_notice_it_moves_and_the_same_address_shows_the_same_notebook(self):
        before = self.node()
        self.browser.get("tree", accept="text/html")
        self.browser.json("PUT", "api/contents/thesis.ipynb", NOTEBOOK)
        kernel = Kernel(self.browser)
        self.addCleanup(kernel.close)
        kernel.run("kept = list(range(100))")
        self.assertIn("saved kept (", kernel.run("%reclaim_save kept"))
        self.site.wait("its save", lambda: self.site.rest.job(self.job)["durable"]["generation"] > 0, 60)
        self.browser.json("PUT", "api/contents/last.txt", {"type": "file", "format": "text", "content": "last words"})

        began = time.monotonic()
        # It saves little and leaves soon, on a busy machine before the owner's command has returned.
        with concurrent.futures.ThreadPoolExecutor(1) as beside:
            noticed = beside.submit(self.site.wait, "the notice", self.noticed_state, NOTICE_S, 0.05)
            before.owner("reclaim", "-m", "an exam")
            state = noticed.result(NOTICE_S + 30)
        told = time.monotonic() - began
        self.assertEqual(state["message"], "an exam")
        left_s = (state["deadline_wall_ms"] - state["now_wall_ms"]) / 1000
        self.assertTrue(NOTICE_S - told - 1 <= left_s <= NOTICE_S, (left_s, told))
        pages = self.follow_until_it_is_back(began, state["epoch"])

        self.assertNotEqual(self.node(), before)
        self.assertTrue(pages, "it was nowhere for a moment, and that was said")
        for headers, page in pages:
            self.assertEqual(headers["Retry-After"], "2")
            self.assertIn(b"http-equiv=\"refresh\"", page)
        with self.assertRaises((ConnectionError, OSError)):  # the old kernel's channel broke, and did not fall silent
            kernel.run("print(1)")
        there = self.browser.json("GET", "api/contents/thesis.ipynb")["content"]
        self.assertEqual(there["cells"][0]["source"], "# my thesis")
        self.assertEqual(self.browser.json("GET", "api/contents/last.txt")["content"], "last words")
        again = Kernel(self.browser)
        self.addCleanup(again.close)
        self.assertEqual(again.run("print('kept' in globals())"), "False\n", "what a kernel held is gone, as is said")
        self.assertIn("loaded kept", again.run("%reclaim_load"))
        self.assertEqual(again.run("print(sum(kept))"), "4950\n")
        before.owner("release")

    def noticed_state(self):
        state = self.browser.state()
        return state if state["is_noticed"] and state["deadline_wall_ms"] else None

    def follow_until_it_is_back(self, began, epoch):
        """The pages that were shown in its place; prints how long it was away."""
        pages, last = [], time.monotonic()
        away_from = None
        while time.monotonic() - began < NOTICE_S + STARTS_S:
            try:
                status, headers, page = self.browser.get("tree", accept="text/html")
            except OSError:  # it broke on the way
                away_from = away_from or last
                continue
            if status == 503:
                away_from = away_from or last
                pages.append((headers, page))
            elif self.browser.state()["epoch"] != epoch:
                now = time.monotonic()
                print(f"notebook back {now - began:.1f} s after the notice, away for {now - (away_from or now):.1f} s")
                return pages
            else:
                last = time.monotonic()
            time.sleep(0.2)
        self.fail(f"it did not come back:\n{self.site.picture()}")
        return pages

    def test_f_stopping_it_ends_it_and_says_so(self):
        self.ann("stop", self.job)
        self.site.wait("its end", lambda: self.site.rest.job(self.job)["state"] == "cancelled", 60)
        status, _, page = self.browser.get("tree", accept="text/html")
        self.assertEqual(status, 409)
        self.assertIn(b"is over", page)
        done = self.ann("notebook", self.job, check=False)
        self.assertEqual(done.returncode, 5, done.stderr)

    def test_g_one_where_nobody_works_ends_by_itself(self):
        job = self.ann("notebook", *SMALL, "--idle", "10s", "--no-upload", "-d", cwd=self.folder).stdout.strip()
        self.site.wait("its end", lambda: self.site.rest.job(job)["state"] == "succeeded", STARTS_S)
        self.assertIn(b"nobody has worked for 10 s", self.site.rest.log(job))

    def test_h_what_is_wrong_is_said_before_anything_is_sent(self):
        for words, code, said in ((("--idle", "soon"), 2, "--idle"), ((self.job, "--gpu", "1"), 2, "there already"),
                                  (("--image", "nowhere"), 4, "allow list"), (("99999",), 3, "no job 99999")):
            done = self.ann("notebook", *words, cwd=self.folder, check=False)
            self.assertEqual(done.returncode, code, (words, done.stderr))
            self.assertIn(said, done.stderr)
            self.assertIn("next: ", done.stderr)


if __name__ == "__main__":
    unittest.main()
