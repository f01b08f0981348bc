#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What links between members of a gang carry, beside plain TCP over the loopback.

    bench/gang_link.py GANG_PAIR [--rounds 5] [--megabytes 512] [--links 1,4,16]

Two guests with the warden's network of a member and the real PID 1, and the links of two agents in one process
(tests/system/gang_pair.cc), over TLS on loopback: no wire bounds them, so it is the processor's time that is measured.
In each round rank 1 sends so many bytes over so many connections at once to rank 0, which drops them and answers one
byte when it has all. The clock runs in rank 1. `cores` is the processor's time of both agents together by the clock's
time; the first processes are not in it. A line of 1 Gbit/s is 119 MiB/s. Small messages: round trips of one byte.
Root; RN_BUILD (build/dev)."""
import argparse
import os
import pathlib
import statistics
import sys

os.environ.setdefault("RN_BUILD", "build/dev")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "system" / "lib"))
from members import CAN, Gang  # noqa: E402

PORT = 29500
TRIPS = 2000
SINK = """
def sink(one):
    left = struct.unpack(">Q", one.recv(8, socket.MSG_WAITALL))[0]
    piece = bytearray(1 << 20)
    while left > 0:
        left -= one.recv_into(piece, min(left, len(piece)))
    one.sendall(b".")
    while one.recv(1):
        one.sendall(b".")
    one.close()

def serve(server):
    while True:
        one = server.accept()[0]
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=sink, args=(one,), daemon=True).start()
"""
# HOST, BYTES of each, CONNECTIONS
SOURCE = """
def send(end, size):
    piece = bytes(1 << 20)
    end.sendall(struct.pack(">Q", size))
    left = size
    while left > 0:
        left -= end.send(piece[:left])
    assert end.recv(1) == b"."

def measure(host, port, size, number):
    ends = [socket.create_connection((host, port)) for _ in range(number)]
    threads = [threading.Thread(target=send, args=(end, size // number)) for end in ends]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.monotonic() - began
    for end in ends:
        end.close()
    return took

def round_trip(host, port, trips):
    with socket.create_connection((host, port)) as end:
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        end.sendall(struct.pack(">Q", 0))
        assert end.recv(1) == b"."
        began = time.monotonic()
        for _ in range(trips):
            end.sendall(b"x")
            assert end.recv(1) == b"."
        return (time.monotonic() - began) / trips
"""


def one_gang(pair, size, number, rounds):
    """Seconds of each round, seconds of a round trip, and cores that the agents used."""
    zero = SINK + f"""
server = socket.create_server(("0.0.0.0", {PORT}), backlog=64)
threading.Thread(target=serve, args=(server,), daemon=True).start()
with socket.create_server((member(0), {PORT + 1})) as last:
    read_all(last.accept()[0])
"""
    one = SOURCE + f"""
last = socket.create_connection((member(0), {PORT + 1}))
began = time.monotonic()
print(*(measure(member(0), {PORT}, {size}, {number}) for _ in range({rounds})))
print(round_trip(member(0), {PORT}, {TRIPS}))
print(time.monotonic() - began)
"""
    with Gang(pair, [zero, one]) as gang:
        said = gang.ends(limit_s=1800)[1][1].split("\n")
        agents = gang.stop_agents()
    if len(said) < 3:
        sys.exit(f"rank 1 did not get that far: {said}")
    return [float(took) for took in said[0].split()], float(said[1]), agents["cpu_s"] / float(said[2])


def plain(size, number, rounds):
    """The same programs over the loopback, with nothing of ours between."""
    import socket, struct, threading, time  # noqa: E401, for what follows
    names = {"socket": socket, "struct": struct, "threading": threading, "time": time}
    exec(SINK + SOURCE, names)
    server = socket.create_server(("127.0.0.1", 0), backlog=64)
    threading.Thread(target=names["serve"], args=(server,), daemon=True).start()
    port = server.getsockname()[1]
    return ([names["measure"]("127.0.0.1", port, size, number) for _ in range(rounds)],
            names["round_trip"]("127.0.0.1", port, TRIPS))


def main():
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("pair", metavar="GANG_PAIR")
    flags.add_argument("--rounds", type=int, default=5)
    flags.add_argument("--megabytes", type=int, default=512)
    flags.add_argument("--links", default="1,4,16")
    given = flags.parse_args()
    if os.geteuid() != 0 or CAN.returncode != 0:
        sys.exit("needs root and a kernel with nftables, redirection and veth; see reclaim-warden doctor")
    size = given.megabytes << 20
    print("connections  links MiB/s (median, worst)  TCP MiB/s  agents' cores  round trip us: links  TCP")
    for number in (int(text) for text in given.links.split(",")):
        took, trip, cores = one_gang(os.path.abspath(given.pair), size, number, given.rounds)
        bare, bare_trip = plain(size, number, given.rounds)
        rate = given.megabytes / statistics.median(took)
        print(f"{number:11}  {rate:11.0f} {given.megabytes / max(took):15.0f}  "
              f"{given.megabytes / statistics.median(bare):9.0f}  {cores:13.2f}  "
              f"{trip * 1e6:20.0f}  {bare_trip * 1e6:3.0f}", flush=True)


if __name__ == "__main__":
    main()
