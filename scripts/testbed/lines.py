# SPDX-License-Identifier: Apache-2.0
"""The topology file as a bed needs it: which bridge hangs at which, and how fast each line is. Pure. Whether a file is
right is for `reclaim-coordinator check-topology` to say, which is asked first; here is only read what it has passed."""
import dataclasses
import re

import yaml

UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
QUEUE_S = 0.05  # as a cheap switch has
MOST_QUEUE = 16 << 20
NAME = re.compile(r"^[a-z0-9-]{1,11}$")
TAKEN = ("campus", "switch")  # the coordinator's namespace, the bridges' namespace


class Bad(Exception):
    """What is wrong with what a person gave; the text says what to do next."""


@dataclasses.dataclass(frozen=True)
class Line:
    """To what it hangs at; bits per second each way, None: as fast as the kernel goes."""

    name: str
    parent: str
    up: float = None
    down: float = None
    latency_ms: float = 0


@dataclasses.dataclass(frozen=True)
class Lines:
    root: str
    switches: list  # of Line, parents first; the root is not among them
    nodes: list  # of Line, in the file's order

    def node(self, name):
        return next(one for one in self.nodes if one.name == name)

    def way_up(self, name):
        """Names of the switches from the node to the root."""
        parents, at, found = {one.name: one.parent for one in self.switches}, self.node(name).parent, []
        while at:
            found.append(at)
            at = parents.get(at)
        return found

    def path(self, source, destination):
        """[(line's name, "up" or "down", bits per second)] in the order in which bytes cross them; those without a
        rate are left out."""
        ups, downs = self.way_up(source), self.way_up(destination)
        shared = next(one for one in ups if one in downs)
        lines = {one.name: one for one in self.switches + self.nodes}
        going_up = [source] + ups[:ups.index(shared)]
        going_down = list(reversed([destination] + downs[:downs.index(shared)]))
        found = [(name, "up", lines[name].up) for name in going_up]
        found += [(name, "down", lines[name].down) for name in going_down]
        return [one for one in found if one[2]]


def rate_bps(text):
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(kbit|mbit|gbit)", str(text))
    if not match:
        raise Bad(f"{text!r} is no rate; write a number with its unit: 100mbit, 2.5gbit")
    return float(match[1]) * UNITS[match[2]]


def _line(entry, parent):
    both = entry.get("rate")
    up, down = entry.get("up", both), entry.get("down", both)
    return Line(entry["name"], parent, up and rate_bps(up), down and rate_bps(down), entry.get("latency_ms", 0))


def parse(text):
    """Of a file that check-topology has passed."""
    declared = yaml.safe_load(text)
    links = [_line(entry, entry.get("parent")) for entry in declared["links"]]
    root = next(one.name for one in links if not one.parent)
    placed, switches = {root}, []
    waiting = [one for one in links if one.parent]
    while waiting:  # ends: there is no loop and no unknown parent
        switches += [one for one in waiting if one.parent in placed]
        placed = {root, *(one.name for one in switches)}
        waiting = [one for one in waiting if one.name not in placed]
    nodes = [_line(entry, entry["at"]) for entry in declared["nodes"]]
    for node in nodes:
        if not NAME.match(node.name) or node.name in TAKEN:
            raise Bad(f"node {node.name!r}: a bed names namespaces after nodes: one to eleven of a-z, 0-9 and -, not "
                      f"{' or '.join(TAKEN)}")
    return Lines(root, switches, nodes)


def count_nodes(lines, wanted):
    """How many of the file's nodes get daemons."""
    there = len(lines.nodes)
    if wanted is None:
        return there
    if not 1 <= wanted <= there:
        raise Bad(f"--nodes {wanted}, but the topology has {there} nodes: give 1 to {there}, or add nodes to the file")
    return wanted


def shaping(namespace, device, rate, shaper):
    """Commands that make a device's egress as slow as the line; a queue of QUEUE_S before it drops."""
    if not rate:
        return []
    bits = int(rate)
    queue = int(min(max(rate / 8 * QUEUE_S, 128 << 10), MOST_QUEUE))
    burst = int(max(32 << 10, rate / 8 / 400))  # what passes in 2.5 ms: timers are that coarse on a busy machine
    tc = ["tc", "-n", namespace]
    if shaper == "tbf":
        burst = max(burst, 64 << 10)  # a segment that is yet to be cut up is as long
        return [tc + ["qdisc", "add", "dev", device, "root", "handle", "1:", "tbf", "rate", f"{bits}bit", "burst",
                      str(burst), "limit", str(queue)]]
    return [
        tc + ["qdisc", "add", "dev", device, "root", "handle", "1:", "htb", "default", "10"],
        tc + ["class", "add", "dev", device, "parent", "1:", "classid", "1:10", "htb", "rate", f"{bits}bit", "burst",
              str(burst), "cburst", str(burst), "quantum", "60000"],
        tc + ["qdisc", "add", "dev", device, "parent", "1:10", "handle", "10:", "bfifo", "limit", str(queue)]]


def commands(lines, run, shaper):
    """What makes the tree of bridges out of the one switch that scripts/labs.sh made, and slows its lines. Bridge br0
    is the root; `s3` is the third switch's bridge, `u3` its end of the line to its parent, `d3` the parent's end."""
    namespace = f"rn-{run}-switch"
    ip = ["ip", "-n", namespace]
    bridge = {lines.root: "br0"}
    found = []
    for number, one in enumerate(lines.switches, 1):
        bridge[one.name] = f"s{number}"
        up, down = f"u{number}", f"d{number}"
        found += [ip + ["link", "add", f"s{number}", "type", "bridge", "forward_delay", "0", "mcast_snooping", "0"],
                  ip + ["link", "add", up, "type", "veth", "peer", "name", down],
                  ip + ["link", "set", up, "master", f"s{number}", "up"],
                  ip + ["link", "set", down, "master", bridge[one.parent], "up"],
                  ip + ["link", "set", f"s{number}", "up"]]
        found += shaping(namespace, up, one.up, shaper) + shaping(namespace, down, one.down, shaper)
    for node in lines.nodes:
        found.append(ip + ["link", "set", f"p-{node.name}", "master", bridge[node.parent]])
        found += shaping(f"rn-{run}-{node.name}", "eth0", node.up, shaper)
        found += shaping(namespace, f"p-{node.name}", node.down, shaper)
    return found
