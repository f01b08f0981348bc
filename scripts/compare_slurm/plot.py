# SPDX-License-Identifier: Apache-2.0
"""Every displaced guest and every owner as a dot, medians as strokes. Pure: the same result gives the same bytes."""
import html

import judge

COLOURS = {"slurm": "#b5651d", "reclaimnet": "#1f6f8b"}
NAMES = {"slurm": "Slurm", "reclaimnet": "ReclaimNet"}
PANELS = (("displaced", "lost_s", "work lost of a displaced guest, s"), ("displaced", "downtime_s", "downtime, s"),
          ("owners", "wait_s", "owner's waiting time, s"))
WIDTH, LEFT, ROW, HEAD = 860, 150, 26, 54


def ticks(most):
    """Round numbers from 0 to `most`, at most eight of them."""
    step = next(base * 10 ** power for power in range(-2, 7) for base in (1, 2, 5) if base * 10 ** power * 7 >= most)
    count = int(most / step + 1e-9)
    return [index * step for index in range(count + 1)]


def strip(result, panel, top):
    """One panel, from `top` down; answers (its lines, its height)."""
    where, name, title = panel
    series = [(variant, side, [one[name] for play in result["plays"]
                               if (play["variant"], play["side"]) == (variant, side)
                               for one in play[where] if one[name] is not None])
              for variant, about in result["variants"].items() for side in about["sides"]]
    most = max([value for _, _, values in series for value in values] + [1e-3])
    height = HEAD + ROW * len(series)

    def across(value):
        return LEFT + (WIDTH - LEFT - 20) * value / most

    bottom = top + height - 22
    lines = [f'<text x="{LEFT}" y="{top + 14}" font-weight="bold">{html.escape(title)}</text>']
    for tick in ticks(most):
        lines.append(f'<line x1="{across(tick):.1f}" x2="{across(tick):.1f}" y1="{top + 22}" y2="{bottom}" '
                     'stroke="#ddd"/>')
        lines.append(f'<text x="{across(tick):.1f}" y="{bottom + 14}" text-anchor="middle" fill="#666">{tick:g}</text>')
    for row, (variant, side, values) in enumerate(series):
        middle = top + 22 + ROW * row + ROW / 2
        lines.append(f'<text x="{LEFT - 8}" y="{middle + 4:.1f}" text-anchor="end">{variant} {NAMES[side]}</text>')
        for index, value in enumerate(values):
            lines.append(f'<circle cx="{across(value):.1f}" cy="{middle + (index * 7 % 13 - 6):.1f}" r="3" '
                         f'fill="{COLOURS[side]}" fill-opacity="0.45"/>')
        median = judge.quantile(values, 0.5)
        if median is not None:
            lines.append(f'<line x1="{across(median):.1f}" x2="{across(median):.1f}" y1="{middle - 11:.1f}" '
                         f'y2="{middle + 11:.1f}" stroke="{COLOURS[side]}" stroke-width="3"/>')
    return lines, height


def svg(result):
    top, lines = 8, []
    for panel in PANELS:
        there, height = strip(result, panel, top)
        lines += there
        top += height + 12
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{top}" viewBox="0 0 {WIDTH} {top}" '
        'font-family="sans-serif" font-size="12">', '<rect width="100%" height="100%" fill="#fff"/>', *lines, "</svg>"])
