# SPDX-License-Identifier: Apache-2.0
"""A Slurm of our own: munged, slurmctld and a slurmd for each node, each in a network namespace of scripts/labs.sh and
below one folder of its run. Nothing of /etc/slurm, /var or the machine's own services is read or touched, and all that
runs is of the run: `labs.sh down` ends it, also when this process was killed."""
import pathlib
import secrets
import shutil
import socket
import subprocess
import time

import conf
from labs import ROOT, Labs, wait_until
from lines import Bad

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scancel", "scontrol", "sinfo", "squeue", "srun")
CONTROLLER = "campus"
INSTALLER = ROOT / "scripts" / "install-deps.sh"


def ensure_installed(tell):
    """By Debian's package, whose services are neither started nor enabled."""
    if absent():
        tell("installing Slurm from Debian's packages; its services are left off")
        subprocess.run([str(INSTALLER), "--slurm"], check=True)
    if absent():
        raise Bad(f"not installed: {', '.join(absent())}; run scripts/install-deps.sh --slurm")


def absent():
    return [name for name in PROGRAMS if not shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin")]


def version():
    return subprocess.run(["slurmd", "-V"], capture_output=True, text=True).stdout.strip()


class SlurmSite:
    """Has what scripts/testbed/play.py asks of a bed: names, labs, dir, peer, shaper."""

    shaper = "no line is shaped"

    def __init__(self, nodes, peer, grace_s):
        self.names, self.peer, self.grace_s = list(nodes), peer, grace_s
        self.labs, self.taken = None, 0

    @property
    def dir(self):
        return self.labs.dir

    @property
    def folder(self):
        return self.labs.dir / "slurm"

    def up(self):
        self.labs = Labs(CONTROLLER, *self.names, self.peer)
        for name in ("munge", "state", "spool", "shared", "owners"):
            (self.folder / name).mkdir(parents=True)
        nodes = {name: self.labs.addresses[name] for name in self.names}
        host = socket.gethostname().split(".")[0]
        (self.folder / "slurm.conf").write_text(conf.slurm_conf(
            host, self.labs.addresses[CONTROLLER], nodes, self.folder, self.grace_s))
        (self.folder / "cgroup.conf").write_text(conf.cgroup_conf())
        self.owner_script = self.script("owner.sh", conf.OWNER_SCRIPT)
        self.start_munge()
        self.spawn(CONTROLLER, "slurmctld", ["slurmctld", "-D", "-f", self.folder / "slurm.conf"])
        for name in self.names:
            self.spawn(name, "slurmd", ["slurmd", "-D", "-N", name, "-f", self.folder / "slurm.conf"])
        wait_until("every node of Slurm to be idle", self.all_are_idle, 60, 0.3)

    def start_munge(self):
        key = self.folder / "munge" / "key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(1024))
        self.spawn(CONTROLLER, "munged", [
            "munged", "--foreground", "--socket", self.folder / "munge" / "socket", "--key-file", key, "--pid-file",
            self.folder / "munge" / "pid", "--seed-file", self.folder / "munge" / "seed"])
        wait_until("munged's socket", (self.folder / "munge" / "socket").exists, 20)

    def spawn(self, lab, name, command):
        process = self.labs.spawn(lab, name, command, env=self.environment())
        time.sleep(0.2)  # one that does not understand its arguments ends at once
        if not process.is_running():
            raise AssertionError(f"{name} of {lab} ended:\n{process.output()[-2000:]}")

    def environment(self):
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def call(self, *command):
        """As a user of Slurm; answers standard output. subprocess.CalledProcessError with what it said."""
        return self.labs.call(CONTROLLER, list(command), env=self.environment()).stdout.strip()

    def script(self, name, text):
        path = pathlib.Path(self.folder / name)
        path.write_text(text)
        path.chmod(0o755)
        return path

    def all_are_idle(self):
        try:
            shown = self.call("sinfo", "--noheader", "--Node", "--partition", conf.GUEST_PARTITION, "--format", "%N %T")
        except subprocess.CalledProcessError:
            return False  # slurmctld does not answer yet
        return sorted(shown.splitlines()) == sorted(f"{name} idle" for name in self.names)

    # --- guests

    def submit(self, name, folder, script):
        return self.call(*conf.guest_command(name, folder, script))

    def states(self):
        """{job's number: Slurm's word}."""
        shown = self.call("squeue", "--noheader", "--states", "all", "--format", "%i %T")
        return dict(line.split() for line in shown.splitlines())

    # --- owners

    def take(self, node):
        """Submits the owner's job; answers (its number, the file that gets the time of its start)."""
        self.taken += 1
        mark = self.folder / "owners" / f"{node}-{self.taken}"
        return self.call(*conf.owner_command(node, self.owner_script, mark)), mark

    def give_back(self, job):
        self.call("scancel", job)

    def logs(self):
        """What the daemons said, for a look when something is wrong."""
        return {path.name: path.read_text(errors="replace")[-200000:] for path in sorted(self.folder.glob("*.log"))}

    def down(self):
        if self.labs:
            self.labs.down()
