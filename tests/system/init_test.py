# SPDX-License-Identifier: Apache-2.0
"""reclaim-init tells an own end from a vanished container, whatever the guest does to its disk, and passes the warden's
word on to a guest that is told by a hook or the API.

Runs it in mount and PID namespaces of its own, its root a small scratch tmpfs."""

import os
import shutil
import subprocess
import tempfile
import unittest

INIT = os.path.join(os.environ.get("RN_BUILD", "build/ci"), "apps/reclaim-init/reclaim-init")
# ROOT INIT INODES GUEST COMMAND [OPTION…]
SETUP = """set -e
mount -t tmpfs -o "size=4m,nr_inodes=$3" none "$1"
cd "$1"
mkdir usr reclaim dev
mount --rbind -o ro /usr usr
mount -o remount,bind,ro usr
for i in bin lib lib64; do ln -s usr/$i $i; done
touch dev/null
mount --bind /dev/null dev/null
cp "$2" init
cp "$4" guest.py
printf t > reclaim/go
root=$1 command=$5 rc=0
shift 5
unshare --pid --fork chroot "$root" /init "$@" 20000 5 t /bin/sh -c "$command" || rc=$?
echo "rc $rc"
[ ! -f reclaim/exit ] || echo "exit $(cat reclaim/exit)"
[ ! -f reclaim/hook ] || echo "hook $(cat reclaim/hook)"
echo "told $(ls -d reclaim/told 2>/dev/null)"
cat reclaim/log
"""
# What the guests of the tests below have: the warden's part, and a client of the API.
GUEST = """
import http.client, json, os, socket, subprocess, sys, time

def tell(deadline="", grace="", reason="a save is due"):
    word = {"reason": reason, "told_unix": 5.5}
    if deadline:
        word.update(deadline_unix=deadline, grace_s=grace)
    parts = [json.dumps(word) + "\\n", f"RECLAIM_REASON={reason}", "RECLAIM_TOLD_UNIX=5.5",
             f"RECLAIM_DEADLINE_UNIX={deadline}", f"RECLAIM_GRACE_S={grace}"]
    with open("/reclaim/.new", "wb") as file:
        file.write("\\0".join(parts).encode())
    try:
        os.link("/reclaim/.new", "/reclaim/told")
        return True
    except FileExistsError:
        return False
    finally:
        os.unlink("/reclaim/.new")

def until(what, limit_s=10):
    end = time.monotonic() + limit_s
    while not what():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.02)

def is_told():
    return os.path.lexists("/reclaim/told")

def dial():
    end = socket.socket(socket.AF_UNIX)
    end.settimeout(10)
    end.connect("/reclaim/api.sock")
    return end

class Api(http.client.HTTPConnection):
    def __init__(self):
        super().__init__("localhost")

    def connect(self):
        self.sock = dial()

api = Api()

def ask(method, path, body=None, headers={}):
    api.request(method, path, body, headers)
    answer = api.getresponse()
    return answer.status, answer.read().decode()

def raw(text):
    end = dial()
    end.sendall(text)
    got = b""
    while piece := end.recv(4096):
        got += piece
    end.close()
    return got.decode()
"""
CAN = subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True)


@unittest.skipUnless(CAN.returncode == 0, "needs the right to make namespaces")
class Guest(unittest.TestCase):
    def run_init(self, command, *options, inodes=60, guest=""):
        with tempfile.TemporaryDirectory() as root, tempfile.NamedTemporaryFile("w", suffix=".py") as script:
            script.write(GUEST + guest)
            script.flush()
            done = subprocess.run(
                ["unshare", "--mount", "--propagation", "private", "sh", "-c", SETUP, "sh", root,
                 os.path.abspath(INIT), str(inodes), script.name, command, *options],
                capture_output=True, text=True, timeout=60, check=True,
                env={**os.environ, "MINE": "as the command's"})
        head, _, log = done.stdout.partition("told ")
        is_told, _, log = log.partition("\n")
        return head.split("\n")[:-1], is_told != "", log

    def run_python(self, script, *options):
        """A guest in Python, which plays the warden, too. It must end well; its lines of the log come last."""
        ends, is_told, log = self.run_init("exec python3 -I -u /guest.py", *options, inodes=1000, guest=script)
        self.assertIn("exit 0", ends, log)
        return ends, is_told, log.split("\n")[:-1]


