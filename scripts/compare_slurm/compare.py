# SPDX-License-Identifier: Apache-2.0
"""scripts/compare-slurm.sh: its options, the order of the plays, and what it says when something is wrong."""
import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "tests" / "system" / "lib"), str(ROOT / "scripts" / "testbed")]
import account  # noqa: E402
import bed as beds  # noqa: E402
import main as testbed  # noqa: E402
import plan as plans  # noqa: E402
import report  # noqa: E402
import slurm_site  # noqa: E402
from labs import TimedOut  # noqa: E402
from lines import Bad  # noqa: E402


def say(text):
    print(text, file=sys.stderr, flush=True)


def parse_arguments(words):
    parser = argparse.ArgumentParser(prog="compare-slurm.sh", description="see scripts/compare-slurm.sh --help")
    parser.add_argument("--nodes", type=testbed.positive, default=5)
    parser.add_argument("--reclaims", type=testbed.positive)
    parser.add_argument("--reps", type=testbed.positive)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save-s", type=testbed.positive, default=plans.SAVE_S)
    parser.add_argument("--variants", default="s1,s2", help="of s1, s2")
    parser.add_argument("--only", choices=plans.SIDES)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--quick", action="store_true", help="four reclaims a play, one repetition")
    parser.add_argument("--judge", type=pathlib.Path, metavar="FOLDER", help="records of an earlier run, judged again")
    flags = parser.parse_args(words)
    flags.reclaims = flags.reclaims or (4 if flags.quick else 24)
    flags.reps = flags.reps or (1 if flags.quick else 3)
    flags.out = flags.out or pathlib.Path(f"compare-slurm-{flags.seed}")
    flags.sides = [flags.only] if flags.only else list(plans.SIDES)
    return flags


def plays_of(flags):
    """[(repetition, side, plan)] in the order in which they are played: who is first changes, for machines drift."""
    found = []
    for repetition in range(flags.reps):
        for number, variant in enumerate(flags.variants.split(",")):
            plan = plans.make(variant, flags.nodes, flags.reclaims, flags.seed + repetition, flags.save_s)
            sides = flags.sides if (repetition + number) % 2 == 0 else flags.sides[::-1]
            found += [(repetition, side, plan) for side in sides]
    return found


def play(side, plan, out):
    """One play with a site of its own, which is gone afterwards; answers its record."""
    import reclaimnet_side  # noqa: PLC0415  what only a play needs
    import slurm_side  # noqa: PLC0415
    topology = out / "topology.yaml"
    topology.write_text(plan.scenario["topology"])
    flags = argparse.Namespace(seed=plan.seed, minutes=None, traces=None, keep=False, scenario=f"{side}-{plan.variant}")
    make = {"slurm": slurm_side.SlurmRun, "reclaimnet": reclaimnet_side.ReclaimNetRun}[side]
    run = make(plan, flags, topology)
    try:
        run.set_up()
        run.play()
        record = run.record()
        run.capture.stop()
    finally:
        handlers = [signal.signal(number, signal.SIG_IGN) for number in testbed.ENDING]
        run.bed.down()
        for number, handler in zip(testbed.ENDING, handlers):
            signal.signal(number, handler)
    if run.bed.labs:
        record["faults"] += [f"left behind: {line}" for line in run.bed.labs.residue()]
    return record


def run_all(flags):
    plays = plays_of(flags)
    check_machine(flags)
    flags.out.mkdir(parents=True, exist_ok=True)
    for number, (repetition, side, plan) in enumerate(plays, 1):
        say(f"play {number} of {len(plays)}: {side}, {plan.variant}, seed {plan.seed}, {len(plan.acts)} reclaims in "
            f"{plan.seconds:.0f} s")
        record = play(side, plan, flags.out)
        record["about"].update(side=side, variant=plan.variant, repetition=repetition, save_s=flags.save_s,
                               guests=plan.scenario["jobs"]["at_once"])
        name = f"record-{repetition}-{plan.variant}-{side}.json"
        (flags.out / name).write_text(json.dumps(record) + "\n")
    return judge(flags.out)


def check_machine(flags):
    """Before anything is made."""
    if os.geteuid() != 0:
        raise Bad("needs root: it makes network namespaces, and for ReclaimNet disks and containers; run it as root")
    if flags.nodes < 2:
        raise Bad("--nodes 1 leaves nobody to whom a displaced guest could go; give 2 or more")
    if list(flags.out.glob("record-*.json")):
        raise Bad(f"{flags.out} has records of an earlier run; name another folder by --out, or remove them")
    if "reclaimnet" in flags.sides:
        beds.check_machine(flags.nodes)
    if "slurm" in flags.sides:
        slurm_site.ensure_installed(say)


def judge(out):
    records = [json.loads(path.read_text()) for path in sorted(out.glob("record-*.json"))]
    if not records:
        raise Bad(f"{out} has no record-*.json; scripts/compare-slurm.sh --out {out} makes some")
    result = account.result_of(records)
    report.write(out, result)
    print((out / "result.txt").read_text())
    print(f"written to {out}")
    return 1 if result["faults"] else 0


def main():
    flags = parse_arguments(sys.argv[1:])
    for number in testbed.ENDING:
        signal.signal(number, testbed.interrupted)
    try:
        return judge(flags.judge) if flags.judge else run_all(flags)
    except Bad as error:
        say(f"compare-slurm: {error}")
        return 2
    except testbed.Interrupted as error:
        say(f"interrupted by {signal.Signals(error.args[0]).name}")
        return 128 + error.args[0]
    except (TimedOut, AssertionError, OSError, subprocess.SubprocessError) as error:
        say(f"compare-slurm: {error}")
        if getattr(error, "stderr", None):
            say(str(error.stderr)[-2000:])
        return 1


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # owners of an interrupted play may still wait for a site that is gone
