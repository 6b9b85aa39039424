"""Line charts as inline SVG: no script, no font, no file besides the page they stand in."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final, final

WIDTH: Final = 460
HEIGHT: Final = 240
LEFT: Final = 52
RIGHT: Final = 12
TOP: Final = 30
BOTTOM: Final = 34

STYLES: Final = (("#0072b2", ""), ("#d55e00", "6 3"), ("#009e73", "2 3"), ("#555555", "8 3 2 3"))
"""Colours of Okabe and Ito (told apart by the colour-blind), each with a dash of its own."""

MOST_POINTS: Final = 600
"""More points than pixels say nothing more."""


@final
@dataclass(frozen=True, slots=True)
class Series:
    """One curve: a name and points (x, y)."""

    name: str
    points: tuple[tuple[float, float], ...]


def draw_lines(title: str, series: Sequence[Series], x_label: str, y_label: str) -> str:
    """The chart as an ``<svg>`` element; the figures also stand in it as text for readers that do not see."""
    thinned = [Series(s.name, _thin(s.points)) for s in series if s.points]
    points = [p for s in thinned for p in s.points if math.isfinite(p[1])]
    if not points:
        return ""
    x_low, x_high = _bounds([p[0] for p in points])
    y_low, y_high = _bounds([p[1] for p in points])

    def place(x: float, y: float) -> str:
        px = LEFT + (x - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT)
        py = HEIGHT - BOTTOM - (y - y_low) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM)
        return f"{px:.1f},{py:.1f}"

    summary = "; ".join(f"{s.name} ends at {s.points[-1][1]:.4g}" for s in thinned)
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}: {escape(summary)}">',
        f'<text x="{LEFT}" y="14" class="t">{escape(title)}</text>',
    ]
    for y in _ticks(y_low, y_high):
        px, py = place(x_low, y).split(",")
        parts.append(f'<path d="M{px} {py}H{WIDTH - RIGHT}" class="g"/>')
        parts.append(f'<text x="{LEFT - 4}" y="{float(py) + 4:.1f}" text-anchor="end">{y:g}</text>')
    for x in _ticks(x_low, x_high):
        px, _ = place(x, y_low).split(",")
        parts.append(f'<text x="{px}" y="{HEIGHT - BOTTOM + 14}" text-anchor="middle">{x:g}</text>')
    for place_in_legend, (s, (colour, dash)) in enumerate(zip(thinned, STYLES, strict=False)):
        line = " ".join(place(x, y) for x, y in s.points if math.isfinite(y))
        style = f'fill="none" stroke="{colour}" stroke-width="1.6" stroke-dasharray="{dash}"'
        parts.append(f'<polyline points="{line}" {style}/>')
        lx = LEFT + 8 + 110 * place_in_legend
        parts.append(f'<path d="M{lx} {TOP - 6}h18" {style}/><text x="{lx + 22}" y="{TOP - 2}">{escape(s.name)}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 4}" text-anchor="middle">{escape(x_label)}</text>')
    parts.append(f'<text x="{WIDTH - RIGHT}" y="14" text-anchor="end">{escape(y_label)}</text></svg>')
    return "".join(parts)


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
