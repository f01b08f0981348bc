# SPDX-License-Identifier: Apache-2.0
"""A site on laboratories: a coordinator, and nodes of an agent and a warden each, started, frozen, killed and started
again. Programs come from RN_BUILD (a build folder). Ports, files and flags are those of ARCHITECTURE.md."""
import contextlib
import hashlib
import http.client
import json
import os
import pathlib
import socket
import subprocess

import rest
from labs import ROOT, wait_until

PORT = 7443


def program(name):
    """The built program; a test that needs one that is not built is told so."""
    build = pathlib.Path(os.environ.get("RN_BUILD", ROOT / "build" / "dev"))
    path = build / "apps" / name / name
    if not path.exists():
        raise FileNotFoundError(f"{path}: build it first (cmake --build {build} --target {name})")
    return path


class Coordinator:
    def __init__(self, labs, lab="campus", heartbeat_ms=1000, flags=()):
        self.labs, self.lab = labs, lab
        self.address = labs.addresses[lab]
        self.state = labs.disk(lab) / "coordinator"
        self.flags = ["--heartbeat-ms", heartbeat_ms, *flags]
        self.heartbeat_s = heartbeat_ms / 1000
        self.process = None

    def start(self):
        self.spawn()
        wait_until("the coordinator to be ready", self._is_ready, 20)
        return self

    def spawn(self):
        """Starts it without waiting until it is ready."""
        self.process = self.labs.spawn(self.lab, "coordinator", [
            self.executable(), "serve", "--state", self.state, "--listen", f"0.0.0.0:{PORT}",
            "--url", f"https://{self.address}:{PORT}", "--name", self.address, *self.flags])

    def executable(self):
        return program("reclaim-coordinator")

    def _is_ready(self):
        if not self.process.is_running():
            raise AssertionError(f"the coordinator ended:\n{self.process.output()[-4000:]}")
        return (self.state / "admin.token").exists() and self.rest().is_ready()

    def rest(self):
        return rest.from_state(self.state, self.address, PORT)

    @property
    def url(self):
        return f"https://{self.address}:{PORT}"

    def kill(self):
        self.process.kill()


