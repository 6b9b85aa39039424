"""The network's input from a uint8 photo: crop, rotation, blur, background, mixing, colour and cutout in one pass.

This is the reference of every device's kernel. The augmentation parameters of one photo are `AUGMENTATION_SIZE` floats;
`core.data.augment` draws them, `identity_augmentation` only resizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from core.graph import Attributes, Shape
from core.ops.attributes import read_numbers
from core.ops.contract import Array, Cost, Gradients, Op, Result, volume

MAX_SIDE: Final = 1 << 14
"""Largest side of a network's photo, pixels."""
AUGMENTATION: Final = np.dtype(
    [
        ("affine", np.float32, 6), ("colour", np.float32, (3, 4)), ("blur", np.float32), ("blur_radius", np.float32),
        ("cutout", np.float32, 4), ("background", np.float32), ("mask", np.float32),
        ("background_affine", np.float32, 6),
    ]
)  # fmt: skip
"""The augmentation parameters of one photo, in the order in which every device reads them:

affine: source pixel of output pixel (x, y): ``sx = a0 x + a1 y + a2``, ``sy = a3 x + a4 y + a5``. Pixel centres are
integers; outside the photo the nearest edge pixel is taken.
colour: matrix on (r, g, b, 1) with values 0..1, clipped to 0..1 afterwards.
blur: weight w of each of four neighbours: ``(1 - 4 w) centre + w (up + down + left + right)``.
blur_radius: distance of those neighbours, in source pixels along the source axes.
cutout: box y0, x0, y1, x1 in output pixels (end excluded) set to the mean, which is 0 after normalising.
background: 0, or 1 plus the index of the background (`Backgrounds.images`) that the leaf is set on; or below 0, -1
minus the index of another photo of the same set, with which this one is mixed.
mask: index of the photo's mask (`Backgrounds.masks`), where it has a background; its share 0..1, where it is mixed with
another photo. The box of `cutout` then shows that other photo alone.
background_affine: as `affine`, from an output pixel to the pixel of the background, or of the other photo.
"""

AUGMENTATION_SIZE: Final = AUGMENTATION.itemsize // 4
"""float32 numbers of one photo's parameters."""


def _start(name: str) -> int:
    return int(AUGMENTATION.fields[name][1]) // 4  # type: ignore[index]


MAP, MATRIX, BLUR, BLUR_RADIUS, BOX, BACKGROUND, MASK, BACKGROUND_MAP = (
    _start(name) for name in AUGMENTATION.names or ()
)
"""Index of each field's first number, for kernels."""
AFFINE, COLOUR, CUTOUT = slice(MAP, MATRIX), slice(MATRIX, BLUR), slice(BOX, BACKGROUND)
BACKGROUND_AFFINE: Final = slice(BACKGROUND_MAP, AUGMENTATION_SIZE)
"""The fields of several numbers, as slices of a photo's parameters."""
Sides: TypeAlias = int | tuple[int, int]
"""Height and width in pixels; one number for a square."""
GREY: Final = (0.299, 0.587, 0.114)
"""Weights of red, green and blue in the one channel of a grey network (ITU-R BT.601)."""


@dataclass(frozen=True, slots=True, eq=False)
class Backgrounds:
    """Backgrounds to replace those of photos with; both arrays are C-contiguous.

    masks: uint8 ``(photos, h, w)``, 255 on the leaf, soft at its edge, of any size. images: uint8
    ``(backgrounds, H, W, 3)``, photos without their leaf.
    """

    masks: Array
    images: Array


def background_problem(augmentation: Array, backgrounds: Backgrounds | None, photos: int) -> str:
    """Return which backgrounds, masks or mixed photos do not exist, or "". Kernels read by address without a check."""
    given = augmentation[:, BACKGROUND]
    if not given.any():
        return ""
    lowest = int(given.min())
    if lowest < -photos:
        return f"mixing refers to photo {-1 - lowest}, but there are {photos} photos"
    asked = augmentation[given > 0]
    if not len(asked):
        return ""
    if backgrounds is None:
        return "they need new backgrounds, but none were given to keep_backgrounds"
    numbers = ((asked[:, BACKGROUND] - 1, len(backgrounds.images)), (asked[:, MASK], len(backgrounds.masks)))
    if any(number.min() < 0 or number.max() >= count for number, count in numbers):
        return "they refer to backgrounds or masks that do not exist"
    return ""


def identity_augmentation(count: int, source: Sides, size: Sides) -> Array:
    """Return float32 ``(count, AUGMENTATION_SIZE)`` that only scales photos of `source` to `size`."""
    augmentation = np.zeros((count, AUGMENTATION_SIZE), np.float32)
    scale_y, scale_x = np.broadcast_to(source, 2) / np.broadcast_to(size, 2)
    augmentation[:, AFFINE] = (scale_x, 0.0, 0.5 * scale_x - 0.5, 0.0, scale_y, 0.5 * scale_y - 0.5)
    augmentation[:, COLOUR] = (1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0)
    return augmentation


