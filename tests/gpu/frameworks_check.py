#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The checks of scripts/frameworks-check.sh: the frameworks themselves in guests of ours. docs/gpu-check.md says what
each one is. Ends with NAME.json and NAME.txt, whatever happens.

The guest's first process is our reclaim-init; agent and warden are stood in for: their variables, their word in
/reclaim/notice, the warden's choice of whom to signal (its own code where `catchers` is there)."""
import argparse
import concurrent.futures
import contextlib
import dataclasses
import datetime
import json
import os
import pathlib
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

from framework_guests import HERE, NUMBER, STEPS, Broken, Groups, Guest, is_launcher

GUESTS = HERE / "frameworks"
NOTICE_AT = 20        # steps of the first attempt, when the notice comes
PACE_S = 0.1          # of a step of the first attempt
NOTHING_DONE = 3
GOOD, NOT_GOOD, NOT_THERE = "good", "NOT GOOD", "not there"
MODULES = ("torch", "lightning", "pytorch_lightning", "transformers", "accelerate", "jax", "orbax.checkpoint",
           "submitit")
PACKAGES = ("torch", "lightning", "pytorch-lightning", "transformers", "accelerate", "jax", "jaxlib",
            "orbax-checkpoint", "submitit", "numpy")
# Imports are what takes long on a machine where nothing has been read yet, and one that fails says why here.
LOOK = """
import importlib, importlib.metadata, json, sys, time
there, missing, versions = {}, {}, {"python": sys.version.split()[0]}

def say():
    print("look " + json.dumps({"there": there, "missing": missing, "versions": versions}), flush=True)

for name in sys.argv[2].split(","):
    try:
        versions[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
for name in sys.argv[1].split(","):
    begun = time.monotonic()
    try:
        importlib.import_module(name)
        there[name] = round(time.monotonic() - begun, 1)
    except BaseException as error:
        missing[name] = f"{type(error).__name__}: {error}"[:300]
    say()
if "torch" in there:
    import torch
    versions["torch"] = torch.__version__
    versions["cuda"] = str(torch.version.cuda)
    versions["gpu"] = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "none"
    say()
"""


@dataclasses.dataclass
class Check:
    name: str
    what: str
    modules: tuple  # of which all must be there; "a|b": one of them
    command: list   # PYTHON: the machine's
    env: dict = dataclasses.field(default_factory=dict)
    tasks: int = 0            # of a script for Slurm; 0 = it is told of none
    signal: int | None = None  # that the job's line names; None: the warden finds one
    caught: int | None = None  # the signal that it has to hear; None: it catches none
    hears: int = 1            # how many processes
    says: tuple = ()          # what the framework itself prints in the first attempt
    codes: tuple = (0,)       # the first attempt ends with one of them
    keeps: str = ""           # glob of what the framework saved


