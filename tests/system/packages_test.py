#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The packages of scripts/package.sh on a bare Debian 12 (scripts/build-bare-root.sh, a folder without systemd):
installed by apt, upgraded, tried, removed and purged, and the folder is as it was. Nothing there reaches the network.
What systemd itself makes of the units is not seen here. Root; 77 where it cannot run."""
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
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("RN_BUILD", ROOT / "build" / "dev"))
OLD, NEW = "0.1.0~1", "0.1.0~2"
PACKAGES = ("reclaimnet", "reclaimnet-agent", "reclaimnet-coordinator")
EPOCH = "1700000000"
INSTALL = "apt-get -qq install -y --no-install-recommends -o Dpkg::Use-Pty=0"
# What dpkg, apt and the users' list write beside their work, whoever comes and goes; /dev, /proc, /tmp and /mnt are
# mounted anew for each command.
NOT_OURS = re.compile(r"^(dev|proc|tmp|mnt)/|^var/(lib/(dpkg|apt)|cache/(apt|debconf)|log)/"
                      r"|^etc/((passwd|group|shadow|gshadow)-|\.pwd\.lock)$")

# In namespaces of its own, which end with it: the command $3 in the bare root $1, as its root, with the packages of $2.
INSIDE = """
root=$1
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


class Packages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory(prefix="rn-packages.")))
        cls.scratch.chmod(0o755)
        cls.debs = cls.scratch / "debs"
        cls.said = make_packages(cls.debs, NEW)
        for package in PACKAGES:
            make_older(cls.debs, package, cls.scratch)
        cls.root = cls.scratch / "root"
        cls.root.mkdir()
        run("tar", "-xf", ARCHIVE, "-C", cls.root, "--numeric-owner", check=True)
        (cls.root / "etc" / "machine-id").write_text("0123456789abcdef0123456789abcdef\n")
        cls.bare = listing(cls.root)

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

    def text(self, path):
        return (self.root / path).read_text()

    def test_the_same_programs_give_the_same_bytes(self):
        other = self.scratch / "other"
        other.mkdir()
        make_packages(other / "debs", NEW, TZ="Asia/Tokyo", LC_ALL="C", TMPDIR=str(other))

        for package in PACKAGES:
            file = f"{package}_{NEW}_amd64.deb"
            self.assertEqual((other / "debs" / file).read_bytes(), (self.debs / file).read_bytes(), file)

    def test_each_unit_says_how_exposed_it_is(self):
        if not shutil.which("systemd-analyze"):
            self.skipTest("no systemd-analyze here")
        exposures = re.findall(r"(?m)^exposure (reclaim-\w+\.service) ([\d.]+)$", self.said)
        self.assertEqual(len(exposures), 3, self.said)
        for unit, value in exposures:
            self.assertIn(f"says {value}", (ROOT / "packaging" / "systemd" / unit).read_text())

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
        self.inside("reclaim-agent contract check /dev/null")  # it reads agent.yaml before
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
        """As systemd listens to what it starts."""
        ears = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(ears.close)
        path = self.root / "srv/notify"
        ears.bind(str(path))
        self.addCleanup(path.unlink, missing_ok=True)
        path.chmod(0o777)
        ears.settimeout(0)
        return ears

    def words(self, ears):
        heard = []
        while True:
            try:
                heard.append(ears.recv(4096).decode())
            except BlockingIOError:
                return heard

    def test_a_site_is_founded_and_a_machine_joins_it_by_the_pages_words(self):
        self.install(NEW, *PACKAGES)
        self.assertEqual([*(self.root / "etc/systemd").rglob("*reclaim*")], [])
        ears = self.listen_to_daemons()
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
        heard = self.words(ears)
        self.assertEqual(heard.count("READY=1"), 2, heard)
        self.assertIn("WATCHDOG=1", heard)
        (self.root / "srv/notify").unlink()

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
