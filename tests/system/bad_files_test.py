#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Wrong configuration files, contracts and flags, given to the real programs: each error names the file or the flag,
the line or the key, what is wrong, and what to do next. Nothing is started."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
from rn_site import program  # noqa: E402

USAGE, NOT_FOUND, DENIED, CONFLICT = 2, 3, 4, 5
NOBODY = ["setpriv", "--reuid", "64991", "--regid", "64991", "--clear-groups"]
# Text of the file, and what is said: place, fault, next step.
CONFIGS = {
    "unknown key": ("listen_pear: x\n", "listen_pear: no such field", "did you mean 'listen_peer'?"),
    "a word for a number": ("telemetry_ms: quick\n", "telemetry_ms: expected a whole number", "correct the file"),
    "a negative number": ("telemetry_ms: -5\n", "telemetry_ms: expected a whole number from 0", "correct the file"),
    "a number too small": ("telemetry_ms: 5\n", "telemetry_ms: below 100", "correct the file"),
    "no time at all": ("no_save_after_s: 0\n", "no_save_after_s: 0 is not from 1 to 604800 (a week)", "write seconds"),
    "bad YAML": ("state: [a\nrun: b\n", "line 2, column 4: ", "correct the file"),
    "a tabulator": ("gpus:\n\t- index: 0\n", "line 2, column 2: ", "correct the file"),
    "a key twice": ("state: a\nstate: b\n", "line 2, column 1: 'state' is there twice", "correct the file"),
    "a list": ("- a\n", "no lines of the form `key: value`", "correct the file"),
    "a number for a list": ("gpus: 2\n", "gpus: expected a list", "correct the file"),
    "no address": ("listen_peer: nonsense\n", 'listen_peer: "nonsense" is not HOST:PORT', "write HOST:PORT"),
    "no port": ("advertise_api: host:99999\n", 'advertise_api: "host:99999" is not HOST:PORT', "write HOST:PORT"),
    "a line that nobody has": ("uplink_bps: 100\n", "uplink_bps: 100 bits a second is no line's speed",
                               "write it in bits a second, 1000000 (1 Mbit/s) to"),
    "a negative line": ("uplink_bps: -1\n", "uplink_bps: expected a whole number from 0", "correct the file"),
    "a file for a folder": ("state: /etc/passwd\n", "state: /etc/passwd is no folder", "name a folder"),
}
CONTRACTS = {
    "unknown key": ("max_guest: 2\n", "max_guest: no such field", "did you mean 'max_guests'?"),
    "a word for a number": ("max_guests: many\n", "max_guests: expected a whole number", "correct it"),
    "a negative number": ("max_guests: -1\n", "max_guests: expected a whole number from 0", "correct it"),
    "a fraction": ("notice_s: 1.5\n", "notice_s: expected a whole number", "correct it"),
    "a word for a truth": ('lends: "yes"\n', "lends: expected true or false", "correct it"),
    "a list": ("- max_guests: 1\n", "no lines of the form `key: value`", "correct it"),
    "bad YAML": ("windows: {a\n", "line 2, column 1: ", "correct it"),
    "no such zone": ("time_zone: Mars/Olympus\n", 'time_zone: there is no time zone "Mars/Olympus"', "Europe/Berlin"),
    "no such day": ('windows: [{days: [funday], from: "25:00", to: "09:00"}]\n',
                    'windows[0].days: "funday" is none of mon', "correct these fields"),
    "against itself": ("max_guests: 0\n", "max_guests: is 0 though lends is true", "correct these fields"),
    "no core": ("guest_cpu_milli: 0\n", "guest_cpu_milli: 0 lends no core", "leave the line out for all cores"),
    "no memory": ("guest_memory_mib: 0\n", "guest_memory_mib: 0 lends no memory", "leave the line out"),
    "from noon to noon": ('windows: [{from: "12:00", to: "12:00"}]\n',
                          'write from: "00:00", to: "24:00" for a whole day', "correct these fields"),
    "a notice longer than its window": (
        'notice_s: 900\nwindows: [{days: [sat], from: "08:00", to: "08:10"}]\n',
        "windows[0]: lends for 600 s from sat 08:00 on, and guests have a notice of 900 s (notice_s) before it ends, "
        "so that none could ever run: make the window longer than the notice by a minute at least",
        "correct these fields"),
    "a rate that no line has": (
        "uplink_bps_normal: 1000\n",
        "uplink_bps_normal: 1000 bits a second is no rate from 1000000 (1 Mbit/s) to 1000000000000 (1 Tbit/s); leave "
        "the line out for no bound", "correct these fields"),
    "a negative rate": ("uplink_bps_evacuation: -1\n", "uplink_bps_evacuation: expected a whole number from 0",
                        "correct it"),
    "more cores than there are": (
        "guest_cpu_milli: 4000000000\n", "guest_cpu_milli: lends 4000000000, the machine has", "correct these fields"),
    "a GPU that is not there": ("gpus: [61]\n", "gpus: 61 is lent, but the machine has no such GPU",
                                "correct these fields"),
}


