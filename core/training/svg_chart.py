"""Line charts as inline SVG: no script, no font, no file besides the page they stand in.

Colours stand in the elements themselves, so that any program can draw them; classes let a dark page change them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final, final

from core.diagnosis.page import INK, LINE, MUTED

WIDTH: Final = 460
HEIGHT: Final = 250
LEFT: Final = 50
RIGHT: Final = 14
TOP: Final = 46
BOTTOM: Final = 36

STYLES: Final = (("#0072b2", ""), ("#d55e00", "6 3"), ("#009e73", "2 3"), ("#555555", "8 3 2 3"))
"""Colours of Okabe and Ito (told apart by the colour-blind), each with a dash of its own."""

SHOWN: Final = 0.74
"""Size on a sheet, where two charts stand side by side; a browser gives them half the page."""
MOST_POINTS: Final = 600
"""More points than pixels say nothing more."""
LETTER: Final = 7.5
"""Pixels of a wide letter at the size of the axes' numbers."""
FONT: Final = 'font-family="system-ui,Helvetica,Arial,sans-serif"'


@final
@dataclass(frozen=True, slots=True)
class ChartSeries:
    """One curve: a name and points (x, y). `dots`: how much each point weighs, 0..1; then it is marked, not joined."""

    name: str
    points: tuple[tuple[float, float], ...]
    dots: tuple[float, ...] = ()


Bounds = tuple[float, float]


def draw_lines(
    title: str, series: Sequence[ChartSeries], x_label: str, y_label: str = "", *, x: Bounds | None = None,
    y: Bounds | None = None, percent: bool = False,
) -> str:  # fmt: skip
    """The chart as an ``<svg>`` element; the figures also stand in it as text for readers that do not see.

    x, y: what the axes show, else what the points need; percent: both axes are shares.
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
        middle = min(place(value, y_low)[0], WIDTH - LETTER * len(label) / 2)  # browsers cut off what stands out
        parts.append(text(middle, HEIGHT - BOTTOM + 16, label, anchor="middle"))
    for at, (s, style) in enumerate(zip(thinned, STYLES, strict=False)):
        parts += _curve(s, [place(*p) for p in s.points if math.isfinite(p[1])], style, LEFT + 2 + 120 * at)
    parts.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 4, x_label, anchor="middle"))
    parts.append(text(WIDTH - RIGHT, 16, y_label, anchor="end"))
    return "".join(parts) + "</svg>"


def open_svg(width: float, height: float, label: str, scale: float = 1.0) -> str:
    """The element's beginning, with its text for readers that do not see; shown `scale` times as large."""
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{scale * width:g}" '
            f'height="{scale * height:g}" role="img" aria-label="{escape(label)}">')  # fmt: skip


def text(x: float, y: float, words: str, kind: str = "muted", *, anchor: str = "start", size: float = 11.5,
         weight: int = 400) -> str:  # fmt: skip
    """A text element; kind: "ink" or "muted"."""
    fill = INK if kind == "ink" else MUTED
    return (f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" fill="{fill}" {FONT} font-size="{size:g}" '
            f'font-weight="{weight}" text-anchor="{anchor}">{escape(words)}</text>')  # fmt: skip


def _curve(s: ChartSeries, places: Sequence[tuple[float, float]], style: tuple[str, str], legend: float) -> list[str]:
    """The line or dots, and its entry in the legend."""
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
    """Means over equal stretches, so that a noisy curve keeps its course."""
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
