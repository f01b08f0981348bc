# SPDX-License-Identifier: Apache-2.0
"""The page of the simulator against the testbed: plots and tables in one file, nothing from elsewhere. Pure."""
import html
import math

SIZE, EDGE = 340, 46
COLOURS = {"announced": "#1b6ca8", "notice": "#c0561e", "emergency": "#8a2d6c", "lost": "#4d4d4d"}
TITLES = {"total_s": "From the owner's word until the guest goes on elsewhere, s",
          "transfer_s": "From the last save until it is durable elsewhere, s",
          "bytes": "Sent by the machine's copies in a reclaim, MB"}
MODES = {"given": "destinations given: the model of time and bytes alone",
         "free": "the simulator's own destinations: the whole scenario"}
STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:1100px;margin:2em auto;padding:0 1em;color:#222}
table{border-collapse:collapse;margin:.6em 0}td,th{border:1px solid #ccc;padding:.15em .6em;text-align:right}
td:first-child,th:first-child{text-align:left}svg{margin:.3em}h2{margin-top:1.6em}details{margin:.8em 0}"""


def ticks(most):
    step = 10 ** math.floor(math.log10(most)) if most > 0 else 1
    step = next(one * step for one in (0.2, 0.5, 1, 2, 5) if most / (one * step) <= 6)
    return [one * step for one in range(int(most / step) + 1)]


def plot(points, title):
    """Real to the right, simulated upwards; the band is 10 % off. `points`: (real, simulated, kind)."""
    if not points:
        return ""
    most = max(max(real, simulated) for real, simulated, _ in points) * 1.05 or 1
    scale = (SIZE - EDGE - 8) / most

    def at(real, simulated):
        return EDGE + real * scale, SIZE - EDGE - simulated * scale

    parts = [f'<svg width="{SIZE}" height="{SIZE}" viewBox="0 0 {SIZE} {SIZE}" role="img" font-size="11">',
             f"<title>{html.escape(title)}</title>"]
    low, high, zero = at(most, most * 0.9), at(most / 1.1, most), at(0, 0)
    parts.append(f'<path d="M{zero[0]:.1f},{zero[1]:.1f} L{high[0]:.1f},{high[1]:.1f} L{at(most, most)[0]:.1f},'
                 f'{at(most, most)[1]:.1f} L{low[0]:.1f},{low[1]:.1f} Z" fill="#dce9d5"/>')
    for tick in ticks(most):
        x, y = at(tick, 0)[0], at(0, tick)[1]
        parts.append(f'<text x="{x:.1f}" y="{SIZE - EDGE + 14}" text-anchor="middle">{tick:g}</text>'
                     f'<text x="{EDGE - 5}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>')
    parts.append(f'<path d="M{EDGE},8 V{SIZE - EDGE} H{SIZE - 8}" fill="none" stroke="#777"/>'
                 f'<text x="{SIZE / 2}" y="{SIZE - 12}" text-anchor="middle">real</text>'
                 f'<text x="12" y="{SIZE / 2}" transform="rotate(-90 12 {SIZE / 2})" text-anchor="middle">'
                 'simulated</text>')
    for real, simulated, kind in points:
        x, y = at(real, simulated)
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{COLOURS.get(kind, "#000")}" fill-opacity=".7"/>')
    return "".join(parts) + "</svg>"


def points_of(run, measure):
    rows, unit = (run["reclaims"], 1e6) if measure == "bytes" else (run["migrations"], 1)
    return [(row["real"][measure] / unit, row["simulated"][measure] / unit, row["kind"]) for row in rows
            if row["simulated"] and row["real"].get(measure) and row["simulated"].get(measure) is not None]


def percent(share):
    return "-" if share is None else f"{share * 100:.1f}"


def number(value):
    return "-" if value is None else f"{value:.2f}" if value < 1e4 else f"{value / 1e6:.2f}M"


def table(head, rows):
    cells = ["<tr>" + "".join(f"<th>{html.escape(one)}</th>" for one in head) + "</tr>"]
    cells += ["<tr>" + "".join(f"<td>{html.escape(str(one))}</td>" for one in row) + "</tr>" for row in rows]
    return "<table>" + "".join(cells) + "</table>"


def error_rows(summary):
    names = {"total_s": "time until it goes on (announced, notice)", "saved_s": "until its last save",
             "transfer_s": "last save to durable", "start_s": "durable to going on", "bytes": "bytes of a reclaim",
             "at_once_s": "time until it goes on (emergency, lost)"}
    return [(text, summary[name]["n"], percent(summary[name]["median"]), percent(summary[name]["p90"]),
             percent(summary[name]["bias"]), number(summary[name]["real_p50"]), number(summary[name]["simulated_p50"]))
            for name, text in names.items()]


def migration_rows(run):
    found = []
    for row in run["migrations"]:
        real, simulated = row["real"], row["simulated"] or {}
        found.append((row["job"], row["kind"], row["node"], real["to"] or "-", simulated.get("to") or "-",
                      number(real["total_s"]), number(simulated.get("total_s")), number(real["transfer_s"]),
                      number(simulated.get("transfer_s"))))
    return found


def section(name, run):
    parts = [f"<h2>{html.escape(name)}</h2><p>{html.escape(run['about']['scenario'])}, seed {run['about']['seed']}, "
             f"{run['about']['minutes']:g} minutes, {html.escape(run['about']['commit'])}, load "
             f"{html.escape(run['about']['load'])}</p>"]
    for mode, title in MODES.items():
        one = run[mode]
        parts.append(f"<h3>{html.escape(title)}</h3><p>{one['summary']['migrations']} migrations, "
                     f"{one['summary']['simulated']} of them simulated, {one['summary']['same_destination']} to the "
                     "same machine</p>")
        parts += [f"<figure style='display:inline-block;margin:0'><figcaption>{html.escape(text)}</figcaption>"
                  f"{plot(points_of(one, measure), text)}</figure>" for measure, text in TITLES.items()]
        parts.append(table(("error of", "n", "median %", "p90 %", "bias %", "real p50", "simulated p50"),
                           error_rows(one["summary"])))
        parts.append("<details><summary>each migration</summary>" + table(
            ("guest", "kind", "from", "to", "simulated to", "goes on after, s", "simulated", "copied in, s",
             "simulated"), migration_rows(one)) + "</details>")
    return "".join(parts)


def page(result):
    legend = " ".join(f'<span style="color:{colour}">&#9679; {kind}</span>' for kind, colour in COLOURS.items())
    machine = table(("of the machine", "seconds, bytes/s"), sorted(result["machine"].items()))
    runs = "".join(section(name + (" (fitted on it: no test)" if name == result["fitted_on"] else ""), run)
                   for name, run in result["runs"].items())
    return ("<!doctype html><html lang=en><meta charset=utf-8><title>The simulator against the testbed</title>"
            f"<style>{STYLE}</style><h1>The simulator against the testbed</h1><p>{legend}. The green band is at most "
            "10 % off. Errors are of the simulated against the real.</p>"
            f"{runs}<h2>The machine's times</h2>{machine}</html>\n")
