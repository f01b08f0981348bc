# SPDX-License-Identifier: Apache-2.0
"""Stories of one site that follow from each other."""
import unittest


class InARow(unittest.TestCase):
    """Of stories that go on where the one before ended: after one that failed the others say nothing, and are left
    out; the run has failed anyway."""
    is_broken = False

    def setUp(self):
        if self.is_broken:
            self.skipTest("the story before this one failed")

    def run(self, result=None):
        super().run(result)
        if result is not None and (result.failures or result.errors):
            type(self).is_broken = True
