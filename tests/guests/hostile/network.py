# SPDX-License-Identifier: Apache-2.0
"""Tries to reach what a guest must not reach. TARGETS=HOST:PORT,… are listeners that the test has opened (the host,
another laboratory, the coordinator; IPv6 in brackets); ALLOWED=HOST:PORT is a UDP echo that must answer, so that a
guest without any network does not pass for a well-guarded one."""
import concurrent.futures
import os
import socket

from verdict import finish, verdict

TIMEOUT_S = 0.7


def split(target):
    host, port = target.rsplit(":", 1)
    return host.strip("[]"), int(port)


def family(host):
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def is_our_own(host):
    """An address of the guest's itself, where it meets nobody: what is sent there comes from there."""
    with socket.socket(family(host), socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, 9))
            return probe.getsockname()[0] == host
        except OSError:
            return False


def reaches_tcp(target):
    """An answer of any kind counts: a refused connection has met the other side's kernel."""
    host, port = split(target)
    if is_our_own(host):
        return False
    with socket.socket(family(host), socket.SOCK_STREAM) as probe:
        probe.settimeout(TIMEOUT_S)
        try:
            probe.connect((host, port))
            return True
        except ConnectionRefusedError:
            return True
        except OSError:
            return False


def answers_udp(target):
    """As with TCP, "port unreachable" is an answer: only a connected socket is told of it."""
    host, port = split(target)
    if is_our_own(host):
        return False
    with socket.socket(family(host), socket.SOCK_DGRAM) as probe:
        probe.settimeout(TIMEOUT_S)
        for _ in range(3):
            try:
                probe.connect((host, port))
                probe.send(b"hostile")
                probe.recv(100)
                return True
            except ConnectionRefusedError:
                return True
            except OSError:
                continue
    return False


def answers_all_nodes(interface):
    """A multicast's answers come from other addresses than it went to, so this socket is not connected."""
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
        probe.settimeout(TIMEOUT_S)
        try:
            probe.sendto(b"hostile", ("ff02::1", 7, 0, socket.if_nametoindex(interface)))
            probe.recvfrom(100)
            return True
        except OSError:
            return False


def gateways():
    found = []
    with open("/proc/net/route") as file:
        for line in file.readlines()[1:]:
            fields = line.split()
            if fields[2] != "00000000":
                found.append(socket.inet_ntoa(bytes.fromhex(fields[2])[::-1]))
    return found


def interfaces():
    return [name for _, name in socket.if_nameindex() if name != "lo"]


def answers_broadcast():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        probe.settimeout(TIMEOUT_S)
        try:
            probe.sendto(b"hostile", ("255.255.255.255", 7))
            probe.recvfrom(100)
            return True
        except OSError:
            return False


def attacks():
    """(what is tried, the function that answers whether it got through, its argument)."""
    for target in filter(None, os.environ.get("TARGETS", "").split(",")):
        yield f"tcp {target}", reaches_tcp, target
        yield f"udp {target}", answers_udp, target
    for gateway in gateways():
        for port in (22, 53, 80, 443, 7443, 7444, 7445):
            yield f"gateway {gateway}:{port}", reaches_tcp, f"{gateway}:{port}"
    for target in ("169.254.169.254:80", "169.254.1.1:80"):
        yield f"link-local {target}", reaches_tcp, target
    for name in interfaces():
        yield f"all nodes of {name}", answers_all_nodes, name
        yield f"router of {name}", reaches_tcp, f"[fe80::1%{name}]:80"
    yield "broadcast", answers_broadcast


def main():
    # Side by side: each waits for an answer that must not come.
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        for name, result in [(name, pool.submit(attack, *what)) for name, attack, *what in attacks()]:
            verdict(name, result.result())
    allowed = os.environ.get("ALLOWED")
    if allowed:
        print(f"network: allowed peer answers: {'yes' if answers_udp(allowed) else 'NO'}", flush=True)
    finish()


if __name__ == "__main__":
    main()
