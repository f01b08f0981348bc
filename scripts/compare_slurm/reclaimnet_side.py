# SPDX-License-Identifier: Apache-2.0
"""The plan through ReclaimNet: the testbed's own run, with the plan's owners and one guest a machine."""
import play
from plan import CPUS
from students import Students


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
