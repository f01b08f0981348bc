# SPDX-License-Identifier: Apache-2.0
"""Scenario files: what is played on which topology. docs/testbed.md has the fields."""
import pathlib

import yaml

import owners
from lines import Bad

FIELDS = {
    "topology": str, "nodes": int, "shaper": str, "minutes": (int, float), "baseline_s": (int, float), "peer": str,
    "contract": dict, "contracts": dict, "jobs": dict, "owners": dict, "mix": dict, "traffic": list, "about": str}
NEEDED = ("topology", "nodes", "minutes", "peer", "jobs", "owners", "mix")
JOB_FIELDS = {"at_once": int, "steps": list, "save_every": list, "step_ms": (int, float), "state_mib": list,
              "blocks": int, "term_share": (int, float)}
TRAFFIC_KINDS = ("bulk", "small")


def read(path):
    try:
        found = yaml.safe_load(pathlib.Path(path).read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise Bad(f"scenario {path}: {str(error).splitlines()[0]}; tests/testbed has examples") from None
    check(found, path)
    found["topology"] = str(pathlib.Path(path).parent / found["topology"])
    return found


def _check_fields(what, found, fields, needed):
    if not isinstance(found, dict):
        raise Bad(f"{what}: a list of `field: value` is expected")
    for name, value in found.items():
        if name not in fields:
            raise Bad(f"{what}: no field {name!r}; there are {', '.join(sorted(fields))}")
        if not isinstance(value, fields[name]) or isinstance(value, bool):
            raise Bad(f"{what}: {name}: {value!r} is of the wrong kind; see docs/testbed.md")
    for name in needed:
        if name not in found:
            raise Bad(f"{what}: {name}: is missing")


def check(found, path):
    what = f"scenario {path}"
    _check_fields(what, found, FIELDS, NEEDED)
    _check_fields(f"{what}: jobs", found["jobs"], JOB_FIELDS, JOB_FIELDS)
    if not 0 < found["minutes"] <= 24 * 60:
        raise Bad(f"{what}: minutes: {found['minutes']} is not between 0 and 1440")
    _check_mix(what, found["mix"])
    for name in ("speed", "min_free", "nodes") if "speed" in found["owners"] else ("mean_free_s",):
        if name not in found["owners"]:
            raise Bad(f"{what}: owners: {name}: is missing")
    _check_pair(f"{what}: owners: hold_s", found["owners"].get("hold_s"))
    take = found["owners"].get("take", [])
    if not isinstance(take, list) or not all(isinstance(one, str) for one in take):
        raise Bad(f"{what}: owners: take: {take!r}: a list of nodes is expected, those that are taken back at all")
    _check_fills(f"{what}: owners: fills", found["owners"].get("fills"))
    for name in ("steps", "save_every", "state_mib"):
        _check_pair(f"{what}: jobs: {name}", found["jobs"][name])
    for flow in found.get("traffic", []):
        if not isinstance(flow, dict) or flow.get("kind") not in TRAFFIC_KINDS or not {"from", "to"} <= set(flow):
            raise Bad(f"{what}: traffic: {flow}: each has kind: bulk or small, from: and to:")


def _check_pair(what, pair):
    if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(one, (int, float)) for one in pair) or \
            not 0 < pair[0] <= pair[1]:
        raise Bad(f"{what}: {pair!r}: a pair [least, most] is expected")


def _check_fills(what, fills):
    if fills is None:
        return
    if not isinstance(fills, dict) or set(fills) != {"to", "share"}:
        raise Bad(f"{what}: {fills!r}: to: (a host) and share: (of the reclaims with a notice) are expected")
    if not isinstance(fills["share"], (int, float)) or not 0 <= fills["share"] <= 1:
        raise Bad(f"{what}: share: {fills['share']!r} is not between 0 and 1")


def _check_mix(what, mix):
    shares = [mix.get(kind, 0) for kind in owners.KINDS]
    if any(not isinstance(one, (int, float)) or one < 0 for one in shares) or abs(sum(shares) - 1) > 1e-6:
        raise Bad(f"{what}: mix: the shares of {', '.join(owners.KINDS)} are to add up to 1, not {shares}")
    if not isinstance(mix.get("notice_s"), (int, float)) or not 0 < mix["notice_s"] <= 900:
        raise Bad(f"{what}: mix: notice_s: seconds from 1 to 900 are expected")
    _check_pair(f"{what}: mix: announced_s", mix.get("announced_s", [20, 40]))


def schedule(found, nodes, seed, seconds, traces_folder):
    """(acts, how many were left out, what they were made of)."""
    acts, left_out, made_of = _schedule(found, nodes, seed, seconds, traces_folder)
    fills = found["owners"].get("fills")
    return owners.filling(acts, fills["share"], seed) if fills else acts, left_out, made_of


def _schedule(found, nodes, seed, seconds, traces_folder):
    spec = found["owners"]
    if "speed" not in spec:
        taken = [node for node in nodes if node in spec.get("take", nodes)]
        return *owners.made_up(spec, found["mix"], taken, seed, seconds), "made up"
    if traces_folder is None:
        raise Bad("this scenario plays a trace: name its folder by --traces FOLDER (docs/testbed.md says where they "
                  "come from), or play one with owners that are made up")
    names = sorted({one["lab"] for one in spec["nodes"].values()})
    traces = {name: owners.read_trace(pathlib.Path(traces_folder) / f"{name}.csv.gz") for name in names}
    return *owners.from_traces(spec, found["mix"], nodes, traces, seed, seconds), f"traces {', '.join(names)}"