def checks():
    lightning, gloo = ("lightning|pytorch_lightning", "torch"), {"GLOO_SOCKET_IFNAME": "lo"}
    transformers = {"TRANSFORMERS_VERBOSITY": "info", "HF_HUB_OFFLINE": "1"}
    requeued = (r"Handling auto-requeue signal: 10", r"Requeued SLURM job: " + NUMBER)
    torchrun = ["PYTHON", "-B", "-m", "torch.distributed.run", "--redirects=1", "--tee=1", "--nproc_per_node=2",
                "--nnodes=1", "--node_rank=0", "--master_addr=127.0.0.1", "--master_port=29501", "torchrun_guest.py"]
    return [
        Check("lightning_requeue", "Lightning finds Slurm, saves on SIGUSR1 and asks for a requeue by scontrol",
              lightning, ["PYTHON", "-B", "lightning_guest.py", "slurm"], tasks=1, signal=signal.SIGUSR1,
              caught=signal.SIGUSR1, says=(r"environment SLURMEnvironment", *requeued), codes=(99,),
              keeps="hpc_ckpt_*.ckpt"),
        Check("lightning_srun", "Lightning, two ranks by srun (on the processor): both hear SIGUSR1, one requeue",
              lightning, ["srun", "PYTHON", "-B", "lightning_guest.py", "ranks"], gloo, tasks=2,
              signal=signal.SIGUSR1, caught=signal.SIGUSR1, hears=2, says=requeued, codes=(99,),
              keeps="hpc_ckpt_*.ckpt"),
        Check("lightning_callback", "Lightning without Slurm saves by its ModelCheckpoint when SIGTERM ends it",
              lightning, ["PYTHON", "-B", "lightning_guest.py", "callback"], caught=signal.SIGTERM,
              codes=(143, 1, 0), keeps="ckpt/last*.ckpt"),
        Check("trainer_jit", "Hugging Face's Trainer saves on SIGTERM (enable_jit_checkpoint) and ends by itself",
              ("transformers", "torch", "accelerate"), ["PYTHON", "-B", "trainer_guest.py", "jit"], transformers,
              caught=signal.SIGTERM, says=(r"SIGTERM received",), keeps="out/checkpoint-*/trainer_state.json"),
        Check("trainer_default", "Hugging Face's Trainer as it is hears nothing; it is left after its next save",
              ("transformers", "torch", "accelerate"), ["PYTHON", "-B", "trainer_guest.py", "default"], transformers,
              codes=(-9,), keeps="out/checkpoint-*/trainer_state.json"),
        Check("accelerate", "accelerate launch: the script hears SIGUSR1 and its launcher does not; save_state",
              ("accelerate", "torch"), ["PYTHON", "-B", "-m", "accelerate.commands.launch", "--num_processes=1",
                                        "--num_machines=1", "--mixed_precision=no", "--dynamo_backend=no",
                                        "accelerate_guest.py"],
              caught=signal.SIGUSR1, keeps="ckpt/*"),
        Check("torchrun", "torchrun, two ranks over gloo: both hear SIGUSR1 and the launcher does not",
              ("torch",), torchrun, gloo, caught=signal.SIGUSR1, hears=2, keeps="model.pt"),
        Check("orbax", "Orbax saves at the step that JAX's preemption service names after SIGTERM",
              ("orbax.checkpoint", "jax"), ["PYTHON", "-B", "orbax_guest.py"],
              {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}, caught=signal.SIGTERM,
              says=(r"reached_preemption step=\d+",), keeps="ckpt/*/_CHECKPOINT_METADATA"),
        Check("submitit", "submitit's job hears SIGUSR2, calls checkpoint(), writes its pickle and asks for a requeue",
              ("submitit", "torch"), ["PYTHON", "-B", "submitit_guest.py", "logs"], {"SUBMITIT_EXECUTOR": "slurm"},
              tasks=1, signal=signal.SIGUSR2, caught=signal.SIGUSR2, codes=(99,), keeps="logs/*_submitted.pkl"),
    ]


