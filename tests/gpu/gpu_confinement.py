# SPDX-License-Identifier: Apache-2.0
"""How the tenants of gpu_check.py are confined: Docker's container, runc's, or a plain process; the best that works."""
import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
GUEST = HERE / "gpu_guest.py"
START_S = 180  # a tenant's start: PyTorch, a context, its memory


class Place:
    """Where one tenant runs: a control group of its own, which our kill path clears."""

    def __init__(self, group):
        self.group, self.folders = group, []  # folders: those that are made here

    def remove(self):
        """Also where our kill path has made the group: in each hierarchy that an engine would use."""
        top = pathlib.Path("/sys/fs/cgroup")
        for folder in (*top.glob(self.group), *top.glob(f"*/{self.group}")):
            for _ in range(50):
                with contextlib.suppress(OSError):
                    for inner in folder.iterdir():
                        if inner.is_dir():
                            inner.rmdir()
                    folder.rmdir()
                    break
                time.sleep(0.02)  # its processes are still being taken down


class Plain:
    """A process with no privileges to gain, and a control group where one can be had: no container."""
    name = "plain process, no container"

    def __init__(self, options):
        self.guest = options.guest.split() if options.guest else [sys.executable, "-B", str(GUEST)]
        self.places, self.number = [], 0

    def place(self):
        """The next tenant's. Groups are never used twice: our kill path lets nothing start in them any more."""
        self.number += 1
        place = Place(f"reclaim-gpu-check-{os.getpid()}-{self.number}")
        self.places.append(place)
        self.prepare(place)
        return place

    def prepare(self, place):
        if os.geteuid() != 0:
            return
        # As our warden's own: the v2 hierarchy and, where there is one, the v1 freezer.
        for top in (pathlib.Path("/sys/fs/cgroup"), pathlib.Path("/sys/fs/cgroup/unified"),
                    pathlib.Path("/sys/fs/cgroup/freezer")):
            if (top / "cgroup.procs").exists():
                with contextlib.suppress(OSError):
                    (top / place.group).mkdir(exist_ok=True)
                    place.folders.append(top / place.group)

    def command(self, _, words):
        prefix = ["setpriv", "--no-new-privs"] if shutil.which("setpriv") else []
        return prefix + [*self.guest, *words]

    def entered(self, place, pid):
        for folder in place.folders:
            (folder / "cgroup.procs").write_text(str(pid))

    def clear_words(self, place, pids):
        return ["group", place.group] if place.folders else ["pids", *map(str, pids)]

    def leave(self, place):
        """After the tenant's end, however it came."""
        self.places.remove(place)
        place.remove()

    def down(self):
        while self.places:
            self.leave(self.places[-1])