class End(Guest):
    def end_of(self, command):
        return self.run_init(command)[0]

    def test_a_command_that_used_up_the_inodes_ended_by_itself(self):
        fill = "i=0; while : 2>/dev/null >/reclaim/f$i; do i=$((i+1)); [ $i -lt 99 ] || break; done;"
        self.assertEqual(self.end_of("(%s) 2>/dev/null; exit 255" % fill), ["rc 255", "exit 255"])

    def test_a_folder_in_the_place_of_the_code_hides_nothing(self):
        self.assertEqual(
            self.end_of("mkdir -p /reclaim/exit/full; exit 0"), ["rc 0", "exit 0"])

    def test_an_end_that_cannot_be_written_has_a_code_that_no_engine_makes_up(self):
        block = "rm /reclaim/.exit.new; mkdir -p /reclaim/.exit.new/full;"
        self.assertEqual(self.end_of(block + " exit 0"), ["rc 124"])
        self.assertEqual(self.end_of(block + " exit 7"), ["rc 7"])

    def test_a_pipe_in_the_place_of_the_code_keeps_nobody_waiting(self):
        self.assertEqual(self.end_of("rm /reclaim/.exit.new; mkfifo /reclaim/.exit.new; exit 7"), ["rc 7"])


class ToldByAHook(Guest):
    def test_it_runs_with_the_word_and_then_the_word_is_gone(self):
        hook = 'echo "$RECLAIM_REASON|$RECLAIM_TOLD_UNIX|$RECLAIM_DEADLINE_UNIX|$RECLAIM_GRACE_S|$MINE"; read x'
        ends, is_told, log = self.run_python(
            "tell(); until(lambda: not is_told()); print('after')", "--tell-hook", hook + " || echo eof")
        self.assertEqual(log, ["a save is due|5.5|||as the command's", "eof", "after"])
        self.assertEqual(ends[-1], "hook 1 0")
        self.assertFalse(is_told)

    def test_while_it_runs_the_guest_is_told_and_a_notice_starts_it_anew_with_its_deadline(self):
        script = """
assert tell()
until(lambda: os.path.exists("/reclaim/runs"))
assert not tell("9.5", "30", "an exam"), "it runs"
open("/reclaim/may-end", "w").close()
until(lambda: tell("9.5", "30", "an exam"))
until(lambda: not is_told())
"""
        hook = 'echo "$RECLAIM_REASON $RECLAIM_DEADLINE_UNIX $RECLAIM_GRACE_S"; : >/reclaim/runs; ' \
            "until [ -e /reclaim/may-end ]; do sleep 0.05; done"
        ends, _, log = self.run_python(script, "--tell-hook", hook)
        self.assertEqual(log, ["a save is due  ", "an exam 9.5 30"])
        self.assertEqual(ends[-1], "hook 2 0")

    def test_how_it_ended_is_said(self):
        ends, _, log = self.run_python("tell(); until(lambda: not is_told())", "--tell-hook", "false; echo never")
        self.assertEqual((ends[-1], log), ("hook 1 1", ["[reclaimnet] the hook ended: exit code 1"]))

    def test_one_that_never_ends_is_ended_after_the_grace_with_all_its_group(self):
        script = """
tell("9.5", 1)
began = time.monotonic()
until(lambda: not is_told())
assert 0.9 < time.monotonic() - began < 5, "not its time"
time.sleep(0.3)
size = os.path.getsize("/reclaim/beats")
time.sleep(0.3)
assert os.path.getsize("/reclaim/beats") == size, "its child goes on"
"""
        ends, _, log = self.run_python(
            script, "--tell-hook", "trap '' TERM; (while :; do echo >>/reclaim/beats; sleep 0.05; done) & wait")
        self.assertEqual(
            (ends[-1], log), ("hook 1 late", ["[reclaimnet] the hook did not end in time: it was ended"]))

    def test_what_it_leaves_behind_keeps_neither_the_word_nor_the_guests_end(self):
        ends, is_told, _ = self.run_python(
            "tell(); until(lambda: not is_told())", "--tell-hook", "setsid sleep 100 & sleep 100 & exit 0")
        self.assertEqual(ends[-1], "hook 1 0")
        self.assertFalse(is_told)

    def test_the_command_ends_when_it_ends_whatever_the_hook_does(self):
        ends, _, _ = self.run_python(
            "tell(); until(lambda: os.path.exists('/reclaim/runs'))", "--tell-hook", ": >/reclaim/runs; sleep 100")
        self.assertEqual(ends, ["rc 0", "exit 0"])

    def test_what_a_guest_puts_in_the_words_place_is_no_word_and_holds_nothing_up(self):
        script = """
for make in (lambda: os.mkdir("/reclaim/told"), lambda: os.mkfifo("/reclaim/told"),
             lambda: os.symlink("/guest.py", "/reclaim/told"),
             lambda: open("/reclaim/told", "wb").write(b"x" * 9000), lambda: open("/reclaim/told", "wb").close()):
    make()
    time.sleep(0.2)
    assert is_told()
    os.rmdir("/reclaim/told") if os.path.isdir("/reclaim/told") else os.unlink("/reclaim/told")
for i in range(3000):
    os.rename("/reclaim/go", "/reclaim/gone"), os.rename("/reclaim/gone", "/reclaim/go")
tell()
until(lambda: not is_told())
"""
        ends, _, log = self.run_python(script, "--tell-hook", "echo ran")
        self.assertEqual((ends[-1], log), ("hook 1 0", ["ran"]))

    def test_one_who_tells_itself_all_the_time_has_a_run_a_second(self):
        ends, _, log = self.run_python(
            "end = time.monotonic() + 2.5\nwhile time.monotonic() < end: tell(), time.sleep(0.01)",
            "--tell-hook", "echo ran")
        self.assertIn(len(log), (2, 3))


