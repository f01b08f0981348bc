# SPDX-License-Identifier: Apache-2.0
"""reclaim-init tells an own end from a vanished container, whatever the guest does to its disk, and passes the warden's
word on to a guest that is told by a hook or the API. And it is the commands of Slurm in a guest.

Runs it in mount and PID namespaces of its own, its root a small scratch tmpfs."""

import os
import re
import shutil
import subprocess
import tempfile
import unittest

INIT = os.path.join(os.environ.get("RN_BUILD", "build/ci"), "apps/reclaim-init/reclaim-init")
# ROOT INIT INODES GUEST COMMAND [OPTION…]
SETUP = """set -e
mount -t tmpfs -o "size=4m,nr_inodes=$3" none "$1"
cd "$1"
mkdir usr reclaim dev reclaim-slurm
for i in sacct sbatch scancel scontrol squeue srun; do ln -s /init reclaim-slurm/$i; done
mount --rbind -o ro /usr usr
mount -o remount,bind,ro usr
for i in bin lib lib64; do ln -s usr/$i $i; done
touch dev/null
mount --bind /dev/null dev/null
mkdir dev/pts
if mount -t devpts -o newinstance,ptmxmode=0666 none dev/pts 2>/dev/null; then ln -s pts/ptmx dev/ptmx; fi
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

def until(what, limit_s=40):
    end = time.monotonic() + limit_s
    while not what():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.02)

def is_told():
    return os.path.lexists("/reclaim/told")

def dial():
    end = socket.socket(socket.AF_UNIX)
    end.settimeout(40)
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
    def run_init(self, command, *options, inodes=60, guest="", before=()):
        with tempfile.TemporaryDirectory() as root, tempfile.NamedTemporaryFile("w", suffix=".py") as script:
            script.write(GUEST + guest)
            script.flush()
            done = subprocess.run(
                [*before, "unshare", "--mount", "--propagation", "private", "sh", "-c", SETUP, "sh", root,
                 os.path.abspath(INIT), str(inodes), script.name, command, *options],
                capture_output=True, text=True, timeout=110, check=True,
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
assert time.monotonic() - began > 0.9, "before its time"
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
        # One that is too long is moved there: while it is written it is short.
        script = """
open("/big", "wb").write(b"x" * 9000)
for make in (lambda: os.mkdir("/reclaim/told"), lambda: os.mkfifo("/reclaim/told"),
             lambda: os.symlink("/guest.py", "/reclaim/told"),
             lambda: os.rename("/big", "/reclaim/told"), lambda: open("/reclaim/told", "wb").close()):
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
        self.run_python("""
def has_run_thrice():
    tell()
    return os.path.exists("/reclaim/runs") and os.path.getsize("/reclaim/runs") >= 3

began = time.monotonic()
until(has_run_thrice)
assert time.monotonic() - began > 1.9, "three runs in less than two seconds"
""", "--tell-hook", "printf x >>/reclaim/runs")


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
assert time.monotonic() - began > 0.9
began = time.monotonic()
threading.Timer(0.3, tell).start()
assert ask("GET", "/v1/notice?wait=30")[0] == 200
assert time.monotonic() - began > 0.2
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
print(end.recv(1000).decode().split("\\r")[0], time.monotonic() - began > 4)
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


