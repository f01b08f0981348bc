# SPDX-License-Identifier: Apache-2.0
"""What `demo.sh --keep` leaves running, and the commands that it suggests there."""
import os
import shlex

from rn_site import program

PROGRAMS = ("reclaim", "reclaim-agent", "reclaim-warden")


def words(*parts):
    return shlex.join(str(part) for part in parts)


def suggestions(stage, lab="lab-a"):
    """(what for, command) in the order in which they can be pasted into one shell of root's. What they write lies in
    the run's own folder, which goes with the site."""
    owner = ("reclaim-agent", "--config", stage.nodes[lab].config_file)
    folder = stage.labs.dir / "your-job"
    path = ":".join(shlex.quote(str(program(name).parent)) for name in PROGRAMS)
    return [
        ("the programs, and a place for the login", f"export PATH={path}:$PATH"),
        ("", f"export XDG_CONFIG_HOME={shlex.quote(str(stage.labs.dir / 'your-config'))}"),
        ("log in as the administrator", words("reclaim", "login", stage.coordinator.url, "--token", stage.rest.token)),
        ("a folder for a job; then run one", f"mkdir -p {shlex.quote(str(folder))} && cd {shlex.quote(str(folder))}"),
        ("", words("reclaim", "run", "--stateless", "--", "python", "-c", "print(6 * 7)")),
        ("who lends", "reclaim nodes"),
        (f"{lab}'s owner takes the machine back at once", words(*owner, "reclaim", "--now")),
        (f"{lab}'s owner lends it again", words(*owner, "release"))]


def lend_again(stage):
    """The story may end while an owner has a machine back: the site that is kept is one that lends."""
    for lab, node in stage.nodes.items():
        if node.contract.get("lends", True):
            node.owner("release")
            stage.wait(f"{lab} to lend again", lambda: stage.rest.nodes()[lab]["lending"] == "open", 60)


def print_block(stage):
    print(f"\nThe site is kept: coordinator {stage.coordinator.url}, run {stage.run}. In another shell, as root:\n")
    for what, command in suggestions(stage):
        if what:
            print(f"  # {what}")
        print(f"  {command}")
    print("\nEach laboratory:")
    for lab, node in stage.nodes.items():
        print(f"  {lab}: {node.address}, state {node.state}, sockets {node.run}")
    print(f"\nCtrl-C here ends it and takes everything down (from elsewhere: kill -INT {os.getpid()}).", flush=True)