class Node:
    """Agent and warden of one laboratory. The warden's lab carries the run's id, because it names control groups.
    `data`: the owner's data sets, NAME: folder."""

    def __init__(self, labs, lab, contract, agent_uid=64991, config=None, data=None, warden_flags=()):
        self.warden_flags = list(warden_flags)
        self.labs, self.lab, self.agent_uid = labs, lab, agent_uid
        self.address = labs.addresses[lab]
        self.state, self.run = labs.disk(lab) / "state", labs.run_dir(lab)
        self.contract, self.config, self.data = contract, config or {}, data or {}
        self.warden = self.agent = None

    def set_up(self, coordinator):
        """As an administrator does it: configure, join, start both daemons."""
        self.prepare()
        self.join(coordinator)
        self.start_warden()
        self.start_agent()

    def prepare(self):
        self.run.mkdir(exist_ok=True)  # leaving takes it away
        agent_folder = self.state / "agent"
        agent_folder.mkdir(parents=True, exist_ok=True)
        (agent_folder / "contract.yaml").write_text(json.dumps(self.contract))
        for path in (agent_folder, agent_folder / "contract.yaml"):
            os.chown(path, self.agent_uid, self.agent_uid)
        os.chmod(self.state, 0o755)
        os.chown(self.run, 0, self.agent_uid)
        os.chmod(self.run, 0o775)
        machine_id = self.state / "machine-id"  # each laboratory is a machine of its own
        if not machine_id.exists():
            machine_id.write_text(hashlib.md5(f"{self.labs.run}-{self.lab}".encode()).hexdigest() + "\n")
        config = {
            "state": str(self.state), "run": str(self.run), "advertise_peer": f"{self.address}:7445",
            "advertise_api": f"{self.address}:7444", "nvml_library": "", "machine_id_file": str(machine_id),
            "guest_group": f"reclaim-{self.labs.run}", "data_sets": list(self.data), **self.config}
        self.config_file.write_text(json.dumps(config))

    @property
    def config_file(self):
        return self.state / "agent.yaml"

    def agent_program(self, *words):
        return [program("reclaim-agent"), "--config", self.config_file, *words]

    def as_agent(self, command):
        user = str(self.agent_uid)
        return ["setpriv", "--reuid", user, "--regid", user, "--clear-groups", *command]

    def join(self, coordinator):
        token = coordinator.rest().join_token(self.lab)
        self.labs.call(self.lab, self.as_agent(self.agent_program("join", coordinator.url, "--token", token)))

    def start_warden(self, env=None):
        self.spawn_warden(env)
        wait_until(f"the warden of {self.lab}", lambda: self._has("warden", self.warden, "warden.sock"), 30)

    def spawn_warden(self, env=None):
        """Starts it without waiting for its socket; `env`: variables besides those of this program."""
        self.warden = self.labs.spawn(self.lab, "warden", [
            program("reclaim-warden"), "serve", "--lab", f"{self.labs.run}-{self.lab}", "--state", self.state,
            "--run", self.run, "--agent-uid", self.agent_uid, "--reserve-mib", 64,
            "--init", program("reclaim-init"), *(f"--data-set={name}={path}" for name, path in self.data.items()),
            *self.warden_flags], env=env)

    def spawn_agent(self):
        """Starts it without waiting for its socket."""
        self.agent = self.labs.spawn(self.lab, "agent", self.as_agent(self.agent_program("serve")))

    def start_agent(self):
        self.spawn_agent()
        wait_until(f"the agent of {self.lab}", lambda: self._has("agent", self.agent, "agent.sock"), 30)

    def _has(self, name, process, socket):
        if not process.is_running():
            raise AssertionError(f"the {name} of {self.lab} ended:\n{process.output()[-4000:]}")
        return (self.run / socket).exists()

    def owner(self, *words, timeout_s=120):
        """An owner's command on this node: reclaim-agent reclaim --now, release, pause, status …"""
        return self.labs.call(self.lab, self.agent_program(*words), timeout_s=timeout_s)

    def kill_switch(self, *flags, timeout_s=60):
        """By hand, with nothing else alive."""
        return self.labs.call(self.lab, [
            program("reclaim-warden"), "kill", "--lab", f"{self.labs.run}-{self.lab}", "--state", self.state, "--run",
            self.run, *flags], timeout_s=timeout_s)

    def view(self):
        """What the agent answers `reclaim-agent status`, without a program between."""
        connection = http.client.HTTPConnection("agent", timeout=10)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(self.run / "agent.sock"))
        with contextlib.closing(connection):
            connection.request("GET", "/v1/node")
            return json.load(connection.getresponse())

    def engine_pids(self):
        """dockerd, containerd and shims of this lab's private engine, for SIGSTOP."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            is_engine = any(word in line for word in ("dockerd", "containerd"))
            if is_engine and str(self.run) in line:
                found.append(int(entry.name))
        return found

    def guest_containers(self):
        """Pids in the control groups of its guests with the container of each, looked up by ourselves."""
        found = {}
        for hierarchy in ("/sys/fs/cgroup/unified", "/sys/fs/cgroup/freezer", "/sys/fs/cgroup/pids"):
            parent = f"{hierarchy}/reclaim-{self.labs.run}-{self.lab}"
            for folder, _, files in os.walk(parent):
                if "cgroup.procs" in files:
                    container = folder[len(parent) + 1:].partition("/")[0]
                    with contextlib.suppress(OSError), open(f"{folder}/cgroup.procs") as procs:
                        found.update((int(pid), container) for pid in procs.read().split())
        return found

    def interfaces(self):
        """Names of the network interfaces that its machine has; one of each guest is among them."""
        return {link["ifname"] for link in json.loads(self.labs.call(self.lab, ["ip", "-j", "link"]).stdout)}

    def step_log_of(self, job):
        """steps.log of the job's newest attempt on this node, from the attempt's own disk; "" if there is none."""
        found = self.state.glob(f"warden/attempts/{job}-*/**/steps.log")
        logs = sorted(found, key=lambda path: path.stat().st_mtime)
        return logs[-1].read_text(errors="replace") if logs else ""


class Cli:
    """`reclaim` as a student uses it, from the coordinator's laboratory or the host."""

    def __init__(self, labs, coordinator, lab=None, token=None):
        self.labs, self.lab = labs, lab
        self.environment = {
            "RECLAIM_URL": coordinator.url, "XDG_CONFIG_HOME": str(labs.dir / "config"),
            "RECLAIM_TOKEN": token or (coordinator.state / "admin.token").read_text().strip()}

    def __call__(self, *words, cwd=None, timeout_s=120, check=True):
        return self.labs.call(
            self.lab, [program("reclaim"), *words], env=self.environment, cwd=cwd, timeout_s=timeout_s, check=check)

    def json(self, *words, **options):
        return json.loads(self(*words, "--json", **options).stdout)

    def spawn(self, name, *words, cwd=None):
        return self.labs.spawn(self.lab, name, [program("reclaim"), *words], env=self.environment, cwd=cwd)


def _image(script, *flags):
    """Path of an image's archive; built when it is not cached."""
    return subprocess.run(
        [str(ROOT / "scripts" / script), *flags], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def base_image():
    return _image("build-image.sh")


def python_image():
    return _image("build-python-image.sh")


def tiny_image():
    return _image("build-tiny-image.sh")


def jupyter_image():
    """The notebooks' image without PyTorch and scikit-learn."""
    return _image("build-notebook-image.sh", "--small")