class MetadataOfAnInstance(Guest):
    """What code for AWS's spot instances asks."""

    SCRIPT = """
def get(path, method="GET"):
    end = http.client.HTTPConnection(os.environ["AWS_EC2_METADATA_SERVICE_ENDPOINT"][7:], timeout=10)
    end.request(method, "/latest/" + path)
    answer = end.getresponse()
    return answer.status, answer.read().decode()

def notice(text):
    with open("/reclaim/.new", "w") as file:
        file.write(text)
    os.rename("/reclaim/.new", "/reclaim/notice")

action = "meta-data/spot/instance-action"
assert get("api/token", "PUT")[0] == 200
assert get(action)[0] == get("meta-data/instance-id")[0] == get("v1/notice")[0] == 404
for nothing in ('{"reason":"x"}', '{"deadline_unix":-5}', '{"deadline_unix":1e300}', '{"deadline_unix":nan}', ""):
    notice(nothing)
    assert get(action)[0] == 404, nothing
"""
    TOLD = """
notice('{"deadline_unix":1700000000.5,"grace_s":9,"reason":"\\\\"deadline_unix\\\\":7","will_migrate":true}\\n')
assert json.loads(get(action)[1]) == {"action": "terminate", "time": "2023-11-14T22:13:20Z"}
assert get("meta-data/spot/termination-time") == (200, "2023-11-14T22:13:20Z")
assert get("meta-data/events/recommendations/rebalance")[0] == 200
"""

    def end_of(self, script):
        return self.end_in_own_network(script, "AWS_EC2_METADATA_SERVICE_ENDPOINT=http://127.0.0.1:1338")

    def test_it_is_told_of_the_notice_and_when_it_ends_then_that_is_no_success(self):
        self.assertEqual(self.end_of(self.SCRIPT + self.TOLD), ("exit 99", ""))
        self.assertEqual(self.end_of(self.SCRIPT + self.TOLD + "sys.exit(3)"), ("exit 3", ""))

    def test_who_was_not_told_has_succeeded(self):
        self.assertEqual(self.end_of(self.SCRIPT), ("exit 0", ""))

    def end_in_own_network(self, script, *environment):
        """Where the loopback has the address, as the warden gives it to a guest."""
        own = ("unshare", "--net", "sh", "-c",
               'ip link set lo up; ip addr add 169.254.169.254/32 dev lo; exec env "$@"', "sh",
               "AWS_EC2_METADATA_SERVICE_ENDPOINT=http://169.254.169.254", *environment)
        ends, _, log = self.run_init("exec python3 -I -u /guest.py", inodes=1000, guest=script, before=own)
        return ends[-1], log

    def test_it_finds_the_same_where_all_instances_have_it(self):
        self.assertEqual(self.end_in_own_network(self.SCRIPT + self.TOLD), ("exit 99", ""))
        self.assertEqual(self.end_in_own_network(self.SCRIPT), ("exit 0", ""))

    def test_who_wants_no_answer_there_has_the_port_itself(self):
        serves = "\nsocket.create_server(('0.0.0.0', 80))\n"
        self.assertEqual(self.end_in_own_network(serves, "AWS_EC2_METADATA_DISABLED=true"), ("exit 0", ""))
        self.assertIn("Address already in use", self.end_in_own_network(serves)[1])