class Run:
    """All of them on this machine."""

    def __init__(self, options, scratch):
        self.options, self.scratch, self.groups = options, scratch, Groups()
        self.end = time.monotonic() + options.limit_s
        self.catchers = options.catchers.split() if options.catchers else []
        self.python = options.python or (sys.executable if str(options.root) == "/" else "python3")
        self.has_gpu = os.path.exists("/dev/nvidiactl") and str(options.root) == "/"
        self.there, self.missing, self.versions, self.results = {}, {}, {}, {}

    def left_s(self):
        return self.end - time.monotonic()

    def command_of(self, check):
        if check.name != "look" and self.options.fake:
            return [self.python, "-B", "frameworks_fake.py", check.name, self.options.fake]
        return [self.python if word == "PYTHON" else word for word in check.command]

    def folder_of(self, check):
        """What was submitted."""
        work = pathlib.Path(tempfile.mkdtemp(prefix=f"{check.name}-work-", dir=self.scratch))
        for script in (*GUESTS.glob("*.py"), *([HERE / "frameworks_fake.py"] if self.options.fake else [])):
            shutil.copy(script, work)
        return work

    def look(self):
        """What is there, by a guest: also that one can be had here at all. The words that say why not, or none."""
        modules = ("sys",) if self.options.fake else MODULES
        check = Check("look", "", (), ["PYTHON", "-B", "-c", LOOK, ",".join(modules), ",".join(PACKAGES)])
        guest = Guest(self, check, self.folder_of(check), 1, 0)
        try:
            guest.wait_over("its end", self.options.look_s)
        except Broken as broken:
            self.missing["a guest"] = str(broken)
        finally:
            guest.kill()
        found = re.findall(r"^look (\{.*\})$", guest.log(), re.MULTILINE)
        if not found:
            return f"no guest can be had here: {' | '.join(guest.tail()[-5:]) or guest.code()}"
        said = json.loads(found[-1])
        self.there, self.missing, self.versions = said["there"], self.missing | said["missing"], said["versions"]
        return None

    def lacks(self, check):
        return [names for names in check.modules
                if not self.options.fake and not any(name in self.there for name in names.split("|"))]

    def one(self, check):
        """Its result, whatever happens."""
        begun = time.monotonic()
        result = {"what": check.what, "state": GOOD, "findings": [], "figures": {}}
        lacks = self.lacks(check)
        if lacks:
            names = [name for one in lacks for name in one.split("|")]
            result |= {"state": NOT_THERE, "findings": [f"{name}: {self.missing.get(name, 'not there')}"
                                                        for name in names]}
            return result
        tails, guests = {}, []
        try:
            if self.left_s() < 10:
                raise Broken("not done: the time for all was over")
            Story(self, check, guests, result["figures"]).tell()
        except Broken as broken:
            result["findings"] = [str(broken)]
        except Exception:  # one that breaks says so, and the others are made
            result["findings"] = ["not done: " + traceback.format_exc(limit=-3)]
        for label, guest in guests:
            with contextlib.suppress(Exception):
                guest.kill()
            tails[label] = guest.tail()
        if result["findings"]:
            result |= {"state": NOT_GOOD, "tails": tails}
        return result | {"took_s": round(time.monotonic() - begun, 1)}


