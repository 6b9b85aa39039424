"""Sums over the pixels of each image: the global average, and the gradient of a product's factors.

A block of 32 x 8 threads computes 32 vectors (16 bytes of channels) of one image; its 8 rows share the pixels and add
their sums in shared memory, in order.

    image, pixels x vectors      block: 32 vectors x 8 rows of threads
    +---------+---------+        row 0: pixels 0, 8, 16 ...
    | block 0 | block 1 |        row 1: pixels 1, 9, 17 ...      sums[8, 32 vectors] -> row 0 adds and stores
    +---------+---------+

Shared memory: 8 rows of 32 vectors of float32 sums (8 KiB in bf16). Bytes: the inputs once: the floor. The gradient of
the average is a kind of `combine`, as is the product's other gradient.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.arguments import MASK, MASKING, KernelSignature, arguments, ints, pitches, pointers
from core.gpu.compilation.cuda import cuda, f32, i32, i64, u32, u64
from core.gpu.launch import PLAIN, Launch, Target, Tensor, blocks_of, make_launch
from core.gpu.ops.elementwise.combine import combine_launch
from core.gpu.parts.channels import make_load, make_unpack
from core.gpu.parts.vectors import PACK, clear, make_deliver
from core.gpu.select import FORWARD, Case

WIDE, ROWS = 32, 8
"""Threads of a block."""
AHEAD: Final = 4
"""Pixels that a thread loads before it adds the first: one after another, their latencies would add up."""

IMAGE_SUM: Final = KernelSignature((
    *pointers(a="activations (N, hw, C)", b="activations (N, hw, C) that are multiplied with a; 0 for none"),
    MASK,
    *pointers(out="sums (N, C)"),
    *ints(hw="pixels of an image", vectors="vectors (16 bytes) per pixel"),
    *pitches(lda="a", ldb="b"),
    *pitches(ldm="`mask`", ldo="out"),
    *MASKING,
    *arguments("float32", factor="of the sums"),
))  # fmt: skip


def make_image_sum(element: int, product: bool) -> Any:
    """The kernel: ``out[n, c]`` is `factor` times the sum of a, or of a b, over the pixels of image n."""
    pack, deliver, VEC = PACK[element], make_deliver(element), 16 // element
    load, unpack, SUMS, RAW = make_load(4), make_unpack(element, VEC), WIDE * VEC, AHEAD * 4

    def image_sum(a, b, mask, out, hw, vectors, lda, ldb, ldm, ldo, masking, accumulate, factor):
        sums = cuda.shared.array((ROWS, SUMS), f32)
        tx, ty = i32(cuda.threadIdx.x), i32(cuda.threadIdx.y)
        n, vector = i64(cuda.blockIdx.y), i32(i32(cuda.blockIdx.x) * WIDE + tx)
        total = cuda.local.array(VEC, f32)
        x = cuda.local.array(VEC, f32)
        y = cuda.local.array(VEC, f32)
        raw = cuda.local.array(RAW, u32)
        raw2 = cuda.local.array(RAW, u32)
        clear(total)
        for p in range(ty, hw if vector < vectors else 0, ROWS * AHEAD):
            for w in range(AHEAD):
                row = i64(n * hw + min(i32(p + w * ROWS), i32(hw - 1)))
                load(u64(a + u64((row * lda + vector * VEC) * element)), raw, w * 4)
                if product:
                    load(u64(b + u64((row * ldb + vector * VEC) * element)), raw2, w * 4)
            for w in range(AHEAD):
                unpack(raw, w * 4, x, 0)
                if product:
                    unpack(raw2, w * 4, y, 0)
                for i in range(VEC):
                    v = f32(x[i] * y[i]) if product else x[i]
                    total[i] = f32(total[i] + (v if p + w * ROWS < hw else f32(0.0)))
        for i in range(VEC):
            sums[ty, i32(tx * VEC + i)] = total[i]
        cuda.syncthreads()  # the sums of all rows are there
        if ty == 0 and vector < vectors:
            for i in range(VEC):
                for other in range(1, ROWS):
                    total[i] = f32(total[i] + sums[other, i32(tx * VEC + i)])
                total[i] = f32(total[i] * factor)
            deliver(pack(total), mask, out, n, vector, ldm, ldo, masking, accumulate)

    return image_sum


def _sum_launch(case: Case, a: Tensor, b: Tensor | None, out: Tensor, factor: float, target: Target = PLAIN) -> Launch:
    frame, vectors, area = case.frame, a.vectors, a.height * a.width
    values = {
        "a": a.address, "b": b.address if b else 0, "out": out.address, "hw": area, "vectors": vectors, "lda": a.pitch,
        "ldb": b.pitch if b else 0, "ldo": out.pitch, **target.values, "factor": factor,
    }  # fmt: skip
    return make_launch(
        case.step.node, case.direction, make_image_sum, (frame.element, b is not None), IMAGE_SUM, values,
        (blocks_of(vectors, WIDE), frame.batch), (WIDE, ROWS), moved=frame.batch * area * vectors * 16 * (1 + bool(b)),
    )  # fmt: skip


def average(case: Case) -> None:
    """The mean over the pixels of an image, or its gradient, which every pixel has the same share of."""
    frame, (x, out, target) = case.frame, case.sides()
    if case.direction == FORWARD:
        frame.add(_sum_launch(case, x, None, out, 1 / (x.height * x.width)))
    else:
        frame.add(combine_launch(frame, case.step.node, case.direction, "broadcast", out, x, out, "", target))


def multiply_backward(case: Case) -> None:
    """The gradients of the activations and of the factors, if they are needed."""
    frame, step, backward = case.frame, case.step, case.backward
    dy, (value, factors) = frame.shaped(step.output, True), step.inputs
    if frame.wants(value):
        sides = dy, frame.shaped(factors), frame.shaped(value, True)
        frame.add(combine_launch(frame, step.node, "backward_input", "product", *sides, "", backward.target(value)))
    if frame.wants(factors):
        sides = dy, frame.shaped(value), frame.shaped(factors, True)
        frame.add(_sum_launch(case, *sides, 1.0, backward.target(factors)))
