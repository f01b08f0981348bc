# SPDX-License-Identifier: Apache-2.0
"""Machines whose wall clock is hours off, by libfaketime; what counts since the machine's start stays right."""
import pathlib
import shutil

from rn_site import program

FAKETIME = pathlib.Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
OFF_MS = 4 * 3600_000  # of a clock that is five hours off, seen from elsewhere


def environment(hours):
    """`hours`: "+5h", "-5h"."""
    return {"LD_PRELOAD": str(FAKETIME), "FAKETIME": hours, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


def spawn_agent(node, hours):
    """The node's agent, which does not run now, with such a clock."""
    # `env` runs as the agent's user, who may not be let into the folder where the programs were built.
    copy = node.state / "reclaim-agent"
    shutil.copy(program("reclaim-agent"), copy)
    variables = [f"{name}={value}" for name, value in environment(hours).items()]
    return node.labs.spawn(node.lab, "agent", node.as_agent(
        ["env", *variables, copy, *node.agent_program("serve")[1:]]))


def is_off(rest, node, hours):
    """Whether the coordinator has seen it. The lab may have other nodes, which never came."""
    sign = -1 if hours.startswith("+") else 1
    return any(one["lab"] == node.lab and one["is_connected"] and sign * one.get("clock_offset_ms", 0) > OFF_MS
               for one in rest.get("/v1/nodes")["nodes"])


def remove_leftovers(pid):
    for path in pathlib.Path("/dev/shm").glob(f"*faketime*_{pid}"):
        path.unlink()
