# SPDX-License-Identifier: Apache-2.0
"""The test around a story that a real Chromium plays: a script of web/tests, which asks by `act` for what is done
outside of the browser, and says each step that it has taken."""
import json
import os
import pathlib
import shutil
import subprocess
import threading

from labs import ROOT


class BrowserStory:
    """For a test case; `act_NAME` of it is what the script asks for, with what it names."""

    def play(self, script, told, limit_s):
        """Starts the browser's side, does what it asks, and fails where it fails. With RN_SHOTS=FOLDER its pictures are
        kept there."""
        web = pathlib.Path(os.environ["RN_BUILD"]) / "web"
        self.assertTrue((web / "dashboard.stamp").exists(),
                        "reclaim-coordinator was built without the dashboard: npm could not get its packages")
        environment = {**os.environ, "RN_WEB_BUILD": str(web), "RN_CHROMIUM": shutil.which("chromium")}
        if shots := os.environ.get("RN_SHOTS"):
            os.makedirs(shots, exist_ok=True)
        with subprocess.Popen([shutil.which("node") or "nodejs", str(ROOT / "web" / "tests" / script)],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as browser:
            watchdog = threading.Timer(limit_s, browser.kill)
            watchdog.start()
            try:
                is_done = self.talk(browser, told)
            finally:
                watchdog.cancel()
                browser.stdin.close()
                browser.terminate()
        if not is_done:
            self.fail(f"the browser's side failed: its words stand above\n{self.picture()}")

    def picture(self):
        """What else is of use where it failed."""
        return ""

    def talk(self, browser, told):
        def tell(what):
            browser.stdin.write(json.dumps(what) + "\n")
            browser.stdin.flush()

        tell(told)
        for line in browser.stdout:
            said = json.loads(line)
            if "act" in said:
                answer = getattr(self, f"act_{said.pop('act')}")(**said)
                tell({} if answer is None else answer)
            elif "step" in said:
                print(f"  {said['ms'] / 1000:6.1f} s  {said['step']}", flush=True)
            elif "figure" in said:
                print(f"  {said['ms']} ms {said['figure']}", flush=True)
            else:
                return said["done"]
        return False
