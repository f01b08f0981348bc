#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PID 1's end of its user's tunnels: ports of the guest, commands that run beside its own, and copies of files. The
guest plays the node's agent, too; how it is made is in init_test.py."""
import unittest

from init_test import Guest

TUNNELS = """
import struct, threading
OPEN, OPENED, REFUSED, DATA, CREDIT, END, RESET = (bytes([kind]) for kind in range(1, 8))

def dial_tunnel():
    end = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    end.settimeout(40)
    end.connect("/reclaim/tunnel.sock")
    return end

def tunnel(port):
    end = dial_tunnel()
    end.send(OPEN + struct.pack(">H", port))
    return end

def opened(each):
    end = tunnel(serve(each))
    assert end.recv(20000) == OPENED
    return end

def serve(each):
    listener = socket.create_server(("127.0.0.1", 0))

    def run():
        while True:
            each(listener.accept()[0])

    threading.Thread(target=run, daemon=True).start()
    return listener.getsockname()[1]
"""


class Tunnels(Guest):
    """The guest plays the node's agent, too."""

    def guest(self, script):
        self.run_python(TUNNELS + script)

    def test_both_directions_end_one_after_the_other(self):
        self.guest("""
def backwards(one):
    got = b""
    while piece := one.recv(1000):
        got += piece
    one.sendall(got[::-1])
    one.close()

end = opened(backwards)
end.send(DATA + b"abc")
end.send(END)
assert end.recv(20000) == DATA + b"cba"
assert end.recv(20000) == END
assert end.recv(20000) == b"", "it is closed when both have ended"
""")

    def test_no_more_is_under_way_than_there_is_credit_for(self):
        self.guest("""
def pour(one):
    one.sendall(b"x" * (1 << 20))
    one.close()

end = opened(pour)
got = owed = 0

def more():
    try:
        return len(end.recv(20000)) - 1
    except TimeoutError:
        return 0

def is_still():
    global got, owed
    while size := more():
        got, owed = got + size, owed + size + 1024
    return got > 200_000  # before that it is the machine that stands still

end.settimeout(0.5)
until(is_still)
assert owed <= 262_144, (got, owed)
end.settimeout(40)
while (owed and end.send(CREDIT + struct.pack(">I", owed))) or True:
    packet = end.recv(20000)
    if packet == END:
        break
    got, owed = got + len(packet) - 1, len(packet) - 1 + 1024
assert got == 1 << 20, got
""")

    def test_a_port_where_nobody_listens_is_refused_with_words(self):
        self.guest("""
with socket.create_server(("127.0.0.1", 0)) as listener:
    port = listener.getsockname()[1]
end = tunnel(port)
assert end.recv(1000) == REFUSED + b"nothing listens there on 127.0.0.1"
assert end.recv(1000) == b""
""")

    def test_a_break_on_one_side_is_a_break_on_the_other(self):
        self.guest("""
seen = []

is_open = threading.Event()

def slam(one):
    is_open.wait(40)  # one that is slammed before anybody has looked was never open
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    one.close()

def watch(one):
    try:
        seen.append(one.recv(10))
    except ConnectionResetError:
        seen.append("reset")

end = opened(slam)
is_open.set()
assert end.recv(10) == b"", "it ends without the word that says so"
for last in (b"", RESET, DATA, OPEN + b"  ", CREDIT + b"    ", DATA + b"x" * 17000, b"?"):
    end = opened(watch)
    if last:
        end.send(last)
        assert end.recv(10) == b"", last
    end.close()
until(lambda: len(seen) == 7)
assert seen == ["reset"] * 7, seen
""")

    def test_who_asks_for_no_port_gets_none_and_a_thirty_third_waits_for_nobody(self):
        self.guest("""
for first in (b"?", OPEN, OPEN + b"123", DATA + b"x", END):
    end = dial_tunnel()
    end.send(first)
    assert end.recv(10) == b"", first
    end.close()
port = serve(lambda one: None)
open_ones = [tunnel(port) for _ in range(32)]
for end in open_ones:
    assert end.recv(10) == OPENED
assert tunnel(port).recv(100)[1:] == b"thirty-two connections into the guest are open already"
open_ones.pop().close()
until(lambda: tunnel(port).recv(100) == OPENED)
""")


