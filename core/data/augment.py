"""Random augmentation parameters for the photo kernels (`core.ops.photo`).

The parameters of a photo are a pure function of seed, epoch, photo and its occurrence in the epoch. They are the same
on every device, for every batch size, and after a resume.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from core.data.philox import uniforms
from core.ops.contract import Array
from core.ops.photo import AFFINE, AUGMENTATION_SIZE, BLUR, BLUR_RADIUS, COLOUR, CUTOUT, identity_augmentation

_STREAM: Final = 0x41554720
"""Second word of the generator's key; each use of the generator has its own."""
_DRAWS: Final = 24
_LUMA: Final = np.array((0.299, 0.587, 0.114))
_GREY_AXIS: Final = np.full(3, 1 / np.sqrt(3.0))


@dataclass(frozen=True, slots=True)
class Strength:
    """Augmentation ranges, around 0 (around 1 for factors); probabilities are 0..1.

    area: smallest crop area, as a share of the photo; aspect: largest aspect ratio; turn: rotation in degrees to either
    side; quarters: rotations by 90 degrees and flips (leaves have no up); light: brightness and contrast; balance:
    white balance; hue: degrees; blur, cutout: probabilities; cutout_side: largest side, as a share.
    """

    area: float = 1.0
    aspect: float = 1.0
    turn: float = 0.0
    quarters: bool = False
    light: float = 0.0
    balance: float = 0.0
    saturation: float = 0.0
    hue: float = 0.0
    blur: float = 0.0
    cutout: float = 0.0
    cutout_side: float = 0.0


STANDARD: Final = Strength(
    area=0.45, aspect=1.25, turn=20, quarters=True, light=0.25, balance=0.06, saturation=0.25, hue=4, blur=0.15
)
PRESETS: Final = {
    "none": Strength(),
    "light": Strength(area=0.7, aspect=1.1, turn=8, quarters=True, light=0.1, balance=0.03, saturation=0.1),
    "standard": STANDARD,
    # models on replaced backgrounds rely on fine texture: predictions at half the size changed four times as often
    "soft": replace(STANDARD, blur=0.5),
    "strong": Strength(
        area=0.3, aspect=1.4, turn=45, quarters=True, light=0.4, balance=0.12, saturation=0.45, hue=9, blur=0.3,
        cutout=0.5, cutout_side=0.4,
    ),
}  # fmt: skip


def draw_augmentation(
    preset: str, seed: int, epoch: int, photos: Array, source: int, size: int, occurrence: Array | None = None
) -> Array:
    """Random parameters ``(N, AUGMENTATION_SIZE)`` of photos (indices ``(N,)``) resized from `source` to `size`."""
    strength = PRESETS[preset]
    if strength == PRESETS["none"]:
        return identity_augmentation(len(photos), source, size)
    times = np.zeros(len(photos), np.int64) if occurrence is None else occurrence
    u = uniforms(_DRAWS, photos, times, epoch, (seed, _STREAM))
    augmentation = np.zeros((len(photos), AUGMENTATION_SIZE), np.float32)
    augmentation[:, AFFINE] = affine(strength, u[:, :8], source, size)
    augmentation[:, COLOUR] = _colour(strength, u[:, 8:16])
    augmentation[:, BLUR] = np.where(u[:, 16] < strength.blur, 0.05 + 0.15 * u[:, 17], 0.0)
    augmentation[:, BLUR_RADIUS] = (0.5 + u[:, 18]) * source / size
    augmentation[:, CUTOUT] = _cutout(strength, u[:, 19:24], size)
    return augmentation


def affine(strength: Strength, u: Array, source: int, size: int) -> Array:
    """Affine maps ``(N, 6)`` from output to source pixels, of random crops drawn from uniforms ``(N, 7)``."""
    side = source * np.sqrt(strength.area + (1 - strength.area) * u[:, 0])
    ratio = np.exp(np.log(strength.aspect) * (u[:, 1] - 0.5))
    width, height = np.minimum(side * ratio, source), np.minimum(side / ratio, source)
    angle = np.radians(strength.turn) * (2 * u[:, 2] - 1)
    flip = np.ones(len(u))
    if strength.quarters:
        angle = angle + np.pi / 2 * np.floor(4 * u[:, 3])
        flip = np.where(u[:, 4] < 0.5, -1.0, 1.0)
    sin, cos = np.sin(angle), np.cos(angle)
    # half of the rotated crop's extent: the centre keeps this distance from the border where possible
    reach_x = np.abs(width * cos) / 2 + np.abs(height * sin) / 2
    reach_y = np.abs(width * sin) / 2 + np.abs(height * cos) / 2
    centre_x = source / 2 + (2 * u[:, 5] - 1) * np.maximum(source / 2 - reach_x, 0)
    centre_y = source / 2 + (2 * u[:, 6] - 1) * np.maximum(source / 2 - reach_y, 0)
    step_x, step_y = flip * width / size, height / size
    a0, a1, a3, a4 = cos * step_x, -sin * step_y, sin * step_x, cos * step_y
    middle = (size - 1) / 2
    a2 = centre_x - 0.5 - (a0 + a1) * middle
    a5 = centre_y - 0.5 - (a3 + a4) * middle
    return np.stack((a0, a1, a2, a3, a4, a5), axis=1)


def _colour(strength: Strength, u: Array) -> Array:
    """White balance, hue, saturation, contrast and brightness as one 3x4 colour matrix per photo: ``(N, 12)``."""
    v = 2 * u - 1
    count = len(u)
    balance = np.zeros((count, 3, 3))
    balance[:, range(3), range(3)] = 1 + strength.balance * v[:, 0:3]
    turned = _hue(np.radians(strength.hue) * v[:, 3])
    amount = (1 + strength.saturation * v[:, 4])[:, None, None]
    saturation = amount * np.eye(3) + (1 - amount) * _LUMA
    matrix = saturation @ turned @ balance
    contrast = np.exp(strength.light * v[:, 5])
    brightness = 0.5 * strength.light * v[:, 6]
    out = np.empty((count, 3, 4))
    out[:, :, :3] = contrast[:, None, None] * matrix
    out[:, :, 3] = (0.5 - 0.5 * contrast + brightness)[:, None]
    return out.reshape(count, 12)


def _hue(angle: Array) -> Array:
    """Rotations of RGB around the grey axis (Rodrigues): ``(N, 3, 3)``."""
    x, y, z = _GREY_AXIS
    cross = np.array(((0, -z, y), (z, 0, -x), (-y, x, 0)))
    sin, cos = np.sin(angle)[:, None, None], np.cos(angle)[:, None, None]
    return np.asarray(cos * np.eye(3) + sin * cross + (1 - cos) * np.outer(_GREY_AXIS, _GREY_AXIS))


def _cutout(strength: Strength, u: Array, size: int) -> Array:
    """Cutout boxes (y0, x0, y1, x1) in output pixels; all zero where there is none."""
    height = size * strength.cutout_side * (0.3 + 0.7 * u[:, 1])
    width = size * strength.cutout_side * (0.3 + 0.7 * u[:, 2])
    y, x = u[:, 3] * size - height / 2, u[:, 4] * size - width / 2
    box = np.stack((y, x, y + height, x + width), axis=1)
    box = np.clip(np.floor(box), 0, size)
    return np.where((u[:, 0] < strength.cutout)[:, None], box, 0)