def transform(
    photos: Array, augmentation: Array, size: tuple[int, int], mean: Sequence[float], std: Sequence[float],
    backgrounds: Backgrounds | None = None, index: Array | None = None,
) -> Array:  # fmt: skip
    """Augment and normalize photos uint8 ``(N, H, W, 3)`` to float32 ``(N, *size, channels)``.

    augmentation: parameters ``(N, AUGMENTATION_SIZE)``. With `index`, the n-th apply to ``photos[index[n]]``, and there
    may be any number of photos. A network of one channel (one mean and deviation) sees `GREY` of the clipped colours.
    """
    out = np.empty((len(augmentation), *size, len(mean)), np.float32)
    y, x = np.mgrid[0 : size[0], 0 : size[1]].astype(np.float32)
    for n, row in enumerate(np.asarray(augmentation, np.float32)):
        y0, x0, y1, x1 = (max(int(v), 0) for v in row[CUTOUT])
        rgb = _sample_augmented(photos[n if index is None else index[n]], row, x, y, backgrounds)
        if row[BACKGROUND] < 0:
            share = np.full((*size, 1), row[MASK], np.float32)
            share[y0:y1, x0:x1] = 0
            other = _sample(photos[-int(row[BACKGROUND]) - 1], *_map_affine(row[BACKGROUND_AFFINE], x, y))
            rgb = share * rgb + (1 - share) * other
        colour = row[COLOUR].reshape(3, 4)
        rgb = np.clip(rgb @ colour[:, :3].T + colour[:, 3], 0.0, 1.0)
        if len(mean) == 1:
            red, green, blue = (np.float32(weight) * rgb[..., i] for i, weight in enumerate(GREY))
            rgb = (red + green + blue)[..., None]  # written out: the order of a BLAS sum depends on the processor
        rgb = (rgb - np.asarray(mean, np.float32)) / np.asarray(std, np.float32)
        if row[BACKGROUND] >= 0:
            rgb[y0:y1, x0:x1] = 0
        out[n] = rgb
    return out


def _sample_augmented(photo: Array, row: Array, x: Array, y: Array, backgrounds: Backgrounds | None) -> Array:
    """Sample a photo at output pixels (x, y), blurred and on its background; float32 ``(h, w, 3)`` in 0..1."""
    sx, sy = _map_affine(row[AFFINE], x, y)
    rgb = _sample(photo, sx, sy)
    if row[BLUR] > 0:
        r = row[BLUR_RADIUS]
        around = (
            _sample(photo, sx - r, sy) + _sample(photo, sx + r, sy)
            + _sample(photo, sx, sy - r) + _sample(photo, sx, sy + r)
        )
        rgb = (1 - 4 * row[BLUR]) * rgb + row[BLUR] * around
    if row[BACKGROUND] > 0 and backgrounds is not None:
        leaf = _leaf_share(backgrounds.masks[int(row[MASK])], photo.shape, sx, sy)
        background = _sample(backgrounds.images[int(row[BACKGROUND]) - 1], *_map_affine(row[BACKGROUND_AFFINE], x, y))
        rgb = leaf * rgb + (1 - leaf) * background
    return rgb


def _map_affine(a: Array, x: Array, y: Array) -> tuple[Array, Array]:
    return a[0] * x + a[1] * y + a[2], a[3] * x + a[4] * y + a[5]


def _leaf_share(mask: Array, photo: Shape, sx: Array, sy: Array) -> Array:
    """Sample the mask, scaled to the photo, at the photo's pixels (sx, sy): ``(h, w, 1)`` in 0..1."""
    down, right = np.float32(mask.shape[0] / photo[0]), np.float32(mask.shape[1] / photo[1])
    half = np.float32(0.5)
    return _sample(mask[..., None], (sx + half) * right - half, (sy + half) * down - half)


def _sample(photo: Array, sx: Array, sy: Array) -> Array:
    """Sample bilinearly with clamped coordinates; float32 ``(h, w, channels)`` in 0..1."""
    height, width = photo.shape[:2]
    sx, sy = np.clip(sx, 0, width - 1), np.clip(sy, 0, height - 1)
    x0, y0 = np.floor(sx).astype(np.intp), np.floor(sy).astype(np.intp)
    x1, y1 = np.minimum(x0 + 1, width - 1), np.minimum(y0 + 1, height - 1)
    fx, fy = (sx - x0)[..., None], (sy - y0)[..., None]
    p = photo.astype(np.float32) / np.float32(255)
    top = p[y0, x0] * (1 - fx) + p[y0, x1] * fx
    bottom = p[y1, x0] * (1 - fx) + p[y1, x1] * fx
    return np.asarray(top * (1 - fy) + bottom * fy, np.float32)


def photo_shape(attributes: Attributes, shape: Shape) -> Shape:
    """Check an input shape (height, width, 3 or 1), with a mean and a deviation per channel. Raises ValueError."""
    mean, std = read_numbers(attributes, "mean"), read_numbers(attributes, "std")
    if len(shape) != 3 or not all(1 <= side <= MAX_SIDE for side in shape[:2]) or shape[2] not in (1, 3):
        raise ValueError(f"A photo has a height, a width and 3 channels, or 1 if grey, not {shape}.")
    if len(mean) != shape[2] or len(std) != shape[2] or min(std) <= 0:
        raise ValueError(f"A photo of {shape[2]} channels needs as many means and positive deviations.")
    return shape


def _shape(attributes: Attributes, inputs: Sequence[Shape]) -> Shape:
    raise ValueError("a photo is the first node of a graph and no other")


PHOTO_OP: Final = Op(
    name="photo", defaults={"mean": (0.5, 0.5, 0.5), "std": (0.25, 0.25, 0.25)}, shape=_shape,
    cost=lambda attributes, inputs, output: Cost(60 * volume(output), 7 * volume(output)),
    forward=lambda call: Result(call.inputs[0]),
    backward=lambda call, result, gradient: Gradients((gradient,)),
)
