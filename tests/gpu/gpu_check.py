#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The checks of scripts/gpu-check.sh, which finds GPU, PyTorch and probe and then starts this. docs/gpu-check.md says
what each one is. Ends with NAME.json and NAME.txt, whatever happens; exit code 1 if a check is not good."""
import argparse
import contextlib
import datetime
import json
import math
import os
import pathlib
import platform
import signal
import subprocess
import sys
import tempfile
import time

from gpu_confinement import START_S, confinement

HERE = pathlib.Path(__file__).resolve().parent
LIMIT_MS = 20_000     # from the kill to memory that is verified free
NEAR_MIB = 64         # as good as the same amount of memory
CONTROL_MIB = 64
SCRUBS = 10           # rounds of the look at what is left in memory, at most
SPARE_MIB = 2048      # of a device's memory that who takes all of it leaves: contexts, the driver's own
KINDS = ("idle", "training", "holding", "endless")


def quantile(samples, q):
    return sorted(samples)[max(0, math.ceil(q * len(samples)) - 1)]


def figures(samples):
    return {"n": len(samples), "p50_ms": round(quantile(samples, 0.5), 3), "p99_ms": round(quantile(samples, 0.99), 3),
            "max_ms": round(max(samples), 3)} if samples else {"n": 0}


class Tenant:
    """One guest. `pids` are its numbers in this process's view. It waits for its words before it touches the device:
    most of its start is PyTorch's own, and others may be started meanwhile."""

    def __init__(self, check):
        self.check, self.place = check, check.confined.place()
        command = check.confined.command(self.place, ["wait", "--device", check.options.device])
        self.popen = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                      start_new_session=True, cwd=check.folder)
        check.confined.entered(self.place, self.popen.pid)
        self.pids = [self.popen.pid]

    def go(self, *words):
        with contextlib.suppress(BrokenPipeError):  # it has ended: its line or its code tells why
            self.popen.stdin.write(" ".join(map(str, words)) + "\n")
            self.popen.stdin.flush()
        return self

    def wait_ready(self):
        line = self.popen.stdout.readline()
        if not line.startswith("ready"):
            raise Broken(f"a tenant did not come up: {line.strip() or 'it ended with ' + str(self.popen.wait())}")
        self.pids = descendants(self.popen.pid)
        self.check.driver.has_started(self)
        return self

    def output(self):
        out, _ = self.popen.communicate(timeout=START_S)
        return out.splitlines()

    def end(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait()
        self.check.driver.has_ended(self)
        self.check.confined.leave(self.place)


def descendants(pid):
    """The process and all below it, as NVML would name them."""
    parents = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                stat = (entry / "stat").read_text()
                parents.setdefault(int(stat.rsplit(") ", 1)[1].split()[1]), []).append(int(entry.name))
    found, left = [], [pid]
    while left:
        one = left.pop()
        found.append(one)
        left += parents.get(one, [])
    return found


class Broken(Exception):
    """A check could not be made."""


class RealDriver:
    def has_started(self, tenant):
        pass

    def has_ended(self, tenant):
        pass


class RecordedDriver:
    """Writes what the library of the tests answers: who holds memory of the device. `slow_s`: so long after its end a
    process is still listed; `keeps`: for ever."""

    def __init__(self, path, slow_s=0.0, keeps=False):
        self.path, self.slow_s, self.keeps, self.holders = pathlib.Path(path), slow_s, keeps, {}
        self.write()

    def write(self):
        used = 500 + sum(self.holders.values())
        held = " ".join(f"{pid}:{mib}" for pid, mib in self.holders.items())
        text = f"recorded-card GPU-recorded-0 9 0 81559 {used} 7 41 70000 {held}\n"
        part = self.path.with_suffix(".part")
        part.write_text(text)
        part.replace(self.path)

    def has_started(self, tenant):
        self.holders[tenant.pids[-1]] = 1000
        self.write()

    def has_ended(self, tenant):
        for pid in tenant.pids if not self.keeps else ():
            self.holders.pop(pid, None)
        self.write()

    def watch(self, tenant, until):
        """Beside a clearing: takes out who has ended, as a driver does, a little later."""
        ended_at = {}
        while not until():
            for pid in [pid for pid in tenant.pids if pid in self.holders and not self.keeps]:
                if is_alive(pid):
                    continue
                ended_at.setdefault(pid, time.monotonic())
                if time.monotonic() - ended_at[pid] >= self.slow_s:
                    del self.holders[pid]
                    self.write()
            time.sleep(0.002)  # between two looks


def is_alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0] != "Z"
    except OSError:
        return False


