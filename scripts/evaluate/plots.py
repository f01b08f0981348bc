# SPDX-License-Identifier: Apache-2.0
"""Plots as inline SVG, for 360 to 640 pixels: no script, no font and no picture from anywhere.

Marks that stand for a figure carry its key and which of its numbers they show, and the plot its axis, so that
check.py can find the number again from where the mark is.
"""
import math
from xml.sax.saxutils import escape, quoteattr

WIDTH = 400
LEFT, RIGHT = 136, 82
ROW = 26
TOP = 18


def shown(value, unit=""):
    """Three digits that matter, with its unit."""
    if value is None:
        return "–"
    size = abs(value)
    if size >= 100 or value == int(value):
        text = f"{value:,.0f}"
    elif size >= 10:
        text = f"{value:.1f}"
    elif size >= 1:
        text = f"{value:.2f}"
    else:
        text = f"{value:.3g}" if size >= 1e-3 or size == 0 else f"{value:.1e}"
    return text + ("×" if unit == "times" else f" {unit}" if unit else "")


class Axis:
    def __init__(self, values, is_log=False, begin=LEFT, end=WIDTH - RIGHT, from_zero=False):
        values = [value for value in values if value is not None and (value > 0 or not is_log)]
        low, high = (min(values), max(values)) if values else (1, 10)
        self.is_log = is_log
        if is_log:
            low, high = low / 1.15, high * 1.15
            if high / low < 3:
                low, high = low / 1.8, high * 1.8
        else:
            low = 0 if from_zero or low >= 0 and low < high / 2 else low
            spread = (high - low) or abs(high) or 1
            low, high = (low if low == 0 else low - 0.05 * spread), high + 0.05 * spread
        self.low, self.high, self.begin, self.end = low, high, begin, end

    def place(self, value):
        return self.begin + (self.end - self.begin) * self.part(value)

    def part(self, value):
        if self.is_log:
            return (math.log(max(value, self.low)) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
        return (value - self.low) / (self.high - self.low)

    def at(self, place):
        """The value there: the inverse of place()."""
        part = (place - self.begin) / (self.end - self.begin)
        if self.is_log:
            return self.low * (self.high / self.low) ** part
        return self.low + part * (self.high - self.low)

    def ticks(self, most=5):
        if self.is_log and self.high > 6 * self.low:
            decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            for steps in ((1, 2, 5), (1, 3), (1,)):
                found = [step * 10.0 ** decade for decade in decades for step in steps]
                found = [tick for tick in found if self.low <= tick <= self.high]
                if len(found) <= most:
                    return found
            return found[::math.ceil(len(found) / most)]
        raw = (self.high - self.low) / most
        unit = 10.0 ** math.floor(math.log10(raw))
        step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= raw)
        first = math.ceil(self.low / step - 1e-9)
        return [round(step * number, 12) for number in range(first, math.floor(self.high / step + 1e-9) + 1)]

    def attributes(self, name):
        return (f' data-{name}-low="{self.low!r}" data-{name}-high="{self.high!r}" data-{name}-begin="{self.begin}" '
                f'data-{name}-end="{self.end}" data-{name}-log="{int(self.is_log)}"')


def svg(height, title, parts, attributes="", width=WIDTH):
    return (f'<svg viewBox="0 0 {width} {height:g}" role="img"{attributes}><title>{escape(title)}</title>'
            + "".join(parts) + "</svg>")


