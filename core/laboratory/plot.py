"""Bar charts and roofline plots, drawn with OpenCV and saved as PNG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import cv2
import numpy as np

from core.ops.contract import Array
from core.ops.registry import VENDOR_LIBRARIES
from core.storage import write_file

WIDTH: Final = 1000
HEIGHT: Final = 640
MARGIN: Final = 90
INK: Final = (40, 40, 40)
GREY: Final = (200, 200, 200)
GREEN: Final = (80, 140, 40)
BLUE: Final = (180, 110, 40)
"""Colour of the bars of libraries; ours are green."""
LIBRARIES: Final = frozenset({*VENDOR_LIBRARIES, "pytorch"})
COLOURS: Final = (
    (180, 110, 40), (60, 140, 60), (60, 60, 190), (150, 60, 150), (30, 140, 190), (110, 110, 110), (20, 20, 20),
    (190, 160, 30),
)  # fmt: skip
"""Colours of the points by group, in BGR."""


@dataclass(frozen=True, slots=True)
class Point:
    label: str
    group: str
    intensity: float
    """FLOP per byte."""
    gflops: float


def save_png(picture: Array, path: Path) -> None:
    write_file(path, cv2.imencode(".png", picture)[1].tobytes())


def draw_bars(title: str, unit: str, bars: Sequence[tuple[str, float]]) -> Array:
    """Draw horizontal bars on a logarithmic scale; bars of libraries have another colour."""
    height = 110 + 34 * len(bars)
    picture = np.full((height, WIDTH, 3), 255, np.uint8)
    draw_text(picture, f"{title} ({unit}, logarithmic)", 20, 34, 0.7)
    values = [value for _, value in bars if value > 0] or [1.0]  # nothing ran: an empty scale
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)) + 1e-9)
    left, span = 360, WIDTH - 360 - 130

    def at(value: float) -> int:
        return left + round(span * (math.log10(value) - low) / max(high - low, 1))

    for decade in range(low, high + 1):
        cv2.line(picture, (at(10.0**decade), 55), (at(10.0**decade), height - 40), GREY, 1)
        draw_text(picture, f"{10.0**decade:,.10g}", at(10.0**decade) - 12, height - 16, 0.45)
    for k, (name, value) in enumerate(bars):
        y = 62 + 34 * k
        draw_text(picture, name, 20, y + 18, 0.5)
        theirs = LIBRARIES & set(name.lower().replace(",", " ").split())
        cv2.rectangle(picture, (left, y), (max(at(value), left + 2), y + 22), BLUE if theirs else GREEN, -1)
        draw_text(picture, f"{float(f'{value:.3g}'):,.10g}", max(at(value), left) + 8, y + 17, 0.5)
    return picture


def draw_roofline(title: str, points: Sequence[Point], gflops: float, gigabytes: float) -> Array:
    """Draw points in FLOP per byte and GFLOP/s, both logarithmic, under the roof of `gflops` and `gigabytes` per s."""
    picture = np.full((HEIGHT, WIDTH, 3), 255, np.uint8)
    draw_text(picture, title, 20, 34, 0.7)
    x0, x1 = -2.0, 4.0
    y1 = math.ceil(math.log10(gflops))
    y0 = min(y1 - 5.0, math.floor(min((math.log10(p.gflops) for p in points), default=0.0)))

    def place(intensity: float, rate: float) -> tuple[int, int]:
        x = MARGIN + (WIDTH - 2 * MARGIN) * (math.log10(max(intensity, 1e-9)) - x0) / (x1 - x0)
        y = HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * (math.log10(max(rate, 1e-9)) - y0) / (y1 - y0)
        return round(min(max(x, -999), 3000)), round(min(max(y, -999), 3000))

    for k in range(int(x0), int(x1) + 1):
        cv2.line(picture, place(10.0**k, 10**y0), place(10.0**k, 10**y1), GREY, 1)
        draw_text(picture, f"{10.0**k:,.10g}", place(10.0**k, 10**y0)[0] - 14, HEIGHT - MARGIN + 22, 0.45)
    for k in range(int(y0), int(y1) + 1):
        cv2.line(picture, place(10**x0, 10.0**k), place(10**x1, 10.0**k), GREY, 1)
        draw_text(picture, f"{10.0**k:,.10g}", 20, place(10**x0, 10.0**k)[1] + 5, 0.45)
    ridge = gflops / gigabytes
    cv2.line(picture, place(10**x0, 10**x0 * gigabytes), place(ridge, gflops), INK, 2)
    cv2.line(picture, place(ridge, gflops), place(10**x1, gflops), INK, 2)
    draw_text(picture, "FLOP per byte", WIDTH // 2 - 60, HEIGHT - 24, 0.55)
    draw_text(picture, f"GFLOP/s; the roof is {gigabytes:,.0f} GB/s and {gflops:,.0f} GFLOP/s", 20, 62, 0.5)
    groups = sorted({point.group for point in points})
    for k, group in enumerate(groups):
        colour = COLOURS[k % len(COLOURS)]
        for point in points:
            if point.group == group:
                cv2.circle(picture, place(point.intensity, point.gflops), 5, colour, -1, cv2.LINE_AA)
        y = HEIGHT - MARGIN - 20 - 22 * (len(groups) - 1 - k)  # below the roof there is room
        cv2.circle(picture, (WIDTH - 240, y), 5, colour, -1, cv2.LINE_AA)
        draw_text(picture, group, WIDTH - 225, y + 5, 0.45)
    return picture


def draw_text(picture: Any, text: str, x: int, y: int, size: float) -> None:
    cv2.putText(picture, text, (x, y), cv2.FONT_HERSHEY_SIMPLEX, size, INK, 1, cv2.LINE_AA)
