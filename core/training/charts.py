"""Charts of a report as inline SVG, without scripts, fonts or other files: lines, bars, intervals, confusion matrix.

Colours are attributes of the elements, so that any program can draw them; classes let a dark page change them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from core.diagnosis.metrics import Metrics
from core.diagnosis.page import GREEN, INK, LINE, MUTED, RED
from core.percent import rounded

WIDTH: Final = 460
HEIGHT: Final = 250
LEFT: Final = 50
RIGHT: Final = 14
TOP: Final = 46
BOTTOM: Final = 36

STYLES: Final = (("#0072b2", ""), ("#d55e00", "6 3"), ("#009e73", "2 3"), ("#555555", "8 3 2 3"))
"""Colours of Okabe and Ito, which are distinct for the colour-blind, each with its own dash pattern."""

SHOWN: Final = 0.74
"""Scale on a printed page with two charts side by side; a browser gives them half the page."""
MOST_POINTS: Final = 600
"""Most points of a curve, about one per pixel."""
LETTER: Final = 7.5
"""Width of a wide character in the axis labels, in pixels."""
FONT: Final = 'font-family="system-ui,Helvetica,Arial,sans-serif"'
BAR: Final = 26
NAMES: Final = 230
BARS: Final = 320
CELL_MOST: Final = 34
MATRIX_MOST: Final = 900
"""Largest sizes of a cell of the confusion matrix and of the whole matrix, in pixels."""
NAMES_MOST: Final = 150
"""Most classes of a matrix: with more, cells would be smaller than 5 pixels."""
SPAN: Final = 72
"""Length of the axis of an interval from 0 to 1, in pixels."""


@dataclass(frozen=True, slots=True)
class ChartSeries:
    """A curve: name and points (x, y). dots: weights of the points, 0..1, which are then drawn as dots, not joined."""

    name: str
    points: tuple[tuple[float, float], ...]
    dots: tuple[float, ...] = ()


Bounds = tuple[float, float]


def draw_lines(
    title: str, series: Sequence[ChartSeries], x_label: str, y_label: str = "", *, x: Bounds | None = None,
    y: Bounds | None = None, percent: bool = False,
) -> str:  # fmt: skip
    """The chart as an ``<svg>`` element, with the last values as text for screen readers.

    x, y: bounds of the axes, by default those of the points; percent: both axes are shares.
    """
    thinned = [s if s.dots else ChartSeries(s.name, _thin(s.points)) for s in series if s.points]
    points = [p for s in thinned for p in s.points if math.isfinite(p[1])]
    if not points:
        return ""
    (x_low, x_high), (y_low, y_high) = x or _bounds([p[0] for p in points]), y or _bounds([p[1] for p in points])

    def place(x: float, y: float) -> tuple[float, float]:
        return (LEFT + (x - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT),
                HEIGHT - BOTTOM - (y - y_low) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM))  # fmt: skip

    def number(value: float) -> str:
        return f"{100 * value:g} %" if percent else f"{value:g}"

    summary = "; ".join(f"{s.name}: last value {s.points[-1][1]:.4g}" for s in thinned)
    parts = [open_svg(WIDTH, HEIGHT, f"{title}: {summary}", SHOWN), text(LEFT, 16, title, "ink", weight=600, size=13)]
    for value in _ticks(y_low, y_high):
        px, py = place(x_low, value)
        parts.append(f'<path d="M{px:.1f} {py:.1f}H{WIDTH - RIGHT}" class="grid" stroke="{LINE}" fill="none"/>')
        parts.append(text(LEFT - 6, py + 4, number(value), anchor="end"))
    for value in _ticks(x_low, x_high):
        label = number(value)
        middle = min(place(value, y_low)[0], WIDTH - LETTER * len(label) / 2)  # browsers clip text outside the chart
        parts.append(text(middle, HEIGHT - BOTTOM + 16, label, anchor="middle"))
    for at, (s, style) in enumerate(zip(thinned, STYLES, strict=False)):
        parts += _curve(s, [place(*p) for p in s.points if math.isfinite(p[1])], style, LEFT + 2 + 120 * at)
    parts.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 4, x_label, anchor="middle"))
    parts.append(text(WIDTH - RIGHT, 16, y_label, anchor="end"))
    return "".join(parts) + "</svg>"


def open_svg(width: float, height: float, label: str, scale: float = 1.0) -> str:
    """The start of the element, with a text for screen readers; scale: of the displayed size."""
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{scale * width:g}" '
            f'height="{scale * height:g}" role="img" aria-label="{escape(label)}">')  # fmt: skip


def text(x: float, y: float, words: str, kind: str = "muted", *, anchor: str = "start", size: float = 11.5,
         weight: int = 400) -> str:  # fmt: skip
    fill = INK if kind == "ink" else MUTED
    return (f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" fill="{fill}" {FONT} font-size="{size:g}" '
            f'font-weight="{weight}" text-anchor="{anchor}">{escape(words)}</text>')  # fmt: skip


def _curve(s: ChartSeries, places: Sequence[tuple[float, float]], style: tuple[str, str], legend: float) -> list[str]:
    colour, dash = style
    pen = f'fill="none" stroke="{colour}" stroke-width="1.8" stroke-linejoin="round"'
    pen += f' stroke-dasharray="{dash}"' if dash else ""
    y = TOP - 18
    name = text(legend + 26, y + 4, s.name)
    if s.dots:
        fill = f'fill="{colour}" fill-opacity="0.75"'
        dots = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{3 + 6 * math.sqrt(w):.1f}" {fill}/>'
                for (x, y), w in zip(places, s.dots, strict=True)]  # fmt: skip
        return [*dots, f'<circle cx="{legend + 12:.1f}" cy="{y}" r="5" {fill}/>', name]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return [f'<polyline points="{line}" {pen}/>', f'<path d="M{legend:.1f} {y}h20" {pen}/>', name]


def _thin(points: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """Means over equal intervals, at most `MOST_POINTS`."""
    stretch = -(-len(points) // MOST_POINTS)
    groups = [points[i : i + stretch] for i in range(0, len(points), stretch)]
    return tuple((sum(x for x, _ in g) / len(g), sum(y for _, y in g) / len(g)) for g in groups)


def _bounds(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers within the bounds, four to nine of them."""
    step = 10.0 ** math.floor(math.log10((high - low) / 2))
    for factor in (1, 2, 5):
        if (high - low) / (step * factor) <= 7:
            step *= factor
            break
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def draw_bars(title: str, rows: Sequence[tuple[str, float, str]]) -> str:
    """Shares 0..1 as bars: (name, share, colour)."""
    height = 30 + BAR * len(rows)
    label = "; ".join(f"{name} {rounded(share)} %" for name, share, _ in rows)
    parts = [open_svg(NAMES + BARS + 70, height, f"{title}: {label}"), text(0, 16, title, "ink", weight=600, size=13)]
    for at, (name, share, colour) in enumerate(rows):
        y = 30 + BAR * at
        parts += [
            text(NAMES - 8, y + 14, name, anchor="end"),
            f'<rect x="{NAMES}" y="{y}" width="{BARS}" height="18" rx="3" class="background" fill="{MUTED}" '
            'fill-opacity="0.12"/>',
            f'<rect x="{NAMES}" y="{y}" width="{max(BARS * share, 1):.1f}" height="18" rx="3" fill="{colour}"/>',
            text(NAMES + BARS + 8, y + 14, f"{rounded(share)} %", "ink"),
        ]
    return "".join(parts) + "</svg>"


