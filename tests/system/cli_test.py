#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every command and flag of `reclaim` against a real coordinator, without a machine that lends. Which there are is
taken from the program's own help: one that is added without a test fails here. docs/commands.md says what to expect."""
import fcntl
import json
import os
import pathlib
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import termios
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
from cli_case import CliCase  # noqa: E402
from labs import ROOT, wait_until  # noqa: E402
from rn_site import program  # noqa: E402

USAGE, NOT_FOUND, DENIED, CONFLICT, UNREACHABLE, NO_ROOM, READER_GONE = 2, 3, 4, 5, 6, 8, 141
NEVER, NO_PLAN = 2, 255
NO_EXEC = 255
ALWAYS = {"--help", "--version"}
NASTY = "\x1b[2Jred\u202e"


class Commands(CliCase):
    def test_a_job_is_submitted_with_every_flag_and_looked_at(self):
        folder = self.make_folder("every-flag", x="1")
        answer = json.loads(self.cli(
            "run", "--detach", "--json", "--image", "base", "--gpu", "24GB:2", "--compute-capability", "8.0",
            "--cpus", "2", "--cpus-min", "1", "--memory", "1GB", "--disk", "1GB", "--name", "all", "--env", "A=1",
            "--priority", "3", "--signal", "USR1", "--tell", "--notice", "5m", "--checkpoint", "*.pt",
            "--complete-marker", "done",
            "--output", "out/*", "--temporary", "*.tmp", "--copies", "2", "--copies-at", "lab-b", "--lab",
            "lab-a", "--peer", "10.1.2.3:5000/udp", "--max-duration", "2h", "--idle-stop", "1h", "--max-restarts",
            "3", "--folder", folder,
            "--data", "digits", "--max-upload-mib", "1", "--", "python3", "x.py").stdout)
        job = answer["job"]["id"]
        spec = self.json("show", job)["spec"]
        self.assertEqual(spec["priority"], 3)
        self.assertEqual(spec["resources"]["gpus"], 2)
        self.assertEqual((spec["max_duration_s"], spec["idle_stop_s"]), (7200, 3600))
        self.assertEqual(spec["data"], ["digits"])
        self.assertTrue(any("waits until a node fits" in warning for warning in answer["warnings"]), answer)
        self.assertIn(job, [one["id"] for one in self.json("ps", "--all", "--limit", 1000)["jobs"]])
        self.assertIn("sentence", self.json("why", job))
        self.assertEqual({event["job"] for event in self.json("events", "--job", job, "--kind", "job.", "--limit", 5)[
            "events"]}, {job})
        self.fails(NOT_FOUND, "no node n-none", "events", "--node", "n-none")
        self.fails(NOT_FOUND, ".", "logs", job)  # nothing has run yet
        self.fails(NOT_FOUND, ".", "logs", "--attempt", 7, job)
        self.fails(NOT_FOUND, ".", "logs", "--since", "5m", "--until", "2099-01-01T00:00Z", "--tail", 3, "--timestamps",
                   job)
        self.fails(USAGE, "--until", "logs", "--until", "whenever", job)
        self.fails(NOT_FOUND, ".", "cp", f"{job}:", self.folder / "nowhere")
        self.assertIn(job, self.cli("stop", "--save", "--deadline", 5, "--message", "enough", job).stdout)

    def test_who_is_told_of_jobs_is_added_tried_listed_and_removed(self):
        hook = f"{self.site.hooks.origin}/told"
        rule = self.json("notify", "add", "--webhook", hook, "--on", "finished,failed")["rule"]["id"]
        self.assertIn(f"{hook} has taken it", self.cli("notify", "test", rule).stdout)
        self.assertEqual(self.site.hooks.told("/told")[0]["what"], "test")
        job = self.submit("--notify", hook)
        file = self.make_folder("notify") / "job.yaml"
        file.write_text("run: 'true'\nstateless: true\nnotify: nobody\n")
        self.fails(USAGE, "'nobody' is neither an address", "submit", file)
        file.write_text(f"run: 'true'\nstateless: true\nnotify: {hook}\n")
        other = self.cli("submit", "--notify", "ann@example.org", file)
        self.assertIn("a code was sent to ann@example.org", other.stderr)
        listed = self.json("notify", "list", "--all")["rules"]
        self.assertEqual({one["job"] for one in listed}, {"", job, other.stdout.strip()})
        self.assertRegex(self.cli("notify", "list").stdout, f"{rule} .* finished,failed .* ok")
        mail = next(one["id"] for one in listed if one["mail"])
        self.fails(DENIED, "not the code of the mail", "notify", "confirm", mail, "00000000")
        alone = self.cli("notify", "add", "--mail", "ann@example.org", "--job", job).stdout.strip()
        for one in (rule, mail, alone):
            self.cli("notify", "remove", one)
        self.fails(NOT_FOUND, "no rule", "notify", "remove", rule)
        self.fails(USAGE, "none of finished", "notify", "add", "--webhook", hook, "--on", "done")
        self.cli("stop", job, other.stdout.strip())

    def test_a_job_that_is_told_to_save_by_a_file_is_submitted(self):
        job = self.cli("run", "--detach", "--no-upload", "--tell-file", "ctl/SAVE", "--", "true").stdout.strip()
        self.assertEqual(self.json("show", job)["spec"]["checkpoint"]["tell_file"], "ctl/SAVE")
        self.cli("stop", job)

    def test_a_job_that_is_told_to_save_by_a_hook_or_the_api_is_submitted(self):
        for words, field in ((["--tell-hook", "sh save.sh; echo saved"], ("tell_hook", "sh save.sh; echo saved")),
                             (["--tell-api"], ("tell_api", True))):
            job = self.cli("run", "--detach", "--no-upload", *words, "--", "true").stdout.strip()
            self.assertIn(field, self.json("show", job)["spec"]["checkpoint"].items())
            self.cli("stop", job)

    def test_a_job_file_is_submitted(self):
        file = self.make_folder("file") / "job.yaml"
        file.write_text("run: 'true'\nstateless: true\nworkdir: .\n")
        self.assertEqual(self.json("submit", "--max-upload-mib", 1, file)["job"]["state"], "queued")
        with open(file) as text:
            job = self.cli("submit", "--data", "digits", "-", stdin=text).stdout.strip()
        self.assertEqual(self.json("show", job)["spec"]["data"], ["digits"])
        self.cli("stop", job)
        os.mkfifo(file.parent / "pipe")
        self.fails(USAGE, "is not a regular file\n.*next: give a job file", "submit", file.parent / "pipe")
        file.write_text("run: true\n")
        self.fails(USAGE, "run: expected text, .*found true\n.*next: put it in quotes", "submit", file)
        file.write_text("run: x\nwork_dir: /work\n")
        self.fails(USAGE, "work_dir: no such field\n.*did you mean 'workdir'", "submit", file)
        file.write_text("run: x\nworkdir: gone\n")
        self.fails(NOT_FOUND, "there is no folder .*/gone", "submit", file)

    def test_a_script_for_slurm_is_submitted(self):
        folder = self.make_folder("slurm", **{"data.txt": "1"})
        file = folder / "train.sbatch"
        file.write_text("#!/bin/bash\n#SBATCH --array=3-4%1\n#SBATCH --mem=1G\n#SBATCH -p gpu\ntrue\n")
        dry = self.cli("submit", "--dry-run", file, RECLAIM_TOKEN="", RECLAIM_URL="")
        array = json.loads(dry.stdout)
        self.assertEqual((array["indices"], array["at_most"]), ([3, 4], 1))
        self.assertIn("line 4: -p gpu: there are no partitions", dry.stderr)
        self.assertIn("nothing was submitted", dry.stderr)
        made = self.cli("submit", "--image", "base", "--json", file, cwd=folder)
        answer = json.loads(made.stdout)
        jobs = [json.loads(self.cli("show", "--json", task["job"]).stdout) for task in answer["tasks"]]
        self.assertEqual([job["spec"]["env"]["SLURM_ARRAY_TASK_ID"] for job in jobs], ["3", "4"])
        self.assertEqual(jobs[1]["spec"]["env"]["SLURM_ARRAY_JOB_ID"], str(jobs[0]["number"]))
        self.assertEqual(jobs[0]["spec"]["workspace"], jobs[1]["spec"]["workspace"])
        self.assertNotEqual(set(jobs[0]["spec"]["workspace"]), {"0"})
        self.assertIn("waits for its turn: at most 1 of the 2 tasks", self.cli("why", jobs[1]["id"]).stdout)
        after = self.cli("submit", "--after", f"any:{answer['array']}", "--image", "base", file, cwd=folder)
        self.assertIn("has ended (0 of its 2 tasks", self.cli("why", str(jobs[1]["number"] + 1)).stdout)
        self.assertIn("2 jobs stopping", self.cli("stop", after.stdout.strip()).stdout)
        self.assertIn("2 jobs stopping", self.cli("stop", answer["array"]).stdout)
        self.fails(NOT_FOUND, "no array a-0", "stop", "a-0")
        self.fails(USAGE, "is an array of jobs", "submit", "--wait", file)
        file.write_text("#!/bin/bash\n#SBATCH --nodes=4\ntrue\n")
        self.fails(USAGE, "line 2: --nodes=4: a job runs on one machine\n.*next: ask for --nodes=1", "submit", file)
        file.write_text("#SBATCH --mem=1G\ntrue\n")
        self.fails(USAGE, "names no shell\n.*next: begin it with", "submit", file)

    def test_a_submit_file_of_htcondor_is_submitted(self):
        folder = self.make_folder("condor", **{"digits.csv": "1", "secret.txt": "not named"})
        (folder / "train.sh").write_text("#!/bin/sh\ntrue\n")
        file = folder / "train.sub"
        file.write_text("executable = train.sh\narguments = \"$(Cluster) '$(x) y'\"\nrequest_memory = 1GB\n"
                        "transfer_input_files = digits.csv\nrank = Memory\nqueue x in (a b)\n")
        dry = self.cli("submit", "--dry-run", file, cwd=folder, RECLAIM_TOKEN="", RECLAIM_URL="")
        spec = json.loads(dry.stdout)
        self.assertEqual(spec["name"], "train.sh.0")
        self.assertIn("'a y'", spec["command"][2])
        self.assertIn("line 5: rank = Memory: machines cannot be chosen", dry.stderr)
        self.assertRegex(dry.stderr, "nothing was submitted; .*/train.sh, .*/digits.csv would be uploaded; .* 2 jobs")
        made = self.cli("submit", "--image", "base", "--json", file, cwd=folder)
        jobs = [json.loads(line)["job"] for line in made.stdout.splitlines()]
        self.assertEqual([job["spec"]["name"] for job in jobs], ["train.sh.0", "train.sh.1"])
        self.assertEqual(jobs[1]["spec"]["env"]["_CONDOR_CLUSTER_ID"], str(jobs[0]["number"]))
        self.assertEqual(jobs[0]["spec"]["workspace"], jobs[1]["spec"]["workspace"])
        self.assertNotEqual(set(jobs[0]["spec"]["workspace"]), {"0"})
        self.cli("stop", *(job["id"] for job in jobs))
        self.fails(USAGE, "is an array of jobs", "submit", "--wait", file)
        file.write_text("executable = train.sh\nuniverse = parallel\nqueue\n")
        self.fails(USAGE, "line 2: universe = parallel: a job runs on one machine\n.*next: ask for", "submit", file)
        file.write_text("executable = train.sh\nrequest_memory = 1GB\n")
        self.fails(USAGE, "has no statement queue\n.*next: add one", "submit", file)
        file.write_text("executable = gone.sh\nrequest_memory = 1GB\nqueue\n")
        self.fails(NOT_FOUND, "there is no file .*/gone.sh\n.*next: name a file", "submit", file)

    def test_a_job_is_planned_before_it_is_submitted(self):
        file = self.make_folder("planned") / "job.yaml"
        file.write_text("run: 'true'\nresources: {gpu: '24GB:64'}\n")
        flags = ["--image", "base", "--gpu", "24GB:64", "--compute-capability", "8.0", "--cpus", "2", "--cpus-min", "1",
                 "--memory", "1GB", "--disk", "1GB", "--priority", "3", "--notice", "5m", "--copies", "2",
                 "--copies-at", "lab-b", "--lab", "lab-a", "--data", "digits", "--max-duration", "2h",
                 "--idle-stop", "1h"]
        for words in ([file], flags):
            told = self.cli("plan", *words, status=NEVER)
            self.assertIn("can never run here: ", told.stdout)
            self.assertIn("  next: ", told.stderr)
            self.assertEqual(json.loads(self.cli("plan", *words, "--json", status=NEVER).stdout)["verdict"], "never")
        with open(file) as text:
            self.cli("plan", "-", stdin=text, status=NEVER)
        for pattern, *words in (
                ("what --gpu would\n  next: leave out", file, "--gpu", "1"),
                ("not expected: --env\n  next: see 'reclaim plan --help'", "--env", "A=1"),
                ("'lots'.*\n  next: for example 512MB", "--memory", "lots"),
                ("'nope' is not on the allow list", "--image", "nope"),
                ("No such file or directory", file.parent / "none.yaml")):
            with self.subTest(words=words):
                self.assertRegex(self.cli("plan", *words, status=NO_PLAN).stderr, pattern)
        self.cli("plan", file, status=NO_PLAN, RECLAIM_TOKEN=self.site.token.replace(".", ".0", 2))
        with open("/dev/full", "w") as full:
            self.cli("plan", file, status=NO_PLAN, stdout=full)

    def test_jobs_that_have_ended_are_listed(self):
        job = self.submit("--name", "ended")
        self.cli("stop", job)
        found = {one["job"]: one for one in self.json("history", "--since", "1h", "--limit", 1000)["jobs"]}
        self.assertEqual((found[job]["state"], found[job]["name"], found[job]["hosts"]), ("cancelled", "ended", []))
        self.assertNotIn(job, str(self.json("history", "--status", "failed")))
        self.assertRegex(self.cli("history", "--status", "cancelled").stdout, f"{job} +ended +cancelled ")
        self.fails(USAGE, "--since: ", "history", "--since", "soon")
        self.fails(USAGE, "not in", "history", "--status", "running")

    def test_shells_complete_what_the_site_has(self):
        job = self.submit("--name", "completed")
        scripts = {shell: self.cli("completion", shell).stdout for shell in ("bash", "zsh", "fish")}
        folder = pathlib.Path(program("reclaim")).parent
        environment = {**self.site.environment, "PATH": f"{folder}:{os.environ['PATH']}"}

        def bash(*words, **more):
            script = 'source /dev/stdin; COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); _reclaim; echo "${COMPREPLY[@]}"'
            done = subprocess.run(["bash", "-euc", script, "x", "reclaim", *words], input=scripts["bash"], timeout=20,
                                  env={**environment, **more}, capture_output=True, text=True, check=True)
            return done.stdout.split()

        def offers(wanted, *words):  # a machine with much else to do may need more than 300 ms
            wait_until(f"{wanted} behind {words}", lambda: wanted in bash(*words), 20)

        offers(job, "stop", "j-")
        offers(job, "logs", job[:-1])
        offers(f"{job}:", "cp", job)
        offers("base", "run", "--image", "b")
        self.assertEqual(bash("events", "--ki"), ["--kind"])
        self.cli("stop", job)
        self.assertNotIn(job, bash("stop", "j-"))
        with socket.socket() as silent:  # takes connections, and says nothing
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            # Without a limit of its own it would wait for longer than bash() here.
            self.assertEqual(bash("stop", "", RECLAIM_URL=f"https://127.0.0.1:{silent.getsockname()[1]}"), [])
        self.assertEqual(bash("stop", "", RECLAIM_TOKEN="", RECLAIM_URL=""), [])
        if found := shutil.which("fish"):
            (self.folder / "script.fish").write_text(scripts["fish"])
            words = [found, "--no-config", "-c", f"source script.fish; complete -C 'reclaim logs {job[:-1]}'"]
            wait_until("fish's offer", lambda: re.match(rf"{job}\t\d+ cancelled completed\n", subprocess.run(
                words, cwd=self.folder, env=environment, capture_output=True, text=True, check=True).stdout), 20)

    def test_what_is_lent_and_used_is_shown(self):
        self.assertEqual(self.json("offers")["offers"], [])
        self.assertIn("lent", self.cli("offers", "--gpu", "24GB").stderr)
        self.fails(USAGE, "GPU models cannot be asked for", "offers", "--gpu", "A100")
        self.assertEqual(set(self.json("top")), {"at_wall_ms", "nodes", "jobs"})
        self.assertRegex(self.cli("top", "--once", "--every", 1).stdout, "nodes: .* GPUs: .* jobs: ")
        self.fails(USAGE, "standard output is no terminal\n  next: --once", "top")

    def test_a_port_is_asked_for_of_a_job_that_is_there(self):
        self.fails(NOT_FOUND, "no job 99", "forward", "99", "8888")
        for ports in ("0", "65536", "http", "8888:", "08"):
            self.fails(USAGE, r"is no \[LOCAL:\]PORT", "forward", "99", ports)

    def test_commands_and_files_are_for_a_job_that_runs(self):
        job = self.submit()
        for flags in ([], ["--stdin"], ["--stdin", "--tty"], ["--no-tty"]):
            self.fails(NO_EXEC, r"job \d+ does not run now: ", "exec", *flags, job, "--", "true")
        self.fails(NO_EXEC, "no job 99", "exec", "99", "--", "true")
        self.fails(NO_EXEC, "array a-0 has no task 3", "exec", "a-0/3", "--", "true")
        self.fails(NO_EXEC, "is no JOB or ARRAY/INDEX", "exec", "7/x", "--", "true")
        self.fails(NO_EXEC, "command is required", "exec", job)
        self.fails(NO_EXEC, "the command is longer than", "exec", job, "--", "x" * 20000)
        self.fails(CONFLICT, r"job \d+ does not run now: queued", "cp", self.folder / "hello", f"{job}:/tmp/")
        self.fails(USAGE, "both are paths of jobs", "cp", f"{job}:a", f"{job}:b")
        self.fails(USAGE, "is not JOB:path\n.*next: for example", "cp", "hello", "there")
        self.fails(NOT_FOUND, "no job 99", "attach", "99")
        self.cli("stop", job)
        self.fails(CONFLICT, "is over: cancelled\n.*next: `reclaim logs", "attach", job)

    def test_a_notebook_is_a_job_with_an_address(self):
        folder = self.make_folder("notebook", x="1")
        job = self.cli(
            "notebook", "--detach", "--image", "base", "--gpu", "24GB", "--compute-capability", "8.0", "--cpus", "2",
            "--cpus-min", "1", "--memory", "1GB", "--disk", "1GB", "--priority", "3", "--notice", "5m", "--copies", "2",
            "--copies-at", "lab-b", "--lab", "lab-a", "--data", "digits", "--max-duration", "8h", "--name", "thesis",
            "--idle-stop", "3h", "--env", "A=1", "--idle", "2h", "--folder", folder, "--max-upload-mib",
            "1").stdout.strip()
        spec = self.json("show", job)["spec"]
        self.assertEqual(spec["env"], {"A": "1", "NOTEBOOK_PORT": "8888", "NOTEBOOK_IDLE_S": "7200"})
        self.assertTrue(spec["checkpoint"]["tell_api"])
        self.assertEqual(spec["idle_stop_s"], 10800)
        self.fails(7, "did not answer within 1 s; the job goes on", "notebook", job, "--wait", 1, "--json")
        self.cli("stop", job)
        self.fails(CONFLICT, "is over: cancelled", "notebook", job)
        self.fails(NOT_FOUND, "no job 99", "notebook", "99")
        self.fails(USAGE, "there already: --gpu is of a new one", "notebook", job, "--gpu", "1")
        self.fails(DENIED, "'nowhere' is not on the allow list", "notebook", "--image", "nowhere", "--folder", folder)
        self.cli("stop", self.cli("notebook", "--no-upload", "--image", "base", "-d").stdout.strip())

    def test_top_is_drawn_on_a_terminal_until_q_and_leaves_it_as_it_was(self):
        for key, status in ((b"q", 0), (b"\x03", 0)):
            with self.subTest(key):
                ours, theirs = os.openpty()
                before = termios.tcgetattr(theirs)
                process = subprocess.Popen([program("reclaim"), "top", "--every", "1"], stdin=theirs, stdout=theirs,
                                           stderr=theirs, env=self.site.environment, start_new_session=True,
                                           preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
                try:
                    shown = b""
                    while b"Ctrl-C ends" not in shown:
                        self.assertTrue(select.select([ours], [], [], 20)[0], shown)
                        shown += os.read(ours, 65536)
                    self.assertIn(b"nodes: ", shown)
                    os.write(ours, key)
                    self.assertEqual(process.wait(20), status)
                    drawn = b""  # a terminal gives what there is in pieces
                    while select.select([ours], [], [], 0.2)[0]:
                        drawn += os.read(ours, 65536)
                    self.assertTrue(drawn.endswith(b"\x1b[?25h\x1b[?1049l"), drawn[-200:])
                    self.assertEqual(termios.tcgetattr(theirs), before)
                finally:
                    process.kill()
                    process.wait()
                    os.close(ours)
                    os.close(theirs)

    def watch(self, *words):
        """A command that goes on, once it watches; killed at the end."""
        self.note(words)
        process = subprocess.Popen([program("reclaim"), *map(str, words)], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, env=self.site.environment, cwd=self.folder)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        for line in process.stderr:
            if "] queued" in line:
                return process, re.match(r"\[(j-\w+)\]", line)[1]
        raise AssertionError("it ended")

    def test_what_watches_a_job_ends_with_it(self):
        (self.folder / "wait.yaml").write_text("run: 'true'\nstateless: true\n")
        for words in (("run", "--no-upload", "--stateless", "--", "true"), ("submit", "--wait", "wait.yaml")):
            process, job = self.watch(*words)
            self.cli("stop", job)
            self.assertEqual(process.wait(20), 130, words)

    def test_what_watches_a_job_ends_when_nobody_reads(self):
        job = self.submit()
        for words in (("run", "--no-upload", "--stateless", "--", "true"), ("logs", "--follow", job)):
            process, _ = self.watch(*words)
            process.stdout.close()
            self.assertEqual(process.wait(20), READER_GONE, words)
            said = process.stderr.read()
            self.assertIn("the job goes on" if words[0] == "run" else "", said)
            self.assertNotIn("next: ", said)
        process, _ = self.watch("logs", "-f", job)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(20), 130)
        self.cli("stop", job)

    # ---- the site

    # Who removes files in a test is nobody who could remove others'.
    OWNER = ["setpriv", "--reuid", "64991", "--regid", "64991", "--clear-groups"] if os.geteuid() == 0 else []

    def test_images(self):
        self.assertEqual([one["name"] for one in self.json("image", "ls")["images"]], ["base"])
        out = self.folder / "saved.tar"
        self.cli("image", "save", "base", out)
        self.assertEqual(out.read_bytes(), self.archive.read_bytes())
        out.write_text("mine")
        self.fails(CONFLICT, "is there already\n.*--force", "image", "save", "base", out)
        self.assertEqual(out.read_text(), "mine")
        self.cli("image", "save", "base", out, "--force")
        self.assertEqual(out.read_bytes(), self.archive.read_bytes())
        os.mkfifo(self.folder / "pipe")
        self.fails(USAGE, "is a device, a socket or a pipe", "image", "save", "--force", "base", self.folder / "pipe")
        self.fails(USAGE, "is a folder", "image", "save", "--force", "base", self.folder)
        self.fails(NOT_FOUND, "there is no folder", "image", "save", "base", self.folder / "none" / "x")
        self.fails(DENIED, "allow list", "image", "add", "--base", "none", "other", self.archive)
        self.fails(USAGE, "passwd is no archive of an image\n.*docker save", "image", "add", "other", "/etc/passwd")
        old = self.folder / "old.tar"
        subprocess.run(["tar", "--format=v7", "-C", self.folder, "-cf", old, "hello"], check=True)
        self.cli("image", "add", "old", old)
        self.cli("image", "rm", "old")
        self.cli("image", "add", "twice", self.archive)
        self.cli("image", "rm", "twice")

    def test_tokens(self):
        made = self.json("token", "create", "--lab", "lab-a", "--user", "ada", "--role", "owner", "--ttl-s", 600)
        self.assertEqual(self.json("whoami")["role"], "admin")
        mixed = self.site.token.replace(self.site.token.split(".")[1], "t-0000000000000000")
        self.fails(DENIED, "the token is unknown\n  next: log in with a token.* whole as it was shown", "login",
                   self.site.url, "--token", mixed)
        self.fails(USAGE, "standard input has no line", "login", self.site.url, "--token", "-")
        told = self.folder / "token"
        told.write_text(made["token"] + "\n")
        with open(told) as stdin:
            self.cli("login", f"127.0.0.1:{self.site.port}", "--token", "-", "--ca-fingerprint",
                     made["token"].rsplit(".")[-1], stdin=stdin)
        self.assertIn("ada", self.cli("whoami", RECLAIM_TOKEN="", RECLAIM_URL="").stdout)
        self.fails(NOT_FOUND, "this site has no sign-in by an identity provider", "login", self.site.url,
                   "--ca-fingerprint", made["token"].rsplit(".")[-1], "--browser", "--port", 1024, "--wait-s", 5)
        self.assertIn(made["info"]["id"], [one["id"] for one in self.json("token", "ls")["tokens"]])
        self.cli("token", "revoke", made["info"]["id"])
        self.fails(DENIED, ".", "whoami", RECLAIM_TOKEN=made["token"])

    def test_a_quota_is_set_seen_kept_to_and_removed(self):
        token = self.json("token", "create", "--lab", "lab-q", "--user", "quentin")["token"]
        self.cli("quota", "set", "user:quentin", "--gpus", 2, "--running", 3, "--jobs", 1, "--gpu-hours", "20/2d")
        of_model = self.json("quota", "set", "user:quentin", "--model", "H100", "--gpus", 1)
        self.assertEqual((of_model["gpu_model"], of_model["gpus"], of_model["jobs"]), ("H100", 1, None))
        self.assertRegex(self.cli("quota", RECLAIM_TOKEN=token).stdout,
                         r"user:quentin +- +0 of 2 +0 of 3 +0 of 1 +0 of 20 in 2.0 d")
        seen = json.loads(self.cli("quota", "--json", RECLAIM_TOKEN=token).stdout)
        self.assertEqual({use["subject"] for use in seen["uses"]}, {"user:quentin"})
        self.assertIn("user:quentin", [use["subject"] for use in self.json("quota")["uses"]])
        run = ["run", "--detach", "--no-upload", "--stateless"]
        self.fails(NO_ROOM, "quentin may have 2 GPUs at once, and this job asks for 3\n  next: ask for less", *run,
                   "--gpu", 3, "--", "true", RECLAIM_TOKEN=token)
        planned = self.cli("plan", "--gpu", 3, status=NEVER, RECLAIM_TOKEN=token)
        self.assertIn("quentin may have 2 GPUs at once", planned.stdout)
        job = self.cli(*run, "--", "true", RECLAIM_TOKEN=token).stdout.strip()
        self.fails(NO_ROOM, "quentin has 1 of 1 job that may wait and run", *run, "--", "true", RECLAIM_TOKEN=token)
        self.cli("stop", job, RECLAIM_TOKEN=token)
        self.fails(DENIED, "role admin", "quota", "set", "user:quentin", "--gpus", 9, RECLAIM_TOKEN=token)
        self.fails(NOT_FOUND, "no user quintin is known here", "quota", "set", "user:quintin", "--gpus", 1)
        self.fails(USAGE, "the quota bounds nothing", "quota", "set", "user:quentin")
        self.fails(USAGE, "'many' is no number of hours", "quota", "set", "user:quentin", "--gpu-hours", "many")
        self.fails(USAGE, "expected user:NAME or lab:NAME", "quota", "set", "quentin", "--gpus", 1)
        self.cli("quota", "set", "lab:lab-q", "--idle-stop", "2h")
        self.assertIn("lab:lab-q: jobs that use nothing are stopped after 2", self.cli("quota").stdout)
        self.cli("quota", "rm", "lab:lab-q")
        self.cli("quota", "rm", "user:quentin", "--model", "H100")
        self.cli("quota", "rm", "user:quentin")
        self.fails(NOT_FOUND, "there is no quota of user:quentin", "quota", "rm", "user:quentin")

    def agent(self, *words, status=0):
        config = self.folder / "agent.yaml"
        config.write_text(json.dumps({
            "state": str(self.folder / "node"), "run": str(self.folder / "run"), "listen_peer": "", "listen_api": "",
            "nvml_library": "", "machine_id_file": str(self.folder / "hello")}))
        done = subprocess.run([*self.OWNER, program("reclaim-agent"), "--config", config, *words],
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done

    def make_node_folders(self):
        self.folder.chmod(0o755)
        for folder in ("run", "node"):
            (self.folder / folder).mkdir(exist_ok=True)
            if self.OWNER:
                os.chown(self.folder / folder, 64991, 64991)

    def test_a_node_keeps_its_name_and_is_revoked(self):
        self.make_node_folders()
        token = self.cli("token", "create", "--lab", "lab-a").stdout.strip()
        self.agent("join", f"http://127.0.0.1:{self.site.port}", "--token", token, status=USAGE)
        self.agent("join", self.site.url, "--token", token, "--hostname", "a b", status=USAGE)
        self.agent("join", f"127.0.0.1:{self.site.port}/", "--token", token, "--hostname", "printer-room")
        agent = self.serve()
        try:
            wait_until("the node to be there", lambda: any(
                one["is_connected"] for one in self.json("nodes")["nodes"]), 30)
            node = next(one for one in self.json("nodes")["nodes"] if one["is_connected"])
        finally:
            agent.terminate()
            agent.wait()
        self.assertEqual(node["facts"]["hostname"], "printer-room")  # after its first hello too
        self.assertIn("taken back within 5 min", self.cli("nodes", "--why", "printer-room").stdout)
        self.assertEqual(4, len(self.json("nodes", "--why", "printer-room")["reclaimed_within"]))
        self.fails(DENIED, "taken back by the owners of lab lab-a alone", "take", "printer-room", "--in", "10m")
        self.fails(NOT_FOUND, "no node 'n-none'", "take", "n-none", "--gpu", 0, "--now", "--detach", "--json")
        done = self.agent("leave", status=UNREACHABLE)
        self.assertRegex(done.stderr, "nothing has changed, the coordinator was not told")
        done = self.agent("leave", "--purge")
        self.assertRegex(done.stderr, f"was not told that {node['id']} has left(.|\n)*nodes revoke {node['id']}")
        self.assertFalse((self.folder / "node" / "agent").exists())
        self.assertRegex(self.agent("leave", "--purge").stdout, "nothing to remove: there is no .*/node/agent")
        self.assertTrue((self.folder / "hello").exists())
        self.assertEqual(self.json("nodes", "revoke", "--yes", "printer-room")["node"], node["id"])

    def test_a_contract_is_changed_by_the_owner_of_the_machine_alone(self):
        self.make_node_folders()
        token = self.cli("token", "create", "--lab", "lab-c").stdout.strip()
        self.agent("join", self.site.url, "--token", token, "--hostname", "desk")
        owner = {"RECLAIM_TOKEN": self.cli(
            "token", "create", "--user", "olga", "--lab", "lab-c", "--role", "owner").stdout.strip()}
        contract = self.folder / "contract.yaml"
        agent = self.serve()
        try:
            wait_until("the contract to be known", lambda: json.loads(
                self.cli("contract", "get", "desk", "--json", **owner).stdout)["contract_version"], 30)
            before = self.cli("contract", "get", "desk", **owner).stdout
            self.assertIn("no change of its contract waits", self.cli("contract", "diff", "desk", **owner).stderr)
            self.fails(NOT_FOUND, "no node 'n-none'", "contract", "get", "n-none")
            contract.write_text(before)
            self.fails(DENIED, "is edited by the owners of lab lab-c", "contract", "set", "desk", contract)
            contract.write_text("notice: 60s\n")
            self.fails(USAGE, "contract.yaml", "contract", "set", "desk", contract, **owner)

            less = json.loads(self.cli("contract", "edit", "--yes", "--json", "desk", **owner,
                                       EDITOR="sed -i 's/^notice_s:.*/notice_s: 30/'").stdout)
            self.assertEqual(less["state"], "in_force", less)
            for notice, flags in ((120, ()), (180, ("--replace",))):
                contract.write_text(re.sub("(?m)^notice_s:.*", f"notice_s: {notice}", before))
                self.assertFalse(json.loads(self.cli("contract", "diff", "--json", "desk", contract, **owner).stdout)[
                    "narrows"])
                more = json.loads(self.cli("contract", "set", "--yes", "--json", *flags, "desk", contract,
                                           **owner).stdout)
                self.assertEqual(more["state"], "pending", more)
            self.fails(CONFLICT, "waits at(.|\n)*--replace takes its place", "contract", "set", "desk", contract,
                       **owner)
            self.assertIn("180", self.cli("contract", "diff", "desk", **owner).stdout)
            again = self.cli("contract", "edit", "--replace", "desk", **owner, VISUAL="true")
            self.assertIn("nothing is changed", again.stderr)
        finally:
            agent.terminate()
            agent.wait()
        self.agent("leave", "--purge")
        self.cli("nodes", "revoke", "--yes", "desk")  # which was not told

    def serve(self):
        serve = [program("reclaim-agent"), "--config", self.folder / "agent.yaml", "serve"]
        return subprocess.Popen([*self.OWNER, *serve], stderr=subprocess.DEVNULL)

    def leave_whose_agent_ends(self, end):
        """`leave --purge` while the coordinator is out of reach; the agent ends in the middle."""
        agent = self.serve()
        try:
            wait_until("the agent's socket", (self.folder / "run" / "agent.sock").exists, 20)
            wait_until("the agent", lambda: "lending" in self.agent("status", "--json").stdout, 20)
            leave = subprocess.Popen(
                [*self.OWNER, program("reclaim-agent"), "--config", self.folder / "agent.yaml", "leave", "--purge"],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.assertIn("guests save and leave", leave.stderr.readline())
            time.sleep(1)
            self.assertIsNone(leave.poll(), "it did not wait")
            agent.send_signal(end)
            out, err = leave.communicate(timeout=60)
        finally:
            agent.kill()
            agent.wait()
            (self.folder / "run" / "agent.sock").unlink(missing_ok=True)
        self.assertEqual(leave.returncode, UNREACHABLE, out + err)
        self.assertNotIn("has left", out)
        self.assertIn("the agent ended before the node had left: nothing is removed", err)
        self.assertRegex(err, "next: start it again.*it goes on leaving")
        self.assertTrue((self.folder / "node" / "agent" / "identity" / "identity.json").exists())

    def test_an_agent_that_dies_while_it_leaves_has_not_left(self):
        self.make_node_folders()
        token = self.cli("token", "create", "--lab", "lab-b").stdout.strip()
        self.agent("join", self.site.url, "--token", token, "--hostname", "leaver")
        self.site.process.send_signal(signal.SIGSTOP)
        try:
            for end in (signal.SIGKILL, signal.SIGTERM):
                with self.subTest(end):
                    self.leave_whose_agent_ends(end)
        finally:
            self.site.process.send_signal(signal.SIGCONT)

        agent = self.serve()
        try:
            self.assertEqual(agent.wait(60), 0, "it goes on leaving, and ends when the coordinator knows")
        finally:
            agent.kill()
            agent.wait()
        states = {one["facts"]["hostname"]: one["state"] for one in self.json("nodes")["nodes"]}
        self.assertEqual(states["leaver"], "left")
        self.assertIn("has left its site for good", self.agent("serve").stderr)
        self.assertIn("the node had left already", self.agent("leave").stdout)
        self.agent("join", self.site.url, "--token", token, "--again", status=CONFLICT)
        done = self.agent("leave", "--purge")
        self.assertRegex(done.stdout, "had left already\n.*/node/agent is removed")
        self.assertEqual(done.stderr, "", "the coordinator knows")
        self.assertFalse((self.folder / "node" / "agent").exists())

    def test_a_node_leaves_and_its_files_go(self):
        self.make_node_folders()
        token = self.cli("token", "create", "--lab", "lab-b").stdout.strip()
        self.agent("join", self.site.url, "--token", token, "--hostname", "mover")
        agent = self.serve()
        try:
            wait_until("the node to be there", lambda: any(
                one["facts"]["hostname"] == "mover" and one["is_connected"] for one in self.json("nodes")["nodes"]), 30)
            done = self.agent("leave", "--purge")
            self.assertEqual(agent.wait(10), 0)
        finally:
            agent.kill()
            agent.wait()
        self.assertRegex(done.stdout, "the node has left\n.*/node/agent is removed")
        self.assertNotIn("was not told", done.stderr)
        states = {one["facts"]["hostname"]: one["state"] for one in self.json("nodes")["nodes"]}
        self.assertEqual(states["mover"], "left")

    # ---- what is typed, and what is shown

    def test_what_is_not_understood_is_said(self):
        self.fails(USAGE, "no command 'frobnicate'", "frobnicate")
        for flag, step in (("--memory", "for example 512MB"), ("--cpus", "for example 2"),
                           ("--notice", "for example 90s"), ("--gpu", "for example --gpu 2")):
            self.fails(USAGE, f"'lots'.*\n  next: {step}", "run", "--no-upload", flag, "lots", "--", "true")
        self.fails(USAGE, "no command 'evnts'; did you mean 'events'", "evnts")
        for words in (("--", "echo", "caf\udce9"), ("--env", "A=\udce9", "--", "x"), ("--name", "\udce9", "--", "x")):
            self.fails(USAGE, "is not text in UTF-8\n.*next: put such bytes into a file", "run", "--no-upload", *words)
        for flag in ("--image", "--data", "--lab", "--peer", "--copies-at", "--complete-marker",
                     "--compute-capability"):
            self.fails(USAGE, f"{flag} '.xe9' is not text in UTF-8\n.*next: put such bytes into a file", "run",
                       "--no-upload", flag, "\udce9", "--", "x")
        self.fails(USAGE, "--data '.xe9' is not text in UTF-8", "submit", "--data", "\udce9", "-")
        file = self.make_folder("twofold") / "job.yaml"
        file.write_text("run: x\ncommands: [y]\n")
        self.fails(USAGE, "run and commands both say", "submit", file)
        file.write_bytes(b"run: caf\xe9\n")
        self.fails(USAGE, "is not text in UTF-8\n.*next: save it in UTF-8", "submit", file)

    def test_what_the_ignore_files_leave_out_is_said(self):
        folder = self.make_folder("ignoring", **{".gitignore": "*.pt\n", "model.pt": "m", "train.py": "p"})
        told = self.cli("run", "--detach", "--stateless", "--", "true", cwd=folder)
        self.assertIn("not uploaded, by .gitignore: model.pt (1 file, 1 B); ", told.stderr)
        self.assertIn("what .gitignore\nand .reclaimignore name", self.cli("run", "--help").stdout)
        self.cli("stop", told.stdout.strip())

    def test_numbers_and_contradictions_are_refused(self):
        for pattern, *words in (
                ("--limit.*'-1' is no whole number from 1 to 1000", "ps", "--limit", "-1"),
                ("--limit.*'010' .*\n  next: leave out the zeros", "ps", "--limit", "010"),
                ("--limit.*'5x'", "events", "--limit", "5x"),
                ("--attempt.*from 1 to", "logs", "--attempt", "0", "7"),
                ("--deadline.*'99999999999'", "stop", "--save", "--deadline", "99999999999", "7"),
                ("--copies.*from 1 to 8", "run", "--copies", "9", "--", "x"),
                ("--ttl-s", "token", "create", "--lab", "l", "--ttl-s", "-1"),
                ("--role", "token", "create", "--lab", "l", "--user", "u", "--role", "king"),
                ("excludes", "run", "--stateless", "--checkpoint", "x", "--", "x"),
                ("--detach", "run", "--json", "--", "x"),
                ("command", "run", "--stateless"),
                ("command is empty", "run", "--", ""),
                ("no id or name", "show", "../v1"),
                ("no id or name", "stop", ".."),
                ("not one of https", "login", "http://x", "--token", "t"),
                ("user name or password", "login", "https://a:secret@x", "--token", "t"),
                ("--cpus: .*-1", "run", "--cpus", "-1", "--", "x"),
                ("--disk: ", "run", "--disk", "much", "--", "x"),
                ("which job", "cp", ":x", "."),
                ("is no duration", "run", "--max-duration", "0", "--", "x"),
                ("no signal to tell it with", "run", "--tell", "--", "x"),
                ("told to save in one way\n  next: leave", "run", "--tell-file", "S", "--signal", "TERM", "--", "x"),
                ("--tell-file: is empty", "run", "--tell-file", "", "--", "x"),
                ("--tell-hook: is empty", "run", "--tell-hook", "", "--", "x"),
                ("tell_hook: has nothing to run\n  next: give", "run", "--tell-hook", " ", "--", "x"),
                ("told to save in one way\n  next: leave", "run", "--tell-api", "--tell-hook", "x", "--", "x"),
                ("told to save in one way\n  next: leave", "run", "--tell-api", "--signal", "USR1", "--", "x"),
                ("env.RECLAIM_X: .*by the platform\n  next: leave", "run", "--env", "RECLAIM_X=1", "--", "x"),
                ("env.LD_PRELOAD: steers the runtime", "run", "--env", "LD_PRELOAD=1", "--", "x"),
                ("notice_s: more than 900", "run", "--notice", "20m", "--", "x"),
                ("not expected: --frob\n", "run", "--frob", "--", "x"),
                ("--token: is empty\n  next: give it whole", "login", "https://x", "--token", "")):
            with self.subTest(words=words):
                self.fails(USAGE, pattern, *words)

    def test_what_others_chose_is_shown_and_not_obeyed(self):
        job = self.submit("--name", NASTY)
        for words in (("ps",), ("ps", "--json"), ("show", job, "--json"), ("events",)):
            out = self.cli(*words).stdout
            self.assertFalse(re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", out), words)
        self.assertIn("\\x1b[2Jred\\u202e", self.cli("ps").stdout)
        self.assertEqual(self.json("show", job)["spec"]["name"], NASTY)
        self.cli("stop", job)

    def test_output_that_does_not_arrive_fails_the_command(self):
        with open("/dev/full", "w") as full:
            for words in (("whoami",), ("ps", "--json"), ("image", "ls"), ("--help",), ("run", "--help"),
                          ("--version",)):
                self.fails(1, "standard output: .*(No space left|an earlier write)", *words, stdout=full)
            for other in ("reclaim-agent", "reclaim-coordinator", "reclaim-warden"):
                for flag in ("--help", "--version"):
                    done = subprocess.run([program(other), flag], stdout=full, stderr=subprocess.PIPE, text=True)
                    self.assertEqual(done.returncode, 1, (other, flag))
        reader, writer = os.pipe()
        os.close(reader)
        with open(writer, "w") as gone:
            for words in (("whoami",), ("--help",)):
                self.assertEqual(self.cli(*words, status=READER_GONE, stdout=gone).stderr, "")
        closed = subprocess.run(["sh", "-c", 'exec "$0" whoami >&-', program("reclaim")], stderr=subprocess.PIPE,
                                env=self.site.environment, text=True)
        self.assertEqual(closed.returncode, 1, closed.stderr)

    def test_a_coordinator_whose_output_nobody_reads_serves_and_ends_as_it_would_have(self):
        reader, writer = os.pipe()
        os.close(reader)
        with open(writer, "w") as gone, open("/dev/full", "w") as full:
            for name, output in (("gone", gone), ("full", full)):
                state, log = self.folder / f"unheard-{name}", self.folder / f"unheard-{name}.log"
                with open(log, "wb") as errors:
                    process = subprocess.Popen([program("reclaim-coordinator"), "serve", "--state", state, "--listen",
                                                "127.0.0.1:0"], stdout=output, stderr=errors)
                try:
                    wait_until("it to serve", lambda log=log: "output.lost" in log.read_text(), 20)
                    self.assertIsNone(process.poll())
                    process.terminate()
                    self.assertEqual(process.wait(20), 0, log.read_text())
                finally:
                    process.kill()
                    process.wait()

    def test_the_exit_codes_are_those_of_the_documentation(self):
        big = self.make_folder("big", x="x" * (2 << 20))
        with socket.socket() as nobody, open("/dev/full", "w") as full:
            nobody.bind(("127.0.0.1", 0))  # and does not listen
            away = f"https://127.0.0.1:{nobody.getsockname()[1]}"
            self.cli("whoami")
            self.cli("whoami", status=1, stdout=full)
            self.cli("ps", "--limit", 0, status=USAGE)
            self.cli("show", 4711, status=NOT_FOUND)
            self.cli("whoami", status=DENIED, RECLAIM_TOKEN=self.site.token.replace(".", ".0", 2))
            self.cli("image", "save", "base", self.archive, status=CONFLICT)
            self.cli("whoami", status=UNREACHABLE, RECLAIM_URL=away)
            self.cli("run", "--folder", big, "--max-upload-mib", 1, "--", "true", status=NO_ROOM)
        shown = {0, 1, USAGE, NOT_FOUND, DENIED, CONFLICT, UNREACHABLE, NO_ROOM}
        above = {7, 130, READER_GONE}  # ExitCodes.* of cli_test.cc; the tests of what watches a job
        table = (ROOT / "docs" / "commands.md").read_text()
        self.assertEqual({int(code) for code in re.findall(r"^\| (\d+) \|", table, re.M)}, shown | above)

    def test_zz_every_command_and_flag_was_tried(self):
        left = []
        for command, flags in self.known().items():
            has_own = command and not any(other[:-1] == command for other in self.known())
            if has_own and command not in self.used:
                left.append(" ".join(command))
            left += [f"{' '.join(command)} {names[-1]}" for names in flags if not ALWAYS & set(names) and not any(
                (command, name) in self.used for name in names)]
        self.assertGreater(len(self.known()), 20)
        self.assertEqual(left, [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
