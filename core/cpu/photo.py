"""Kernels of the image transform of `core.ops.photo`: uint8 pixels of one image to the network's input buffer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types

from core.cpu import context as ctx
from core.cpu.memory import bytes_at, floats, make_intrinsic, words
from core.graph import Shape
from core.ops.contract import Array
from core.ops.photo import (
    AUGMENTATION_SIZE,
    BACKGROUND,
    BACKGROUND_MAP,
    BLUR,
    BLUR_RADIUS,
    BOX,
    COLOUR,
    CUTOUT,
    GREY,
    MASK,
)

# Record: address of the input buffer; 6 floats: the mean (3, or 1 if grey) and from the fourth on 1 / std.
OUT, OUT_ROW, HEIGHT, WIDTH, CHANNELS, NORMAL = range(1, 7)


def run_plain_photo(record: int, context: int, image: int, low: int, high: int) -> None:
    """Crop and normalise three channels (`is_plain`). Tasks are rows of the output."""
    w, run = words(record), words(context)
    width = run[ctx.SOURCE_WIDTH]
    row = floats(run[ctx.AUGMENTATION] + image * AUGMENTATION_SIZE * 4, AUGMENTATION_SIZE)
    which = words(run[ctx.INDEX] + image * 8)[0] if run[ctx.INDEX] else image
    pixels = run[ctx.PHOTOS] + which * run[ctx.PHOTO_BYTES] + int(row[2]) * 3
    n = floats(w[NORMAL], 6)
    red, green, blue = n[3] / np.float32(255), n[4] / np.float32(255), n[5] / np.float32(255)
    r0, g0, b0 = -n[0] * n[3], -n[1] * n[4], -n[2] * n[5]
    for y in range(low, high):
        out = floats(w[OUT] + y * w[OUT_ROW], w[WIDTH] * 3)
        line = bytes_at(pixels + (y + int(row[5])) * width * 3, len(out))
        for x in range(len(out) // 3):
            out[3 * x] = np.float32(line[3 * x]) * red + r0
            out[3 * x + 1] = np.float32(line[3 * x + 1]) * green + g0
            out[3 * x + 2] = np.float32(line[3 * x + 2]) * blue + b0


def run_photo(record: int, context: int, image: int, low: int, high: int) -> None:
    """Tasks are rows of the output."""
    w, run = words(record), words(context)
    height, width = run[ctx.SOURCE_HEIGHT], run[ctx.SOURCE_WIDTH]
    row = floats(run[ctx.AUGMENTATION] + image * AUGMENTATION_SIZE * 4, AUGMENTATION_SIZE)
    which = words(run[ctx.INDEX] + image * 8)[0] if run[ctx.INDEX] else image
    pixels = run[ctx.PHOTOS] + which * run[ctx.PHOTO_BYTES]
    normal = floats(w[NORMAL], 6)
    channels, columns = w[CHANNELS], w[WIDTH]
    colours = np.zeros(columns * 4, np.float32)  # zeros: a NaN times `keep` would stay
    for y in range(low, high):
        out = floats(w[OUT] + y * w[OUT_ROW], columns * channels)
        _sample_row(pixels, row, colours, y, height, width)
        if row[BACKGROUND] > 0:
            _set_on_background(run, row, colours, y, height, width)
        if row[BACKGROUND] < 0:
            _mix_with_other(run, row, colours, y, height, width)
        _colour_row(row, normal, colours, out, channels)
        y0, x0, y1, x1 = int(row[BOX]), int(row[BOX + 1]), int(row[BOX + 2]), int(row[BOX + 3])
        if y0 <= y < y1 and row[BACKGROUND] >= 0:
            for i in range(max(x0, 0) * channels, min(max(x1, 0), columns) * channels):
                out[i] = 0


def photo_kernel(augmentation: Array, shape: Shape, source: Shape) -> Callable[..., None]:
    """Choose the kernel for a batch: the one that samples is compiled only where a photo needs it.

    `shape`: (height, width, channels) of the network's input; `source`: (height, width) of the photos.
    """
    return run_plain_photo if shape[2] == 3 and is_plain(augmentation, shape[:2], source) else run_photo


def is_plain(augmentation: Array, size: Shape, source: Shape) -> bool:
    """Return whether whole pixels are copied: no scaling, colour, blur, cutout or background, no pixel outside."""
    plain = (augmentation[:, COLOUR] == np.eye(3, 4).ravel()).all(axis=1)
    plain &= (augmentation[:, [0, 1, 3, 4]] == (1, 0, 0, 1)).all(axis=1)
    plain &= (augmentation[:, [BLUR, BACKGROUND]] == 0).all(axis=1) & (augmentation[:, CUTOUT] == 0).all(axis=1)
    corner = augmentation[:, [5, 2]]
    inside = (corner == np.floor(corner)) & (corner >= 0) & (corner + size <= source)
    return bool((plain & inside.all(axis=1)).all())


@njit(inline="always")
def _sample_row(pixels, row, colours, y, height, width):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Sample one row of colours in 0..1, four floats per pixel of which three are used."""
    w, r, base = row[BLUR], row[BLUR_RADIUS], colours.ctypes.data
    one, zero = np.float32(1), np.float32(0)
    for x in range(len(colours) // 4):
        sx = row[0] * np.float32(x) + row[1] * np.float32(y) + row[2]
        sy = row[3] * np.float32(x) + row[4] * np.float32(y) + row[5]
        out = base + 16 * x
        _sample(pixels, sx, sy, height, width, one - np.float32(4) * w, zero, out)
        if w > 0:
            _sample(pixels, sx - r, sy, height, width, w, one, out)
            _sample(pixels, sx + r, sy, height, width, w, one, out)
            _sample(pixels, sx, sy - r, height, width, w, one, out)
            _sample(pixels, sx, sy + r, height, width, w, one, out)


@njit(inline="always")
def _set_on_background(run, row, colours, y, height, width):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Replace one row of colours by the background outside the leaf."""
    tall, wide = run[ctx.MASK_HEIGHT], run[ctx.MASK_WIDTH]
    high, broad = run[ctx.BACKGROUND_HEIGHT], run[ctx.BACKGROUND_WIDTH]
    mask = bytes_at(run[ctx.MASKS] + int(row[MASK]) * tall * wide, tall * wide)
    background = run[ctx.BACKGROUNDS] + (int(row[BACKGROUND]) - 1) * high * broad * 3
    half, base, g = np.float32(0.5), colours.ctypes.data, BACKGROUND_MAP
    down, right = np.float32(tall / height), np.float32(wide / width)
    for x in range(len(colours) // 4):
        fx, fy = np.float32(x), np.float32(y)
        sx = row[0] * fx + row[1] * fy + row[2]
        sy = row[3] * fx + row[4] * fy + row[5]
        leaf = _leaf_share(mask, (sx + half) * right - half, (sy + half) * down - half, tall, wide)
        gx = row[g] * fx + row[g + 1] * fy + row[g + 2]
        gy = row[g + 3] * fx + row[g + 4] * fy + row[g + 5]
        _sample(background, gx, gy, high, broad, np.float32(1) - leaf, leaf, base + 16 * x)


@njit(inline="always")
def _mix_with_other(run, row, colours, y, height, width):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Mix one row of colours with another photo of the set; in the box only the other photo is visible."""
    other = run[ctx.PHOTOS] + (-int(row[BACKGROUND]) - 1) * run[ctx.PHOTO_BYTES]
    y0, x0, y1, x1 = int(row[BOX]), int(row[BOX + 1]), int(row[BOX + 2]), int(row[BOX + 3])
    base, g = colours.ctypes.data, BACKGROUND_MAP
    for x in range(len(colours) // 4):
        fx, fy = np.float32(x), np.float32(y)
        share = np.float32(0) if y0 <= y < y1 and x0 <= x < x1 else row[MASK]
        gx = row[g] * fx + row[g + 1] * fy + row[g + 2]
        gy = row[g + 3] * fx + row[g + 4] * fy + row[g + 5]
        _sample(other, gx, gy, height, width, np.float32(1) - share, share, base + 16 * x)


@njit(inline="always")
def _leaf_share(mask, mx, my, tall, wide):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Sample one mask bilinearly in 0..1, with clamped coordinates."""
    mx = min(max(mx, np.float32(0)), np.float32(wide - 1))
    my = min(max(my, np.float32(0)), np.float32(tall - 1))
    x0, y0 = np.int64(mx), np.int64(my)
    fx, fy, one = mx - np.float32(x0), my - np.float32(y0), np.float32(1)
    at, right, below = y0 * wide + x0, 1 if x0 + 1 < wide else 0, wide if y0 + 1 < tall else 0
    top = np.float32(mask[at]) * (one - fx) + np.float32(mask[at + right]) * fx
    bottom = np.float32(mask[at + below]) * (one - fx) + np.float32(mask[at + below + right]) * fx
    return (top * (one - fy) + bottom * fy) / np.float32(255)


@njit(inline="always")
def _sample(pixels, sx, sy, height, width, weight, keep, out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Set three floats at `out` to `keep` times themselves plus `weight` times the bilinear sample."""
    one = np.float32(1)
    sx = min(max(sx, np.float32(0)), np.float32(width - 1))
    sy = min(max(sy, np.float32(0)), np.float32(height - 1))
    x0, y0 = np.int64(sx), np.int64(sy)
    fx, fy = sx - np.float32(x0), sy - np.float32(y0)
    p = pixels + (y0 * width + x0) * 3
    right = 3 if x0 + 1 < width else 0
    below = width * 3 if y0 + 1 < height else 0
    scale = weight / np.float32(255)
    top, bottom = (one - fy) * scale, fy * scale
    _blend(p, right, below, (one - fx) * top, fx * top, (one - fx) * bottom, fx * bottom, keep, out)


def _emit_blend(b: ir.IRBuilder, arguments: Sequence[Any]) -> None:
    p, right, below, *weights, keep, out = arguments
    triple, result = ir.VectorType(ir.IntType(8), 3), ir.VectorType(ir.FloatType(), 3)

    def splat(value: Any) -> Any:
        one = b.insert_element(ir.Constant(result, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
        return b.shuffle_vector(one, one, ir.Constant(ir.VectorType(ir.IntType(32), 3), [0] * 3))

    target = b.inttoptr(out, result.as_pointer())
    old = b.load(target)
    old.align = 4
    total = b.fmul(old, splat(keep))
    q = b.add(p, below)
    for address, weight in zip((p, b.add(p, right), q, b.add(q, right)), weights, strict=True):
        pixel = b.load(b.inttoptr(address, triple.as_pointer()))
        pixel.align = 1
        total = b.fadd(total, b.fmul(b.uitofp(pixel, result), splat(weight)))
    b.store(total, target).align = 4


_blend = make_intrinsic(types.void, [*[types.int64] * 3, *[types.float32] * 5, types.int64], _emit_blend)
"""``_blend(p, right, below, w00, w01, w10, w11, keep, out)`` adds four weighted pixels of three bytes to three floats:
scalar code takes three times as long."""


@njit(inline="always")
def _colour_row(row, normal, colours, out, channels):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    zero, one = np.float32(0), np.float32(1)
    g0, g1, g2 = np.float32(GREY[0]), np.float32(GREY[1]), np.float32(GREY[2])
    m = row[COLOUR].copy()
    n = normal[:6].copy()
    for x in range(len(colours) // 4):
        red, green, blue = colours[4 * x], colours[4 * x + 1], colours[4 * x + 2]
        r = min(max(m[0] * red + m[1] * green + m[2] * blue + m[3], zero), one)
        g = min(max(m[4] * red + m[5] * green + m[6] * blue + m[7], zero), one)
        b = min(max(m[8] * red + m[9] * green + m[10] * blue + m[11], zero), one)
        if channels == 3:
            out[3 * x] = (r - n[0]) * n[3]
            out[3 * x + 1] = (g - n[1]) * n[4]
            out[3 * x + 2] = (b - n[2]) * n[5]
        else:
            out[x] = (g0 * r + g1 * g + g2 * b - n[0]) * n[3]