class Story:
    """Beside one that nobody disturbs: told midway, left, gone on elsewhere, and compared."""

    def __init__(self, run, check, guests, figures):
        self.run, self.check, self.guests, self.figures = run, check, guests, figures

    def started(self, label, work, attempt, pace_s):
        guest = Guest(self.run, self.check, work, attempt, pace_s)
        self.guests.append((label, guest))
        return guest

    def ended_well(self, label, guest):
        guest.wait_over(f"its end ({label})", self.run.options.each_s)
        done = guest.done()
        if guest.code() != 0 or done is None or done["steps"] != STEPS:
            raise Broken(f"{label}: ended with {guest.code()}, at its end {done}")
        return done

    def tell(self):
        run, check = self.run, self.check
        work = run.folder_of(check)
        whole = self.started("undisturbed", run.folder_of(check), 1, 0)
        first = self.started("first attempt", work, 1, PACE_S)
        first.wait(f"step {NOTICE_AT}", lambda: max(first.steps(""), default=0) >= NOTICE_AT, run.options.each_s)
        saved = self.told(first)
        first.kill()
        self.figures["first_attempt_ended_with"] = first.code()

        elsewhere = pathlib.Path(tempfile.mkdtemp(prefix=f"{check.name}-elsewhere-", dir=run.scratch))
        shutil.copytree(work, elsewhere, dirs_exist_ok=True, symlinks=True)
        shutil.rmtree(work)
        second = self.started("second attempt", elsewhere, 2, 0)
        done = self.ended_well("second attempt", second)
        begun = second.steps("begin")
        self.figures |= {"begun_at_step": begun[:1], "second_attempt_s": round(time.monotonic() - second.begun, 1)}
        if not begun or set(begun) != {saved}:
            raise Broken(f"it began at step {begun}, and step {saved} was saved")
        undisturbed = self.ended_well("undisturbed", whole)
        self.figures |= {"undisturbed": undisturbed, "resumed": done, "compared": "weights, bit for bit; steps"}
        if done["weights"] != undisturbed["weights"]:
            raise Broken(f"the weights are not those of the undisturbed run: {done} and {undisturbed}")

    def told(self, first):
        """From the notice to the guest's leaving. The step that was saved."""
        check, at = self.check, max(first.steps(""))
        kept = set(first.work.glob(check.keeps))
        begun = time.monotonic()
        number, who, catching = first.notice()
        self.figures |= {"told_at_step": at, "signal": None if number is None else signal.Signals(number).name,
                         "signalled": list(who.values())}
        if number != check.caught or (check.caught and len(who) != check.hears):
            seen = [f"{' '.join(words)[:80]} SigCgt={caught}" for words, caught in catching.values()]
            raise Broken(f"{len(who)} processes heard signal {number}, not {check.hears} signal {check.caught}: {seen}")
        if any(is_launcher(words.split()) for words in who.values()):
            raise Broken(f"a launcher was signalled: {who}")
        if check.caught is None:
            saved = self.aligned(first, kept)
        else:
            first.wait_over("leaving", self.run.options.leave_s)
            saved = self.left(first, at)
        self.figures |= {"saved_at_step": saved, "notice_to_left_s": round(time.monotonic() - begun, 2)}
        return saved

    def left(self, first, at):
        check, code = self.check, first.code()
        if first.done() is not None:
            raise Broken(f"it ignored the notice and trained to its end (code {code})")
        if code not in check.codes:
            raise Broken(f"it left with {code}, not {check.codes}")
        missing = [words for words in check.says if not re.search(words, first.log())]
        if missing:
            raise Broken(f"the framework did not say {missing}")
        saved = self.saved_on_disk(first.work) or (first.steps("saves") or [None])[-1]
        if saved is None or not list(first.work.glob(check.keeps)):
            raise Broken(f"nothing was saved: {sorted(path.name for path in first.work.iterdir())}")
        if saved < at:
            raise Broken(f"what is saved is of step {saved}, before the notice at step {at}")
        return saved

    def aligned(self, first, kept):
        """Who hears nothing is left as soon as its next save is whole, which is its machine's agent's work."""
        def is_saved():
            return bool(set(first.work.glob(self.check.keeps)) - kept)
        first.wait("a save of its own", is_saved, self.run.options.leave_s)
        time.sleep(0.7)  # that it holds still, and before the one after it
        return self.killed(first)

    def killed(self, first):
        if first.is_over():
            raise Broken(f"it ended by itself with {first.code()}")
        first.kill()
        return self.saved_on_disk(first.work)

    def saved_on_disk(self, work):
        """Of Trainer: its own rule, the checkpoint with the greatest number."""
        if not self.check.name.startswith("trainer"):
            return None
        steps = [json.loads(path.read_text())["global_step"]
                 for path in work.glob("out/checkpoint-*/trainer_state.json")]
        return max(steps, default=None)


def about(run):
    commit = HERE.parent.parent / "commit"
    described = commit.read_text().strip() if commit.exists() else subprocess.run(
        ["git", "-C", str(HERE), "describe", "--always", "--dirty", "--abbrev=10"], capture_output=True,
        text=True).stdout.strip()
    return {"at": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "host": platform.node(),
            "kernel": platform.release(), "commit": described or "unknown", "processors": os.cpu_count(),
            "root": str(run.options.root), "fake": run.options.fake, "versions": run.versions,
            "imports_s": run.there, "missing": run.missing,
            "first_process": "reclaim-init in namespaces of its own, as root, on the machine's files",
            "control_group": "v2" if pathlib.Path("/sys/fs/cgroup/cgroup.controllers").exists() else "v1 or mixed",
            "signalled_by": "the warden's own choice (catchers)" if run.catchers else "the same rule, in Python",
            "stood_in_for": "agent and warden: variables, /reclaim/notice, the copy of the folder"}