class CommandsOfSlurm(Guest):
    JOB = "export RECLAIM_JOB_NUMBER=17 SLURM_JOB_ID=17 SLURM_JOB_NAME=resnet RECLAIM_RESTART_COUNT=2; unset USER; "
    RANK = """sh -c 'echo "$SLURM_PROCID of $SLURM_NTASKS"'"""

    def run_slurm(self, command, before=""):
        """How it ended, and its log."""
        ends, _, log = self.run_init(self.JOB + before + command, "--slurm", inodes=1000)
        return ends[-1], log

    def said(self, command, before=""):
        ends, log = self.run_slurm(command, before)
        self.assertEqual(ends, "exit 0", log)
        return log

    def test_they_come_first_on_the_path_and_only_in_a_guest_that_is_told_of_slurm(self):
        where = "command -v srun; command -v scontrol; exit 0"
        self.assertEqual(self.said(where), "/reclaim-slurm/srun\n/reclaim-slurm/scontrol\n")
        self.assertNotIn("/reclaim-slurm", self.run_init(where)[2])

    def codes_of(self, lines):
        """What each line ends with, and the log."""
        log = self.said("; ".join(f"{line}; echo code $?" for line in lines) + "; true")
        return re.findall(r"^code (\d+)$", log, re.MULTILINE), log

    def test_srun_runs_its_command_once_for_each_task(self):
        self.assertEqual(self.said(f"srun --cpu-bind=cores -u -c 4 --label {self.RANK}"), "0 of 1\n")
        lines = ("srun -n 2", "srun -n2", "srun --ntasks=2 --", "srun --ntasks 2", "srun --ntasks-per-node=2",
                 "SLURM_NTASKS=2 srun")
        self.assertEqual(self.said("; ".join(f"{line} {self.RANK} | sort" for line in lines)), "0 of 2\n1 of 2\n" * 6)

    def test_srun_ends_as_its_worst_task(self):
        ends = {"srun sh -c 'exit 3'": 3, "srun -n3 sh -c 'exit $SLURM_PROCID'": 2, "srun true": 0,
                "srun -n2 sh -c 'kill -9 $$'": 137, "srun /nowhere": 127, "srun -n2 /usr": 126,
                "srun -n two true": 1, "srun -n 0 true": 1, "srun -n": 1, "srun": 1}
        codes, log = self.codes_of(ends)
        self.assertEqual(codes, [str(code) for code in ends.values()], log)

    def test_a_signal_to_srun_reaches_all_its_tasks(self):
        task = "trap \"exit 4\" USR1; : >/reclaim/up$SLURM_PROCID; while :; do sleep 0.02; done"
        self.assertEqual(self.run_slurm(
            f"srun -n 2 sh -c '{task}' & until [ -e /reclaim/up0 ] && [ -e /reclaim/up1 ]; do sleep 0.02; done; "
            "kill -USR1 $!; wait $!")[0], "exit 4")

    def test_who_asks_to_be_queued_again_ends_so_whatever_its_own_code(self):
        for own in ("exit 255", "exit 0", "sleep 100"):
            ends, log = self.run_slurm(f"scontrol requeue 17; echo said $?; {own}")
            self.assertEqual(ends, "exit 99", own)
            self.assertIn("said 0\n", log)
            self.assertIn("[reclaimnet] it asked to be queued again: its processes are ended\n", log)

    def test_processes_that_outlive_the_command_hear_sigterm_first_and_stopped_ones_go_on_for_it(self):
        child = 'trap "echo term; exit" TERM; : >/reclaim/up; kill -STOP $$; while :; do sleep 0.02; done'
        ends, log = self.run_slurm(
            f"sh -c '{child}' & until [ -e /reclaim/up ]; do sleep 0.02; done; sleep 0.2; scontrol requeue 17")
        self.assertEqual(ends, "exit 99")
        self.assertIn("term\n", log)

    def test_a_task_of_an_array_is_called_by_both_numbers(self):
        array = "export SLURM_ARRAY_JOB_ID=16 SLURM_ARRAY_TASK_ID=3; "
        self.assertEqual(self.run_slurm("scontrol requeue 16_3; sleep 100", array)[0], "exit 99")
        self.assertEqual(self.said("squeue -h -j 16_3 -o '%i %A %F %K'", array), "16_3 17 16 3\n")

    def test_another_job_is_none_of_its_business(self):
        codes, log = self.codes_of([
            "scontrol requeue 18", "scontrol requeue 17_1", "scontrol show job 18", "scancel 18", "squeue -j 18"])
        self.assertEqual(codes, ["1"] * 5)
        self.assertEqual(log.count("Invalid job id specified"), 5, log)

    def test_what_a_guest_puts_in_the_requests_place_is_none(self):
        self.assertEqual(self.run_slurm("echo 7 >/reclaim/leave; sleep 1.5; exit 5")[0], "exit 5")
        self.assertEqual(self.run_slurm("mkfifo /reclaim/leave; sleep 1.5; exit 5")[0], "exit 5")
        ends, log = self.run_slurm("mkdir /reclaim/leave; scontrol requeue 17; echo $?; exit 5")
        self.assertEqual(ends, "exit 5")
        self.assertRegex(log, "cannot be told: .*; next: .*\n1\n")

    def test_a_job_that_cancels_itself_ends_as_by_sigterm(self):
        self.assertEqual(self.run_slurm("trap : TERM; scancel 17; sleep 100")[0], "exit 143")

    def test_squeue_and_sacct_show_the_job_as_submitit_and_scripts_read_them(self):
        self.assertEqual(self.said("sacct -o JobID,State,NodeList --parsable2 -j 17"),
                         "JobID|State|NodeList\n17|RUNNING|localhost\n")
        self.assertEqual(self.said("sacct -n -p -X -j 17 --format=jobname%20,Restarts"), "resnet|2|\n")
        self.assertEqual(self.said("sacct -j 18 -o JobID --parsable2"), "JobID\n")
        self.assertEqual(self.said("squeue -j 17,18 --noheader -o '%.4i|%3t|%T|%N'"), "  17|R  |RUNNING|localhost\n")
        self.assertIn("JOBID", self.said("squeue --me"))
        self.assertEqual(self.said("squeue -h -t PENDING"), "")
        self.assertIn("JobState=RUNNING", self.said("scontrol show job 17"))
        self.assertEqual(self.said("SLURM_JOB_NODELIST=a,b scontrol show hostnames"), "a\nb\n")

    def test_what_cannot_be_done_inside_is_refused_with_what_to_do(self):
        codes, log = self.codes_of([
            "sbatch next.sh", "scancel --signal=USR1 17", "squeue --iterate=3", "squeue --oops"])
        self.assertEqual((codes, log.count("; next: ")), (["1"] * 4, 4), log)
        codes, log = self.codes_of(["sacct -o Oops", "squeue -o %P", "scontrol hold 17", "scontrol", "scancel"])
        self.assertEqual((codes, len(re.findall(r"^s\w+: error: ", log, re.MULTILINE))), (["1"] * 5, 5), log)


if __name__ == "__main__":
    unittest.main()
