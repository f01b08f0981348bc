#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Where a node has an image's bytes from: the first one from the coordinator, each other one from nodes that have it,
in pieces that are believed by their hashes alone. One that lies is told apart, and the others are asked; an archive
that is not the listed one is never started from."""
import hashlib
import os
import pathlib
import re
import sys
import tarfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
import daemon_log  # noqa: E402
import lan  # noqa: E402
from labs import Labs, wait_until  # noqa: E402
from liar import Liar  # noqa: E402
from rn_site import Cli, Coordinator, Node, tiny_image  # noqa: E402

MIB = 1 << 20
BALLAST = 9 * MIB  # three pieces of at most 4 MiB, and every one is this image's own
MEMORY_MIB = {"lab-a": 64, "lab-b": 128, "lab-c": 256}  # a job of one's size runs on none that is before it
IMAGES = ("shared", "rare", "rotten")


def sha256_of(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


class ImagePeers(unittest.TestCase):
    """The tests build on each other, in their order: more and more nodes have the images."""

    @classmethod
    def setUpClass(cls):
        cls.labs = Labs("campus", *MEMORY_MIB, disk="2G")
        cls.addClassCleanup(cls.labs.down)
        cls.coordinator = Coordinator(cls.labs).start()
        cls.cli, cls.rest = Cli(cls.labs, cls.coordinator), cls.coordinator.rest()
        cls.archives = {name: cls.make_archive(name) for name in IMAGES}
        for name, archive in cls.archives.items():
            cls.cli("image", "add", name, archive)
        cls.nodes = {}

    @classmethod
    def make_archive(cls, name):
        """The tiny image and some megabytes of noise."""
        archive, noise = cls.labs.dir / f"{name}.tar", cls.labs.dir / f"{name}.noise"
        archive.write_bytes(pathlib.Path(tiny_image()).read_bytes())
        noise.write_bytes(os.urandom(BALLAST))
        with tarfile.open(archive, "a") as tar:
            tar.add(noise, arcname="noise")
        return archive

    @classmethod
    def bring_up(cls, lab):
        node = Node(cls.labs, lab, {
            "guest_memory_mib": MEMORY_MIB[lab], "guest_disk_mib": 128, "reserve_disk_mib": 64})
        node.set_up(cls.coordinator)
        cls.nodes[lab] = node
        wait_until(f"{lab} to be up", lambda: cls.rest.nodes().get(lab, {}).get("is_connected"), 30)

    def run_on(self, lab, image):
        """Its noise is read by the guest itself."""
        resources = {"cpu_milli": 200, "cpu_milli_min": 100, "memory_mib": MEMORY_MIB[lab], "disk_mib": 64}
        spec = {"name": image, "image": image, "command": ["sha256sum", "/noise"], "resources": resources}
        job = self.rest.post("/v1/jobs", spec)["job"]["id"]
        wait_until(f"{image} to end on {lab}", lambda: self.rest.job(job)["state"] in ("succeeded", "failed"), 90)
        attempt = self.rest.attempts(job)[-1]
        self.assertEqual((self.rest.job(job)["state"], attempt["node"]), ("succeeded", self.id_of(lab)))
        noise = sha256_of(self.labs.dir / f"{image}.noise")
        self.assertEqual(self.rest.log(job).decode().split()[0], noise)
        return job

    def id_of(self, lab):
        return self.rest.nodes()[lab]["id"]

    def sources(self, lab, image):
        """{who: (pieces, bytes)} of what the lab's agent says that it was brought."""
        found = {}
        for line in self.said_of(lab, "image.pieces"):
            if line["image"] == "sha256:" + sha256_of(self.archives[image]):
                found[line["from"]] = (int(line["pieces"]), int(line["bytes"]))
        return found

    def said_of(self, lab, event):
        return daemon_log.events(self.nodes[lab].agent.output(), event)

    def fetched_bytes(self, lab):
        """The same as its page of metrics has it: (from peers, from the coordinator)."""
        node, ca = self.nodes[lab], self.coordinator.state / "pki" / "ca.pem"
        page = lan.call(node.address, ca, lan.node_certificate(node), "GET", "/metrics")[1]
        found = dict(re.findall(r'^reclaimnet_agent_image_fetched_bytes_total\{source="(\w+)"\} (\S+)$', page, re.M))
        return int(found["peer"]), int(found["coordinator"])

    def blobs(self, image):
        """The pieces of the image among the coordinator's files."""
        archive, found = self.archives[image].read_bytes(), []
        for at in range(0, len(archive), 4 * MIB):
            name = hashlib.sha256(archive[at:at + 4 * MIB]).hexdigest()
            found.append(self.coordinator.state / "blobs" / name[:2] / name[2:])
        self.assertEqual(len(found), 3)
        return found

    def take_from_coordinator(self, image):
        """Its pieces are away until the test's end: what comes to a node came from a peer."""
        for number, path in enumerate(self.blobs(image)):
            aside = self.labs.disk("campus") / f"{image}-piece-{number}"
            os.rename(path, aside)
            self.addCleanup(os.rename, aside, path)

    # ---

    def test_a_the_first_node_has_it_from_the_coordinator(self):
        self.bring_up("lab-a")

        self.run_on("lab-a", "shared")
        self.run_on("lab-a", "rare")

        size = self.archives["shared"].stat().st_size
        self.assertEqual(self.sources("lab-a", "shared"), {"coordinator": (3, size)})
        self.assertEqual(self.fetched_bytes("lab-a"), (0, size + self.archives["rare"].stat().st_size))

    def test_b_the_next_one_has_it_from_the_node_that_has_it_and_not_from_the_coordinator(self):
        self.bring_up("lab-b")
        self.take_from_coordinator("shared")

        self.run_on("lab-b", "shared")

        size = self.archives["shared"].stat().st_size
        self.assertEqual(self.sources("lab-b", "shared"), {self.id_of("lab-a"): (3, size)})
        self.assertEqual(self.fetched_bytes("lab-b"), (size, 0))
        served = [line for line in self.said_of("lab-a", "peer.served") if line["peer"] == self.id_of("lab-b")]
        self.assertEqual([(int(line["chunks"]), int(line["bytes"])) for line in served], [(3, size)])

    def test_c_a_peer_that_serves_wrong_pieces_is_not_believed_and_the_other_peer_is_asked(self):
        self.bring_up("lab-c")
        self.take_from_coordinator("shared")
        first, second = sorted(("lab-a", "lab-b"), key=self.id_of)  # as grants name them
        liar = Liar(self.nodes[first], wait_until)
        try:
            self.run_on("lab-c", "shared")
        finally:
            liar.stop()

        self.assertEqual(liar.lies(), 1, "it was asked, and not again")
        self.assertEqual(self.sources("lab-c", "shared"), {
            self.id_of(second): (3, self.archives["shared"].stat().st_size)})
        failed = self.said_of("lab-c", "image.peer_failed")
        self.assertEqual([line["peer"] for line in failed], [self.id_of(first)])
        self.assertIn("the peer sent a chunk with other bytes", failed[0]["error"])

    def test_d_where_all_peers_lie_the_coordinator_is_asked(self):
        liar = Liar(self.nodes["lab-a"], wait_until)  # which alone has it
        try:
            self.run_on("lab-c", "rare")
        finally:
            liar.stop()

        self.assertEqual(liar.lies(), 1)
        self.assertEqual(self.sources("lab-c", "rare"), {"coordinator": (3, self.archives["rare"].stat().st_size)})

    def test_e_an_archive_on_the_nodes_disk_with_other_bytes_is_no_image(self):
        """As a disk that rots would have it, or whoever may write there."""
        name = sha256_of(self.archives["rotten"])
        wrong = bytearray(self.archives["rotten"].read_bytes())
        wrong[-2 * MIB] ^= 1  # inside the noise
        lying = self.nodes["lab-c"].state / "agent" / "images" / f"{name}.tar"
        lying.write_bytes(wrong)
        os.chown(lying, self.nodes["lab-c"].agent_uid, self.nodes["lab-c"].agent_uid)

        self.run_on("lab-c", "rotten")

        self.assertEqual(len(self.said_of("lab-c", "image.archive_damaged")), 1)
        self.assertEqual(sha256_of(lying), name)


if __name__ == "__main__":
    unittest.main(verbosity=2)
