#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The packages of scripts/package.sh on a bare Debian 12 (scripts/build-bare-root.sh): installed by apt, upgraded,
tried, removed and purged, and the folder is as it was; once with its own systemd as the first process of namespaces.
Nothing there reaches the network, and there is no container engine. Root; 77 where it cannot run."""
import gzip
import hashlib
import os
import pathlib
import re
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("RN_BUILD", ROOT / "build" / "dev"))
OLD, NEW = "0.1.0~1", "0.1.0~2"
PACKAGES = ("reclaimnet", "reclaimnet-agent", "reclaimnet-coordinator")
EPOCH = "1700000000"
INSTALL = "apt-get -qq install -y --no-install-recommends -o Dpkg::Use-Pty=0"
# What dpkg, apt, adduser and mount write beside their work, whoever comes and goes; /dev, /proc, /tmp and /mnt are
# mounted anew for each command.
NOT_OURS = re.compile(r"^(dev|proc|tmp|mnt)/|^var/(lib/(dpkg|apt)|cache/(apt|debconf)|log)/"
                      r"|^run/(adduser|mount)$|^etc/((passwd|group|shadow|gshadow)-|\.pwd\.lock)$")

# In namespaces of its own, which end with it: the command $3 in the bare root $1, as its root, with the packages of $2.
INSIDE = """
root=$1
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/tmp"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
mknod -m 666 "$root/dev/null" c 1 3
mknod -m 666 "$root/dev/zero" c 1 5
mknod -m 666 "$root/dev/random" c 1 8
mknod -m 666 "$root/dev/urandom" c 1 9
mount --bind "$2" "$root/mnt"
hostname bare
ip link set lo up
env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp/home LC_ALL=C.UTF-8 \
  DEBIAN_FRONTEND=noninteractive chroot "$root" /bin/sh -euc "mkdir -p /tmp/home; $3"
exit "$?"
"""

# The same with the bare root's own systemd, which does the unit job.service and ends. What is the machine's own
# (sysctls, devices) is read-only there, as in any container. $4 is a control group of the test's own.
BOOTED = """
echo $$ >"$4/cgroup.procs"
exec unshare --mount --net --uts --ipc --pid --cgroup --fork --kill-child bash -euc '
  root=$1
  mount --bind "$root" "$root"
  mount -t proc proc "$root/proc"
  mount --bind "$root/proc/sys" "$root/proc/sys"
  mount -o remount,bind,ro "$root/proc/sys"
  mount -t sysfs -o ro sysfs "$root/sys"
  mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
  for folder in run tmp dev; do mount -t tmpfs -o mode=755 tmpfs "$root/$folder"; done
  chmod 1777 "$root/tmp"
  for node in "null 3" "zero 5" "full 7" "random 8" "urandom 9"; do
    mknod -m 666 "$root/dev/${node% *}" c 1 "${node#* }"
  done
  ln -s pts/ptmx "$root/dev/ptmx"
  mount --bind "$2" "$root/mnt"
  exec env -i container=rn PATH=/usr/sbin:/usr/bin:/sbin:/bin \\
    chroot "$root" /lib/systemd/systemd --unit=job.target --log-target=journal --show-status=no' booted "$1" "$2"
