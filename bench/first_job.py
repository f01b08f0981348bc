#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""From a bare machine to the first lent node and to the first finished job, by the words of docs/install.md: the
packages of this tree are installed by apt into a Debian 12 that has nothing of ours, a site is founded, the machine
joins it, and a student's first script runs there.

    bench/first_job.py [--build FOLDER] [--lab NAME]      programs of that build tree (RN_BUILD, else build/dev)

Prints both times with the machine and the commit. They begin before the packages are installed, and have neither what
the packages depend on (Docker among it) nor an image downloaded: the bare root has the one, and the tiny image lies
beside it. Its units' commands are given by hand, for there is no systemd in it. In namespaces and on a disk of its own,
which end with it; at the end the machine leaves, so that no control group stays either. Root."""
import argparse
import os
import pathlib
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
LIMIT_S = 240
DISK = "12G"  # sparse

# As the first process of namespaces: a disk with the bare root $1, which becomes the root. $2 is mounted as /mnt, $3 is
# what is done there.
INSIDE = """
mkdir "$2/disk"
truncate -s "$4" "$2/disk.img"
mke2fs -q -t ext4 -F "$2/disk.img"
mount -o loop "$2/disk.img" "$2/disk"
cd "$2/disk"
tar -xf "$1" --numeric-owner
mkdir -p .before dev proc sys run mnt
mount -t proc proc proc
mount --rbind /sys sys
mount --rbind /dev dev
mount -t tmpfs -o mode=755 tmpfs run
mount --bind "$2/brought" mnt
echo bare >etc/hostname
echo '127.0.0.1 localhost bare' >etc/hosts
echo 0123456789abcdef0123456789abcdef >etc/machine-id
hostname bare
ip link set lo up
ip link add eth0 type veth peer name nobody
ip address add 192.0.2.2/24 dev eth0
ip link set eth0 up
ip link set nobody up
ip route add default via 192.0.2.1
pivot_root . .before
exec /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \\
  DEBIAN_FRONTEND=noninteractive /usr/sbin/chroot . /bin/bash -euc "$3" inside "$5"
"""

# docs/install.md, from apt-get install to a student's first job; what units do is done by hand. $1: the laboratory.
STORY = r"""
cd /
umount -l /.before
since() { awk -v a="$begun" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }'; }
until_true() { # SECONDS COMMAND…
  local end=$((SECONDS + $1))
  shift
  until "$@" >/tmp/last 2>&1; do
    ((SECONDS < end)) || { echo "not in time: $*"; cat /tmp/last; tail -n 30 /tmp/*.log; exit 9; }
    sleep 0.1
  done
}
site=/var/lib/reclaimnet/coordinator
begun=$EPOCHREALTIME
apt-get -qq install -y --no-install-recommends -o Dpkg::Use-Pty=0 /mnt/*.deb >/tmp/apt.log 2>&1 ||
  { cat /tmp/apt.log; exit 9; }
echo "installed after $(since) s"

install -d -o reclaim-coordinator -g reclaim-coordinator -m 700 $site
setpriv --reuid reclaim-coordinator --regid reclaim-coordinator --clear-groups --no-new-privs --bounding-set=-all \
  reclaim-coordinator serve >/tmp/coordinator.log 2>&1 &
coordinator=$!
until_true 30 test -s $site/admin.token
reclaim login https://localhost:7443 --token "$(cat $site/admin.token)"
reclaim image add base /mnt/image.tar
echo "site founded after $(since) s"

reclaim-join https://localhost:7443 --token "$(reclaim token create --lab "$1")"
. /etc/reclaimnet/warden.env
install -d -m 755 /var/lib/reclaimnet
install -d -g reclaim-agent -m 1775 /run/reclaimnet
# shellcheck disable=SC2086 # flags
reclaim-warden serve $WARDEN_FLAGS >/tmp/warden.log 2>&1 &
warden=$!
setpriv --reuid reclaim-agent --regid reclaim-agent --clear-groups --no-new-privs --bounding-set=-all \
  reclaim-agent serve >/tmp/agent.log 2>&1 &
agent=$!
until_true 90 sh -c "reclaim nodes --json | grep -q '\"lending\": *\"open\"'"
echo "first lent node after $(since) s"

mkdir /root/student && cd /root/student
echo 'echo "computed by $(id -u)" >result.txt; echo hello' >first.sh
timeout 120 reclaim run --cpus 0.5 --memory 64MB --disk 64MB -- sh first.sh ||
  { tail -n 30 /tmp/*.log; exit 9; }
[ "$(cat result.txt)" = 'computed by 10001' ]
echo "first finished job after $(since) s"

cd /
timeout 60 reclaim-agent leave --purge >/tmp/leave.log 2>&1 || cat /tmp/leave.log
kill $agent $warden 2>/dev/null || true
wait $agent $warden || true
timeout 60 reclaim-warden leave
kill $coordinator
wait $coordinator || true
"""


def packages(build, folder):
    """The three of this tree, made quickly."""
    subprocess.run([ROOT / "scripts" / "package.sh", "--fast", "--build", build, "--out", folder], check=True,
                   stdout=subprocess.DEVNULL, timeout=LIMIT_S)


def archive(script, *flags):
    done = subprocess.run([ROOT / "scripts" / script, *flags], check=True, stdout=subprocess.PIPE, text=True)
    return pathlib.Path(done.stdout.strip())


def machine():
    """In the words of docs/results.md: processor, cores, memory, kernel, load."""
    model = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    return (f"{model[1] if model else platform.machine()}, {os.cpu_count()} cores, {memory} GiB, "
            f"Linux {platform.release()}, load {os.getloadavg()[0]:.1f}")


def commit():
    done = subprocess.run(["git", "-C", ROOT, "-c", "safe.directory=*", "describe", "--always", "--dirty", "--abbrev=7",
                           "--exclude=*"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return done.stdout.strip() or "no commit"


def tell(build, lab):
    """The story; answers its exit code. What it says is printed as it comes."""
    bare, image = archive("build-bare-root.sh", "--engine"), archive("build-tiny-image.sh")
    with tempfile.TemporaryDirectory(prefix="rn-first-job.") as scratch:
        brought = pathlib.Path(scratch) / "brought"
        brought.mkdir()
        packages(build, brought)
        shutil.copy(image, brought / "image.tar")
        print(f"machine: {machine()}; commit {commit()}", flush=True)
        # In a mount namespace, and killed with it: nothing of it outlives this process.
        command = ["timeout", "--signal=KILL", str(LIMIT_S), "unshare", "--mount", "--net", "--uts", "--ipc", "--pid",
                   "--fork", "--kill-child", "bash", "-euc", INSIDE, "first_job", bare, scratch, STORY, DISK, lab]
        done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL)
    return done.returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=os.environ.get("RN_BUILD", ROOT / "build" / "dev"))
    parser.add_argument("--lab", default=f"first-{os.getpid()}", help="names its control group, too")
    options = parser.parse_args()
    if not re.fullmatch(r"[a-z0-9-]{1,32}", options.lab):
        parser.error(f"--lab {shlex.quote(options.lab)}: letters a-z, digits and -, at most 32")
    if os.geteuid() != 0:
        parser.error("it makes namespaces and mounts a disk; next: run it as root")
    return tell(options.build, options.lab)


if __name__ == "__main__":
    sys.exit(main())