class Docker(Plain):
    """A container of Docker's without a network; the image must have PyTorch with CUDA."""
    name = "Docker container"

    def __init__(self, options):
        super().__init__(options)
        self.image = options.image

    def prepare(self, place):
        """The engine makes the group."""

    def command(self, place, words):
        gpus = [] if "cpu" in words else ["--gpus", "all"]
        here = os.getcwd()
        return ["docker", "run", "--rm", "--interactive", "--name", place.group, *gpus, "--network", "none",
                "--cgroup-parent", f"/{place.group}", "-v", f"{HERE}:/check:ro", "-v", f"{here}:{here}", "-w", here,
                self.image, "python3", "-B", "/check/gpu_guest.py", *words]

    def entered(self, place, pid):
        """The engine puts it there."""

    def clear_words(self, place, pids):
        return ["group", place.group]

    def leave(self, place):
        subprocess.run(["docker", "rm", "-f", place.group], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        super().leave(place)


class Runc(Docker):
    """A container of runc's on this machine's own files, read-only, without a network."""
    name = "runc container on the machine's own files, read-only"

    def __init__(self, options):
        super().__init__(options)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="rn-gpu-runc-"))

    def command(self, place, words):
        bundle = self.folder / place.group
        bundle.mkdir()
        devices, rules = [], [{"allow": False, "access": "rwm"}]
        for path in sorted(pathlib.Path("/dev").glob("nvidia*")):
            if path.is_char_device():
                number = path.stat().st_rdev
                devices.append({"path": str(path), "type": "c", "major": os.major(number), "minor": os.minor(number),
                                "fileMode": 0o666})
                rules.append({"allow": True, "type": "c", "major": os.major(number), "minor": os.minor(number),
                              "access": "rw"})
        environment = ["PATH=" + os.environ.get("PATH", ""), "HOME=/tmp"] + [
            f"{key}={value}" for key, value in os.environ.items()
            if key in ("LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "OMP_NUM_THREADS")]
        rootfs = bundle / "rootfs"
        rootfs.mkdir()
        mounts = [*own_files(rootfs),
                  {"destination": "/proc", "type": "proc", "source": "proc"},
                  {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
                  {"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": ["nosuid", "nodev"]},
                  {"destination": os.getcwd(), "type": "bind", "source": os.getcwd(), "options": ["rbind", "rw"]}]
        (bundle / "config.json").write_text(json.dumps({
            "ociVersion": "1.0.2",
            "root": {"path": str(rootfs), "readonly": True},
            "process": {"args": [*self.guest, *words], "cwd": os.getcwd(), "env": environment,
                        "user": {"uid": 0, "gid": 0}, "noNewPrivileges": True, "capabilities": {}},
            "mounts": mounts,
            "linux": {"namespaces": [{"type": kind} for kind in ("pid", "mount", "network", "ipc", "uts")],
                      "cgroupsPath": f"/{place.group}/{place.group}", "devices": devices,
                      "resources": {"devices": rules}}}))
        return ["runc", "--root", str(self.folder / "state"), "run", "--bundle", str(bundle), place.group]

    def leave(self, place):
        if (self.folder / "state" / place.group).exists():
            subprocess.run(["runc", "--root", str(self.folder / "state"), "delete", "--force", place.group],
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        Plain.leave(self, place)

    def down(self):
        super().down()
        shutil.rmtree(self.folder, ignore_errors=True)


def own_files(rootfs):
    """The machine's own files under an empty root: mounts of its folders, and links as they are. Its root itself cannot
    be a container's: who leaves the old root cannot enter the same."""
    mounts = []
    for entry in sorted(pathlib.Path("/").iterdir()):
        if entry.is_symlink():
            (rootfs / entry.name).symlink_to(os.readlink(entry))
        elif entry.is_dir() and entry.name not in ("proc", "dev"):
            mounts.append({"destination": str(entry), "type": "bind", "source": str(entry), "options": ["rbind", "ro"]})
    return mounts


def confinement(options):
    """The best that works here; the one that was asked for, or none."""
    kinds = {"docker": Docker, "runc": Runc, "plain": Plain}
    tried = {}
    for name in [options.confine] if options.confine else ("docker", "runc", "plain"):
        if name == "docker" and not options.image:
            tried[name] = "no --image with PyTorch was named"
            continue
        if name != "plain" and shutil.which(name) is None:
            tried[name] = f"there is no {name} here"
            continue
        one = kinds[name](options)
        if name == "plain" or is_starting(one, options, tried):
            return one, tried
        one.down()
    raise SystemExit(f"gpu-check: {options.confine} does not work here: {tried.get(options.confine)}\n"
                     "  next: leave --confine out; the result names what was used")


def is_starting(one, options, tried):
    try:
        command = one.command(one.place(), ["train", "--device", options.device, "--steps", "0"])
        done = subprocess.run(command, capture_output=True, text=True, timeout=START_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        tried[type(one).__name__.lower()] = str(error)
        return False
    if done.returncode != 0:
        tried[type(one).__name__.lower()] = (done.stderr.strip() or done.stdout.strip() or "no reason given")[-300:]
    return done.returncode == 0
