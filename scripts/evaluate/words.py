# SPDX-License-Identifier: Apache-2.0
"""Numbers as the page writes them: each names its figure, so that check.py can compare it with the tables."""
from html import escape

import plots


def data(figure, which="median"):
    value = getattr(figure, which)
    return (f'<data value="{value!r}" data-figure="{escape(figure.key)}" data-is="{which}">'
            f"{plots.shown(value, figure.unit)}</data>")


def with_interval(figure):
    if figure is None:
        return "–"
    return data(figure) + (f' <span class="ci">({interval(figure)})</span>' if figure.low is not None else "")


def interval(figure):
    return f"{data(figure, 'low')} to {data(figure, 'high')}" if figure.low is not None else "one seed"


def plot(heading, picture, caption, table=""):
    folded = f"<details><summary>numbers</summary>{table}</details>" if table else ""
    return (f"<figure><h3>{escape(heading)}</h3>{picture}<figcaption>{caption}</figcaption>{folded}</figure>")


def grid(*figures):
    return '<div class="plots">' + "".join(figure for figure in figures if figure) + "</div>"


def table(heads, rows):
    """Cells are HTML; (text, css) gives one a class."""
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    lines = []
    for row in rows:
        cells = [cell if isinstance(cell, tuple) else (cell, "") for cell in row]
        lines.append("<tr>" + "".join(f'<td class="{css}">{words}</td>' for words, css in cells) + "</tr>")
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'


def numbers(rows):
    """The table below a plot. `rows`: (label, figure, …)."""
    return table(["", "median", "95 % interval", "n"],
                 [(escape(row[0]), (data(row[1]), "number"), (interval(row[1]), "number"), (str(row[1].n), "number"))
                  for row in rows])
