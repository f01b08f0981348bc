# SPDX-License-Identifier: Apache-2.0
"""A coordinator for the command line's tests, without a machine that lends."""
import json
import os
import re
import subprocess
import tempfile

from hooks import Hooks
from labs import wait_until
from rn_site import program


class Site:
    """A coordinator in a scratch folder, and who talks to it."""

    def __init__(self, folder):
        self.folder = folder
        # None that commands are called in: a whole home is not uploaded.
        self.home = tempfile.TemporaryDirectory(prefix="rn-cli-home-")
        self.state = folder / "coordinator"
        self.log = open(folder / "coordinator.log", "wb")
        self.hooks = Hooks()
        config = folder / "coordinator.yaml"
        config.write_text(json.dumps({"smtp": {"url": "smtp://127.0.0.1:9", "from": "site@example.org"},
                                      "webhooks": {"allow": [self.hooks.origin]}, "notebooks_listen": "127.0.0.1:0"}))
        self.process = subprocess.Popen(
            [program("reclaim-coordinator"), "serve", "--state", self.state, "--listen", "127.0.0.1:0",
             "--heartbeat-ms", "500", "--config", config], stdout=subprocess.PIPE, stderr=self.log, text=True)
        try:
            self.port = next(int(found[1]) for found in (
                re.match(r"listening on port (\d+)", line) for line in self.process.stdout) if found)
            wait_until("the administrator's token", (self.state / "admin.token").exists, 20)
        except BaseException:
            self.down()
            raise
        self.url = f"https://127.0.0.1:{self.port}"
        self.environment = {"PATH": os.environ["PATH"], "XDG_CONFIG_HOME": str(folder / "config"),
                            "HOME": self.home.name, "RECLAIM_URL": self.url, "RECLAIM_TOKEN": self.token}

    @property
    def token(self):
        return (self.state / "admin.token").read_text().strip()

    def down(self):
        self.hooks.down()
        self.process.kill()
        self.process.wait()
        self.home.cleanup()
        self.process.stdout.close()
        self.log.close()