class Check:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.tenants, self.waiting = [], []  # with their words; without
        self.probe_words = options.probe.split()
        self.is_real = options.device != "cpu"
        self.driver = RealDriver() if self.is_real else RecordedDriver(
            os.environ["RN_FAKE_NVML"], options.recorded_slow_ms / 1000, options.recorded_keeps)
        self.mib = options.hold_mib
        self.results, self.findings = {}, []
        self.confined, self.not_used = confinement(options)

    def probe(self, *words, check=True):
        done = subprocess.run([*self.probe_words, *map(str, words)], capture_output=True, text=True,
                              timeout=LIMIT_MS / 1000 + 60)
        if check and done.returncode not in (0, 3):
            raise Broken(f"gpu_probe {words[0]}: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def telemetry(self, *guests):
        return self.probe("telemetry", self.options.nvml, *guests)["gpus"]

    def used_mib(self):
        return self.telemetry()[0]["memory_used_mib"]

    def found(self, text):
        self.findings.append(text)

    def started(self, kind, *flags):
        while len(self.waiting) <= self.options.ahead:
            self.waiting.append(Tenant(self))
        tenant = self.waiting.pop(0)
        self.tenants.append(tenant)
        return tenant.go(kind, *flags)

    def tenant(self, kind, *flags):
        return self.started(kind, *flags).wait_ready()

    def let_go(self, tenant):
        self.tenants.remove(tenant)
        tenant.end()

    def end(self, tenants):
        while tenants:
            tenants.pop().end()

    def clear(self, tenant):
        """By our own kill path; its answer."""
        words = [*self.probe_words, "clear", self.options.nvml, str(self.options.limit_ms),
                 *self.confined.clear_words(tenant.place, tenant.pids)]
        running = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if not self.is_real:
            self.driver.watch(tenant, lambda: running.poll() is not None)
        out, errors = running.communicate(timeout=LIMIT_MS / 1000 + 60)
        tenant.popen.wait(START_S)
        self.let_go(tenant)
        if not out:
            raise Broken(f"gpu_probe clear: {errors.strip()}")
        return json.loads(out)

    # --- the checks, in their order

    def check_telemetry(self):
        """Our reader beside nvidia-smi, idle and with a tenant that computes."""
        rows = {}
        for state in ("idle", "training"):
            tenant = self.tenant("training") if state == "training" else None
            time.sleep(2 if self.is_real and tenant else 0)  # that temperature and power are those of the load
            ours, theirs = self.telemetry(), self.smi()
            rows[state] = {"ours": ours[0], "nvidia_smi": theirs}
            if theirs:
                self.compare(state, ours[0], theirs)
            if tenant:
                self.let_go(tenant)
        return rows

    def smi(self):
        if self.options.smi is None:
            return None
        fields = ("uuid", "name", "memory.total", "memory.used", "temperature.gpu", "power.draw", "utilization.gpu")
        out = subprocess.run(
            [self.options.smi, "--id=0", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"],
            capture_output=True, text=True, timeout=60).stdout.strip()
        return dict(zip(fields, [word.strip() for word in out.split(",")]))

    def compare(self, state, ours, theirs):
        def number(field):
            try:
                return float(theirs[field])
            except ValueError:
                return None  # "[N/A]": the device does not offer it

        for ours_key, field, near, scale in (
                ("memory_mib", "memory.total", NEAR_MIB, 1), ("memory_used_mib", "memory.used", NEAR_MIB, 1),
                ("temperature_c", "temperature.gpu", 4, 1), ("power_mw", "power.draw", 60, 1e-3)):
            value = number(field)
            if value is not None and abs(ours[ours_key] * scale - value) > near:
                self.found(f"{state}: {ours_key} {ours[ours_key]} is not nvidia-smi's {field} {value}")
        for ours_key, field in (("uuid", "uuid"), ("model", "name")):
            if ours[ours_key] != theirs[field]:
                self.found(f"{state}: {ours_key} {ours[ours_key]} is not nvidia-smi's {theirs[field]}")

    def check_foreign(self):
        """One process of a guest and one of the owner's: each is told from the other."""
        guest, owner = self.tenant("idle"), self.tenant("idle")
        both, none = self.telemetry(*guest.pids)[0], self.telemetry(*guest.pids, *owner.pids)[0]
        for one in (guest, owner):
            self.let_go(one)
        seen = {"guest_and_owner": both["foreign_processes"], "guests_alone": none["foreign_processes"]}
        if seen["guest_and_owner"] - seen["guests_alone"] != 1:
            self.found(f"one foreign process beside a guest was not told from it: {seen}; in a container NVML may name "
                       "processes by numbers that are not those in here")
        return seen

    def check_kill(self):
        """From the kill to memory that was looked at and found free."""
        rows = {}
        for kind in KINDS:
            killed, free, wedged = [], [], 0
            before = self.used_mib()
            for _ in range(self.options.rounds):
                answer = self.clear(self.tenant(kind, *(("--mib", self.mib) if kind == "holding" else ())))
                if answer["verdict"] != "free":
                    wedged += 1
                    self.found(f"{kind}: wedged: {answer['remains']}")
                    if wedged == 3:
                        break
                    continue
                killed.append(answer["killed_ms"])
                free.append(answer["free_ms"])
                after = self.used_mib()
                if after > before + NEAR_MIB:
                    self.found(f"{kind}: said to be free, and {after - before} MiB more are in use than before")
            rows[kind] = {"processes_gone": figures(killed), "vram_verified_free": figures(free), "wedged": wedged}
        return rows

    def check_scrub(self):
        """What a tenant that takes all memory finds of the one before it, without and with a scrub in between."""
        rows, rounds = {}, min(self.options.rounds, SCRUBS)
        whole = self.telemetry()[0]["memory_mib"] - SPARE_MIB if self.is_real else self.mib
        ways = ["as_the_driver_leaves_it", "scrubbed"] + (["by_reclaim_scrub"] if self.options.scrub else [])
        for way in ways:
            row = {"rounds": rounds, "rounds_found": 0, "found_bytes": 0, "taken_bytes": 0}
            took = []
            for _ in range(rounds):
                self.clear(self.tenant("leave", "--mib", self.mib))
                if way == "scrubbed":
                    begun = time.monotonic()
                    row["scrub"] = self.words_of("scrub", *(() if self.is_real else ("--mib", self.mib)))[0]
                    took.append(1000 * (time.monotonic() - begun))
                elif way == "by_reclaim_scrub":
                    begun = time.monotonic()
                    row["scrub"] = self.scrubbed()
                    took.append(1000 * (time.monotonic() - begun))
                words = self.words_of("seek", "--mib", whole)[0].split()  # found BYTES of TAKEN
                row["rounds_found"] += int(words[1]) != 0
                row["found_bytes"] += int(words[1])
                row["taken_bytes"] += int(words[3])
            if way != "as_the_driver_leaves_it":
                row["scrub_ms"] = figures(took)  # with the context that it makes
                if row["found_bytes"] != 0:
                    self.found(f"{row['found_bytes']} bytes of the tenant before were found after a scrub")
            rows[way] = row
        if self.options.scrub:
            rows["reclaim_scrub_killed"] = self.scrubs_killed(rows["by_reclaim_scrub"]["scrub_ms"]["p50_ms"])
        # That such a look finds what is there: in one process, whose allocator hands on what it has.
        words = self.words_of("control", "--mib", CONTROL_MIB)[0].split()
        rows["control"] = {"found_bytes": int(words[1]), "taken_bytes": int(words[3])}
        if words[1] != words[3]:
            self.found(f"the look is blind: of {words[3]} bytes that hold the pattern it found {words[1]}")
        return rows

    def scrub_command(self):
        return [*self.options.scrub.split(), "--gpu", self.telemetry()[0]["uuid"]]

    def scrubbed(self):
        """Our own program's line, about the whole card."""
        done = subprocess.run(self.scrub_command(), capture_output=True, text=True, timeout=START_S)
        if done.returncode != 0:
            raise Broken(f"reclaim-scrub ended with {done.returncode}: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def scrubs_killed(self, whole_ms):
        """Our program killed somewhere between its first and its last moment: until its process is gone."""
        took, command = [], self.scrub_command()
        for number in range(min(self.options.rounds, SCRUBS)):
            scrub = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(whole_ms / 1000 * (number + 0.5) / SCRUBS)
            begun = time.monotonic()
            scrub.kill()
            if scrub.wait(START_S) == -signal.SIGKILL:  # else it had ended before
                took.append(1000 * (time.monotonic() - begun))
        return figures(took)

    def words_of(self, kind, *flags):
        tenant = self.started(kind, *flags)
        lines = tenant.output()
        self.let_go(tenant)
        if tenant.popen.returncode not in (0, -signal.SIGKILL, 128 + signal.SIGKILL) or not lines:
            raise Broken(f"a tenant ended with {tenant.popen.returncode}")
        return lines

    def check_resume(self):
        """A training's weights: undisturbed, resumed in the same process and context, and in a new one."""
        def weights(name, *flags):
            lines = self.words_of("train", "--steps", 60, "--save-every", 10, "--checkpoint", f"{name}.pt", *flags)
            return lines[-1].split()[-1] if lines[-1].startswith("weights ") else None, lines

        undisturbed, _ = weights("undisturbed")
        same, lines = weights("same", "--again-at", 37)
        if "from 30" not in lines:
            self.found(f"the resume in the same context did not begin at step 30: {lines}")
        stopped, _ = weights("reset", "--stop-at", 37)
        reset, lines = weights("reset")
        if stopped is not None or lines[0] != "from 30":
            self.found(f"the resume on a new context did not begin at step 30: {lines[0]}")
        for name, value in (("the same", same), ("a new", reset)):
            if value != undisturbed:
                self.found(f"resumed on {name} context the weights are {value}, undisturbed {undisturbed}")
        return {"undisturbed": undisturbed, "same_context": same, "new_context": reset}

    CHECKS = (("telemetry", check_telemetry), ("foreign_processes", check_foreign), ("kill_to_free", check_kill),
              ("scrub", check_scrub), ("resume", check_resume))

    def run(self, write):
        """`write` is called after each, with its name."""
        for name, check in self.CHECKS:
            if self.options.only and name not in self.options.only:
                continue
            known, begun = len(self.findings), time.monotonic()
            try:
                self.results[name] = {"figures": check(self)}
            except (Broken, subprocess.TimeoutExpired, OSError, ValueError, IndexError, KeyError) as error:
                self.found(f"not done: {type(error).__name__}: {error}")
                self.results[name] = {"figures": None}
            finally:
                self.end(self.tenants)
            self.results[name]["findings"] = self.findings[known:]
            self.results[name]["is_good"] = len(self.findings) == known
            self.results[name]["took_s"] = round(time.monotonic() - begun, 1)
            write(name)


def about(check):
    commit = HERE.parent.parent / "commit"
    described = commit.read_text().strip() if commit.exists() else subprocess.run(
        ["git", "-C", str(HERE), "describe", "--always", "--dirty", "--abbrev=10"], capture_output=True,
        text=True).stdout.strip()
    torch = subprocess.run([sys.executable, "-c", "import torch; print(torch.__version__, torch.version.cuda)"],
                           capture_output=True, text=True).stdout.split()
    driver = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True,
                            text=True).stdout.split() if check.is_real else []
    return {"at": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "host": platform.node(),
            "kernel": platform.release(), "commit": described or "unknown", "driver": (driver or [None])[0],
            "torch": (torch or [None])[0], "cuda": (torch or [None])[-1],
            "gpu": check.telemetry()[0]["model"] if check.is_real
            else "NONE: a recorded device; no figure here is a GPU's",
            "is_real_gpu": check.is_real, "processors": os.cpu_count(), "ahead": check.options.ahead,
            "confined_as": check.confined.name, "not_used": check.not_used}


def write_result(out, described, checks):
    """Both files; their text, and whether all is good. Also after each check: what takes long may be killed."""
    result = {"about": described, "checks": checks, "is_good": all(one["is_good"] for one in checks.values())}
    pathlib.Path(f"{out}.json").write_text(json.dumps(result, indent=2) + "\n")
    text = text_of(result)
    pathlib.Path(f"{out}.txt").write_text(text)
    return text, result["is_good"]


def text_of(result):
    lines = [f"{key}: {value}" for key, value in result["about"].items()]
    for name, one in result["checks"].items():
        lines += ["", f"{name}: {'good' if one['is_good'] else 'NOT GOOD'}"]
        lines += [f"  finding: {finding}" for finding in one["findings"]]
        for key, value in (one["figures"] or {}).items():
            lines.append(f"  {key}: {json.dumps(value)}")
    return "\n".join(lines) + "\n"


class Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(2, f"gpu-check: {message}\n  next: scripts/gpu-check.sh --help\n")


def main():
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--probe", required=True)
    parser.add_argument("--out", default=f"gpu-check-{platform.node()}-{datetime.date.today():%Y%m%d}")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--nvml", default="libnvidia-ml.so.1")
    parser.add_argument("--ahead", type=int, default=min(8, (os.cpu_count() or 1) // 2),
                        help="tenants that wait, started, for their word")
    parser.add_argument("--hold-mib", type=int, default=10_000)
    parser.add_argument("--limit-ms", type=int, default=LIMIT_MS)
    parser.add_argument("--image", help="a Docker image with PyTorch and CUDA")
    parser.add_argument("--confine", choices=("docker", "runc", "plain"))
    parser.add_argument("--only", nargs="+", choices=[name for name, _ in Check.CHECKS])
    parser.add_argument("--guest", help=argparse.SUPPRESS)  # another program with gpu_guest.py's words
    parser.add_argument("--smi", help=argparse.SUPPRESS)  # another program with nvidia-smi's words
    parser.add_argument("--scrub", default="", help=argparse.SUPPRESS)  # reclaim-scrub, found by the script
    parser.add_argument("--usage-only", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--recorded-slow-ms", type=int, default=30, help=argparse.SUPPRESS)
    parser.add_argument("--recorded-keeps", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.smi is None and options.device != "cpu":
        options.smi = "nvidia-smi"
    if options.ahead < 0:
        parser.error("--ahead is at least 0")
    if options.rounds < 1 or options.hold_mib < 1 or options.limit_ms < 1:
        parser.error("--rounds, --hold-mib and --limit-ms are at least 1")
    if options.device == "cpu" and "RN_FAKE_NVML" not in os.environ:
        parser.error("--device cpu needs --nvml LIBRARY and RN_FAKE_NVML: the file that the library answers from")
    if options.usage_only:
        return 0
    out = pathlib.Path(options.out).absolute()
    with tempfile.TemporaryDirectory(prefix="rn-gpu-check-") as folder:
        os.chdir(folder)
        check = Check(options, folder)
        try:
            described = about(check)
            check.run(lambda name: write_result(out, described | {"unfinished_after": name}, check.results))
        finally:
            check.end(check.waiting)
            check.confined.down()
            os.chdir("/")
    text, is_good = write_result(out, described, check.results)
    print(text, end="")
    print(f"result: {out}.json and {out}.txt")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
