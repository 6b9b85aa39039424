"""Global average pooling: the mean over an image's pixels, and its gradient spread evenly over them.

Forward: a block of 32 x 8 threads takes 32 vectors (of 16 bytes) of one image; each of its 8 rows adds every eighth
pixel, and the first row adds their sums in order. Backward: a block of 128 threads writes an image.

    image, pixels x vectors      block: 32 vectors x 8 rows of threads
    +---------+---------+        row 0: pixels 0, 8, 16 ...
    | block 0 | block 1 |        row 1: pixels 1, 9, 17 ...      sums[8, 32 vectors] -> row 0 adds and stores
    +---------+---------+

Shared memory: the sums of 8 rows (8 KiB in bf16). Bytes: the activations once.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.compilation.cuda import cuda, device_function, types
from core.gpu.compilation.ptx import load4, store4
from core.gpu.kernels.parts.lanes import PACK, UNPACK, make_deliver
from core.gpu.launch import INTEGER, MASKING, POINTER, Argument, KernelSignature, pitches

i32, i64, u64, f32 = types.int32, types.int64, types.uint64, types.float32

THREADS: Final = 128
"""Threads of a block of the gradient."""

_REST: Final = (
    Argument("hw", INTEGER, "pixels of an image"),
    Argument("lanes", INTEGER, "vectors (of 16 bytes) a pixel"),
    *pitches(ldx="x", ldo="out"),
    Argument("factor", "float32", "1 / hw"),
)  # fmt: skip

FORWARD: Final = KernelSignature((
    Argument("x", POINTER, "activations (N, hw, C)"),
    Argument("out", POINTER, "means (N, C)"),
    *_REST,
))  # fmt: skip

GRADIENT: Final = KernelSignature((
    Argument("x", POINTER, "gradient of the means (N, C)"),
    Argument("out", POINTER, "gradient of the activations (N, hw, C)"),
    Argument("mask", POINTER, "the activations, where the gradient of their activation is applied; 0 for none"),
    *_REST,
    *pitches(ldm="mask"),
    *MASKING,
))  # fmt: skip


def make_average(element: int) -> Any:
    """Mean over the pixels of an image. A thread loads four pixels before it adds the first, to hide the latency."""
    unpack, pack, VEC = UNPACK[element], PACK[element], 16 // element
    WIDE = 32 * VEC

    @device_function
    def add_pixel(bits, value, total, real):
        unpack(bits, value)
        for i in range(VEC):
            total[i] = f32(total[i] + (value[i] if real else f32(0.0)))

    def average(x, out, hw, lanes, ldx, ldo, factor):
        sums = cuda.shared.array((8, WIDE), dtype=types.float32)
        tx, ty = i32(cuda.threadIdx.x), i32(cuda.threadIdx.y)
        n, part = i32(cuda.blockIdx.y), i32(i32(cuda.blockIdx.x) * 32 + tx)
        total = cuda.local.array(VEC, dtype=types.float32)
        value = cuda.local.array(VEC, dtype=types.float32)
        for i in range(VEC):
            total[i] = f32(0.0)
        first, step = u64(x + u64((i64(n) * hw * ldx + part * VEC) * element)), i64(i64(ldx) * 8 * element)
        p = ty
        while part < lanes and p < hw:
            at = u64(first + u64(i64(p) * ldx * element))
            a = load4(at)
            b = load4(u64(at + u64(step)) if p + 8 < hw else at)
            c = load4(u64(at + u64(step * 2)) if p + 16 < hw else at)
            d = load4(u64(at + u64(step * 3)) if p + 24 < hw else at)
            add_pixel(a, value, total, True)
            add_pixel(b, value, total, p + 8 < hw)
            add_pixel(c, value, total, p + 16 < hw)
            add_pixel(d, value, total, p + 24 < hw)
            p = i32(p + 32)
        for i in range(VEC):
            sums[ty, i32(tx * VEC + i)] = total[i]
        cuda.syncthreads()
        if ty == 0 and part < lanes:
            for i in range(VEC):
                for other in range(1, 8):
                    total[i] = f32(total[i] + sums[other, i32(tx * VEC + i)])
                total[i] = f32(total[i] * factor)
            v = pack(total)
            store4(u64(out + u64((i64(n) * ldo + part * VEC) * element)), v[0], v[1], v[2], v[3])

    return average


def make_average_gradient(element: int) -> Any:
    """An image's gradient spread evenly over its pixels, masked by x's producer."""
    unpack, pack, deliver, VEC = UNPACK[element], PACK[element], make_deliver(element), 16 // element

    def average_gradient(x, out, mask, hw, lanes, ldx, ldo, factor, ldm, masking, accumulate):
        t, n = i32(cuda.threadIdx.x), i32(cuda.blockIdx.x)
        value = cuda.local.array(VEC, dtype=types.float32)
        for i in range(t, hw * lanes, 128):
            p, part = i32(i // lanes), i32(i % lanes)
            unpack(load4(u64(x + u64((i64(n) * ldx + part * VEC) * element))), value)
            for j in range(VEC):
                value[j] = f32(value[j] * factor)
            deliver(pack(value), mask, out, i64(i64(n) * hw + p), part, ldm, ldo, masking, accumulate)

    return average_gradient
