#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A notebook in real Chromium: what its page says when the owner comes back, and that it is there again elsewhere. The
browser's side of the story is web/tests/notebook.mjs, which asks here for what is done outside of it."""
import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
from browser_story import BrowserStory  # noqa: E402
from rn_site import jupyter_image  # noqa: E402
from stories import Site  # noqa: E402

PORT = 7446
LENDS = {"guest_disk_mib": 1024, "guest_memory_mib": 1024, "notice_s": 60}
LIMIT_S = 500
EMPTY = {"cells": [], "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
         "nbformat": 4, "nbformat_minor": 5}


class NotebookPage(BrowserStory, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.site = Site({"lab-a": LENDS, "lab-b": LENDS}, disk="8G",
                        flags=["--notebooks-listen", f"0.0.0.0:{PORT}", "--min-residence-s", 600])
        cls.addClassCleanup(cls.site.down)
        cls.site.cli("image", "add", "notebook", jupyter_image(), timeout_s=600)

    def test_the_page_tells_of_the_owner_and_comes_back_elsewhere(self):
        folder = self.site.labs.dir / "student-page"
        folder.mkdir()
        (folder / "data.csv").write_text("1,2,3\n")
        (folder / "thesis.ipynb").write_text(json.dumps(EMPTY))
        answer = json.loads(self.site.cli(
            "notebook", "--cpus", "1", "--cpus-min", "0.1", "--memory", "640MB", "--disk", "256MB", "--json",
            cwd=folder, timeout_s=240).stdout)
        self.job = self.site.rest.jobs()[0]["id"]
        self.before = self.site.rest.job(self.job)["node"]
        self.play("notebook.mjs", {"url": answer["url"], "place": answer["place"],
                                   "dashboard": self.site.coordinator.url}, LIMIT_S)

    def picture(self):
        return (f"{self.site.rest.job(self.job)}\n{self.site.picture()}\n"
                f"{self.site.rest.log(self.job)[-3000:].decode(errors='replace')}")

    def act_reclaim(self):
        self.site.nodes[self.site.lab_of_node(self.before)].owner("reclaim", "-m", "an exam")
        return {}

    def act_has_moved(self):
        return {"has_moved": self.site.rest.job(self.job)["node"] != self.before}


if __name__ == "__main__":
    unittest.main(verbosity=2)
