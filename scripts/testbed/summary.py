# SPDX-License-Identifier: Apache-2.0
"""A result of the testbed, to be read by people."""


def number(value, unit="s", digits=2):
    return "-" if value is None else f"{value:.{digits}f} {unit}".strip()


def three(one, unit="s", digits=2):
    if not one["n"]:
        return "n=0"
    return f"n={one['n']}, p50 {number(one['p50'], '', digits)}, p99 {number(one['p99'], unit, digits)}"


def share(one):
    return f"{one['count']} of {one['n']}" + (f" ({100 * one['share']:.1f} %)" if one["n"] else "")


def change(value):
    return "-" if value is None else f"{100 * value:+.1f} %"


def _kind(name, one):
    yield (f"{name}: {one['reclaims']} reclaims, {one['displaced']} guests displaced, "
           f"{one['again_before_new_work']} again before new work, {one['never_resumed']} not resumed before the end")
    if name != "lost":
        yield (f"  last guest packet {three(one['last_packet_s'], digits=3)}; cut {three(one['cut_s'], digits=3)}; "
               f"cleared {three(one['cleared_s'], digits=3)}; packets after the deadline: "
               f"{one['packets_after_deadline']}")
    yield (f"  silence {three(one['silence_s'])}; downtime {three(one['downtime_s'])}; work lost "
           f"{three(one['lost_s'])}, steps {three(one['lost_steps'], '', 0)}")
    if "inside" in one:
        yield (f"  inside their notice: {share(one['inside'])}; of those that fitted: "
               f"{share(one['inside_of_fitting'])}")


def _flow(one):
    unit, scale = ("Mbit/s", 1e-6) if one["kind"] == "bulk" else ("ms", 1e3)
    yield f"{one['kind']} {one['from']} → {one['to']}" + (f" at {one['rate']}" if one["rate"] else "")
    for phase, there in one["phases"].items():
        def scaled(name, there=there):
            return number(there[name] and there[name] * scale, unit, 1)
        words = f"  {phase}: n={there['n']}, p50 {scaled('p50')}, p99 {scaled('p99')}, mean {scaled('mean')}"
        if phase != "baseline":
            words += (f"; change of p50 {change(there['p50_change'])}, p99 {change(there['p99_change'])}, mean "
                      f"{change(there['mean_change'])}")
        yield words + (f"; failed {there['failed']}" if there["failed"] else "")


def _harm(rows):
    yield "judged:"
    for one in rows:
        words = "reported"
        if one["goal"] is not None:
            met = {True: "met", False: "missed", None: "nothing to judge"}[one["is_met"]]
            words = f"goal {100 * one['goal']:g} %: {met}"
        yield (f"  {one['flow']} ({one['pace']}), {one['measure']} {one['phase']}: {change(one['change'])} "
               f"(n={one['n']}; {words})")


def _own(one):
    def rate(part):
        return f"{number(part['mean'] and part['mean'] * 1e-6, 'Mbit/s', 1)} (n={part['n']} s)"
    yield (f"owners who filled their line: {one['reclaims']} reclaims, {one['displacing']} of them with guests; "
           f"evacuations inside their notice: {share(one['inside'])}; of those that would have fitted without it: "
           f"{share(one['would_fit_without'])}")
    yield (f"  promises that were taken back: {share(one['withdrawn'])}; evacuations with one until the deadline: "
           f"{share(one['promised'])}; of these late: {share(one['late'])}")
    yield (f"  the owner's transfer, mean: {rate(one['beside'])} beside the evacuation, {rate(one['alone'])} after it: "
           f"{change(one['change'])}")


def text(result):
    about = result["about"]
    lines = [
        f"scenario {about['scenario']}, seed {about['seed']}, {about['minutes']:g} minutes, owners {about['owners']}",
        f"machine: {about['machine']}; load {about['load']}; commit {about['commit']}; {about['when']}",
        f"discipline {about.get('discipline', 'ours')}, topology {about['topology']}, {about['nodes']} nodes, "
        f"{about['shaper']}; acts left out because the owner still had the machine: {about['left_out']}", ""]
    for name, one in result["kinds"].items():
        lines += _kind(name, one)
    lines += ["", f"evacuations inside their notice: {share(result['inside'])}; of those whose true delta fitted the "
              f"true capacity: {share(result['inside_of_fitting'])}"]
    told = result["promised"]
    lines.append(f"promised and missed: {share(told['missed'])}" + "".join(
        f"; {words}: {share(told[name])}" for name, words in (
            ("withdrawn", "promised, and no longer promised later"),
            ("late", "promised until the deadline, and late as judged here")) if told[name]))
    moved = result["moved"]
    if moved["n"]:
        lines.append(
            f"bytes moved against the true delta: {moved['sent'] / 1e6:.1f} MB of {moved['delta'] / 1e6:.1f} MB, "
            f"{moved['ratio']:.2f} times (n={moved['n']} reclaims; each: p50 {number(moved['each']['p50'], '')}, "
            f"max {number(moved['each']['max'], '')}); against what the destinations lacked: "
            f"{number(moved['ratio_of_lacking'], '')} times")
    if result["ahead"] is not None:
        ahead = result["ahead"]
        lines.append(
            f"sent ahead of a reclaim: {ahead['n']} copies, {ahead['bytes'] / 1e6:.1f} MB; for it "
            f"{share(ahead['evacuations'])} evacuations had less to move, {ahead['lacked_less'] / 1e6:.1f} MB in all")
    lines.append("the coordinator's words on evacuations: " + (
        ", ".join(f"{name} {count}" for name, count in sorted(result["deadlines"].items())) or "no daemon says so"))
    lines.append("attempts given up as lost although nobody had pulled that cable: "
                 f"{result['lost_without_an_owner']}")
    lines += ["", "other people's traffic (baseline: the same run without guests, before and after)"]
    for flow in result["traffic"]:
        lines += _flow(flow)
    if result["harm"]:
        lines += _harm(result["harm"])
    if result["own"]:
        lines += ["", *_own(result["own"])]
    jobs = result["jobs"]
    lines += ["", f"jobs: {jobs['n']}, bit-identical to an undisturbed run: {jobs['bit_identical']}"]
    lines += [f"  WRONG {name}: {fault}" for name, fault in jobs["wrong"].items()]
    lines += [f"FAULT {fault}" for fault in result["faults"]]
    return "\n".join(lines) + "\n"
