# SPDX-License-Identifier: Apache-2.0
"""Tables for people, and the numbers in them. Widths are counted in characters."""


def render(columns, rows):
    """Text table with a line under the heads; numbers to the right, everything else to the left."""
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(line[index]) for line in [columns, *texts]) for index in range(len(columns))]
    right = [bool(rows) and all(is_number(row[index]) for row in texts) for index in range(len(columns))]

    def line(cells):
        padded = (cell.rjust(width) if to_right else cell.ljust(width)
                  for cell, width, to_right in zip(cells, widths, right))
        return "  ".join(padded).rstrip()

    return "\n".join([line(columns), line(["─" * width for width in widths]), *map(line, texts)])


def is_number(text):
    return text in ("-", "") or text.split(" ")[0].replace(".", "", 1).replace(",", "").lstrip("-+<").isdigit()


def seconds(value):
    """0.0123 → 12.3 ms; None → -"""
    if value is None:
        return "-"
    return f"{value * 1000:.1f} ms" if abs(value) < 1 else f"{value:.1f} s"


def mebibytes(value):
    return "-" if value is None else f"{value / (1 << 20):.1f} MiB"
