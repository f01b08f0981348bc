# SPDX-License-Identifier: Apache-2.0
"""The plan through ReclaimNet: the testbed's own run, with the plan's owners and one guest a machine."""
import os
import pathlib
import re
import subprocess

import play
from plan import CPUS
from students import Students


def cached(cache, name):
    """A variable of a CMakeCache.txt; "" if it has none."""
    found = re.search(rf"^{name}:\w+=(.*)$", cache, re.MULTILINE)
    return found[1] if found else ""


def programs():
    """Where the sources of the build folder stand now, and how it is built: they need not be ours."""
    file = pathlib.Path(os.environ["RN_BUILD"], "CMakeCache.txt")
    cache = file.read_text() if file.exists() else ""
    commit = subprocess.run(["git", "-C", cached(cache, "CMAKE_HOME_DIRECTORY") or ".", "describe", "--always",
                             "--dirty", "--abbrev=10"], capture_output=True, text=True).stdout.strip()
    return f"{commit or 'unknown'}, {cached(cache, 'CMAKE_BUILD_TYPE') or 'unknown'}"


class OneEach(Students):
    CPUS = CPUS


class ReclaimNetRun(play.Run):
    def __init__(self, plan, flags, topology_file):
        scenario = {**plan.scenario, "topology": str(topology_file), "minutes": plan.seconds / 60}
        super().__init__(scenario, flags)
        self.schedule, self.left_out = list(plan.acts), 0

    def set_up(self):
        super().set_up()
        self.students = OneEach(self.bed, self.scenario["jobs"], self.flags.seed)

    def about(self):
        return {**super().about(), "programs": programs()}
