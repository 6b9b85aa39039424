"""Product of activations and one factor for each channel of an image: the scale of squeeze and excitation.

Scaling: a thread takes one vector of a pixel; the factors of its image come from the L1 cache. Backward the same kernel
scales the upstream gradient. Factor gradient: a block of 32 x 8 threads takes 32 vectors of one image; its 8 rows share
out the pixels and add their sums in shared memory, in order.

    image, pixels x vectors      block: 32 vectors x 8 rows of threads
    +---------+---------+        row 0: pixels 0, 8, 16 ...
    | block 0 | block 1 |        row 1: pixels 1, 9, 17 ...      sums[8, 32 vectors] -> row 0 adds and stores
    +---------+---------+

Shared memory: 8 rows of 32 vectors of float32 sums (8 KiB in bf16). Bytes: scaling reads and writes the activations
once; the factor gradient reads activations and upstream gradient once.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.compilation.cuda import cuda, types
from core.gpu.compilation.ptx import load4
from core.gpu.kernels.parts.fragments import divide
from core.gpu.kernels.parts.lanes import PACK, UNPACK, find_lane, make_deliver
from core.gpu.launch import (
    DIVISOR,
    INTEGER,
    PLAIN,
    POINTER,
    THREADS,
    Argument,
    KernelSignature,
    Target,
    Tensor,
    blocks_of,
    lanes_of,
    make_launch,
)
from core.gpu.select import Case

i32, i64, u64, f32 = types.int32, types.int64, types.uint64, types.float32

MODULE: Final = "ops.elementwise.multiply"
WIDE, ROWS = 32, 8
"""Threads of a block of the factor gradient."""

_PITCHES: Final = (
    Argument("lda", INTEGER, "elements from a pixel of a to the next"),
    Argument("ldb", INTEGER, "elements from an image of b to the next, or from a pixel"),
    Argument("ldm", INTEGER, "elements from a pixel of `mask` to the next"),
    Argument("ldo", INTEGER, "elements from a pixel of out to the next"),
    Argument("masking", INTEGER, "activation that `mask` is the output of (`core.gpu.launch.RELU`)"),
    Argument("accumulate", INTEGER, "1 adds to out"),
)  # fmt: skip
_MASK: Final = Argument("mask", POINTER, "output of the activation whose gradient is applied; 0 for none")

SCALE: Final = KernelSignature((
    Argument("a", POINTER, "activations (pixels, C), or their gradient"),
    Argument("b", POINTER, "factors (N, C)"),
    _MASK,
    Argument("out", POINTER, "activations (pixels, C)"),
    Argument("total", INTEGER, "vectors (of 16 bytes) in all, one a thread"),
    Argument("lanes", INTEGER, "vectors a pixel"),
    Argument("by_lanes", DIVISOR, "division by `lanes`"),
    Argument("by_area", DIVISOR, "division by the pixels of an image"),
    *_PITCHES,
))  # fmt: skip

FACTOR_GRADIENT: Final = KernelSignature((
    Argument("a", POINTER, "gradient of the product (pixels, C)"),
    Argument("b", POINTER, "activations (pixels, C)"),
    _MASK,
    Argument("out", POINTER, "gradient of the factors (N, C)"),
    Argument("hw", INTEGER, "pixels of an image"),
    Argument("lanes", INTEGER, "vectors (of 16 bytes) a pixel"),
    *_PITCHES,
))  # fmt: skip


def make_scale(element: int) -> Any:
    """``out = a b``, b one factor for each image and channel."""
    unpack, pack, deliver, VEC = UNPACK[element], PACK[element], make_deliver(element), 16 // element

    def scale(
        a, b, mask, out, total, lanes, by_lanes_mul, by_lanes_shift, by_area_mul, by_area_shift,
        lda, ldb, ldm, ldo, masking, accumulate,
    ):
        at = i32(cuda.grid(1))
        if at >= total:
            return
        pixel, part = find_lane(at, lanes, by_lanes_mul, by_lanes_shift)
        row, n = i64(pixel), i64(divide(pixel, by_area_mul, by_area_shift))
        x = cuda.local.array(VEC, dtype=types.float32)
        y = cuda.local.array(VEC, dtype=types.float32)
        unpack(load4(u64(a + u64((row * lda + part * VEC) * element))), x)
        unpack(load4(u64(b + u64((n * ldb + part * VEC) * element))), y)
        for i in range(VEC):
            x[i] = f32(x[i] * y[i])
        deliver(pack(x), mask, out, row, part, ldm, ldo, masking, accumulate)

    return scale


def make_factor_gradient(element: int) -> Any:
    """``out[n, c]``: the sum of a b over the pixels of image n."""
    unpack, pack, deliver, VEC = UNPACK[element], PACK[element], make_deliver(element), 16 // element
    SUMS = WIDE * VEC

    def factor_gradient(a, b, mask, out, hw, lanes, lda, ldb, ldm, ldo, masking, accumulate):
        sums = cuda.shared.array((ROWS, SUMS), dtype=types.float32)
        tx, ty = i32(cuda.threadIdx.x), i32(cuda.threadIdx.y)
        n, part = i64(cuda.blockIdx.y), i32(i32(cuda.blockIdx.x) * WIDE + tx)
        total = cuda.local.array(VEC, dtype=types.float32)
        x = cuda.local.array(VEC, dtype=types.float32)
        y = cuda.local.array(VEC, dtype=types.float32)
        for i in range(VEC):
            total[i] = f32(0.0)
        if part < lanes:
            for p in range(ty, hw, ROWS):
                row = i64(n * hw + p)
                unpack(load4(u64(a + u64((row * lda + part * VEC) * element))), x)
                unpack(load4(u64(b + u64((row * ldb + part * VEC) * element))), y)
                for i in range(VEC):
                    total[i] = f32(total[i] + f32(x[i] * y[i]))
        for i in range(VEC):
            sums[ty, i32(tx * VEC + i)] = total[i]
        cuda.syncthreads()  # the sums of all rows are there
        if ty == 0 and part < lanes:
            for i in range(VEC):
                for other in range(1, ROWS):
                    total[i] = f32(total[i] + sums[other, i32(tx * VEC + i)])
            deliver(pack(total), mask, out, n, part, ldm, ldo, masking, accumulate)

    return factor_gradient


def _sides(a: Tensor, b: Tensor, out: Tensor, target: Target) -> dict[str, int]:
    return {
        "a": a.address, "b": b.address, "out": out.address, "lda": a.pitch, "ldb": b.pitch, "ldo": out.pitch,
        **target.values,
    }  # fmt: skip


def _scale(case: Case, direction: str, a: Tensor, out: Tensor, target: Target = PLAIN) -> None:
    frame, step, lanes, area = case.frame, case.step, lanes_of(a), a.height * a.width
    total = frame.batch * area * lanes
    values = {
        **_sides(a, frame.image(step.inputs[1]), out, target), "total": total, "lanes": lanes, "by_lanes": lanes,
        "by_area": area,
    }  # fmt: skip
    frame.add(make_launch(
        step.node, direction, "fused", (MODULE, "make_scale", (frame.element,)), SCALE, values,
        (blocks_of(total, THREADS), 1, 1), moved=total * 16 * (1 + target.passes),
    ))  # fmt: skip


def forward(case: Case) -> None:
    """The activations scaled by the factors of their image."""
    _scale(case, "forward", case.frame.image(case.step.inputs[0]), case.frame.image(case.step.output))


def backward(case: Case) -> None:
    """The gradient of the activations and that of the factors, where they are wanted."""
    frame, step, walk = case.frame, case.step, case.backward
    dy, (value, factors) = frame.image(step.output, True), step.inputs
    if walk.wants(value):
        _scale(case, "backward_input", dy, frame.image(value, True), walk.target(value))
    if walk.wants(factors):
        lanes, area = lanes_of(dy), dy.height * dy.width
        values = {
            **_sides(dy, frame.image(value), frame.image(factors, True), walk.target(factors)),
            "hw": area, "lanes": lanes,
        }  # fmt: skip
        frame.add(make_launch(
            step.node, "backward_input", "fused", (MODULE, "make_factor_gradient", (frame.element,)), FACTOR_GRADIENT,
            values, (blocks_of(lanes, WIDE), frame.batch, 1), (WIDE, ROWS, 1), moved=frame.batch * area * lanes * 32,
        ))  # fmt: skip
