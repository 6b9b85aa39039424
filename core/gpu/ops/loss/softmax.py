"""Softmax over the channels of each pixel, and its gradient: one warp per pixel, 16 bytes per lane, sums in float32.

    block: warps, a pixel each; a lane has every 32nd vector (16 bytes) of its channels

Forward reads x three times (largest, sum, result), backward dy and y twice; all but the first come from the L1 cache.
Shared memory: none; the lanes of a warp exchange their sums. Bytes: x and out once (backward dy, y and dx). The loss
has its own softmax (`core.gpu.ops.loss.head`), which never writes the probabilities.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.arguments import MASK, MASKING, KernelSignature, ints, pitches, pointers
from core.gpu.compilation.cuda import cuda, f32, i32, i64, u32, u64
from core.gpu.compilation.ptx import load4, shuffle_xor
from core.gpu.launch import blocks_of, make_launch
from core.gpu.parts.vectors import PACK, UNPACK, make_deliver
from core.gpu.select import FORWARD, Case

WARPS: Final = 8
"""Pixels per block, one per warp."""

SIGNATURE: Final = KernelSignature((
    *pointers(x="(pixels, C); for the gradient that of the probabilities",
              y="the probabilities (pixels, C); not read forward"),
    MASK,
    *pointers(out="(pixels, C)"),
    *ints(pixels="pixels in all", channels="C", vectors="vectors (16 bytes) per pixel"),
    *pitches(ldx="x", ldy="y", ldm="mask", ldo="out"),
    *MASKING,
))  # fmt: skip


def make_softmax(element: int, gradient: bool) -> Any:
    """Forward ``out = exp(x - max) / sum``; backward ``y (dy - sum(dy y))``, kept where the mask lets it pass.

    The padding to 16 bytes becomes zero.
    """
    unpack, pack, deliver, VEC = UNPACK[element], PACK[element], make_deliver(element), 16 // element

    def softmax(x, y, mask, out, pixels, channels, vectors, ldx, ldy, ldm, ldo, masking, accumulate):
        tid = i32(cuda.threadIdx.x)
        t, row = i32(tid & 31), i32(i32(cuda.blockIdx.x) * WARPS + (tid >> 5))
        if row >= pixels:
            return
        value = cuda.local.array(VEC, f32)
        made = cuda.local.array(VEC, f32)
        top, total = f32(-3.0e38), f32(0.0)
        if not gradient:
            for vector in range(t, vectors, 32):
                unpack(load4(u64(x + u64((i64(row) * ldx + vector * VEC) * element))), value)
                for i in range(VEC):
                    top = max(top, value[i] if vector * VEC + i < channels else top)
            for step in range(5):
                top = max(top, shuffle_xor(top, u32(1 << step)))
        for vector in range(t, vectors, 32):
            unpack(load4(u64(x + u64((i64(row) * ldx + vector * VEC) * element))), value)
            if gradient:
                unpack(load4(u64(y + u64((i64(row) * ldy + vector * VEC) * element))), made)
            for i in range(VEC):
                v = f32(value[i] * made[i]) if gradient else cuda.libdevice.expf(f32(value[i] - top))
                total = f32(total + (v if vector * VEC + i < channels else f32(0.0)))
        for step in range(5):
            total = f32(total + shuffle_xor(total, u32(1 << step)))
        for vector in range(t, vectors, 32):
            unpack(load4(u64(x + u64((i64(row) * ldx + vector * VEC) * element))), value)
            if gradient:
                unpack(load4(u64(y + u64((i64(row) * ldy + vector * VEC) * element))), made)
            for i in range(VEC):
                shifted = f32(value[i] - (total if gradient else top))
                v = f32(made[i] * shifted) if gradient else f32(cuda.libdevice.expf(shifted) / total)
                value[i] = v if vector * VEC + i < channels else f32(0.0)
            deliver(pack(value), mask, out, i64(row), vector, ldm, ldo, masking, accumulate)

    return softmax


def refuse_flat(case: Case) -> str:
    """A flattened image's features are not channels of one pixel."""
    value = case.step.inputs[0]
    return f"It has no softmax of a flattened image ({value.buffer})." if case.frame.is_flattened(value) else ""


def write_softmax(case: Case) -> None:
    """Over the channels of every pixel; the gradient from dy and the probabilities themselves."""
    frame, step, (x, out, target) = case.frame, case.step, case.sides()
    gradient = case.direction != FORWARD
    y = frame.tensor(step.output) if gradient else None
    pixels, vectors = frame.batch * out.height * out.width, out.vectors
    values = {
        "x": x.address, "ldx": x.pitch, "y": y.address if y else 0, "ldy": y.pitch if y else 0, "out": out.address,
        "ldo": out.pitch, "pixels": pixels, "channels": out.channels, "vectors": vectors, **target.values,
    }  # fmt: skip
    frame.add(make_launch(
        step.node, case.direction, make_softmax, (frame.element, gradient), SIGNATURE, values,
        (blocks_of(pixels, WARPS),), (32 * WARPS,), moved=pixels * vectors * 16 * (1 + gradient + target.passes),
    ))  # fmt: skip
