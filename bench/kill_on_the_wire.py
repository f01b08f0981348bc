#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The kill switch under failures, seen at a peer: a real coordinator, agent, warden and container engine on
laboratories of this machine, and a guest in a container that floods the peer by UDP and TCP (the meter is
bench/wire_kill.cc).

    bench/kill_on_the_wire.py wire [--rounds 1000] [--shapers none,htb,tbf]
                                   [--failures healthy,stopped,gone,full,dead,hung]
    bench/kill_on_the_wire.py deadman [--rounds 30] [--shapers none,htb,tbf]
    bench/kill_on_the_wire.py kill [--rounds 100] [--failures …]
    … [--hand reclaim-warden]
    wire … [--before PROGRAM]
    wire … --gpu

What is broken while the owner commands:
    healthy  nothing; through the warden's kill socket, as `reclaim-agent reclaim --now` does
    stopped  agent, container engine (dockerd, containerd, shims) and coordinator under SIGSTOP; through the kill
             socket
    gone     agent, coordinator, dockerd and containerd killed (SIGKILL; the warden starts its engine again, and the
             guest's shim lives); through the kill socket
    full     as stopped, and the disk with the warden's state full
    dead     the same as `stopped`, and the warden killed (SIGKILL): the program `reclaim-kill`, by hand, or
             `reclaim-warden kill` with --hand
    hung     the same as `dead`, but the warden under SIGSTOP
With --before every other round of `wire` by hand is by another program (of an earlier commit, beside `reclaim-kill`
its `reclaim-warden`), and the ratios are printed. With --gpu the machine has two (declared ones) with a guest each, of
which one is cut and the other must be heard on (where the warden is dead or stopped the meter renews its lease).
A shaper is HTB (one class, pfifo of 1,000 packets) or TBF on the machine's way out at 100 Mbit/s; then the warden is
told `--uplink eth0:90mbit`. The owner sends 1,000 datagrams a second to the peer beside it. `kill` measures until
guests are stopped, and until all that is left of them was looked for and nothing found: 1, 16 and 200 processes in the
guests' control group. `deadman`: the warden is killed and nobody commands; its lease is of 2 s. Root; needs the
programs of RN_BUILD (by default build/dev); one failure and shaper takes some three minutes for 1,000 rounds."""
import argparse
import contextlib
import json
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "system" / "lib"))
import figures  # noqa: E402
from labs import Labs, wait_until  # noqa: E402
from rn_site import Cli, Coordinator, Node, program, tiny_image  # noqa: E402

LIMIT_S = 580  # of one run of the meter
SHAPERS = {
    "none": [],
    "htb": ["qdisc add dev eth0 root handle 7: htb default 1",
            "class add dev eth0 parent 7: classid 7:1 htb rate 100mbit",
            "qdisc add dev eth0 parent 7:1 handle 8: pfifo limit 1000"],
    "tbf": ["qdisc add dev eth0 root handle 7: tbf burst 128k limit 1500000 rate 100mbit"],
}
FAILURES = ("healthy", "stopped", "gone", "full", "dead", "hung")
BY_HAND = ("dead", "hung")
DECLARED = [{"index": index, "uuid": f"GPU-declared-{index}", "model": "declared card", "memory_mib": 24576,
             "compute_capability": "8.6"} for index in (0, 1)]
PORTS = ((9000, "udp"), (9001, "tcp"), (9002, "udp"), (9003, "tcp"))  # bench/wire_flood.h
HANDS = {"reclaim-kill": "", "reclaim-warden": " kill"}


class Broken:
    """One site with one guest that may send to the peer, or with two GPUs and a guest for each; `break_it` is undone by
    `down`."""

    def __init__(self, shaper, hand, has_gpus=False):
        self.hand, self.has_gpus = f"{program(hand)}{HANDS[hand]}", has_gpus
        self.labs = Labs("campus", "lab-a", "peer", disk="1G")
        try:
            self._set_up(shaper)
        except BaseException:
            self.labs.down()
            raise

    def _set_up(self, shaper):
        self.peer = self.labs.addresses["peer"]
        for command in SHAPERS[shaper]:
            self.labs.call("lab-a", ["tc", *command.split()])
        flags = ("--uplink", "eth0:90mbit") if SHAPERS[shaper] else ()
        opened = [{"prefix": f"{self.peer}/32", "port": port, "protocol": kind} for port, kind in PORTS]
        self.coordinator = Coordinator(self.labs).start()
        self.node = Node(self.labs, "lab-a", {"guest_disk_mib": 128, "reserve_disk_mib": 64, "network": opened},
                         warden_flags=flags, config={"gpus": DECLARED} if self.has_gpus else {})
        self.node.set_up(self.coordinator)
        cli = Cli(self.labs, self.coordinator)
        cli("image", "add", "base", tiny_image())
        peers = [word for port, kind in PORTS for word in ("--peer", f"{self.peer}:{port}/{kind}")]
        self.jobs = [cli("run", "--detach", "--stateless", "--no-upload", "--cpus", "0.2", "--memory", "64MB", "--disk",
                         "64MB", "--gpu", count, *peers, "--", "sleep", "100000").stdout.strip()
                     for count in ((1, 1) if self.has_gpus else (0,))]
        rest = self.coordinator.rest()
        wait_until("the guests to run", lambda: all(rest.job(job)["state"] == "running" for job in self.jobs), 120)
        self.frozen = []

    def guest_pid(self, which=0):
        """A process of that guest: who is in a control group of the lab's and has its job."""
        for pid in self.node.guest_containers():
            with contextlib.suppress(OSError):
                if self.jobs[which].encode() in pathlib.Path(f"/proc/{pid}/environ").read_bytes():
                    return pid
        raise AssertionError("the guest has no process")

    def of_gpus(self):
        """What the meter is told besides, where one of two GPUs is taken: the first guest's."""
        if not self.has_gpus:
            return {}
        attempts = json.loads(self.node.owner("status", "--json").stdout)["attempts"]
        gpus = next(one["gpus"] for one in attempts if one["report"]["job"] == self.jobs[0])
        return {"gpu": gpus[0], "neighbour": self.guest_pid(1)}

    def break_it(self, failure):
        if failure == "healthy":
            return
        if failure == "gone":
            self.node.agent.kill()
            self.coordinator.process.kill()
            for pid in self.node.engine_pids():
                if "shim" not in pathlib.Path(f"/proc/{pid}/comm").read_text():
                    subprocess.run(["kill", "-KILL", str(pid)], check=False)
            return
        for pid in self.node.engine_pids():
            subprocess.run(["kill", "-STOP", str(pid)], check=False)
            self.frozen.append(pid)
        self.node.agent.freeze()
        self.coordinator.process.freeze()
        if failure == "full":
            self._fill()
        elif failure == "dead":
            self.node.warden.kill()
        elif failure == "hung":
            self.node.warden.freeze()

    def _fill(self):
        with contextlib.suppress(OSError), open(self.node.state / "fill", "wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 16))
        with contextlib.suppress(OSError), open(self.node.state / "fill", "ab", buffering=0) as file:
            while True:
                file.write(b"x")

    def down(self):
        for pid in self.frozen:
            subprocess.run(["kill", "-CONT", str(pid)], check=False, stderr=subprocess.DEVNULL)
        self.coordinator.process.thaw()
        self.labs.down()

    def meter(self, mode, **values):
        """Its output; an error ends the bench with it."""
        words = {"peer": f"rn-{self.labs.run}-peer", "source": self.labs.addresses["lab-a"], "to": self.peer,
                 "gates": self.node.run / "gates", "socket": self.node.run / "kill.sock",
                 "hand": f"{self.hand} --state {self.node.state} --run {self.node.run}",
                 "group": f"reclaim-{self.labs.run}-lab-a", **values}
        meter = program("reclaim-warden").parents[2] / "bench" / "wire_kill"
        try:
            return self.labs.call("lab-a", [meter, mode, *(f"{key}={value}" for key, value in words.items())],
                                  timeout_s=LIMIT_S, check=False)
        except subprocess.TimeoutExpired as late:
            said = late.stdout or ""
            said = said if isinstance(said, str) else said.decode()
            return subprocess.CompletedProcess(late.cmd, 1, said, f"it ran for more than {LIMIT_S} s")


@contextlib.contextmanager
def site(shaper, options):
    broken = Broken(shaper, options.hand, options.gpu)
    try:
        yield broken
    finally:
        broken.down()


def told(done):
    print(done.stdout, end="", flush=True)
    if done.returncode != 0:
        print(f"FAILED: {done.stderr.strip()}", flush=True)
    return done.returncode == 0


def how(broken, failure, before=""):
    if failure not in BY_HAND:
        return {"by": "socket"}
    words = {"by": "hand", "lease": 1, "journal": broken.node.state / "warden" / "kill-by-hand.journal"}
    if before:
        words["before"] = f"{before} --state {broken.node.state} --run {broken.node.run}"
    return words


def wire(options):
    is_good = True
    for shaper in options.shapers:
        for failure in options.failures:
            with site(shaper, options) as broken:
                guests = {"guest": broken.guest_pid(), **broken.of_gpus()}
                broken.break_it(failure)
                print(f"{failure}, shaper {shaper}, {options.hand if failure in BY_HAND else 'kill socket'}"
                      + (", one of two GPUs" if options.gpu else ""))
                before = options.before and options.before + HANDS[options.hand]
                is_good &= told(broken.meter("wire", rounds=options.rounds, **guests, **how(broken, failure, before)))
    return is_good


def deadman(options):
    for shaper in options.shapers:
        samples = []
        with site(shaper, options) as broken:
            while len(samples) < options.rounds:
                done = broken.meter("deadman", guest=broken.guest_pid(), warden=broken.node.warden.pid)
                if done.returncode == 0:
                    samples.append(float(done.stdout))
                elif "lost packets" not in done.stderr:
                    print(done.stderr, broken.node.warden.output()[-2000:])
                    return False
                broken.node.warden.kill()  # it is dead, and is waited for
                broken.node.start_warden()
        figures.line(f"last byte after the warden's SIGKILL, {shaper}", samples, "ms")
    return True


def kill(options):
    is_good = True
    for failure in options.failures:
        with site("none", options) as broken:
            broken.break_it(failure)
            print(f"{failure}, {options.hand if failure in BY_HAND else 'kill socket'}")
            # The guest that the site was made with goes first, uncounted.
            broken.labs.call("lab-a", [program("reclaim-warden"), "kill", "--state", broken.node.state, "--run",
                                       broken.node.run], check=False)
            for processes in (1, 16, 200):
                is_good &= told(
                    broken.meter("kill", rounds=options.rounds, processes=processes, **how(broken, failure)))
    return is_good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figure", choices=("wire", "deadman", "kill"))
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--shapers", default="none,htb,tbf", type=lambda text: text.split(","))
    parser.add_argument("--failures", default=",".join(FAILURES), type=lambda text: text.split(","))
    parser.add_argument("--before", default="")
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--hand", default="reclaim-kill", choices=HANDS)
    options = parser.parse_args()
    for given, known in ((options.shapers, SHAPERS), (options.failures, FAILURES)):
        if not set(given) <= set(known):
            parser.error(f"{','.join(given)}: there are {', '.join(known)}")
    if options.gpu and options.figure != "wire":
        parser.error("--gpu: of `wire`")
    options.rounds = options.rounds or {"wire": 1000, "deadman": 30, "kill": 100}[options.figure]
    build = program("reclaim-warden").parents[2].name
    figures.heading(f"kill switch under failures: {options.figure}, programs of {build}")
    return 0 if {"wire": wire, "deadman": deadman, "kill": kill}[options.figure](options) else 1


if __name__ == "__main__":
    sys.exit(main())