def text(x, y, words, css="", anchor="start", more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{css}" text-anchor="{anchor}"{more}>{escape(words)}</text>'


def line(x1, y1, x2, y2, css):
    return f'<line x1="{x1:.2f}" y1="{y1:.2f}" x2="{x2:.2f}" y2="{y2:.2f}" class="{css}"/>'


def mark(figure, what):
    return f' data-figure={quoteattr(figure.key)} data-is="{what}"'


def tick_words(value):
    return f"{value:,.0f}" if value >= 1000 else f"{value:g}"


def x_axis(axis, top, bottom, words):
    parts, free_from = [], 0.0
    for tick in axis.ticks():
        x, half = axis.place(tick), 3.2 * len(tick_words(tick))
        parts.append(line(x, top, x, bottom, "grid"))
        if x - half >= free_from:
            parts.append(text(x, bottom + 13, tick_words(tick), "tick", "middle"))
            free_from = x + half + 3
    parts.append(text((axis.begin + axis.end) / 2, bottom + 28, words, "axis", "middle"))
    return parts


def y_axis(axis, left, right, words):
    parts = []
    for tick in axis.ticks():
        y = axis.place(tick)
        parts += [line(left, y, right, y, "grid"), text(left - 5, y + 4, tick_words(tick), "tick", "end")]
    return [*parts, text(left - 5, axis.end - 8, words, "axis", "start")]


def dots(title, rows, words, is_log=False, goal=None, goal_words="goal", from_zero=False, seeds=True):
    """A row for each figure: its seeds as faint dots, its interval as a bar, its median as a dot with its number.
    `rows`: (label, figure, css class)."""
    values = [value for _, figure, _ in rows for value in (*figure.values.values(), figure.median)]
    axis = Axis(values + ([goal] if goal is not None else []), is_log, from_zero=from_zero)
    bottom = TOP + ROW * len(rows)
    parts = x_axis(axis, TOP, bottom, words)
    if goal is not None:
        x = axis.place(goal)
        side = "end" if axis.part(goal) > 0.7 else "start"
        parts += [line(x, TOP - 4, x, bottom, "goal"),
                  text(x + (4 if side == "start" else -4), TOP - 6, goal_words, "goal-words", side)]
    for index, (label, figure, css) in enumerate(rows):
        parts += dot_row(axis, TOP + ROW * (index + 0.5), label, figure, css, seeds)
    return svg(bottom + 36, title, parts, axis.attributes("x"))


def dot_row(axis, y, label, figure, css, seeds):
    parts = [text(LEFT - 8, y + 4, label, f"label {css}", "end")]
    if seeds:
        parts += [f'<circle cx="{axis.place(value):.2f}" cy="{y:.1f}" r="2" class="seed {css}"/>'
                  for value in figure.values.values() if value > 0 or not axis.is_log]
    if figure.low is not None:
        begin, end = axis.place(figure.low), axis.place(figure.high)
        parts.append(f'<line x1="{begin:.3f}" x2="{end:.3f}" y1="{y:.1f}" y2="{y:.1f}" '
                     f'class="interval {css}"{mark(figure, "interval")}/>')
    parts.append(f'<circle cx="{axis.place(figure.median):.3f}" cy="{y:.1f}" r="4.5" '
                 f'class="median {css}"{mark(figure, "median")}/>')
    value = (f' data-figure={quoteattr(figure.key)} data-value="{figure.median!r}"')
    return [*parts, text(WIDTH - RIGHT + 8, y + 4, shown(figure.median, figure.unit), f"value {css}", "start", value)]


PLOT_LEFT, PLOT_RIGHT, PLOT_TOP, PLOT_HEIGHT = 46, 104, 26, 190


def spread(labels, gap=13):
    """Moves labels apart that would lie on each other: [(y, …)] in, the same with other y out."""
    out = []
    for y, *rest in sorted(labels):
        out.append((max(y, out[-1][0] + gap) if out else y, *rest))
    over = out[-1][0] - (PLOT_TOP + PLOT_HEIGHT + 4) if out else 0
    return [(y - max(0, over), *rest) for y, *rest in out]


def curves(title, series, x_words, y_words, x_log=True, y_log=False, level=None):
    """Lines with their name at the right end. `series`: (label, css class, [(x, y, figure or None)]).
    `level`: (label, css, figure) of a horizontal line with its interval."""
    points = [point for _, _, line_points in series for point in line_points]
    ys = [y for _, y, _ in points] + ([level[2].median] if level else [])
    ys += [value for _, _, figure in points if figure for value in (figure.low, figure.high)]
    axis = Axis([x for x, _, _ in points], x_log, PLOT_LEFT, WIDTH - PLOT_RIGHT)
    up = Axis(ys, y_log, PLOT_TOP + PLOT_HEIGHT, PLOT_TOP, from_zero=not y_log)
    parts = x_axis(axis, PLOT_TOP, PLOT_TOP + PLOT_HEIGHT, x_words) + y_axis(up, PLOT_LEFT, WIDTH - PLOT_RIGHT, y_words)
    labels = []
    for label, css, line_points in series:
        ordered = sorted(line_points, key=lambda point: point[:2])
        path = " ".join(f"{axis.place(x):.2f},{up.place(y):.2f}" for x, y, _ in ordered)
        parts.append(f'<polyline points="{path}" class="curve {css}"/>')
        for x, y, figure in ordered:
            if figure is not None:
                parts += curve_point(axis.place(x), up, figure, css)
        labels.append((up.place(ordered[-1][1]) + 4, label, css))
    if level:
        label, css, figure = level
        y = up.place(figure.median)
        parts.append(f'<line x1="{axis.begin}" x2="{axis.end}" y1="{y:.3f}" y2="{y:.3f}" '
                     f'class="curve level {css}"{mark(figure, "level")}/>')
        labels.append((y + 4, label, css))
    parts += [text(WIDTH - PLOT_RIGHT + 6, y, label, f"label {css}") for y, label, css in spread(labels)]
    return svg(PLOT_TOP + PLOT_HEIGHT + 36, title, parts, axis.attributes("x") + up.attributes("y"))


def curve_point(x, up, figure, css):
    parts = []
    if figure.low is not None and figure.low > 0:
        parts.append(line(x, up.place(figure.low), x, up.place(figure.high), f"interval thin {css}"))
    parts.append(f'<circle cx="{x:.2f}" cy="{up.place(figure.median):.3f}" r="3" class="median {css}"'
                 f'{mark(figure, "height")}/>')
    return parts


def scatter(title, points, x_words, y_words):
    """`points`: (label, css class, figure of x, figure of y); both axes logarithmic."""
    points = [point for point in points if point[2].median > 0 and point[3].median > 0]
    across, along = ([value for point in points for value in (point[i].median, point[i].low, point[i].high)]
                     for i in (2, 3))
    axis = Axis(across, True, PLOT_LEFT, WIDTH - PLOT_RIGHT)
    up = Axis(along, True, PLOT_TOP + PLOT_HEIGHT, PLOT_TOP)
    parts = x_axis(axis, PLOT_TOP, PLOT_TOP + PLOT_HEIGHT, x_words) + y_axis(up, PLOT_LEFT, WIDTH - PLOT_RIGHT, y_words)
    labels = []
    for label, css, x, y in points:
        at, height = axis.place(x.median), up.place(y.median)
        if None not in (x.low, y.low):
            parts += [line(axis.place(x.low), height, axis.place(x.high), height, f"interval thin {css}"),
                      line(at, up.place(y.low), at, up.place(y.high), f"interval thin {css}")]
        parts.append(f'<circle cx="{at:.3f}" cy="{height:.3f}" r="4.5" class="median {css}"{mark(y, "height")}/>')
        labels.append((height - 4, at, label, css))
    parts += beside(labels)
    return svg(PLOT_TOP + PLOT_HEIGHT + 36, title, parts, axis.attributes("x") + up.attributes("y"))


def beside(labels):
    """A name beside each point, to the left where there is no room to the right, moved down where one stands."""
    parts, boxes = [], []
    for y, x, label, css in sorted(labels):
        width = 6.2 * len(label)
        left = x + 8 if x + 8 + width < WIDTH else x - 8 - width
        while any(abs(y - other_y) < 12 and left < other_left + other_width and other_left < left + width
                  for other_y, other_left, other_width in boxes):
            y += 4
        boxes.append((y, left, width))
        parts.append(text(left, y, label, f"label {css}"))
    return parts


def bars(title, rows, words, unit="", most=None):
    """Stacked bars. `rows`: (label, [(css class, figure, words)]); the total stands at the end."""
    totals = [sum(figure.median for _, figure, _ in pieces) for _, pieces in rows]
    axis = Axis([*totals, most or 0], from_zero=True)
    axis.low, axis.high = 0, most or axis.high
    bottom = TOP + ROW * len(rows)
    parts = x_axis(axis, TOP, bottom, words)
    for index, (label, pieces) in enumerate(rows):
        y, begun = TOP + ROW * index + 5, 0.0
        parts.append(text(LEFT - 8, y + 12, label, "label", "end"))
        for css, figure, piece_words in pieces:
            begin, end = axis.place(begun), axis.place(begun + figure.median)
            parts.append(f'<rect x="{begin:.3f}" y="{y}" width="{end - begin:.3f}" height="16" class="{css}"'
                         f'{mark(figure, "width")}><title>'
                         f"{escape(piece_words)}: {shown(figure.median, figure.unit)}</title></rect>")
            begun += figure.median
        parts.append(text(WIDTH - RIGHT + 8, y + 12, shown(totals[index], unit), "value"))
    return svg(bottom + 36, title, parts, axis.attributes("x"))