def draw_interval(share: float, bounds: tuple[float, float], colour: str = GREEN) -> str:
    low, dot, high = (6 + (SPAN - 12) * value for value in (bounds[0], share, bounds[1]))
    label = f"{rounded(share)} %, interval {rounded(bounds[0])} to {100 * bounds[1]:.1f} %"
    return (
        open_svg(SPAN, 16, label)
        + f'<path d="M6 8H{SPAN - 6}" class="grid" stroke="{LINE}" stroke-width="2"/>'
        + f'<path d="M{low:.1f} 8H{high:.1f}" stroke="{colour}" stroke-width="5" stroke-opacity="0.35" '
        'stroke-linecap="round"/>'
        + f'<circle cx="{dot:.1f}" cy="8" r="4" fill="{colour}"/></svg>'
    )


def draw_confusion(figures: Metrics) -> str:
    """Rows are the true classes, columns the predicted ones, by number; darker is a larger share of the row."""
    count = len(figures.classes)
    if count > NAMES_MOST:
        return ""
    names = min(12 + 6.2 * max(len(f"{n} {c}") for n, c in enumerate(figures.classes, 1)), 300)
    cell = max(min(CELL_MOST, (MATRIX_MOST - names) / count), 5)
    size = min(12.0, 0.52 * cell)
    width, height = names + cell * count + 4, 18 + cell * count + 4
    parts = [open_svg(width, height, f"Confusion matrix of {count} classes: {figures.right} of {figures.photos} "
                                     "correct")]
    for i, (label, counts) in enumerate(zip(figures.classes, figures.confusion, strict=True)):
        y = 18 + cell * i
        parts.append(text(names - 6, y + 0.5 * cell + 4, f"{label}  {i + 1}", anchor="end", size=min(11.5, 0.8 * cell)))
        parts.append(text(names + cell * (i + 0.5), 13, str(i + 1), anchor="middle", size=min(11.0, 0.6 * cell)))
        for j, number in enumerate(counts):
            parts.append(_cell(names + cell * j, y, cell, number, number / max(sum(counts), 1), i == j, size,
                               f"{label} predicted as {figures.classes[j]}: {number}"))
    parts.append(f'<rect x="{names:.1f}" y="18" width="{cell * count:.1f}" height="{cell * count:.1f}" fill="none" '
                 f'class="frame" stroke="{MUTED}" stroke-width="0.7"/>')
    return "".join(parts) + "</svg>"


def _cell(x: float, y: float, side: float, number: int, share: float, right: bool, size: float, words: str) -> str:
    if not number:
        return ""
    colour = GREEN if right else RED
    strength = 0.15 + 0.85 * share
    ink = "#ffffff" if strength > 0.6 else INK
    fill = f' class="{"on" if strength > 0.6 else "ink"}" fill="{ink}"'
    count = (f'<text x="{x + side / 2:.1f}" y="{y + side / 2 + 0.36 * size:.1f}"{fill} font-size="{size:.1f}" '
             f'font-family="sans-serif" text-anchor="middle">{number}</text>')  # fmt: skip
    return (f'<g><title>{escape(words)}</title><rect x="{x + 0.5:.1f}" y="{y + 0.5:.1f}" width="{side - 1:.1f}" '
            f'height="{side - 1:.1f}" rx="2" fill="{colour}" fill-opacity="{strength:.2f}"/>{count}</g>')  # fmt: skip
