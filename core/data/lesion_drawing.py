"""Draws synthetic lesions: rust, blight and mildew, each with its own shape, edge and texture.

Positions are in leaf coordinates: u from 0 at the stalk to 1 at the tip, v across, both in leaf lengths.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

import cv2
import numpy as np

from core.ops.contract import Array


@dataclass(frozen=True, slots=True, eq=False)
class Surface:
    """The leaf to draw on: coordinates u, v, half-width `reach` of the leaf at u (all ``(S, S)``), inside or not.

    scale: pixels along the leaf; cells: for each cell of a grid over u and v a pixel inside, or -1.
    """

    u: Array
    v: Array
    reach: Array
    inside: Array
    scale: float
    cells: Array


Drawn: TypeAlias = tuple[Array, Array]
"""The photo with lesions, and the lesion cover of each pixel (0..1, without halos)."""
CELLS: Final = 80
"""Cells along the leaf: coarse enough that each cell of a leaf of 80 pixels has a pixel."""


def lay_cells(u: Array, v: Array, inside: Array) -> Array:
    """Pixel indices ``(CELLS, CELLS)`` by position on the leaf, so that all views of a leaf have the same lesions."""
    cells = np.full((CELLS, CELLS), -1, np.int64)
    pixels = np.flatnonzero(inside > 0.5)
    row = (u.ravel()[pixels] * CELLS).astype(np.intp)
    column = ((v.ravel()[pixels] + 0.5) * CELLS).astype(np.intp)
    cells[np.clip(row, 0, CELLS - 1), np.clip(column, 0, CELLS - 1)] = pixels
    return cells


def smooth_noise(random: np.random.Generator, side: int, cells: float, octaves: int = 1) -> Array:
    """Smooth noise of mean 0 and about unit spread, ``(side, side)`` float32; `cells` bumps along a side."""
    total = np.zeros((side, side), np.float32)
    weight = 1.0
    for octave in range(octaves):
        grid = min(max(int(round(cells * 2**octave)), 2), side)
        bumps = random.standard_normal((grid + 2, grid + 2)).astype(np.float32)
        total += weight * cv2.resize(bumps, (side, side), interpolation=cv2.INTER_CUBIC)
        weight *= 0.5
    return np.asarray(total / max(float(total.std()), 1e-6), np.float32)


def colour_between(
    random: np.random.Generator, dark: tuple[float, float, float], light: tuple[float, float, float]
) -> Array:
    """A colour between two, a little off the line; float32 ``(3,)``."""
    share = np.clip(random.uniform(0, 1) + random.uniform(-0.12, 0.12, 3), 0, 1)
    return np.asarray(np.array(dark) * (1 - share) + np.array(light) * share, np.float32)


def draw_healthy(random: np.random.Generator, rgb: Array, leaf: Surface, severity: float) -> Drawn:
    return rgb, np.zeros(rgb.shape[:2], np.float32)


def draw_rust(random: np.random.Generator, rgb: Array, leaf: Surface, severity: float) -> Drawn:
    """Many small round pustules, orange to brown, dark in the middle, each in a thin yellow halo."""
    area = float(leaf.inside.mean())
    cover = np.zeros(rgb.shape[:2], np.float32)
    halo, core = cover.copy(), cover.copy()
    favoured = smooth_noise(random, len(rgb), 3)
    covered = 0
    for _ in range(900):
        if covered >= severity * area * cover.size:
            break
        y, x = _place(random, leaf, favoured)
        size = leaf.scale * float(np.exp(random.uniform(np.log(0.009), np.log(0.026))))
        window, d = _around(len(rgb), y, x, size, random.uniform(0.75, 1.3), random.uniform(0, np.pi))
        soft = max(0.35 * size, 0.7)
        before = int((cover[window] > 0.5).sum())
        for layer, radius, edge in ((cover, size, soft), (halo, 2.1 * size, 1.1 * size), (core, 0.5 * size, soft)):
            layer[window] = np.maximum(layer[window], _smoothstep((radius - d) / edge + 0.5))
        covered += int((cover[window] > 0.5).sum()) - before
    tint = colour_between(random, (0.44, 0.23, 0.05), (0.74, 0.44, 0.14))
    rgb = _blend(rgb, (0.64, 0.62, 0.22), random.uniform(0.15, 0.5) * halo)
    rgb = _blend(rgb, tint, 0.92 * cover)
    rgb = _blend(rgb, tint * 0.5, random.uniform(0.2, 0.8) * core)
    return rgb, cover * leaf.inside


def draw_blight(random: np.random.Generator, rgb: Array, leaf: Surface, severity: float) -> Drawn:
    """A few large dead patches with a ragged edge, faint rings and a yellow border, often from the margin."""
    side = len(rgb)
    area = float(leaf.inside.mean())
    rough = smooth_noise(random, side, 9, 3)
    field = np.full((side, side), -9.0, np.float32)
    distance = np.full((side, side), 9.0, np.float32)
    y_grid, x_grid = np.mgrid[0:side, 0:side].astype(np.float32)
    for _ in range(int(random.integers(1, 5))):
        y, x = _place(random, leaf, np.abs(leaf.v) / np.maximum(leaf.reach, 1e-3) * random.choice((0, 2)))
        size = leaf.scale * random.uniform(0.06, 0.16)
        stretch, angle = random.uniform(0.7, 1.4), random.uniform(0, np.pi)
        d = _distance(y_grid - y, x_grid - x, stretch, angle) / size
        distance = np.minimum(distance, d)
        field = np.maximum(field, 1 - d + 0.16 * rough)
    level = _level(field, leaf.inside, severity * area)
    cover = _smoothstep((field - level) / 0.10)
    border = _smoothstep((field - level + 0.30) / 0.30) * (1 - cover)
    rings = 0.5 + 0.5 * np.sin(distance * random.uniform(18, 30) + 0.8 * rough)
    dead = colour_between(random, (0.28, 0.18, 0.09), (0.50, 0.36, 0.21))
    patch = dead * (0.82 + random.uniform(0.05, 0.30) * rings + 0.10 * smooth_noise(random, side, 40, 2))[..., None]
    rgb = _blend(rgb, (0.66, 0.64, 0.22), random.uniform(0.3, 0.7) * border)
    return _blend(rgb, patch, 0.93 * cover), cover * leaf.inside


def draw_mildew(random: np.random.Generator, rgb: Array, leaf: Surface, severity: float) -> Drawn:
    """White to grey powder in soft colonies through which the veins are visible."""
    side = len(rgb)
    area = float(leaf.inside.mean())
    y_grid, x_grid = np.mgrid[0:side, 0:side].astype(np.float32)
    field: Array = np.zeros((side, side), np.float32)
    even = np.zeros((side, side), np.float32)
    for _ in range(int(random.integers(4, 13))):
        y, x = _place(random, leaf, even)
        size = leaf.scale * random.uniform(0.05, 0.13)
        d = _distance(y_grid - y, x_grid - x, random.uniform(0.8, 1.25), random.uniform(0, np.pi)) / size
        field += random.uniform(0.6, 1.0) * np.exp(-d * d)
    field = field * (1 + 0.25 * smooth_noise(random, side, 14, 3))
    level = _level(field, leaf.inside, severity * area)
    cover = _smoothstep((field - level) / (0.35 * max(float(field.max()), 1e-3)) + 0.5)
    powder = 0.86 + 0.07 * smooth_noise(random, side, side / 3, 1) + 0.05 * smooth_noise(random, side, side / 8, 1)
    tint = colour_between(random, (0.80, 0.82, 0.78), (0.95, 0.95, 0.93))
    return _blend(rgb, powder[..., None] * tint, 0.80 * cover), cover * leaf.inside


DRAW: Final = {"healthy": draw_healthy, "rust": draw_rust, "blight": draw_blight, "mildew": draw_mildew}


def _place(random: np.random.Generator, leaf: Surface, favoured: Array) -> tuple[float, float]:
    """A pixel inside the leaf, the better of two by `favoured`."""
    side = len(favoured)
    best, best_value = (side / 2, side / 2), -np.inf
    left = 2
    for row, column in random.integers(0, CELLS, (64, 2)):
        pixel = int(leaf.cells[row, column])
        if pixel < 0:
            continue
        y, x = divmod(pixel, side)
        if favoured[y, x] > best_value:
            best, best_value = (float(y), float(x)), float(favoured[y, x])
        left -= 1
        if not left:
            break
    return best


def _distance(dy: Array, dx: Array, stretch: float, angle: float) -> Array:
    cos, sin = np.cos(angle), np.sin(angle)
    return np.asarray(np.hypot((cos * dx + sin * dy) * stretch, (cos * dy - sin * dx) / stretch), np.float32)


def _around(
    side: int, y: float, x: float, size: float, stretch: float, angle: float
) -> tuple[tuple[slice, slice], Array]:
    """The window that a spot of this size can touch, and the distance from its middle there."""
    reach = int(4 * size) + 3
    window = (
        slice(max(int(y) - reach, 0), min(int(y) + reach, side)),
        slice(max(int(x) - reach, 0), min(int(x) + reach, side)),
    )
    dy, dx = np.mgrid[window].astype(np.float32)
    return window, _distance(dy - y, dx - x, stretch, angle)


def _level(field: Array, inside: Array, wanted: float) -> float:
    """The threshold above which `field` covers the wanted share of the picture, within the leaf."""
    values = np.sort(field[inside > 0])
    count = min(int(wanted * field.size), len(values) - 1)
    return float(values[-1 - count])


def _smoothstep(x: Array) -> Array:
    x = np.clip(x, 0, 1)
    return np.asarray(x * x * (3 - 2 * x), np.float32)


def _blend(rgb: Array, colour: Array | tuple[float, float, float], cover: Array) -> Array:
    cover = cover[..., None]
    return np.asarray(rgb * (1 - cover) + np.asarray(colour, np.float32) * cover, np.float32)
