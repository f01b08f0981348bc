# SPDX-License-Identifier: Apache-2.0
"""Guests of one gang on this machine: PID 1 in namespaces of their own with the warden's network of a member, and the
links of their agents (gang_pair). Nothing else of a site. Root."""
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import tempfile

INIT = os.path.join(os.environ.get("RN_BUILD", "build/ci"), "apps/reclaim-init/reclaim-init")
# ROOT INIT SCRIPT RANK IP NFT. In a network and a mount namespace of its own; the shell stays, so that others find
# its folder at /proc/PID/root.
SETUP = """set -e
ip -batch "$5"
nft -f "$6"
mount -t tmpfs -o size=16m none "$1"
cd "$1"
mkdir usr reclaim dev
mount --rbind -o ro /usr usr
mount -o remount,bind,ro usr
for i in bin lib lib64; do ln -s usr/$i $i; done
touch dev/null
mount --bind /dev/null dev/null
cp "$2" init
cp "$3" guest.py
printf t > reclaim/go
echo made
read go
rc=0
unshare --pid --fork --kill-child chroot "$1" /init --member "$4" 1000000 30 t /usr/bin/python3 -I -u /guest.py || rc=$?
echo "rc $rc"
cat reclaim/log
"""
# What the programs of the members have.
PRELUDE = """
import socket, struct, sys, threading, time

def member(rank):
    return f"100.68.0.{rank + 1}"

def read_all(end):
    got = []
    while piece := end.recv(1 << 16):
        got.append(piece)
    return b"".join(got)

def is_reset(end):
    try:
        end.recv(1)
        return False
    except ConnectionResetError:
        return True

def until(what, limit_s=20):
    end = time.monotonic() + limit_s
    while not what():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.02)
"""
CAN = subprocess.run(
    ["unshare", "--net", "--mount", "--pid", "--fork", "sh", "-c",
     "ip link add gang0 type veth peer name gang1 && nft 'add table ip x; "
     "add chain ip x y { type nat hook output priority -100; }; "
     "add chain ip x z { type filter hook output priority 0; }; add rule ip x y meta l4proto tcp redirect to :745; "
     "add rule ip x z ct count over 9 drop; add rule ip x z meta l4proto udp reject; add rule ip x z notrack'"],
    capture_output=True)


class Gang:
    """`scripts`: by rank, what each member's program is."""

    def __init__(self, pair, scripts):
        self.pair, self.scripts = pair, scripts

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.guests = [self.start(rank, script) for rank, script in enumerate(self.scripts)]
        roots = [f"/proc/{guest.pid}/root{self.root(rank)}" for rank, guest in enumerate(self.guests)]
        self.agents = subprocess.Popen([self.pair, *roots], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                       start_new_session=True)
        assert self.agents.stdout.readline() == "ready\n"
        for guest in self.guests:
            guest.stdin.write("go\n")
            guest.stdin.flush()
        return self

    def __exit__(self, *_):
        for process in (*self.guests, self.agents):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            process.stdin.close()
            process.stdout.close()
        self.folder.cleanup()

    def root(self, rank):
        return f"{self.folder.name}/{rank}"

    def start(self, rank, script):
        files = [pathlib.Path(self.folder.name) / f"{rank}.{name}" for name in ("ip", "nft", "py")]
        subprocess.run([self.pair, "--network", str(rank), *files[:2]], check=True)
        files[2].write_text(PRELUDE + script)
        os.mkdir(self.root(rank))
        guest = subprocess.Popen(
            ["unshare", "--net", "--mount", "--propagation", "private", "sh", "-c", SETUP, "sh", self.root(rank),
             os.path.abspath(INIT), files[2], str(rank), *files[:2]],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
        line = guest.stdout.readline()
        assert line == "made\n", line + guest.communicate()[0]
        return guest

    def ends(self, limit_s=60):
        """Of each member: its exit code, and what it has printed. Those that are over later are waited for, too."""
        said = [guest.communicate(timeout=limit_s)[0] for guest in self.guests]
        return [(int(one.split("\n")[0].removeprefix("rc ")), one.partition("\n")[2]) for one in said]

    def stop_agents(self):
        """What they have sent, and the processor's time that it took."""
        return json.loads(self.agents.communicate(timeout=20)[0])
