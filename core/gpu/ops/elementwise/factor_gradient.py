"""Gradient of a product's factors: for each image and channel the sum over its pixels of upstream gradient times input.

A block of 32 x 8 threads computes 32 vectors (16 bytes of channels) of one image; its 8 rows share the pixels and add
their sums in shared memory, in order.

    image, pixels x vectors      block: 32 vectors x 8 rows of threads
    +---------+---------+        row 0: pixels 0, 8, 16 ...
    | block 0 | block 1 |        row 1: pixels 1, 9, 17 ...      sums[8, 32 vectors] -> row 0 adds and stores
    +---------+---------+

Shared memory: 8 rows of 32 vectors of float32 sums (8 KiB in bf16). Bytes: both inputs once: the floor.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.compilation.cuda import cuda, f32, i32, i64, u64
from core.gpu.compilation.ptx import load4
from core.gpu.launch import INTEGER, MASK, MASKING, POINTER, Argument, KernelSignature, pitches
from core.gpu.parts.vectors import PACK, UNPACK, clear, make_deliver

WIDE, ROWS = 32, 8
"""Threads of a block."""

FACTOR_GRADIENT: Final = KernelSignature((
    Argument("a", POINTER, "gradient of the product (N, hw, C)"),
    Argument("b", POINTER, "activations (N, hw, C)"),
    MASK,
    Argument("out", POINTER, "gradient of the factors (N, C)"),
    Argument("hw", INTEGER, "pixels of an image"),
    Argument("vectors", INTEGER, "vectors (16 bytes) per pixel"),
    *pitches(lda="a", ldb="b"),
    Argument("ldm", INTEGER, "elements from an image of `mask` to the next"),
    Argument("ldo", INTEGER, "elements from an image of out to the next"),
    *MASKING,
))  # fmt: skip


def make_factor_gradient(element: int) -> Any:
    """The kernel: ``out[n, c]`` is the sum of a b over the pixels of image n."""
    unpack, pack, deliver, VEC = UNPACK[element], PACK[element], make_deliver(element), 16 // element
    SUMS = WIDE * VEC

    def factor_gradient(a, b, mask, out, hw, vectors, lda, ldb, ldm, ldo, masking, accumulate):
        sums = cuda.shared.array((ROWS, SUMS), f32)
        tx, ty = i32(cuda.threadIdx.x), i32(cuda.threadIdx.y)
        n, part = i64(cuda.blockIdx.y), i32(i32(cuda.blockIdx.x) * WIDE + tx)
        total = cuda.local.array(VEC, f32)
        x = cuda.local.array(VEC, f32)
        y = cuda.local.array(VEC, f32)
        clear(total)
        if part < vectors:
            for p in range(ty, hw, ROWS):
                row = i64(n * hw + p)
                unpack(load4(u64(a + u64((row * lda + part * VEC) * element))), x)
                unpack(load4(u64(b + u64((row * ldb + part * VEC) * element))), y)
                for i in range(VEC):
                    total[i] = f32(total[i] + f32(x[i] * y[i]))
        for i in range(VEC):
            sums[ty, i32(tx * VEC + i)] = total[i]
        cuda.syncthreads()  # the sums of all rows are there
        if ty == 0 and part < vectors:
            for i in range(VEC):
                for other in range(1, ROWS):
                    total[i] = f32(total[i] + sums[other, i32(tx * VEC + i)])
            deliver(pack(total), mask, out, n, part, ldm, ldo, masking, accumulate)

    return factor_gradient
