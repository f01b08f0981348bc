#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A student's own image, built by Docker on a listed one: listed by the student because its layers say so, loaded by
the node's engine, and run. Another one, one with a volume and one that lies about its layers are refused, each with a
word about what to do."""
import hashlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
from labs import wait_until  # noqa: E402
from one_node import OneNode  # noqa: E402
from rn_site import Cli, tiny_image  # noqa: E402

QUICK = {"cpu_milli": 200, "cpu_milli_min": 100, "memory_mib": 64, "disk_mib": 64}


class Images(OneNode):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        rest = cls.coordinator.rest()
        made = rest.post("/v1/tokens", {"kind": "user", "user": "ann", "lab": "lab-x", "role": "user"})
        cls.student = Cli(cls.labs, cls.coordinator, token=made["token"])
        cls.rest = rest.with_token(made["token"])
        # The student's own machine has a Docker, too; the node's private one stands for it.
        cls.docker("import", tiny_image(), "lab/base")

    @classmethod
    def docker(cls, *words, folder=None):
        socket = f"unix://{cls.node.run}/engine/docker.sock"
        environment = {**os.environ, "DOCKER_BUILDKIT": "0", "DOCKER_CONFIG": str(cls.labs.dir / "docker")}
        return subprocess.run(
            ["docker", "-H", socket, *words], cwd=folder, env=environment, check=True, timeout=120, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout

    def build(self, name, dockerfile, **files):
        """Path of the saved image. The engine keeps nothing of it: what a node runs came through the platform."""
        folder = self.folder(name, Dockerfile=dockerfile, **files)
        self.docker("build", "-q", "-t", f"lab/{name}", ".", folder=folder)
        archive = self.labs.dir / f"{name}.tar"
        self.docker("save", "-o", str(archive), f"lab/{name}")
        self.docker("rmi", "-f", f"lab/{name}")
        return archive

    def submit(self, image, *command):
        spec = {"name": image, "image": image, "command": list(command), "resources": QUICK}
        return self.rest.post("/v1/jobs", spec)["job"]["id"]

    def refused(self, *words):
        result = self.student("image", "add", *words, check=False)
        self.assertNotEqual(result.returncode, 0, result.stdout)
        return result.stderr

    def test_a_an_image_on_a_listed_one_is_listed_by_its_author_and_runs(self):
        archive = self.build("mine", "FROM lab/base\nENV GREETING=hello\nCOPY tool /opt/tool\n", tool="it is mine\n")

        self.student("image", "add", "mine", str(archive), "--base", "base")

        job = self.submit("mine", "sh", "-c", "echo $GREETING; cat /opt/tool")
        self.assertEqual(self.student("logs", "-f", job, timeout_s=90).stdout, "hello\nit is mine\n")

    def test_b_one_that_is_not_built_on_it_is_refused_with_the_layer(self):
        archive = self.build("other", "FROM scratch\nCOPY tool /tool\n", tool="x")

        said = self.refused("other", str(archive), "--base", "base")

        self.assertIn("not built on 'base': its layer 1 is", said)
        self.assertIn("next: build it FROM that image", said)
        self.assertIn("--base BASE", self.refused("other", str(archive)))
        self.assertNotIn("other", [image["name"] for image in self.student.json("image", "ls")["images"]])

    def test_c_a_volume_is_refused_with_its_name(self):
        archive = self.build("volume", "FROM lab/base\nVOLUME /data\n")

        self.assertIn("volume /data", self.refused("volume", str(archive), "--base", "base"))

    def test_d_an_archive_that_lies_about_its_layers_never_runs(self):
        """It names the base's layer and brings another one: the engine looks."""
        base_layer = hashlib.sha256(pathlib.Path(tiny_image()).read_bytes()).hexdigest()
        layer = io.BytesIO()
        with tarfile.open(fileobj=layer, mode="w") as tar:
            info = tarfile.TarInfo("evil")
            info.size = 4
            tar.addfile(info, io.BytesIO(b"evil"))
        bytes_of = layer.getvalue()
        config = json.dumps({
            "architecture": "amd64", "os": "linux", "config": {},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{base_layer}", "sha256:" + "0" * 64]}}).encode()
        name = hashlib.sha256(config).hexdigest() + ".json"
        manifest = json.dumps([{"Config": name, "RepoTags": ["lie:1"], "Layers": ["1/layer.tar", "2/layer.tar"]}])
        archive = self.labs.dir / "lie.tar"
        with tarfile.open(archive, mode="w") as tar:
            for path, text in ((name, config), ("1/layer.tar", bytes_of), ("2/layer.tar", bytes_of),
                               ("manifest.json", manifest.encode())):
                info = tarfile.TarInfo(path)
                info.size = len(text)
                tar.addfile(info, io.BytesIO(text))
        self.student("image", "add", "lie", str(archive), "--base", "base")  # as far as one can see
        job = self.submit("lie", "sh")

        refused = wait_until("the engine's refusal", lambda: [
            attempt for attempt in self.rest.attempts(job) if attempt["end"] == "refused"], 90)

        self.assertIn("diffID", refused[0]["detail"])
        self.student("stop", job)

    def names(self):
        """What each name on the engine stands for, the platform's own left out."""
        lines = self.docker("images", "--no-trunc", "--format", "{{.Repository}}:{{.Tag}} {{.ID}}").splitlines()
        return sorted(line for line in lines if not line.startswith(("reclaimnet/", "<none>")))

    def with_names_everywhere(self, archive):
        """The archive with the owner's name in every place where some engine has ever looked for names."""
        with tarfile.open(archive) as source:
            files = {member.name: source.extractfile(member).read() for member in source if member.isfile()}
        image = json.loads(files.pop("manifest.json"))[0]
        listed = json.dumps({key: image[key] for key in ("Config", "Layers")})
        files["repositories"] = json.dumps({"owner/tool": {"latest": image["Layers"][-1].split("/")[0]}}).encode()
        files["index.json"] = json.dumps({"schemaVersion": 2, "manifests": [{"annotations": {
            "io.containerd.image.name": "owner/tool:latest", "org.opencontainers.image.ref.name": "latest"}}]}).encode()
        files["manifest.json"] = f'[{listed[:-1]},"repotag\u017f":["owner/tool:latest","greedy:1"]}}]'.encode()
        hidden = archive.with_name("hidden.tar")
        with tarfile.open(hidden, mode="w", format=tarfile.USTAR_FORMAT) as tar:
            for path, text in files.items():
                info = tarfile.TarInfo(path)
                info.size = len(text)
                tar.addfile(info, io.BytesIO(text))
        return hidden

    def test_f_an_image_that_brings_the_owners_names_takes_none_of_them(self):
        self.docker("tag", "lab/base", "owner/tool:latest")
        folder = self.folder("greedy", Dockerfile="FROM lab/base\nCOPY tool /opt/tool\n", tool="greedy\n")
        self.docker("build", "-q", "-t", "owner/tool:latest", ".", folder=folder)
        plain = self.labs.dir / "greedy.tar"
        self.docker("save", "-o", str(plain), "owner/tool:latest")
        self.docker("rmi", "-f", "owner/tool:latest")
        self.docker("tag", "lab/base", "owner/tool:latest")
        before = self.names()
        self.assertTrue([name for name in before if name.startswith("owner/tool:latest ")])
        since = self.docker("info", "--format", "{{.SystemTime}}").strip()

        for name, archive in (("plain", plain), ("hidden", self.with_names_everywhere(plain))):
            self.student("image", "add", name, str(archive), "--base", "base")
            job = self.submit(name, "cat", "/opt/tool")
            self.assertEqual(self.student("logs", "-f", job, timeout_s=90).stdout, "greedy\n")
            self.assertEqual(self.names(), before)

        until = self.docker("info", "--format", "{{.SystemTime}}").strip()
        events = self.docker("events", "--since", since, "--until", until, "--filter", "type=image",
                             "--format", "{{.Action}} {{.Actor.Attributes.name}}").splitlines()
        moved = [event for event in events
                 if event.split()[0] in ("tag", "untag") and " reclaimnet/" not in event and " sha256:" not in event]
        self.assertTrue([event for event in events if event.startswith("tag reclaimnet/")], events)
        self.assertEqual(moved, [], "not even for a moment")

    def test_e_the_archive_of_a_listed_image_can_be_fetched_to_build_on(self):
        target = self.folder("fetched") / "base.tar"

        self.student("image", "save", "base", str(target))

        self.assertEqual(target.read_bytes(), pathlib.Path(tiny_image()).read_bytes())


if __name__ == "__main__":
    unittest.main(verbosity=2)
