#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Members of a gang reach each other's programs, and nothing else, by PID 1 and their agents: the warden's network of a
member, the real PID 1 and the real links.

    tests/system/gang_links_test.py GANG_PAIR       root"""
import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
from members import CAN, Gang  # noqa: E402

PAIR = ""
STAYS = "time.sleep(60)\n"


class Links(unittest.TestCase):
    def run_gang(self, *scripts):
        with Gang(PAIR, scripts) as gang:
            ends = gang.ends()
        for rank, (code, log) in enumerate(ends):
            self.assertEqual(code, 0, f"rank {rank}: {log}")
        return [log for _, log in ends]

    def test_bytes_pass_both_ways_and_each_sees_who_the_other_is(self):
        self.run_gang("""
with socket.create_server(("0.0.0.0", 29500)) as server:
    one, peer = server.accept()
    assert peer[0] == member(1), peer
    got = read_all(one)
    assert got == bytes(range(256)) * 40_000, len(got)
    one.sendall(got[::-1])
    one.close()
""", """
with socket.create_connection((member(0), 29500)) as end:
    assert end.getsockname()[0] == member(1), end.getsockname()
    assert end.getpeername() == (member(0), 29500), end.getpeername()
    end.sendall(bytes(range(256)) * 40_000)
    end.shutdown(socket.SHUT_WR)
    assert read_all(end) == (bytes(range(256)) * 40_000)[::-1], "the other direction goes on after the end of one"
""")

    def test_many_at_once_and_each_of_three_reaches_each(self):
        script = """
rank = {rank}

def echo(one):
    one.sendall(read_all(one))
    one.close()

def serve(server):
    while True:
        threading.Thread(target=echo, args=(server.accept()[0],), daemon=True).start()

server = socket.create_server((member(rank), 29500), backlog=64)
threading.Thread(target=serve, args=(server,), daemon=True).start()
ends = [socket.create_connection((member(other), 29500)) for other in range(3) if other != rank for _ in range(8)]
for number, end in enumerate(ends):
    end.sendall(str(number).encode() * 1000)
    end.shutdown(socket.SHUT_WR)
for number, end in enumerate(ends):
    assert read_all(end) == str(number).encode() * 1000, number
time.sleep(3)
"""
        self.run_gang(*(script.format(rank=rank) for rank in range(3)))

    def test_the_end_of_a_direction_comes_after_any_number_of_packets(self):
        self.run_gang("""
with socket.create_server(("0.0.0.0", 29500), backlog=64) as server:
    for turn in range(60):
        one, _ = server.accept()
        one.settimeout(10)
        got = read_all(one)
        one.sendall(str(len(got)).encode())
        one.close()
""", """
for turn in range(60):
    with socket.create_connection((member(0), 29500), timeout=10) as end:
        size = turn % 20 * 60_000
        end.sendall(bytes(size))
        end.shutdown(socket.SHUT_WR)
        assert read_all(end) == str(size).encode(), (turn, size)
""")

    def test_a_program_that_does_not_listen_yet_is_waited_for_and_one_that_never_does_is_a_break(self):
        self.run_gang("""
time.sleep(2)
with socket.create_server(("0.0.0.0", 29500)) as server:
    server.accept()[0].sendall(b"late")
time.sleep(14)
""", """
with socket.create_connection((member(0), 29500)) as end:
    assert end.recv(4) == b"late"
with socket.create_connection((member(0), 29501)) as end:
    end.settimeout(30)
    assert is_reset(end), "nobody ever listens there"
""")

    def test_when_the_other_program_breaks_it_off_that_is_a_break_here(self):
        self.run_gang("""
with socket.create_server(("0.0.0.0", 29500)) as server:
    one, _ = server.accept()
    one.recv(1)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    one.close()
time.sleep(1)
""", """
with socket.create_connection((member(0), 29500)) as end:
    end.sendall(b"x")
    assert is_reset(end)
""")

    def test_a_hostile_member_reaches_nothing_but_the_others_programs(self):
        self.run_gang("""
private = socket.create_server(("127.0.0.1", 5000))  # of its own loopback alone
private.settimeout(16)
with socket.create_server(("0.0.0.0", 29500)) as server:
    assert server.accept()[1][0] == member(1)
try:
    private.accept()
    sys.exit("somebody has come to 127.0.0.1")
except TimeoutError:
    pass
""", """
def reaches(address, port):
    with socket.socket() as end:
        end.settimeout(30)
        try:
            end.connect((address, port))
            end.sendall(b"x")
            return not is_reset(end)
        except OSError:
            return False

assert not reaches(member(0), 5000), "what listens on 127.0.0.1 alone is nobody's"
for address in (member(7), member(31), "100.68.0.0", "100.68.0.200", "100.68.0.255"):
    assert not reaches(address, 29500), f"{address} is no member"
assert not reaches("127.0.0.1", 745), "only what was redirected is taken there"
for address in ("100.69.0.1", "100.64.0.1", "10.0.0.1", "8.8.8.8", "169.254.1.1"):
    assert not reaches(address, 7445), f"{address} is not reached"
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
    own.bind(("0.0.0.0", 29500))  # the whole range is local: it would come here
    own.settimeout(2)
    try:
        probe.sendto(b"hostile", (member(0), 29500))
    except OSError:
        pass
    try:
        own.recv(10)
        sys.exit("UDP has come to somebody")
    except TimeoutError:
        pass
with socket.create_connection((member(0), 29500)):
    pass
""")

    def test_a_guest_that_plays_the_agent_reaches_its_own_programs_alone(self):
        self.run_gang("""
def dial():
    end = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    end.settimeout(20)
    end.connect("/reclaim/tunnel.sock")
    return end

server = socket.create_server((member(0), 6000))
end = dial()
end.send(b"\\x0b" + struct.pack(">H", 6000) + b"\\x01")
assert end.recv(100) == b"\\x02"
assert server.accept()[1][0] == member(1), "it may be fooled by itself"
for packet in (b"\\x0b" + struct.pack(">H", 6000) + b"\\x20", b"\\x0b" + struct.pack(">H", 0) + b"\\x01",
               b"\\x0b" + struct.pack(">H", 6000) + b"\\x00", b"\\x0b", b"\\x0a\\x01\\x17\\x70"):
    end = dial()
    end.send(packet)
    assert end.recv(100) == b"", packet
waiting = []
for _ in range(200):
    try:
        waiting.append(dial())
        waiting[-1].send(b"\\x09")
    except OSError:
        pass
time.sleep(0.5)
with socket.create_connection((member(0), 6000)) as own:
    assert server.accept()[1][0] == member(0), "the own address needs nobody"
""", STAYS.replace("60", "1"))


if __name__ == "__main__":
    if os.geteuid() != 0 or CAN.returncode != 0:
        print("needs root and a kernel with nftables, redirection and veth:", CAN.stderr.decode())
        sys.exit(77)
    PAIR = os.path.abspath(sys.argv.pop(1))
    unittest.main()
