"""Draws synthetic photos of leaves: a random leaf with lesions, on a random background, in random light.

Shape, background, light and camera are independent of the condition, so that only the lesions indicate it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import cv2
import numpy as np

from core.data.lesion_drawing import DRAW, Surface, colour_between, lay_cells, smooth_noise
from core.ops.contract import Array

CONDITIONS: Final = tuple(DRAW)
LEAST_SEVERITY: Final = 0.05
"""Smaller lesions have less than a pixel in the small photos of the demo."""
MOST_SEVERITY: Final = 0.40


@dataclass(frozen=True, slots=True, eq=False)
class LeafPhoto:
    """A synthetic photo, uint8 ``(S, S, 3)``, and its true masks, bool ``(S, S)``; lesions are within the leaf."""

    rgb: Array
    leaf: Array
    lesion: Array


def draw_leaf(condition: str, seed: int, leaf: int, view: int = 0, side: int = 160) -> LeafPhoto:
    """Draw leaf number `leaf`; each view shows it from another position, in other light."""
    number = leaf * len(CONDITIONS) + CONDITIONS.index(condition)
    plant = np.random.Generator(np.random.Philox(key=[seed, number]))
    camera = np.random.Generator(np.random.Philox(key=[seed + (1 << 32), (number << 8) + view]))
    surface = _surface(plant, camera, side)
    rgb = _blade(plant, surface, side)
    severity = float(np.exp(plant.uniform(np.log(LEAST_SEVERITY), np.log(MOST_SEVERITY))))
    rgb, cover = DRAW[condition](plant, rgb, surface, severity)
    shown = np.asarray(cv2.GaussianBlur(surface.inside, (0, 0), 0.7), np.float32)
    background = _background(camera, side)
    background *= 1 - 0.45 * _shadow(camera, surface.inside)[..., None]
    scene = background * (1 - shown[..., None]) + rgb * shown[..., None]
    leaf_area = surface.inside > 0.5
    return LeafPhoto(_expose(camera, scene, side), leaf_area, (cover > 0.5) & leaf_area)


def _surface(plant: np.random.Generator, camera: np.random.Generator, side: int) -> Surface:
    """Leaf coordinates of every pixel of a rotated, scaled, shifted and bent leaf, and its outline."""
    y, x = np.mgrid[0:side, 0:side].astype(np.float32)
    x, y = x / side - 0.5 - camera.uniform(-0.06, 0.06), y / side - 0.5 - camera.uniform(-0.06, 0.06)
    angle, length = camera.uniform(0, 2 * np.pi), camera.uniform(0.78, 1.02)
    along = (np.cos(angle) * x + np.sin(angle) * y) / length
    v = (np.cos(angle) * y - np.sin(angle) * x) / length
    v = v - plant.uniform(-0.45, 0.45) * (along * along - 0.08)
    u = along + 0.5
    inner = np.clip(u, 1e-4, 1 - 1e-4)
    rise, fall = plant.uniform(0.35, 1.0), plant.uniform(0.6, 1.7)
    outline = inner**rise * (1 - inner) ** fall
    peak = (rise / (rise + fall)) ** rise * (fall / (rise + fall)) ** fall
    width = plant.uniform(0.17, 0.38) * (1 + plant.uniform(-0.08, 0.08) * np.sign(v))
    teeth = plant.uniform(0.0, 0.07) * (np.abs((inner * plant.uniform(14, 34)) % 1 - 0.5) * 2 - 0.5)
    lobes = plant.uniform(0, 0.12) * plant.choice((0.3, 1.0))
    wave = lobes * np.sin(inner * plant.uniform(8, 26) + plant.uniform(0, 6) + 0.7 * np.sign(v))
    reach = (width * outline / peak * (1 + teeth + wave)).astype(np.float32)
    inside = ((np.abs(v) < reach) & (u > 0) & (u < 1)).astype(np.float32)
    inside = _bitten(plant, u, v, inside)
    return Surface(u.astype(np.float32), v.astype(np.float32), reach, inside, length * side, lay_cells(u, v, inside))


def _bitten(plant: np.random.Generator, u: Array, v: Array, inside: Array) -> Array:
    """Cut a few round insect bites out of some leaves."""
    for _ in range(int(plant.choice((0, 0, 0, 1, 3)))):
        at_u, at_v, size = plant.uniform(0.1, 0.9), plant.uniform(-0.3, 0.3), plant.uniform(0.01, 0.035)
        inside = inside * (np.hypot(u - at_u, v - at_v) > size)
    return np.asarray(inside, np.float32)


def _blade(plant: np.random.Generator, leaf: Surface, side: int) -> Array:
    """Draw the healthy blade: green with paler veins, mottled, partly yellow or brown with age."""
    green = np.array(plant.uniform((0.13, 0.33, 0.06), (0.36, 0.56, 0.20)), np.float32)
    mottle = 0.05 * smooth_noise(plant, side, 5, 3) + 0.025 * smooth_noise(plant, side, 40, 2)
    rgb = green * (1 + mottle[..., None])
    age = plant.uniform(0, 0.5) ** 2 * _ramp(smooth_noise(plant, side, 2) + 2 * (leaf.u - 0.5), 0.4)
    rgb = rgb * (1 - age[..., None]) + np.array((0.60, 0.58, 0.20), np.float32) * age[..., None]
    across = np.abs(leaf.v)
    slope, spacing = plant.uniform(0.5, 1.1), plant.uniform(0.065, 0.11)
    side_veins = (leaf.u - slope * across + 1.3 * across * across + 0.5 * spacing * (leaf.v > 0)) / spacing
    to_vein = np.abs(side_veins - np.round(side_veins)) * spacing
    fade = np.clip(1 - across / np.maximum(leaf.reach, 1e-3), 0, 1)
    vein = 0.55 * np.exp(-((to_vein / 0.0055) ** 2)) * (0.35 + 0.65 * fade)
    rib = np.exp(-((leaf.v / (0.004 + 0.012 * (1 - np.clip(leaf.u, 0, 1)))) ** 2))
    veins = np.maximum(vein, rib)[..., None]
    pale = green * 0.55 + np.array((0.30, 0.34, 0.18), np.float32)
    rgb = rgb * (1 - 0.55 * veins) + pale * (0.55 * veins)
    rgb = _dirty(plant, rgb, leaf)
    sheen = plant.uniform(0, 0.22) * _ramp(smooth_noise(plant, side, 3) - 0.6, 1.2)
    rgb = rgb * (1 - sheen[..., None]) + np.array((0.80, 0.84, 0.82), np.float32) * sheen[..., None]
    quilt = 0.06 * np.cos(2 * np.pi * side_veins) * fade - 0.10 * (across / np.maximum(leaf.reach, 1e-3)) ** 4
    return np.asarray(np.clip(rgb * (1 + quilt[..., None]), 0, 1), np.float32)


def _dirty(plant: np.random.Generator, rgb: Array, leaf: Surface) -> Array:
    """Add a few specks of soil, on healthy leaves too, so that a brown dot alone does not indicate a disease."""
    for _ in range(int(plant.choice((0, 0, 2, 6, 12)))):
        at_u, at_v = plant.uniform(0.05, 0.95), plant.uniform(-0.3, 0.3)
        speck = np.exp(-((np.hypot(leaf.u - at_u, leaf.v - at_v) / plant.uniform(0.003, 0.009)) ** 2))[..., None]
        rgb = rgb * (1 - 0.8 * speck) + np.array((0.25, 0.18, 0.11), np.float32) * 0.8 * speck
    return rgb


def _background(camera: np.random.Generator, side: int) -> Array:
    """Draw a background: soil, paper, blurred leaves or stones."""
    kind = camera.choice(("soil", "paper", "leaves", "stones"))
    coarse, fine = smooth_noise(camera, side, 4, 4), smooth_noise(camera, side, side / 3, 1)
    if kind == "soil":
        base = colour_between(camera, (0.22, 0.15, 0.09), (0.48, 0.36, 0.26))
        value = 1 + 0.25 * coarse + 0.14 * fine
    elif kind == "paper":
        base = colour_between(camera, (0.55, 0.53, 0.55), (0.90, 0.90, 0.92))
        value = 1 + 0.02 * coarse + 0.015 * fine
    elif kind == "stones":
        base = colour_between(camera, (0.38, 0.36, 0.33), (0.60, 0.58, 0.56))
        value = _cells(camera, side, int(camera.integers(80, 260)), 0.16) + 0.05 * fine
    else:
        base = colour_between(camera, (0.13, 0.22, 0.07), (0.28, 0.40, 0.17))
        value = 0.25 + 0.85 * _cells(camera, side, int(camera.integers(8, 24)), 0.30) + 0.08 * coarse
        value = cv2.GaussianBlur(value.astype(np.float32), (0, 0), side * camera.uniform(0.005, 0.03))
    hue = 1 + 0.03 * smooth_noise(camera, side, 6)[..., None] * np.array((1, 0, -1), np.float32)
    return np.asarray(np.clip(base * hue * value[..., None], 0, 1), np.float32)


def _cells(camera: np.random.Generator, side: int, count: int, spread: float) -> Array:
    """Cells around random points, each of its own brightness, dark where they meet; about 1 in the middle."""
    seeds = np.full((side, side), 255, np.uint8)
    seeds[camera.integers(0, side, count), camera.integers(0, side, count)] = 0
    away, cell = cv2.distanceTransformWithLabels(seeds, cv2.DIST_L2, 5, labelType=cv2.DIST_LABEL_PIXEL)
    tone = 1 + spread * camera.standard_normal(int(cell.max()) + 1).astype(np.float32)
    round_off = 1 - 0.45 * (away / (0.75 * side / np.sqrt(count))) ** 2
    return np.asarray(tone[cell] * np.clip(round_off, 0.25, 1), np.float32)


def _shadow(camera: np.random.Generator, inside: Array) -> Array:
    """The leaf's soft shadow on the background."""
    side = len(inside)
    to_x, to_y = camera.uniform(-0.05, 0.05, 2) * side
    shift = np.array([[1, 0, to_x], [0, 1, to_y]], np.float32)
    moved = cv2.warpAffine(inside, shift, (side, side))
    return np.asarray(cv2.GaussianBlur(moved, (0, 0), side * camera.uniform(0.008, 0.03)), np.float32)


def _expose(camera: np.random.Generator, scene: Array, side: int) -> Array:
    """Apply vignetting, sheen, white balance, exposure, blur and noise; convert to uint8."""
    y, x = np.mgrid[-1 : 1 : side * 1j, -1 : 1 : side * 1j].astype(np.float32)
    angle = camera.uniform(0, 2 * np.pi)
    light = 1 + camera.uniform(0, 0.28) * (np.cos(angle) * x + np.sin(angle) * y)
    light = light - camera.uniform(0, 0.18) * (x * x + y * y)
    light = light * (1 + 0.05 * smooth_noise(camera, side, 2))
    balance = np.asarray(camera.uniform(0.92, 1.08, 3), np.float32)
    rgb = scene * light[..., None] * balance * camera.uniform(0.72, 1.28)
    rgb = cv2.GaussianBlur(rgb, (0, 0), camera.uniform(0.3, 0.9) * side / 160)
    rgb = rgb + camera.normal(0, camera.uniform(0.004, 0.02), rgb.shape).astype(np.float32)
    return np.asarray(np.clip(rgb * 255 + 0.5, 0, 255).astype(np.uint8))


def _ramp(x: Array, width: float) -> Array:
    return np.asarray(np.clip(x / width, 0, 1), np.float32)
