#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How soon a changed rate is on the wire, over the whole way: the coordinator's plan, its word to the agent, the pacing
of the agent's socket and the warden's bucket at the uplink, and what the receiver gets.

    bench/rate_change.py [--rounds 60] [--much MBIT] [--verbose]

Two laboratories are taken back and send their guests' states to one store by a line of 40 Mbit/s. The owner of the
second lets its copies have next to nothing and everything by turns (`contract set`), so that the coordinator plans the
first one's rate anew each time: up and down. With --much 30 it is 10 and 30 Mbit/s instead, so that the first one never
waits: it has the 28.5 and 9.5 that are left. For each change of more than a factor of two:

    plan to socket    from the plan (the coordinator's line `transfers.told`) to where the agent has set the socket's
                      SO_MAX_PACING_RATE (its line `transfer.paced`); a rise waits for the warden's bucket before that
    plan to receiver  from the plan to where the bytes that arrive change their slope: straight lines are fitted to what
                      had arrived by each packet before (200 to 10 ms) and after (100 to 350 ms), and where they meet is
                      when the rate changed. Packets are stamped by the kernel of the store's namespace (tcpdump)

The first one, whose deadline is the later one, is told to wait (next to 0 bit/s) while the other one has everything;
its line goes through what had arrived at the window's ends then. Changes that did not last for 350 ms, or after which
the slope is not within a quarter of the rate that was told, are counted and left out. Rounds end early when a copy has
arrived, which is said. All clocks are those of one machine. Root; needs the programs of RN_BUILD (by default
build/dev), tcpdump, and some 2 s for each round; 100 rounds at most."""
import argparse
import json
import os
import pathlib
import re
import struct
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "system" / "lib"))
import figures  # noqa: E402
from labs import wait_until  # noqa: E402
from stories import Site  # noqa: E402

LINE_MBIT, GRANT_MBIT = 40, 90
# Of the second one; with less the largest states would not be there in 900 s, and what is not promised comes last.
LITTLE_MBIT, LITTLE_BESIDE_MUCH_MBIT = 8, 10
MUCH_MBIT = (26, 36)  # --much: a change of more than a factor of two, and the first one does not wait
LASTS_S = 0.8  # each state of the site, after its plan
PATIENCE_S = 30
ROUNDS_MAX = 100
BEFORE_S, AFTER_S = (-0.2, -0.01), (0.1, 0.35)
PACKETS_MIN = 8  # for a straight line
LEAST_BPS = 1_000_000  # of a socket, whatever it was told (ADR 0008)
WAITS_BPS = 2_000_000  # who is told of less waits; its socket still sends some packets
LENDS = {"guest_disk_mib": 1536, "guest_memory_mib": 1024, "max_drain_s": 60}
# Its state is small until the owner comes: what is saved then is all new.
GUEST = """
save() { dd if=/dev/urandom of=new.tmp bs=1M count=$1 2>/dev/null && mv new.tmp state.bin; }
trap 'save SIZE' TERM
save 1
while true; do sleep 1 & wait $!; done
"""
TOPOLOGY = """
version: 1
links:
  - {{name: campus}}
  - {{name: basement, parent: campus, rate: {rate}mbit}}
nodes:
  - {{name: {lab_a}, at: campus, rate: 1gbit}}
  - {{name: {lab_b}, at: campus, rate: 1gbit}}
  - {{name: {storage}, at: basement, rate: 1gbit}}
"""
TOLD = re.compile(r"transfers\.told node=(\S+) at_ns=(\d+) bps=(\d+)\n")
PACED = re.compile(r"transfer\.paced at_ns=(\d+) bps=(\d+)")


class Bench:
    def __init__(self, rounds, much_mbit):
        self.much_mbit = much_mbit  # None: the second one's owner sets no bound
        self.size_mib = 30 + int(6.5 * rounds)
        # Long enough for both of them one after the other.
        self.notice_s = max(60, min(900, self.size_mib * 8 // 6))
        lends = {**LENDS, "notice_s": self.notice_s}
        flags = ["--transfers", f"eth0:{GRANT_MBIT}mbit"]
        self.site = Site({"lab-a": lends, "lab-b": lends, "storage": {"lends": False, "store_mib": 4096}}, disk="5G",
                         warden_flags={lab: flags for lab in ("lab-a", "lab-b")})
        try:
            self.declare_the_line()
            self.evacuate()
        except BaseException:
            self.site.down()
            raise

    def declare_the_line(self):
        site = self.site
        ids = {lab.replace("-", "_"): node["id"] for lab, node in site.rest.nodes().items()}
        self.first = ids["lab_a"]
        self.file = tempfile.NamedTemporaryFile("w", suffix=".yaml")
        self.file.write(TOPOLOGY.format(rate=LINE_MBIT, **ids))
        self.file.flush()
        site.coordinator.kill()
        site.coordinator.flags += ["--topology", self.file.name]
        site.coordinator.start()
        site.wait("all nodes to be back", lambda: all(
            node["state"] == "up" and node["is_connected"] for node in site.rest.nodes().values()))
        site.labs.rate("storage", f"{2 * LINE_MBIT}mbit")

    def evacuate(self):
        site = self.site
        self.jobs = {lab: site.rest.post("/v1/jobs", {
            "name": f"of-{lab}", "image": "base", "command": ["sh", "-c", GUEST.replace("SIZE", str(self.size_mib))],
            "resources": {"cpu_milli": 400, "cpu_milli_min": 100, "memory_mib": 256, "disk_mib": 1536},
            "only_labs": [lab], "notice_s": self.notice_s,
            "checkpoint": {"paths": ["state.bin"], "temporary": ["*.tmp"], "destinations": ["storage"]}
        })["job"]["id"] for lab in ("lab-b", "lab-a")}
        site.wait("a first generation of each", lambda: all(
            self.generation(lab) > 0 for lab in self.jobs), 120)
        self.let_have(self.much_mbit)
        self.capture = site.labs.dir / "storage" / "copies.pcap"
        tcpdump = site.labs.spawn("storage", "tcpdump", [
            "tcpdump", "-n", "-s", "64", "-B", "16384", "-Z", "root", "--time-stamp-precision=nano", "-i", "eth0", "-w",
            self.capture, f"tcp dst port 7445 and src host {site.labs.addresses['lab-a']}"])
        wait_until("tcpdump to listen", lambda: "listening on" in tcpdump.output(), 10)
        self.tcpdump = tcpdump
        before = len(self.told())
        self.began = {lab: self.generation(lab) for lab in self.jobs}
        for lab in self.jobs:  # the second one's deadline is the earlier one: what is to spare is its
            site.nodes[lab].owner("reclaim")
            time.sleep(2)
        site.wait("both to be sent", lambda: len(self.told()) > before + 1, self.notice_s)
        time.sleep(LASTS_S)

    def generation(self, lab):
        return self.site.rest.job(self.jobs[lab])["durable"]["generation"]

    def is_over(self):
        """A copy has arrived."""
        return any(self.generation(lab) > self.began[lab] for lab in self.jobs)

    def told(self):
        """(s since boot, bit/s) of each word to the first laboratory that has one copy under way."""
        return [(int(at) / 1e9, int(bps)) for node, at, bps in TOLD.findall(self.site.coordinator.process.output())
                if node == self.first]

    def let_have(self, mbit):
        """Of the second one's owner, to its copies; None: no bound."""
        node = self.site.nodes["lab-b"]
        contract = dict(node.contract)
        if mbit is not None:
            contract["uplink_bps_normal"] = contract["uplink_bps_evacuation"] = mbit * 1_000_000
        file = self.site.labs.dir / "contract.json"
        file.write_text(json.dumps(contract))
        node.owner("contract", "set", file)

    def turn(self, number):
        """The second one gets little, or much. Answers when the first one was told of it and a while has passed; False
        if a copy is over before."""
        little = LITTLE_MBIT if self.much_mbit is None else LITTLE_BESIDE_MUCH_MBIT
        seen = self.told()
        self.let_have(little if number % 2 == 0 else self.much_mbit)

        def is_told():
            return any(is_step(seen[-1][1], bps) for _, bps in self.told()[len(seen):])
        wait_until("another plan", lambda: is_told() or self.is_over(), PATIENCE_S, 0.05)
        time.sleep(LASTS_S)
        return not self.is_over()

    def paced(self):
        return [(int(at) / 1e9, int(bps)) for at, bps in PACED.findall(self.site.nodes["lab-a"].agent.output())]


def is_step(before, after):
    return after > 2 * before or before > 2 * after


def is_near(one, other):
    return abs(one - other) < 0.15 * max(other, WAITS_BPS)


def packets_of(path):
    """(s since boot, bytes so far) of each packet of a capture with nanoseconds."""
    data = pathlib.Path(path).read_bytes()
    offset = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    assert data[:4] == b"\x4d\x3c\xb2\xa1", "no capture with nanoseconds of this machine's byte order"
    position, total, found = 24, 0, []
    while position + 16 <= len(data):
        seconds, nanoseconds, length, _ = struct.unpack_from("<IIII", data, position)
        frame = data[position + 16:position + 16 + length]
        position += 16 + length
        if len(frame) >= 18:
            total += struct.unpack_from(">H", frame, 16)[0]
            found.append((seconds + nanoseconds * 1e-9 - offset, total))
    return found


def line_through(points):
    """(slope, value at 0) by least squares; None for too few."""
    if len(points) < PACKETS_MIN:
        return None
    middle = sum(x for x, _ in points) / len(points)
    height = sum(y for _, y in points) / len(points)
    spread = sum((x - middle) ** 2 for x, _ in points)
    slope = sum((x - middle) * (y - height) for x, y in points) / spread
    return slope, height - slope * middle


def little_in(packets, at, window):
    """As line_through, where next to nothing arrives: in too few packets for a fit. None where more does."""
    first, last = (sum_until(packets, at + edge) for edge in window)
    slope = (last - first) / (window[1] - window[0])
    return (slope, last - slope * window[1]) if slope * 8 < WAITS_BPS else None


def sum_until(packets, when):
    return max((total for at, total in packets if at <= when), default=0)


def line_of(packets, at, bps, window):
    """What arrived in the window, where the rate was `bps`."""
    if bps < WAITS_BPS:
        return little_in(packets, at, window)
    return line_through([(when - at, total) for when, total in packets if window[0] <= when - at <= window[1]])


def arrival_ms(packets, at, was_bps, bps):
    """From `at` to where the slope changes; None where it does not become the rate."""
    before, after = line_of(packets, at, was_bps, BEFORE_S), line_of(packets, at, bps, AFTER_S)
    if before is None or after is None or bps >= WAITS_BPS and not 0.75 <= after[0] * 8 / bps <= 1.25:
        return None
    if not is_step(before[0], after[0]):
        return None
    return (after[1] - before[1]) / (before[0] - after[0]) * 1000


def say_left_out(at, before, bps, told, packets):
    rates = ", ".join(f"{rate / 1e6:.1f} at {when - at:+.3f}" for when, rate in told if abs(when - at) < 0.6)
    near = [(when - at, total) for when, total in packets if BEFORE_S[0] <= when - at <= AFTER_S[1]]
    lines = [line_through([one for one in near if least <= one[0] <= most]) for least, most in (BEFORE_S, AFTER_S)]
    bytes_of = [sum_until(packets, at + most) - sum_until(packets, at + least) for least, most in (BEFORE_S, AFTER_S)]
    seen = ", ".join("too few" if one is None else f"{one[0] * 8e-6:.1f}" for one in lines)
    print(f"left out: {before / 1e6:.1f} to {bps / 1e6:.1f} Mbit/s (told: {rates}); arrived: {seen} Mbit/s, "
          f"{len(near)} packets; {bytes_of[0]} bytes before, {bytes_of[1]} after")


def judge(told, paced, packets, is_told=False):
    found = {("up", "socket"): [], ("up", "receiver"): [], ("down", "socket"): [], ("down", "receiver"): []}
    left_out = 0
    for number, (at, bps) in enumerate(told[1:], 1):
        before = told[number - 1][1]
        if not is_step(before, bps):
            continue
        lasts = all(is_near(later, bps) for when, later in told[number:] if when - at < AFTER_S[1])
        stood = all(is_near(earlier, before) for when, earlier in told[:number] if at - when < 0.2)
        arrival = arrival_ms(packets, at, before, bps) if lasts and stood else None
        if arrival is None:
            left_out += 1
            if is_told:
                say_left_out(at, before, bps, told, packets)
            continue
        way = "up" if bps > before else "down"
        found[way, "receiver"].append(arrival)
        wanted = max(bps, LEAST_BPS)
        sets = [when for when, rate in paced if when >= at and abs(rate - wanted) < 0.05 * wanted]
        if sets:
            found[way, "socket"].append((sets[0] - at) * 1000)
    return found, left_out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=60, help="changes of the rate, 2 to 100")
    parser.add_argument("--much", type=int, help="Mbit/s of the second copy at most, so that the first one never "
                        f"waits: {MUCH_MBIT[0]} to {MUCH_MBIT[1]} (default: no bound)")
    parser.add_argument("--verbose", action="store_true", help="say of each change that is left out why")
    arguments = parser.parse_args()
    rounds = arguments.rounds
    if not 2 <= rounds <= ROUNDS_MAX:
        parser.error(f"--rounds {rounds}: from 2 to {ROUNDS_MAX}")
    much = arguments.much
    if much is not None and not MUCH_MBIT[0] <= much <= MUCH_MBIT[1]:
        parser.error(f"--much {much}: from {MUCH_MBIT[0]} to {MUCH_MBIT[1]}")
    beside = "" if much is None else f" beside {LITTLE_BESIDE_MUCH_MBIT} and {much}"
    figures.heading(f"a changed rate, plan to receiver, line of {LINE_MBIT} Mbit/s{beside}, {rounds} rounds")
    os.environ["RN_LOG_LEVEL"] = "debug"
    bench = Bench(rounds, much)
    try:
        for number in range(rounds):
            if not bench.turn(number):
                print(f"a copy was over in round {number + 1}")
                break
        bench.tcpdump.stop()
        found, left_out = judge(bench.told(), bench.paced(), packets_of(bench.capture),
                                arguments.verbose)
        for (way, end), samples in found.items():
            name = f"{way}, plan to {end}"
            if samples:
                figures.line(name, samples, "ms")
            else:
                print(f"{name:<34} n=0")
        print(f"left out: {left_out} changes that did not last, or whose rate did not come")
    finally:
        bench.site.down()
        for left in bench.site.labs.residue():
            print("LEFT BEHIND:", left)


if __name__ == "__main__":
    main()