def write_result(out, described, results):
    states = [one["state"] for one in results.values()]
    result = {"about": described, "checks": results, "is_good": NOT_GOOD not in states and GOOD in states}
    pathlib.Path(f"{out}.json").write_text(json.dumps(result, indent=2) + "\n")
    lines = [f"{key}: {json.dumps(value) if isinstance(value, dict) else value}" for key, value in described.items()]
    for name, one in results.items():
        lines += ["", f"{name}: {one['state']}", f"  what: {one['what']}"]
        lines += [f"  finding: {finding}" for finding in one["findings"]]
        lines += [f"  {key}: {json.dumps(value)}" for key, value in one["figures"].items()]
        for label, tail in one.get("tails", {}).items():
            lines += [f"  --- {label}, its last lines:", *(f"  | {line[:400]}" for line in tail)]
    text = "\n".join(lines) + "\n"
    pathlib.Path(f"{out}.txt").write_text(text)
    return text, states


class Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(2, f"frameworks-check: {message}\n  next: scripts/frameworks-check.sh --help\n")


def options_of():
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--init", required=True)
    parser.add_argument("--catchers", help="the program of that name, with its loader's words")
    parser.add_argument("--out", default=f"frameworks-check-{platform.node()}-{datetime.date.today():%Y%m%d}")
    parser.add_argument("--only", nargs="+", choices=[check.name for check in checks()])
    parser.add_argument("--jobs", type=int, default=max(1, min(5, (os.cpu_count() or 1) // 3)),
                        help="checks at a time")
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path("/"), help="an unpacked image")
    parser.add_argument("--python", help="the guests' Python")
    parser.add_argument("--limit-s", type=float, default=350, help="for all of it")
    parser.add_argument("--look-s", type=float, default=120, help="for a first import of everything")
    parser.add_argument("--each-s", type=float, default=90, help="for a guest to come to where it is looked at")
    parser.add_argument("--leave-s", type=float, default=45, help="from the notice to its leaving")
    parser.add_argument("--fake", help=argparse.SUPPRESS)  # programs that behave as the frameworks, or not
    options = parser.parse_args()
    if options.jobs < 1 or min(options.limit_s, options.look_s, options.each_s, options.leave_s) <= 0:
        parser.error("--jobs and the times are more than 0")
    if not pathlib.Path(options.init).is_file():
        parser.error(f"there is no {options.init}")
    if not options.root.is_dir():
        parser.error(f"--root: there is no folder {options.root}")
    options.init, options.root = pathlib.Path(options.init).absolute(), options.root.absolute()
    return options


def nothing(why, next_step):
    print(f"frameworks-check: {why}. Nothing was checked\n  next: {next_step}", file=sys.stderr)
    return NOTHING_DONE


def main():
    options = options_of()
    if os.geteuid() != 0:
        return nothing("guests need namespaces and control groups", "run this as root")
    out = pathlib.Path(options.out).absolute()
    with tempfile.TemporaryDirectory(prefix="rn-frameworks-", ignore_cleanup_errors=True) as scratch:
        run = Run(options, scratch)
        why = run.look()
        if why:
            return nothing(why, "run this as root where mount, PID and network namespaces can be made")
        described = about(run)
        chosen = [check for check in checks() if not options.only or check.name in options.only]
        results = {}
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            running = {pool.submit(run.one, check): check for check in chosen}
            for future in concurrent.futures.as_completed(running):
                results[running[future].name] = future.result()
                write_result(out, described | {"unfinished_after": running[future].name}, results)
        results = {check.name: results[check.name] for check in chosen}
    text, states = write_result(out, described, results)
    print(text, end="")
    print(f"result: {out}.json and {out}.txt")
    if set(states) <= {NOT_THERE}:
        return nothing("none of these frameworks is there",
                       "install PyTorch, Lightning, transformers or Orbax, or name the Python that has them: RN_PYTHON")
    return 1 if NOT_GOOD in states else 0


if __name__ == "__main__":
    sys.exit(main())
