"""Drawings of a report besides line charts, as inline SVG: bars, intervals, and what was taken for what."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from core.diagnosis.metrics import Metrics
from core.diagnosis.page import GREEN, INK, LINE, MUTED, RED
from core.training.svg_chart import open_svg, text

BAR: Final = 26
NAMES: Final = 230
BARS: Final = 320
CELL_MOST: Final = 34
MATRIX_MOST: Final = 900
"""Pixels: a cell of the confusion matrix at most, and the whole of it."""
NAMES_MOST: Final = 150
"""Classes from which the matrix is not drawn: its cells would be smaller than 5 pixels."""
SPAN: Final = 110
"""Pixels of an interval's axis from 0 to 1."""


def draw_bars(title: str, rows: Sequence[tuple[str, float, str]]) -> str:
    """Shares 0..1 as bars: (name, share, colour)."""
    height = 30 + BAR * len(rows)
    label = "; ".join(f"{name} {100 * share:.1f} %" for name, share, _ in rows)
    parts = [open_svg(NAMES + BARS + 70, height, f"{title}: {label}"), text(0, 16, title, "ink", weight=600, size=13)]
    for at, (name, share, colour) in enumerate(rows):
        y = 30 + BAR * at
        parts += [
            text(NAMES - 8, y + 14, name, anchor="end"),
            f'<rect x="{NAMES}" y="{y}" width="{BARS}" height="18" rx="3" class="background" fill="{MUTED}" '
            'fill-opacity="0.12"/>',
            f'<rect x="{NAMES}" y="{y}" width="{max(BARS * share, 1):.1f}" height="18" rx="3" fill="{colour}"/>',
            text(NAMES + BARS + 8, y + 14, f"{100 * share:.1f} %", "ink"),
        ]
    return "".join(parts) + "</svg>"


def draw_interval(share: float, bounds: tuple[float, float], colour: str = GREEN) -> str:
    """A share as a dot on its 95 % interval, on an axis from 0 to 1."""
    low, high = (6 + (SPAN - 12) * bound for bound in bounds)
    dot = 6 + (SPAN - 12) * share
    label = f"{100 * share:.1f} %, interval {100 * bounds[0]:.1f} to {100 * bounds[1]:.1f} %"
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