VISITS = r"""
ENTER = b"\x08"
RUN, SEND, TAKE, INPUT, INPUT_END, SIZE, SIGNAL, ALIVE = range(1, 9)
OUTPUT, ERRORS, TAKEN, OVER, CANNOT = range(16, 21)
TERMINAL, WITH_INPUT = 1, 2

def frame(kind, body=b""):
    return DATA + bytes([kind]) + struct.pack(">H", len(body)) + body

def visit(*first):
    end = dial_tunnel()
    end.send(ENTER)
    assert end.recv(20000) == OPENED
    for packet in first:
        end.send(packet)
    return end

def run(*words, flags=0):
    body = bytes([flags]) + struct.pack(">HH", 24, 80)
    return frame(RUN, body + b"".join(word.encode() + b"\0" for word in ("dumb", *words)))

def shell(script, flags=0):
    return visit(run("/bin/sh", "-c", script, flags=flags))

def told(end):
    # Output, errors, and the body of the last frame. Credit is given back.
    said, stream = {kind: b"" for kind in (OUTPUT, ERRORS, TAKEN)}, b""
    while True:
        packet = end.recv(20000)
        assert packet[:1] in (DATA, CREDIT), packet
        if packet[:1] == CREDIT:
            continue
        stream += packet[1:]
        end.send(CREDIT + struct.pack(">I", len(packet) - 1 + 1024))
        while len(stream) >= 3 and len(stream) >= 3 + struct.unpack(">H", stream[1:3])[0]:
            size = struct.unpack(">H", stream[1:3])[0]
            kind, body, stream = stream[0], stream[3:3 + size], stream[3 + size:]
            if kind in (OVER, CANNOT):
                return said[OUTPUT], said[ERRORS], body
            said[kind] += body

def is_there(pid):
    try:
        os.kill(pid, 0)
        return True
    except ProcessLookupError:
        return False

def pid_in(path):
    until(lambda: os.path.exists(path) and open(path).read().endswith("\n"))
    return int(open(path).read())

def entry(kind, name, mode=0o644):
    return bytes([kind]) + struct.pack(">H", mode) + bytes([len(name)]) + name

def chunk(content):
    return struct.pack(">I", len(content)) + content

def copied_file(name, content):
    return entry(1, name) + (chunk(content) if content else b"") + chunk(b"")

UP, END_OF_COPY = b"\x03", b"\x05"

def taken_to(path, stream):
    end = visit(frame(TAKE, path.encode()))
    end.send(frame(INPUT, stream))
    end.send(frame(INPUT_END))
    return told(end)
"""