class BadFiles(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="rn-bad-files-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        os.chmod(self.folder, 0o755)

    def write(self, text, name="file.yaml"):
        (self.folder / name).write_text(text)
        return self.folder / name

    def fails(self, status, command, *words):
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=30)
        for word in words:
            self.assertIn(word, done.stderr)
        expected = (USAGE, 1, DENIED, CONFLICT) if status is None else (status,)
        self.assertIn(done.returncode, expected, done.stdout + done.stderr)

    def agent(self, *words):
        return [program("reclaim-agent"), *words]

    def test_configurations_of_the_agent(self):
        for name, (text, fault, step) in CONFIGS.items():
            with self.subTest(name):
                path = self.write(text)
                self.fails(USAGE, self.agent("--config", path, "serve"), fault, f"next: {step}",
                           "" if step.startswith("did") else str(path))

    def test_a_configuration_that_cannot_be_read(self):
        secret = self.write("state: a\n", "secret.yaml")
        secret.chmod(0)
        self.fails(NOT_FOUND, self.agent("--config", self.folder / "none.yaml", "serve"),
                   f"the configuration file: opening {self.folder}/none.yaml: No such file", "next: name a file")
        self.fails(USAGE, self.agent("--config", self.folder, "serve"), f"{self.folder} is a folder",
                   "next: name a file")
        self.fails(DENIED, NOBODY + self.agent("--config", secret, "serve"), f"{secret}: Permission denied",
                   "next: make it readable for the user that runs the agent")

    def test_a_flag_of_the_agent_is_checked_as_the_file_is(self):
        self.fails(USAGE, self.agent("--config", self.write(""), "--listen-api", "here", "serve"),
                   'listen_api: "here" is not HOST:PORT', "next: ")

    def test_contracts(self):
        for name, (text, fault, step) in CONTRACTS.items():
            with self.subTest(name):
                path = self.write(text)
                self.fails(USAGE, self.agent("contract", "check", path), str(path), fault, "next: ", step)

    def test_a_contract_is_checked_against_the_same_machine_as_when_it_is_set(self):
        config = self.write("gpus: [{index: 61, model: T4}]\n", "agent.yaml")
        path = self.write("gpus: [61]\n")
        done = subprocess.run([*self.agent("--config", config, "--nvml-library", "", "contract", "check", path)],
                              capture_output=True, text=True, timeout=30)
        self.assertEqual(done.stdout, f"{path} is a good contract\n", done.stderr)

    def test_a_contract_that_cannot_be_read(self):
        self.fails(NOT_FOUND, self.agent("contract", "check", self.folder / "none.yaml"),
                   f"the contract: opening {self.folder}/none.yaml: No such file", "next: name a readable file")
        for verb in ("check", "set"):
            self.fails(USAGE, self.agent("contract", verb, self.folder), f"the contract: {self.folder} is a folder",
                       "next: name a readable")

    def test_contract_show_says_that_there_is_none_and_what_a_broken_one_needs(self):
        state = self.folder / "state"
        config = self.write(f"state: {state}\n")

        def show():
            return subprocess.run([str(word) for word in self.agent("--config", config, "contract", "show")],
                                  capture_output=True, text=True, timeout=30)
        nowhere = show()
        self.assertEqual(nowhere.returncode, 0, nowhere.stderr)
        self.assertIn(f"this machine has no contract of its own ({state}/agent/contract.yaml is not there, nor is its "
                      "folder: it never joined, or --state is another one)", nowhere.stderr)
        self.assertIn("  next: reclaim-agent contract show >contract.yaml, change", nowhere.stderr)
        (state / "agent").mkdir(parents=True)
        none = show()
        self.assertIn("contract.yaml is not there): it lends by the default, which follows\n", none.stderr)
        self.assertTrue(none.stderr.endswith("and reclaim-agent contract set contract.yaml\n"), none.stderr)
        self.assertEqual(none.stdout, nowhere.stdout)
        file = state / "agent" / "contract.yaml"
        file.write_text(none.stdout)
        written = show()
        self.assertEqual((written.stdout, written.stderr), (none.stdout, ""))
        self.assertIn("is a good contract", subprocess.run(
            [str(word) for word in self.agent("contract", "check", file)], capture_output=True, text=True,
            timeout=30).stdout)
        file.write_text("max_guest: 2\n")
        self.fails(USAGE, self.agent("--config", config, "contract", "show"), "max_guest: no such field",
                   f"next: correct {file}", "or move it away")
        file.write_text("lends: false\ntime_zone: Mars/Olympus\n")
        self.fails(USAGE, self.agent("--config", config, "contract", "show"), "there is no time zone", "next: correct")

    def test_without_an_agent_its_socket_is_named_and_not_a_web_address(self):
        config = self.write(f"run: {self.folder}\n")
        self.fails(6, self.agent("--config", config, "status"),
                   f"the agent: nobody answers on {self.folder}/agent.sock", "next: is it running?")

    def test_without_a_warden_an_order_says_that_it_cannot_be_reached_and_what_needs_none(self):
        config = self.write(f"run: {self.folder}\n")
        for verb in ("release", "pause", "resume"):
            self.fails(6, self.agent("--config", config, verb),
                       f"reclaim-agent: the warden: connecting to {self.folder}/warden.sock: No such file",
                       "next: is reclaim-warden running?", "as root: reclaim-kill")
        self.fails(6, NOBODY + self.agent("--config", config, "reclaim", "--now"),
                   f"does not answer on {self.folder}/kill.sock", "next: as root: reclaim-kill")

    def test_an_order_of_nobody_to_leave_is_refused(self):
        places = ["--state", self.folder / "state", "--run", self.folder / "run"]
        leave = [*NOBODY, program("reclaim-warden"), "leave", *places]
        self.fails(1, leave, "must run as root", "next: run it as root")

    def test_leave_says_what_it_waits_for(self):
        settings = self.folder / "state" / "warden" / "settings"
        settings.parent.mkdir(parents=True)
        settings.write_text("rn-files\nprivate\n\n")
        done = subprocess.run([program("reclaim-warden"), "leave", "--state", self.folder / "state", "--run",
                               self.folder / "run"], capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stderr, "^reclaim-warden: ending the guests .*, 30 s at most\n")
        self.assertIn(f"removed {settings.parent}", done.stdout)

    def test_leave_of_a_lab_that_never_was_makes_nothing(self):
        places = ["--state", self.folder / "state", "--run", self.folder / "run"]
        leave = [program("reclaim-warden"), "leave", "--lab", "rn-typo", *places]
        done = subprocess.run(leave, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(done.stdout, f'nothing to remove of lab "rn-typo" in {self.folder / "state"}\n')
        self.assertFalse((self.folder / "run").exists())
        settings = self.folder / "state" / "warden" / "settings"
        settings.parent.mkdir(parents=True)
        settings.write_text("rn-files\nprivate\n\n")
        self.fails(1, leave, 'lab "rn-typo" was not served from', 'there it is lab "rn-files"', "leave --lab out")
        self.assertTrue(settings.exists(), "another lab's state")

    def test_a_hurried_kill_where_nothing_is_names_the_folder(self):
        places = ["--state", self.folder / "state", "--run", self.folder / "run", "--lab", "rn-none"]
        settings = self.folder / "state" / "warden" / "settings"
        wrong = "served lab \"rn-none\" from"
        self.fails(1, [program("reclaim-kill"), *places], wrong, "next: name the folder")
        self.fails(1, [program("reclaim-kill"), *places, "--transfers"], wrong, "next: name the folder")
        settings.parent.mkdir(parents=True)
        settings.write_text("rn-none\nprivate\n\n")
        gates = f"the gate in {self.folder}/run/gates: No such file"
        self.fails(1, [program("reclaim-kill"), *places, "--transfers"], f"transfers are not cut yet: {gates}",
                   "next: if the warden's serve was given another --run",
                   f"not bounded by a warden of {self.folder}/run: nothing was done", "next: stop the agent")

    def test_a_login_file_that_is_none(self):
        login = self.folder / "reclaimnet" / "config.json"
        told = ["env", f"XDG_CONFIG_HOME={self.folder}", program("reclaim"), "ps"]
        login.mkdir(parents=True)
        done = subprocess.run([str(word) for word in told], capture_output=True, text=True, timeout=30)
        self.assertEqual(done.stderr.count(str(login)), 1, done.stderr)
        self.fails(USAGE, told, f"{login} is a folder", "next: move it away")
        login.rmdir()
        login.write_text("")
        self.fails(USAGE, told, f"{login} is empty", "next: log in again")

    def test_flags_of_the_warden(self):
        places = ["--state", self.folder / "state", "--run", self.folder / "run"]
        self.addCleanup(self.remove_what_was_started, *places)
        good = {"--lab": "a", "--agent-uid": "1"}
        wrong = {
            "a blank in its lab": ({"--lab": "a b"}, '--lab "a b" is no name', "use at most 63 letters"),
            "no user's number": ({"--agent-uid": "daemon"}, "--agent-uid: 'daemon' is no whole number", "id -u daemon"),
            "root for its agent": ({"--agent-uid": "0"}, "--agent-uid 0: the agent speaks", "useradd --system"),
            "a word for its engine": ({"--engine": "docker"}, '--engine "docker" is no path', "/run/docker.sock"),
            "a file for its engine": ({"--engine": "/etc/passwd"}, "--engine /etc/passwd is no socket", "whole path"),
            "a negative user": ({"--agent-uid": "-1"}, "--agent-uid: '-1' is no whole number", ""),
            "a negative reserve": ({"--reserve-mib": "-4"}, "--reserve-mib: '-4' is no whole number", ""),
            "no such init": ({"--init": "/none"}, "--init /none is not there", "give the path of the installed"),
            "an empty init": ({"--init": str(self.write("", "empty"))}, "/empty is no program", "give the path of the"),
            "a script for its init": ({"--init": "/usr/bin/ldd"}, "/ldd is no program that can be run", "give"),
            "no addresses": ({"--guest-addresses": "banana"}, '--guest-addresses: "banana" is not', "100.64.0.0"),
            "another kind of GPU": ({"--gpus": "amd"}, "--gpus: amd not in", ""),
        }
        for name, (flags, fault, step) in wrong.items():
            with self.subTest(name):
                words = [f"{flag}={value}" for flag, value in {**good, **flags}.items()]
                self.fails(USAGE, [program("reclaim-warden"), "serve", *places, *words], fault, step)
                self.assertFalse((self.folder / "state").exists())

    def test_verify_of_what_was_never_served(self):
        places = ["--state", self.folder / "state", "--run", self.folder / "run"]
        verify = [program("reclaim-warden"), "verify"]
        self.fails(1, [*verify, *places], "no warden has served from", "name the folder that the warden's serve")
        self.fails(1, [*verify, *places, "--lab", "a"], "no warden has served from", "--state")
        settings = self.folder / "state" / "warden" / "settings"
        settings.parent.mkdir(parents=True)
        settings.write_text("rn-files\nprivate\n\n")
        self.fails(1, [*verify, *places, "--lab", "rn-flies"], 'no warden has served lab "rn-flies"', 'lab "rn-files"',
                   "leave --lab out")
        for flag, others in (("--state", places[2:]), ("--run", places[:2])):
            self.fails(USAGE, [*verify, *others, f"{flag}="], flag)
            self.fails(USAGE, [*verify, *others, flag, ""], flag, "names no folder")

    def remove_what_was_started(self, *places):
        """By a program that is broken."""
        if (self.folder / "state").exists():
            subprocess.run([program("reclaim-warden"), "leave", "--lab", "a", *places], timeout=120, check=True)

    def test_places_of_the_warden(self):
        file = self.write("", "file")
        flags = ["serve", "--lab", "a", "--agent-uid", "1"]
        self.fails(1, [program("reclaim-warden"), *flags, "--state", self.folder / "state", "--run", file],
                   f"--run: {file} exists and is not a folder", "name a folder of its own")
        self.fails(1, NOBODY + [program("reclaim-warden"), *flags, "--state", "/tmp", "--run", "/tmp"],
                   "the warden must run as root", "systemctl start reclaim-warden")


    def test_configurations_of_the_coordinator(self):
        serve = [program("reclaim-coordinator"), "serve", "--config"]
        under_a_file = f"state: {self.write('', 'file')}/state\n"
        for text, fault, step in (("state: [a\n", "line 2, column 1: ", "correct the file"),
                                  ("stat: a\n", "stat: no such field", "did you mean 'state'?"),
                                  (under_a_file, "state: ", "name with --state a folder")):
            with self.subTest(text):
                self.fails(None, [*serve, self.write(text)], fault, f"next: {step}")
        self.fails(USAGE, [*serve, self.folder], f"the configuration file: {self.folder} is a folder", "next: ")
        verify = [program("reclaim-coordinator"), "verify", "--state"]
        self.fails(NOT_FOUND, [*verify, self.folder / "none"], str(self.folder / "none"), "next: ", "--state")

    def test_topologies_that_are_none(self):
        check = [program("reclaim-coordinator"), "check-topology", "--state", self.folder / "none"]
        self.fails(USAGE, [*check, self.folder], f"the topology: {self.folder} is a folder", "next: name a readable")
        self.fails(USAGE, [*check, self.write("", "empty")], "it has no version", "next: write `version: 1`")
        self.fails(USAGE, [*check, self.write("version: 2\n", "later")], "version 2 is not known", "next: ")
        self.fails(NOT_FOUND, [*check, self.folder / "absent"], "the topology: opening", "next: name a readable")

    def test_stories_that_are_none(self):
        sim = pathlib.Path(program("reclaim")).parents[1] / "reclaim-sim" / "reclaim-sim"
        if not sim.exists():
            self.skipTest(f"{sim} is not built")
        wrong = (self.folder, self.write("# nothing\n"), self.write("frobnicate a\n", "wrong"), self.folder / "none",
                 self.write("release node0 gpu 64\n", "no-gpu"), self.write("owner node0 gpu 1\n", "no-order"))
        for path in wrong:
            with self.subTest(path):
                self.fails(USAGE, [sim, "scenario", path], "reclaim-sim: ", str(path), "\n  next: ")
        self.fails(USAGE, [sim, "chaos", "--frobnicate"], "reclaim-sim: ", "--frobnicate",
                   "next: see 'reclaim-sim chaos --help'")


if __name__ == "__main__":
    unittest.main(verbosity=2)