class ToldByTheApi(Guest):
    def api(self, script):
        _, is_told, log = self.run_python(script, "--tell-api")
        return is_told, log

    def test_it_tells_until_the_guest_says_that_it_has_saved(self):
        is_told, log = self.api("""
print(*ask("GET", "/v1/notice"))
assert tell() and not tell("9.5", 30)
print(*ask("GET", "/v1/notice"), end="")
print(*ask("GET", "/v1/notice?wait=60"), end="")
print(*ask("POST", "/v1/saved", "thanks"))
print(*ask("GET", "/v1/notice?wait=0"))
assert tell("9.5", 30, "an exam")
print(*ask("GET", "/v1/notice"), end="")
print(*ask("POST", "/v1/saved"))
print(*ask("POST", "/v1/saved"))
""")
        due = '200 {"reason": "a save is due", "told_unix": 5.5}'
        self.assertEqual(log, [
            "204 ", due, due, "204 ", "204 ",
            '200 {"reason": "an exam", "told_unix": 5.5, "deadline_unix": "9.5", "grace_s": 30}', "204 ", "204 "])
        self.assertFalse(is_told)

    def test_who_waits_is_answered_when_the_word_comes_or_its_time_is_over(self):
        self.api("""
import threading
began = time.monotonic()
assert ask("GET", "/v1/notice?wait=1") == (204, "")
assert 0.9 < time.monotonic() - began < 3
threading.Timer(0.3, tell).start()
began = time.monotonic()
assert ask("GET", "/v1/notice?wait=30")[0] == 200
assert 0.2 < time.monotonic() - began < 3
""")

    @unittest.skipUnless(shutil.which("curl"), "needs curl")
    def test_curl_can_ask(self):
        _, log = self.api("""
tell()
curl = ["curl", "--silent", "--show-error", "--unix-socket", "/reclaim/api.sock"]
subprocess.run([*curl, "http://localhost/v1/notice"], check=True)
subprocess.run([*curl, "--fail", "-X", "POST", "http://localhost/v1/saved"], check=True)
assert not is_told()
""")
        self.assertEqual(log, ['{"reason": "a save is due", "told_unix": 5.5}'])

    def test_bad_requests_are_told_what_to_do(self):
        _, log = self.api("""
for method, path in (("GET", "/"), ("GET", "/v1/notice/"), ("PUT", "/v1/notice"), ("GET", "/v1/saved"),
                     ("HEAD", "/v1/notice"), ("GET", "/v1/notice?wait=61"), ("GET", "/v1/notice?wait="),
                     ("GET", "/v1/notice?wait=-1"), ("GET", "/v1/notice?x=1"), ("POST", "/v1/saved?x")):
    status, words = ask(method, path)
    print(status, method, path)
    assert method == "HEAD" or words.count("\\n") == 1 and len(words) > 20, words
print(ask("POST", "/v1/saved", "x" * 5000)[0])
print(ask("GET", "/v1/notice", headers={"Long": "x" * 5000})[0])
print(ask("POST", "/v1/saved", headers={"Content-Length": "many"})[0])
for text in (b"rubbish\\r\\n\\r\\n", b"GET /v1/notice\\r\\n\\r\\n", b"\\0" * 100 + b"\\n\\n", b"\\n\\n", b" \\n\\n"):
    print(raw(text).split("\\r")[0])
print(raw(b"x" * 4096).split("\\r")[0])
print(raw(b"GET /v1/notice HTTP/1.0\\n\\n").split("\\r")[0])
""")
        self.assertEqual(log, [
            "404 GET /", "404 GET /v1/notice/", "405 PUT /v1/notice", "405 GET /v1/saved", "405 HEAD /v1/notice",
            "400 GET /v1/notice?wait=61", "400 GET /v1/notice?wait=", "400 GET /v1/notice?wait=-1",
            "400 GET /v1/notice?x=1", "400 POST /v1/saved?x", "413", "413", "400",
            *["HTTP/1.1 400 Bad Request"] * 5, "HTTP/1.1 413 Content Too Large", "HTTP/1.1 204 No Content"])

    def test_a_request_that_comes_slowly_is_no_trouble_and_one_that_never_ends_is_ended(self):
        _, log = self.api("""
end = dial()
for byte in b"GET /v1/notice HTTP/1.1\\r\\n\\r\\n":
    end.send(bytes([byte]))
    time.sleep(0.01)
print(end.recv(1000).decode().split("\\r")[0])
end = dial()
end.send(b"GET /v1/no")
began = time.monotonic()
print(end.recv(1000).decode().split("\\r")[0], 4 < time.monotonic() - began < 8)
""")
        self.assertEqual(log, ["HTTP/1.1 204 No Content", "HTTP/1.1 400 Bad Request True"])

    def test_a_ninth_connection_is_refused_and_there_is_room_again_afterwards(self):
        self.api("""
open_ones = [dial() for _ in range(8)]
time.sleep(0.3)
assert " 503 " in raw(b""), "a ninth"
for end in open_ones:
    end.close()
def is_answered():
    try:
        return ask("GET", "/v1/notice")[0] == 204
    except (OSError, http.client.HTTPException):
        api.close()

until(is_answered)
""")

    def test_floods_change_nothing_for_the_guests_end(self):
        _, log = self.api("""
children = []
for _ in range(20):
    if os.fork() == 0:
        while True:
            try:
                end = dial()
                end.send(os.urandom(3000))
                end.close()
            except OSError:
                pass
time.sleep(2)
print("before its end")
""")
        self.assertEqual(log[-1], "before its end")

    def test_a_guest_that_takes_the_socket_away_harms_itself_alone(self):
        self.api("""
os.unlink("/reclaim/api.sock")
os.mkdir("/reclaim/api.sock")
tell()
time.sleep(0.3)
assert is_told()
""")


TUNNELS = """
import struct, threading
OPEN, OPENED, REFUSED, DATA, CREDIT, END, RESET = (bytes([kind]) for kind in range(1, 8))

def dial_tunnel():
    end = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    end.settimeout(10)
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
end.settimeout(0.5)
try:
    while True:
        size = len(end.recv(20000)) - 1
        got, owed = got + size, owed + size + 1024
except TimeoutError:
    pass
assert 200_000 < got and owed <= 262_144, (got, owed)
end.settimeout(10)
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

def slam(one):
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    one.close()

def watch(one):
    try:
        seen.append(one.recv(10))
    except ConnectionResetError:
        seen.append("reset")

assert opened(slam).recv(10) == b"", "it ends without the word that says so"
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


if __name__ == "__main__":
    unittest.main()
