"""Curves as a picture, drawn with OpenCV."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import cv2
import numpy as np

from core.laboratory.plot import COLOURS, GREY, HEIGHT, MARGIN, WIDTH, draw_text
from core.ops.contract import Array


def draw_curves(
    title: str, x_unit: str, unit: str, curves: Mapping[str, Sequence[tuple[float, float]]], lines: Sequence[float] = ()
) -> Array:  # fmt: skip
    """Curves through (x, value) points. x is logarithmic, by factors of two; values too, by factors of ten, or with
    `lines` linear between the first and the last of these."""
    picture = np.full((HEIGHT, WIDTH, 3), 255, np.uint8)
    draw_text(picture, title, 20, 34, 0.7)
    points = [point for curve in curves.values() for point in curve]
    x0, x1 = (math.log2(edge(x for x, _ in points)) for edge in (min, max))
    decades = math.floor(math.log10(min(y for _, y in points))), math.ceil(math.log10(max(y for _, y in points)) + 1e-9)
    scale: Callable[[float], float] = float if lines else math.log10
    lines = lines or [10.0**k for k in range(decades[0], decades[1] + 1)]
    y0, y1 = scale(lines[0]), scale(lines[-1])

    def place(x: float, value: float) -> tuple[int, int]:
        across = MARGIN + (WIDTH - 2 * MARGIN) * (math.log2(x) - x0) / max(x1 - x0, 1e-9)
        up = HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * (scale(value) - y0) / max(y1 - y0, 1)
        return round(across), round(up)

    for value in lines:
        cv2.line(picture, place(2**x0, value), place(2**x1, value), GREY, 1)
        draw_text(picture, f"{value:,.10g}", 20, place(2**x0, value)[1] + 5, 0.45)
    for x in sorted({x for x, _ in points}):
        cv2.line(picture, place(x, lines[0]), place(x, lines[-1]), GREY, 1)
        draw_text(picture, f"{x:g}", place(x, lines[0])[0] - 12, HEIGHT - MARGIN + 22, 0.45)
    draw_text(picture, x_unit, WIDTH // 2 - 60, HEIGHT - 24, 0.55)
    draw_text(picture, unit, 20, 62, 0.5)
    for k, (name, curve) in enumerate(curves.items()):
        colour = COLOURS[k % len(COLOURS)]
        places = [place(x, value) for x, value in sorted(curve)]
        for a, b in pairwise(places):
            cv2.line(picture, a, b, colour, 2, cv2.LINE_AA)
        for at in places:
            cv2.circle(picture, at, 4, colour, -1, cv2.LINE_AA)
        cv2.circle(picture, (MARGIN + 220 * (k % 4) + 10, 84 + 20 * (k // 4) - 4), 5, colour, -1, cv2.LINE_AA)
        draw_text(picture, name, MARGIN + 220 * (k % 4) + 22, 84 + 20 * (k // 4), 0.45)
    return picture