"""
JOB = """[Service]
Type=oneshot
Environment=HOME=/tmp/home LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive
StandardOutput=file:/srv/said
StandardError=inherit
ExecStart=/bin/bash -eu /srv/job
TimeoutStartSec=220
ExecStopPost=/bin/sh -c 'echo "job: $SERVICE_RESULT" >>/srv/said; systemctl --no-block exit'
"""


def run(*command, **options):
    return subprocess.run([str(word) for word in command], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=240, **options)


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def description(path):
    """What of a file or folder somebody could miss or find; no times."""
    info = path.lstat()
    what = [stat.filemode(info.st_mode), info.st_uid, info.st_gid]
    if path.is_symlink():
        what.append(os.readlink(path))
    elif path.is_file():
        what.append(hashlib.sha256(path.read_bytes()).hexdigest())
    return tuple(what)


def listing(root):
    found = {}
    for folder, folders, files in os.walk(root):
        for name in folders + files:
            path = pathlib.Path(folder) / name
            relative = str(path.relative_to(root))
            if not NOT_OURS.match(relative):
                found[relative] = description(path)
    return found


def remove_group(group):
    """Its processes have ended; the kernel may take a moment to see it."""
    for patience in range(100):
        try:
            for folder, _, _ in os.walk(group, topdown=False):
                os.rmdir(folder)
            return
        except OSError:
            time.sleep(0.05)
    raise AssertionError(f"{group} stays")


def make_packages(out, version, **environment):
    done = run(ROOT / "scripts" / "package.sh", "--fast", "--build", BUILD, "--out", out, "--version", version,
               env={**os.environ, "SOURCE_DATE_EPOCH": EPOCH, **environment})
    if done.returncode != 0:
        raise AssertionError(f"package.sh: {done.returncode}\n{done.stdout}")
    return done.stdout


def make_older(folder, package, scratch):
    """The same package under a lower version, whose unit has one line more."""
    tree = scratch / f"{package}.tree"
    run("dpkg-deb", "--raw-extract", folder / f"{package}_{NEW}_amd64.deb", tree, check=True)
    control = tree / "DEBIAN" / "control"
    control.write_text(control.read_text().replace(f"Version: {NEW}\n", f"Version: {OLD}\n"))
    for unit in tree.glob("lib/systemd/system/*.service"):
        unit.write_text(unit.read_text() + "# older\n")
    run("dpkg-deb", "--root-owner-group", "-Znone", "--build", tree, folder / f"{package}_{OLD}_amd64.deb", check=True)
    shutil.rmtree(tree)


def setUpModule():
    global SCRATCH, SAID
    # In memory, where there is room for two such folders: unpacking and deleting them is most of what a disk has to do.
    memory = "/dev/shm" if os.path.isdir("/dev/shm") and shutil.disk_usage("/dev/shm").free > 2 << 30 else None
    scratch = tempfile.TemporaryDirectory(prefix="rn-packages.", dir=memory)
    SCRATCH = pathlib.Path(unittest.enterModuleContext(scratch))
    SCRATCH.chmod(0o755)
    SAID = make_packages(SCRATCH / "debs", NEW)
    for package in PACKAGES:
        make_older(SCRATCH / "debs", package, SCRATCH)


class OnABareDebian(unittest.TestCase):
    is_bare = False  # a test that failed leaves what the next one must not find

    @classmethod
    def setUpClass(cls):
        cls.debs = SCRATCH / "debs"
        cls.root = SCRATCH / cls.__name__
        cls.root.mkdir()
        cls.addClassCleanup(shutil.rmtree, cls.root)

    def setUp(self):
        if not self.is_bare:
            shutil.rmtree(self.root)
            self.root.mkdir()
            run("tar", "-xf", ARCHIVE, "-C", self.root, "--numeric-owner", check=True)
            (self.root / "etc" / "machine-id").write_text("0123456789abcdef0123456789abcdef\n")
            (self.root / "etc" / "hostname").write_text("bare\n")
            (self.root / "etc" / "hosts").write_text("127.0.0.1 localhost bare\n")
            type(self).bare = listing(self.root)
        type(self).is_bare = False

    def inside(self, command, status=0):
        done = run("unshare", "--mount", "--net", "--uts", "--ipc", "--pid", "--fork", "--kill-child",
                   "bash", "-euc", INSIDE, "inside", self.root, self.debs, command)
        self.assertEqual(done.returncode, status, f"{command}\n{done.stdout}")
        return done.stdout

    def install(self, version, *packages):
        files = " ".join(f"/mnt/{package}_{version}_amd64.deb" for package in packages)
        return self.inside(f"{INSTALL} {files}")

    def assert_bare(self):
        now = listing(self.root)
        changed = {path: (self.bare.get(path), now.get(path)) for path in {*now, *self.bare}
                   if now.get(path) != self.bare.get(path)}
        self.assertEqual(changed, {})
        self.assertNotIn("reclaimnet", self.inside("dpkg-query -W -f='${Package}\\n'"))
        type(self).is_bare = True

    def text(self, path):
        return (self.root / path).read_text()


class Making(unittest.TestCase):
    def test_the_same_programs_give_the_same_bytes(self):
        other = SCRATCH / "other"
        other.mkdir()
        make_packages(other / "debs", NEW, TZ="Asia/Tokyo", LC_ALL="C", TMPDIR=str(other))

        for package in PACKAGES:
            file = f"{package}_{NEW}_amd64.deb"
            self.assertEqual((other / "debs" / file).read_bytes(), (SCRATCH / "debs" / file).read_bytes(), file)

    def test_each_unit_says_how_exposed_it_is(self):
        if not shutil.which("systemd-analyze"):
            self.skipTest("no systemd-analyze here")
        exposures = re.findall(r"(?m)^exposure (reclaim-\w+\.service) ([\d.]+)$", SAID)
        self.assertEqual(len(exposures), 3, SAID)
        for unit, value in exposures:
            self.assertIn(f"says {value}", (ROOT / "packaging" / "systemd" / unit).read_text())


class Packages(OnABareDebian):
    def completed(self, *words):
        """What bash offers for the last of the words."""
        script = """source "$1"; shift; COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); _reclaim; echo "${COMPREPLY[@]}" """
        file = self.root / "usr/share/bash-completion/completions/reclaim"
        return run("bash", "-euc", script, "complete", file, *words, check=True).stdout.split()

    def test_the_command_of_who_submits_comes_with_its_page_and_completion_and_goes(self):
        self.install(NEW, "reclaimnet")
        self.assertEqual(self.inside("reclaim --version").strip(), "0.1.0")

        page = gzip.decompress((self.root / "usr/share/man/man1/reclaim.1.gz").read_bytes()).decode()
        flags = re.findall(r"(?m)^ +(--[\w-]+)", self.inside("reclaim run --help"))
        self.assertIn("--checkpoint", flags)
        self.assertEqual([flag for flag in flags if f".B {flag}".replace("-", "\\-") not in page], [])
        self.assertIn(".SS reclaim image add\n", page)
        self.assertEqual(self.completed("reclaim", "ru"), ["run"])
        self.assertEqual(self.completed("reclaim", "image", "s"), ["save"])
        self.assertEqual(self.completed("reclaim", "run", "--complete"), ["--complete-marker"])
        self.assertEqual(self.completed("reclaim", "run", "--", "ru"), [])
        self.assertEqual(self.completed("reclaim", "completion", "z"), ["zsh"])
        self.assertEqual(self.text("usr/share/zsh/vendor-completions/_reclaim").split("\n")[0], "#compdef reclaim")
        self.assertIn("complete -c reclaim", self.text("usr/share/fish/vendor_completions.d/reclaim.fish"))

        self.inside("apt-get -qq purge -y reclaimnet")
        self.assert_bare()

    def test_an_installed_machine_lends_nothing_and_keeps_its_owners_words_over_an_upgrade(self):
        said = self.install(OLD, "reclaimnet-agent")
        self.assertIn("nothing is lent yet; next: reclaim-join", said)
        self.assertEqual([*(self.root / "etc/systemd").rglob("*reclaim*")], [])  # enabled would be a link
        uid = self.inside("id -u reclaim-agent").strip()
        self.assertIn(f'\nWARDEN_FLAGS="--agent-uid {uid}"\n', self.text("etc/reclaimnet/warden.env"))
        for program in ("reclaim-agent", "reclaim-warden"):
            self.assertEqual(self.inside(f"{program} --version").strip(), "0.1.0")
        self.assertIn("--cut-only", self.inside("reclaim-kill --help"))
        scrub = self.inside("/usr/lib/reclaimnet/reclaim-scrub --gpu GPU-0", status=3)
        self.assertIn("GPU-0: no CUDA driver", scrub)
        doctor = self.inside("reclaim-agent doctor", status=1)
        self.assertRegex(doctor, r"(?m)^MISSING identity +this machine has not joined")
        self.assertRegex(doctor, r"(?m)^ok +machine identifier")

        config = self.root / "etc/reclaimnet/agent.yaml"
        config.write_text(config.read_text() + "telemetry_ms: 5000\n")
        flags = self.root / "etc/reclaimnet/warden.env"
        flags.write_text(flags.read_text().replace('="', '="--owner-uid 1000 '))
        chunk = self.root / "var/lib/reclaimnet/agent/chunks/ab"
        chunk.parent.mkdir()
        chunk.write_text("somebody's")
        unit = "lib/systemd/system/reclaim-agent.service"
        self.assertIn("# older", self.text(unit))

        self.install(NEW, "reclaimnet-agent")
        self.assertNotIn("# older", self.text(unit))
        self.assertIn("ExecStart=/usr/bin/reclaim-agent serve", self.text(unit))
        self.inside("echo 'max_guests: 3' >/tmp/c; reclaim-agent contract check /tmp/c")  # it reads agent.yaml before
        self.assertIn("telemetry_ms: 5000", config.read_text())
        self.assertIn("--owner-uid 1000", flags.read_text())

        self.inside("apt-get -qq remove -y reclaimnet-agent")
        self.assertFalse((self.root / "usr/bin/reclaim-agent").exists())
        self.assertEqual((chunk.read_text(), flags.exists(), config.exists()), ("somebody's", True, True))
        self.assertNotIn("STAYS", self.inside("apt-get -qq purge -y reclaimnet-agent"))
        self.assert_bare()

    def test_a_purge_does_not_go_through_what_is_mounted_below_the_state(self):
        self.install(NEW, "reclaimnet-agent")
        owners = self.root / "srv/owners"
        owners.mkdir()
        (owners / "data").write_text("years of work")
        # On the same disk, so that rm --one-file-system would not stop there.
        said = self.inside("""
            mkdir -p /var/lib/reclaimnet/warden/data/set
            mount --bind /srv/owners /var/lib/reclaimnet/warden/data/set
            apt-get -qq purge -y reclaimnet-agent""")

        self.assertEqual((owners / "data").read_text(), "years of work")
        self.assertRegex(said, r"STAYS /var/lib/reclaimnet/warden: .*\(/var/lib/reclaimnet/warden/data/set\)")
        self.assertIn("STAYS user reclaim-agent", said)
        self.assertFalse((self.root / "var/lib/reclaimnet/agent").exists())
        self.inside("rm -r /var/lib/reclaimnet /srv/owners; userdel reclaim-agent")
        self.assert_bare()

    def listen_to_daemons(self):
        """As systemd listens to what it starts; the list grows."""
        path, heard = self.root / "srv/notify", []
        ears = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        ears.bind(str(path))
        path.chmod(0o777)

        def listen():
            while word := ears.recv(4096).decode():
                heard.append(word)

        def stop():
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as mouth:
                mouth.sendto(b"", str(path))
            thread.join()
            ears.close()
            path.unlink()

        thread = threading.Thread(target=listen)
        thread.start()
        self.addCleanup(stop)
        return heard

    def test_a_site_is_founded_and_a_machine_joins_it_by_the_pages_words(self):
        self.install(NEW, *PACKAGES)
        self.assertEqual([*(self.root / "etc/systemd").rglob("*reclaim*")], [])
        heard = self.listen_to_daemons()
        # What their units do: folders, users, and for the coordinator a /proc of nothing but processes.
        said = self.inside(r"""
            site=/var/lib/reclaimnet/coordinator
            until_true() {
              n=0
              until "$@" >/tmp/last 2>&1; do
                n=$((n + 1))
                [ $n -lt 300 ] || { cat /tmp/last; exit 9; }
                sleep 0.1
              done
            }
            install -d -o reclaim-coordinator -g reclaim-coordinator -m 700 $site
            NOTIFY_SOCKET=/srv/notify WATCHDOG_USEC=300000 unshare --mount sh -euc '
              mount -t proc -o subset=pid,hidepid=invisible proc /proc
              exec setpriv --reuid reclaim-coordinator --regid reclaim-coordinator --clear-groups --no-new-privs \
                --bounding-set=-all reclaim-coordinator serve' &
            coordinator=$!
            until_true test -s $site/admin.token
            reclaim login https://localhost:7443 --token "$(cat $site/admin.token)"
            token=$(reclaim token create --lab lab-a)
            reclaim-join https://localhost:7443 --token "$token"
            install -d -g reclaim-agent -m 1775 /run/reclaimnet
            NOTIFY_SOCKET=/srv/notify setpriv --reuid reclaim-agent --regid reclaim-agent --clear-groups \
              --no-new-privs --bounding-set=-all reclaim-agent serve &
            agent=$!
            until_true reclaim-agent status
            until_true sh -c 'reclaim nodes | grep lab-a'
            kill $agent && wait $agent
            kill $coordinator && wait $coordinator""")

        self.assertRegex(said, r"(?m)^joined as \S+ of lab-a$")
        self.assertRegex(self.text("etc/reclaimnet/warden.env"), r'(?m)^WARDEN_FLAGS="--lab lab-a --agent-uid \d+"$')
        self.assertEqual(heard.count("READY=1"), 2, heard)
        self.assertIn("WATCHDOG=1", heard)
        self.doCleanups()

        said = self.inside("apt-get -qq remove -y reclaimnet-agent reclaimnet")
        self.assertIn("this machine has not left its site", said)
        said = self.inside("apt-get -qq purge -y reclaimnet-agent reclaimnet reclaimnet-coordinator")
        self.assertEqual(re.findall(r"STAYS ([^:]*):", said), ["/var/lib/reclaimnet/coordinator"])
        site = self.root / "var/lib/reclaimnet/coordinator"
        self.assertEqual((site.stat().st_uid, stat.filemode(site.stat().st_mode)), (0, "drwx------"))
        self.assertTrue((site / "coordinator.db").exists())

        self.install(NEW, "reclaimnet-coordinator")  # it is taken up again
        self.assertEqual(self.inside("stat -c %U /var/lib/reclaimnet/coordinator/coordinator.db").strip(),
                         "reclaim-coordinator")
        self.inside("apt-get -qq purge -y reclaimnet-coordinator; rm -r /var/lib/reclaimnet")
        self.assert_bare()


class UnderSystemd(OnABareDebian):
    def booted(self, script):
        """What a script said that systemd ran; an error unless all of it was done."""
        top = next((path for path in ("/sys/fs/cgroup/unified", "/sys/fs/cgroup")
                    if pathlib.Path(path, "cgroup.procs").exists()), None)
        if top is None:
            self.skipTest("no control groups of version 2 here")
        group = pathlib.Path(top, f"rn-packages-{os.getpid()}")
        srv = self.root / "srv"
        (srv / "job").write_text(script)
        (self.root / "etc/systemd/system/job.service").write_text(JOB)
        (self.root / "etc/systemd/system/job.target").write_text("[Unit]\nWants=job.service\nAfter=job.service\n")
        group.mkdir()
        try:
            run("bash", "-euc", BOOTED, "booted", self.root, self.debs, "", group)
            said = (srv / "said").read_text() if (srv / "said").exists() else "nothing"
        finally:
            remove_group(group)
            for name in ("srv/job", "srv/said", "etc/systemd/system/job.service", "etc/systemd/system/job.target"):
                (self.root / name).unlink(missing_ok=True)
        if "job: success" not in said.splitlines():
            raise AssertionError(said)
        return said

    def test_units_start_are_watched_upgraded_and_forgotten(self):
        self.booted("true")  # what systemd itself writes at a first boot
        type(self).bare = listing(self.root)
        old = " ".join(f"/mnt/{package}_{OLD}_amd64.deb" for package in PACKAGES)
        new = " ".join(f"/mnt/{package}_{NEW}_amd64.deb" for package in PACKAGES)
        units = "reclaim-coordinator reclaim-warden reclaim-agent"
        said = self.booted(rf"""
            trap 'echo "job: line $LINENO: $BASH_COMMAND"; journalctl --no-pager -n 60
              systemctl --no-pager status reclaim-\*' ERR
            until_true() {{ for _ in {{1..300}}; do "$@" >/tmp/last 2>&1 && return 0; sleep 0.1; done
              cat /tmp/last; return 1; }}
            pids() {{ for unit in {units}; do systemctl show -P MainPID $unit; done; }}
            mkdir /tmp/home
            {INSTALL} {old}
            all() {{ systemctl "$1" {units} | sort | uniq -c | xargs; }}
            [[ $(all is-enabled) == '3 disabled' && $(all is-active) == '3 inactive' ]]

            systemctl enable --now reclaim-coordinator  # comes back when it serves
            until_true test -s /var/lib/reclaimnet/coordinator/admin.token
            reclaim login https://localhost:7443 --token "$(cat /var/lib/reclaimnet/coordinator/admin.token)"
            reclaim-join https://localhost:7443 --token "$(reclaim token create --lab lab-a)"
            [[ $(all is-enabled) == '3 enabled' && $(all is-active) == '3 active' ]]
            until_true sh -c 'reclaim-agent doctor | grep -q "^ok .*warden"'
            pids >/tmp/before

            {INSTALL} {new}
            [[ $(all is-active) == '3 active' ]]
            pids >/tmp/after
            ! grep -qxFf /tmp/before /tmp/after || exit 1
            echo "restarted with the new programs"

            mkdir /run/systemd/system/reclaim-agent.service.d
            printf '[Service]\nWatchdogSec=8\n' >/run/systemd/system/reclaim-agent.service.d/test.conf
            systemctl daemon-reload
            systemctl restart reclaim-agent
            sleep 10 # it is alive, and says so
            [[ $(systemctl show -P NRestarts reclaim-agent) == 0 ]]
            kill -STOP "$(systemctl show -P MainPID reclaim-agent)"
            until_true sh -c '[ "$(systemctl show -P NRestarts reclaim-agent)" = 1 ]'
            until_true systemctl is-active reclaim-agent
            echo "one that stood still was started again"

            reclaim-agent leave
            until_true sh -c '[ "$(systemctl is-active reclaim-agent)" = inactive ]'
            systemctl restart reclaim-agent
            until_true sh -c '[ "$(systemctl is-active reclaim-agent)" = inactive ]'
            [[ $(systemctl show -P Result reclaim-agent) == success ]]

            apt-get -qq purge -y {' '.join(PACKAGES)}
            systemctl daemon-reload
            ! systemctl cat {units} 2>/dev/null || exit 1
            ls /run/reclaimnet 2>/dev/null && exit 1
            rm -r /var/lib/reclaimnet/coordinator; rmdir /var/lib/reclaimnet""")

        self.assertIn("restarted with the new programs\n", said)
        self.assertIn("one that stood still was started again\n", said)
        self.assert_bare()


if __name__ == "__main__":
    if os.geteuid() != 0:
        skip("must be root to unpack a Debian and to run programs in it")
    if os.uname().machine != "x86_64":
        skip("the packages' names are those of amd64 here")
    for tool in ("mmdebstrap", "dpkg-deb", "dpkg-shlibdeps", "unshare"):
        if not shutil.which(tool):
            skip(f"no {tool}: scripts/install-deps.sh")
    built = subprocess.run([ROOT / "scripts" / "build-bare-root.sh"], text=True, stdout=subprocess.PIPE)
    if built.returncode != 0:
        skip("the bare Debian cannot be made; its reason stands above")
    ARCHIVE = built.stdout.strip()
    unittest.main(verbosity=2)