class Visits(Guest):
    """Whatever is run here, the guest's own end is 0, as run_python() looks."""

    def guest(self, script):
        self.run_python(TUNNELS + VISITS + script)

    def test_output_and_errors_stay_apart_and_the_code_is_its_own(self):
        self.guest(r"""
end = shell("echo out; echo err >&2; exit 7")
assert told(end) == (b"out\n", b"err\n", b"\x07")
assert end.recv(20000) == END
end.send(END)
assert end.recv(20000) == b"", "it is closed when both have ended"
assert told(shell("kill -9 $$"))[2] == bytes([137])
assert told(visit(run("no-such-command")))[2] == bytes([127])
assert told(shell('echo "$MINE"; pwd'))[0] == b"as the command's\n/\n"
""")

    def test_input_comes_to_its_end_and_output_of_any_size_comes_whole(self):
        self.guest(r"""
end = visit(run("cat", flags=WITH_INPUT))
for _ in range(3):
    end.send(frame(INPUT, b"x" * 9000))
end.send(frame(ALIVE))
end.send(frame(INPUT_END))
assert told(end) == (b"x" * 27000, b"", b"\0")
assert told(visit(run("cat")))[2] == b"\0", "without input there is none"
out, _, code = told(visit(run("python3", "-Ic", "print('y' * 2_000_000)")))
assert (len(out), code) == (2_000_001, b"\0")
""")

    def test_a_signal_comes_to_it_whatever_input_it_does_not_read(self):
        self.guest(r"""
end = shell("echo ready; exec sleep 60", flags=WITH_INPUT)
assert b"ready" in end.recv(20000)
for _ in range(2):
    end.send(frame(INPUT, b"x" * 16000))
end.send(frame(SIGNAL, b"\x02"))
assert told(end)[2] == bytes([130])
""")

    def test_when_its_user_is_gone_it_is_ended_and_what_ignores_that_is_killed(self):
        self.guest(r"""
for script in ("trap 'echo heard > /heard; exit' HUP; ", "trap '' HUP; "):
    end = shell(script + "echo $$ > /pid; while :; do sleep 0.1; done")
    pid = pid_in("/pid")
    os.unlink("/pid")
    began = time.monotonic()
    end.close()
    until(lambda: not is_there(pid))
assert os.path.exists("/heard")
assert time.monotonic() - began > 3, "SIGKILL comes five seconds later"
""")

    def test_what_it_leaves_behind_does_not_hold_its_end(self):
        self.guest(r"""
began = time.monotonic()
assert told(shell("sleep 60 & echo done"))[::2] == (b"done\n", b"\0")
assert time.monotonic() - began < 50
""")

    def test_it_may_have_a_terminal_of_the_users_size(self):
        self.guest(r"""
if os.path.exists("/dev/ptmx"):
    out, errors, code = told(shell("test -t 0 && test -t 1 && stty size && echo $TERM", flags=TERMINAL | WITH_INPUT))
    assert out.split() == [b"24", b"80", b"dumb"] and errors == b"" and code == b"\0", (out, errors, code)
    end = shell("read line; stty size; kill -INT $$", flags=TERMINAL | WITH_INPUT)
    end.send(frame(SIZE, struct.pack(">HH", 50, 132)))
    end.send(frame(INPUT, b"go\r"))
    out, _, code = told(end)
    assert b"50 132" in out and code == bytes([130]), (out, code)
    # NOTE(dash): a Ctrl-C in the middle of its vfork() is lost; here it only becomes the command.
    end = shell("echo ready; exec sleep 60", flags=TERMINAL | WITH_INPUT)
    assert b"ready" in end.recv(20000)
    end.send(frame(INPUT, b"\x03"))
    assert told(end)[2] == bytes([130]), "Ctrl-C is a key"
else:
    assert told(shell("true", flags=TERMINAL))[2].startswith(b"it cannot begin in the guest")
""")

    def test_no_more_than_eight_run_at_a_time_and_there_is_room_again(self):
        self.guest(r"""
open_ones = [shell("exec sleep 60") for _ in range(8)]
end = dial_tunnel()
end.send(ENTER)
assert end.recv(1000)[:1] == REFUSED
open_ones.pop().close()

def has_room():
    end = dial_tunnel()
    end.send(ENTER)
    is_free = end.recv(1000) == OPENED
    end.close()
    return is_free

until(has_room)
""")

    def test_what_keeps_to_no_rule_is_broken_off(self):
        self.guest(r"""
for first in (frame(INPUT, b"x"), frame(RUN), frame(RUN, b"\0" * 6), frame(SEND), frame(TAKE, b"a\0b"),
              DATA + b"\x01\xff\xff", frame(99), ENTER, OPEN + b"12", CREDIT + b"xxxx", END, RESET):
    end = visit(first)
    assert end.recv(20000) == b"", first
    end.close()
for later in (frame(INPUT, b"x"), frame(SIGNAL, b"\x09"), frame(SIGNAL), frame(SIZE, b"x"), frame(RUN, b"x"),
              frame(INPUT_END)):
    end = shell("exec sleep 60")
    end.send(later)
    assert end.recv(20000) == b"", later
    end.close()
""")

    def test_files_go_in_and_come_out_as_they_are(self):
        self.guest(r"""
os.mkdir("/to")
sub = entry(2, b"sub", 0o755) + copied_file(b"e", b"") + UP
folder = entry(2, b"out", 0o755) + copied_file(b"a", b"abc") + sub + UP
assert taken_to("/to", folder + END_OF_COPY) == (b"", b"", b"\0")
assert open("/to/out/a").read() == "abc" and os.listdir("/to/out/sub") == ["e"]
assert taken_to("/to/new.txt", copied_file(b"x", b"1") + END_OF_COPY)[2] == b"\0"
assert open("/to/new.txt").read() == "1", "what is no folder is the name"
os.symlink("/etc/passwd", "/to/out/link")
os.mkfifo("/to/out/pipe")
stream, errors, code = told(visit(frame(SEND, b"/to/out")))
assert (errors, code) == (b"", b"\0")
assert stream.startswith(entry(2, b"out", 0o755)) and stream.endswith(UP + END_OF_COPY)
for part in (copied_file(b"a", b"abc"), copied_file(b"e", b""), b"\x04\x04\x06linka link", b"\x04\x04\x06pipea pipe"):
    assert part in stream, part
assert told(visit(frame(SEND, b"/gone")))[1:] == (b"cannot read /gone: No such file or directory\n", b"\x03")
assert told(visit(frame(SEND, b"/to/out/pipe")))[2] == b"\x05"
""")

    def test_names_that_lead_elsewhere_and_halves_are_refused(self):
        self.guest(r"""
os.mkdir("/to")
os.symlink("/to", "/to/link")
for name in (b"..", b"/x", b"a/b", b""):
    out, errors, code = taken_to("/to", entry(2, b"out", 0o755) + copied_file(name, b"evil") + UP + END_OF_COPY)
    assert (errors, code) == (b"cannot take /to: a name in it is none\n", b"\x01"), (errors, code)
assert taken_to("/to", entry(2, b"link") + copied_file(b"x", b"1"))[2] != b"\0", "a link is not followed"
open("/to/old", "w").write("old")
for half in (entry(1, b"old") + chunk(b"new"), entry(1, b"old") + chunk(b"new") + b"\xff\xff\xff\xff" + END_OF_COPY):
    assert taken_to("/to", half)[2] == b"\x01"
assert open("/to/old").read() == "old"
assert sorted(os.listdir("/to")) == ["link", "old", "out"], "nothing of what was not whole"
""")


if __name__ == "__main__":
    unittest.main()
