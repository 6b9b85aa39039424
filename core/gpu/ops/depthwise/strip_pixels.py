"""Parts of the depthwise strips' gradient that both executions (stride 1 and 2) share: one pixel, one tap, one row.

A thread has two columns of two channels. `WORDS` of 4 bytes hold a pixel's two channels (1 in bf16, 2 in float32).
"""

from __future__ import annotations

from typing import Any

from core.gpu.compilation.cuda import cuda, device_function, types
from core.gpu.parts.channels import make_load, make_store, make_unpack

i32, u32, i64, u64, f32 = types.int32, types.uint32, types.int64, types.uint64, types.float32


def make_upstream(element: int) -> Any:
    """Device function: the upstream gradient of one pixel, ``a g + b y + c`` (batch norm's), zero outside."""
    W, unpack = element // 2, make_unpack(element, 2)

    @device_function
    def upstream(raw_g, raw_y, p, inside, factors, out):
        other = cuda.local.array(2, dtype=types.float32)
        unpack(raw_g, p * W, out, 0)
        unpack(raw_y, p * W, other, 0)
        for i in range(2):
            v = f32(f32(out[i] * factors[i]) + f32(f32(other[i] * factors[2 + i]) + factors[4 + i]))
            out[i] = v if (inside >> p) & 1 != 0 else f32(0.0)

    return upstream


def make_finish(element: int, norm: int) -> Any:
    """Device function: mask a pixel's gradient, store it, add it to the sums for the batch norm before.

    `pixels` are the activated inputs (a sixth of them for ReLU6).
    """
    unpack, store = make_unpack(element, 2), make_store(element, 2)

    @device_function
    def finish(sums, at, pixels, e, raw, w, target, totals):
        x = cuda.local.array(2, dtype=types.float32)
        unpack(raw, w, x, 0)
        for i in range(2):
            g = sums[at + i]
            if norm > 0:
                g = g if pixels[e + i] > f32(0.0) and (norm == 1 or pixels[e + i] < f32(1.0)) else f32(0.0)
            sums[at + i] = g
            totals[i] = f32(totals[i] + g)
            totals[2 + i] = f32(totals[2 + i] + f32(g * x[i]))
        store(target, sums, at)

    return finish


@device_function
def apply_tap(d, taps, k, sums, o, pixels, weight_sums):
    """Add one pixel's gradient times tap `k` to the input's gradient, and times the input to the tap's gradient."""
    for i in range(2):
        sums[o + i] = f32(sums[o + i] + f32(d[i] * taps[k * 2 + i]))
        weight_sums[k * 2 + i] = f32(weight_sums[k * 2 + i] + f32(d[i] * pixels[o + i]))


@device_function
def columns_of(first, count, width, pitch, places):
    """Byte offsets of neighbouring columns, clamped to the image, and which of them are inside, as bits."""
    inside = i32(0)
    for p in range(count):
        z = i32(first + p)
        inside = i32(inside | (i32(1 << p) if z >= 0 and z < width else i32(0)))
        places[p] = i32(min(max(z, i32(0)), i32(width - 1)) * pitch)
    return inside


def make_row_loads(element: int) -> Any:
    """Device function: neighbouring pixels of a row into registers."""
    W, load = element // 2, make_load(element // 2)

    @device_function
    def load_row(image, line, places, count, raw, at):
        for p in range(count):
            load(u64(image + u64(line + i64(places[p]))), raw, (at + p) * W)

    return load_row
