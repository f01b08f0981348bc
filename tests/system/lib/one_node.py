# SPDX-License-Identifier: Apache-2.0
"""What tests of single jobs stand on: a coordinator, one lending node, the tiny image, and students' folders."""
import unittest

from labs import Labs
from rn_site import Cli, Coordinator, Node, tiny_image

CONTRACT = {"guest_disk_mib": 128, "reserve_disk_mib": 64}


class OneNode(unittest.TestCase):
    OTHER_LABS = ()  # beside the coordinator's `campus` and the node's `lab-a`
    DISK = "2G"
    CONTRACT = CONTRACT

    @classmethod
    def setUpClass(cls):
        cls.labs = Labs("campus", "lab-a", *cls.OTHER_LABS, disk=cls.DISK)
        cls.addClassCleanup(cls.labs.down)
        cls.coordinator = Coordinator(cls.labs).start()
        cls.node = Node(cls.labs, "lab-a", cls.CONTRACT)
        cls.node.set_up(cls.coordinator)
        cls.cli = Cli(cls.labs, cls.coordinator)
        cls.cli("image", "add", "base", tiny_image())

    @classmethod
    def folder(cls, name, **files):
        folder = cls.labs.dir / name
        folder.mkdir()
        for file, text in files.items():
            (folder / file).write_text(text)
        return folder
