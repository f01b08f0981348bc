# SPDX-License-Identifier: Apache-2.0
"""scripts/testbed.sh: its commands and what it says when something is wrong."""
import argparse
import contextlib
import json
import pathlib
import re
import signal
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import bed as beds  # noqa: E402
import disciplines  # noqa: E402
import lines as topology  # noqa: E402
from labs import TimedOut  # noqa: E402
from lines import Bad  # noqa: E402
from rest import Refused, from_state  # noqa: E402

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    pass


def take_no_interruption():
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)


def interrupted(number, _):
    take_no_interruption()
    raise Interrupted(number)


def take_interruptions():
    for number in ENDING:
        signal.signal(number, interrupted)


def say(text):
    print(text, file=sys.stderr, flush=True)


def up(flags):
    beds.choose_build()
    lines = beds.read_topology(flags.topology)
    nodes = topology.count_nodes(lines, flags.nodes)
    beds.check_machine(nodes)
    bed = beds.Bed(lines, nodes, flags.topology, flags.shaper, tell=say)
    try:
        bed.up(is_guarded=False)
    except BaseException:
        take_no_interruption()
        say(f"{bed.run}: taking down what there is of it")
        beds.labs_command("down", bed.run)
        raise
    print(bed.run)
    return 0


def chosen(run):
    if run is None:
        return beds.beds()
    if not re.fullmatch(r"tb[a-z0-9]{1,6}", run):
        raise Bad(f"{run!r} is no id of a bed; `testbed.sh status` lists them")
    return [run]


def down(flags):
    failed = 0
    for run in chosen(flags.id):
        failed |= beds.labs_command("down", run).returncode
        say(f"{run}: {'could not be taken down whole; testbed.sh residue says what is left' if failed else 'down'}")
    return 1 if failed else 0


def residue(flags):
    found = [line for run in chosen(flags.id) for line in beds.labs_command("residue", run).stdout.splitlines()]
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


def status(flags):
    found = chosen(flags.id)
    if not found:
        print("no bed on this machine; testbed.sh up --topology FILE makes one")
    for run in found:
        print_bed(run)
    return 0


def print_bed(run):
    folder = beds.LABS_ROOT / f"rn-{run}"
    try:
        about = json.loads((folder / "bed.json").read_text())
    except (OSError, ValueError):
        print(f"{run}: not whole (its `up` works, or was killed); testbed.sh down {run} removes it")
        return
    print(f"{run}: {about['state']}, {about['coordinator']}, {about['shaper']}, topology {about['topology']}")
    listed = {}
    with contextlib.suppress(OSError, Refused, ValueError):
        address = about["coordinator"].split("//")[1].split(":")[0]
        listed = from_state(folder / "campus" / "disk" / "coordinator", address, 7443).nodes()
    lines = topology.parse((folder / "topology.yaml").read_text()) if (folder / "topology.yaml").exists() else None
    for name, one in about["nodes"].items():
        node = listed.get(name)
        word = f"{node['state']}, lending {node['lending']}" if node else "the coordinator does not answer"
        print(f"  node {name:<11} {one['address']:<14} {line_words(lines, name):<24} {word}")
    for name, address in about["hosts"].items():
        print(f"  host {name:<11} {address:<14} {line_words(lines, name)}")
    for one in lines.switches if lines else []:
        print(f"  switch {one.name} at {one.parent}: {mbit(one.up)} up, {mbit(one.down)} down")


def mbit(rate):
    return f"{rate / 1e6:g} Mbit/s" if rate else "no bound"


def line_words(lines, name):
    return f"{mbit(lines.node(name).up)} at {lines.node(name).parent}" if lines else ""


def run(flags):
    import play  # noqa: PLC0415  needs what only a run needs
    return play.main(flags, take_no_interruption, take_interruptions)


def positive(text):
    if not re.fullmatch(r"[0-9]{1,4}", text) or int(text) == 0:
        raise argparse.ArgumentTypeError(f"wants a whole number from 1 on, not {text!r}")
    return int(text)


def parse_arguments():
    parser = argparse.ArgumentParser(prog="testbed.sh", description="see scripts/testbed.sh --help")
    verbs = parser.add_subparsers(dest="verb", required=True)
    verb = verbs.add_parser("up")
    verb.add_argument("--topology", required=True, type=pathlib.Path)
    verb.add_argument("--nodes", type=positive)
    verb.add_argument("--shaper", choices=("htb", "tbf"), default="htb")
    for name in ("down", "status", "residue"):
        verbs.add_parser(name).add_argument("id", nargs="?")
    verb = verbs.add_parser("run")
    verb.add_argument("scenario", type=pathlib.Path)
    verb.add_argument("--seed", type=int, default=1)
    verb.add_argument("--minutes", type=float)
    verb.add_argument("--traces", type=pathlib.Path)
    verb.add_argument("--out", type=pathlib.Path)
    verb.add_argument("--discipline", type=disciplines.names, default=[disciplines.OURS], metavar="NAME,…",
                      help=f"how copies share lines, one after the other: {', '.join(disciplines.WORDS)}, or all")
    verb.add_argument("--keep", action="store_true", help="leaves the bed up afterwards")
    return parser.parse_args()


def main():
    flags = parse_arguments()
    take_interruptions()
    try:
        return {"up": up, "down": down, "status": status, "residue": residue, "run": run}[flags.verb](flags)
    except Bad as error:
        say(f"testbed: {error}")
        return 2
    except Interrupted as error:
        say(f"interrupted by {signal.Signals(error.args[0]).name}")
        return 128 + error.args[0]
    except (TimedOut, AssertionError, OSError, subprocess.CalledProcessError) as error:
        say(f"testbed: {error}")
        if getattr(error, "stderr", None):
            say(str(error.stderr)[-2000:])
        return 1


if __name__ == "__main__":
    sys.exit(main())
