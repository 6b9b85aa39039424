"""Both gradients of a 3x3 depthwise convolution between two batch norms, in one pass over strips of rows.

A thread moves down two columns of two channels. For a pixel of the input it has the same nine upstream gradients in its
registers for the input's gradient (times the taps) and for the weight gradient (times the pixel).

    columns of g, y   c-1 [ c  c+1 ] c+2        upstream gradient: a g + b y + c, of the batch norm after
    row r                                       input: activation(x scale + shift), of the batch norm before
    row r+1                              |      neither is ever stored; the sums of the batch norm before are
    ...                                  v      computed from the masked gradient when it is stored

    grid and work items as in `strips.py`, in groups of two channels
    shared memory: (threads, 2) float32, where the rows of threads add their sums in order

Bytes: x, y and g once (4 / 2 columns from the L1 cache), dx once: the floor. Partial weight gradients of the blocks are
added by a second launch. `strip_executions.py` has the loops over rows for stride 1 and stride 2.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.arguments import CONTROL, KernelSignature, pitches, pointers
from core.gpu.compilation.cuda import cuda, device_function, f32, i32, i64, u32, u64
from core.gpu.compilation.ptx import load_float
from core.gpu.control import read_photos
from core.gpu.ops.depthwise.strip_executions import make_dense, make_strided
from core.gpu.ops.depthwise.strips import STRIPS, THREADS, find_strip
from core.gpu.parts.channels import make_fold, make_load, make_unpack
from core.gpu.parts.vectors import clear

SIGNATURE: Final = KernelSignature((
    *pointers(x="input before its batch norm (N, height, width, C)", y="output before its batch norm (N, ho, wo, C)",
              g="gradient of the output of the batch norm after", weight="packed filters (9, C)",
              dx="gradient of the output of the batch norm before, masked by its activation",
              before="float32 (7, C) of the batch norm before: rows 2 and 3 are scale and shift",
              after="of the batch norm after: rows 4 to 6 are a, b and c",
              partial="float32 (blocks, 9, C): partial weight gradients",
              sums="float32 (blocks, 2, C): partial sums of dx and of dx x"),
    CONTROL,
    STRIPS,
    *pitches(ldy="y", ldg="g", ldd="dx"),
))  # fmt: skip

CHANNELS: Final = 2
BLOCKS: Final = {2: 3, 4: 2}
"""Blocks per multiprocessor by bytes of an element."""


def make_constant_loads(element: int, six: float) -> Any:
    """Device function: taps, scale and shift, and the factors a, b, c into registers; sums start at zero."""
    load, unpack, SIX = make_load(element // 2), make_unpack(element, 2), six

    @device_function
    def load_constants(weight, before, after, c, channels, taps, scale, shift, factors, weight_sums, totals):
        words = cuda.local.array(2, u32)
        for k in range(9):
            load(u64(weight + u64((i64(k) * channels + c) * element)), words, 0)
            unpack(words, 0, taps, k * 2)
        clear(weight_sums)
        for i in range(2):
            totals[i], totals[2 + i] = f32(0.0), f32(0.0)
            scale[i] = f32(load_float(u64(before + u64((i64(channels) * 2 + c + i) * 4))) * f32(1.0 / SIX))
            shift[i] = f32(load_float(u64(before + u64((i64(channels) * 3 + c + i) * 4))) * f32(1.0 / SIX))
            for k in range(3):
                factors[k * 2 + i] = load_float(u64(after + u64((i64(channels) * (4 + k) + c + i) * 4)))

    return load_constants


def make_depthwise_gradient(element: int, stride: int, norm: int) -> Any:
    """The kernel. `norm`: the input's activation after its batch norm (0, 1, 2)."""
    SIX, S, STORED = 6.0 if norm == 2 else 1.0, stride, THREADS * 2
    execute = (make_dense if stride == 1 else make_strided)(element, norm)
    load_constants, fold = make_constant_loads(element, SIX), make_fold(2)

    def depthwise_gradient(
        x, y, g, weight, dx, before, after, partial, sums, control, strips, ldy, ldg, ldd
    ):
        shared = cuda.shared.array(STORED, f32)
        t, wide = i32(cuda.threadIdx.x), strips.wide
        ty = i32(t // wide)
        across = i32(i32(cuda.blockDim.x) // wide)
        c = i32((i32(cuda.blockIdx.y) * wide + t - ty * wide) * 2)
        channels = i32(strips.groups * 2)
        taps = cuda.local.array(18, f32)
        weight_sums = cuda.local.array(18, f32)
        scale = cuda.local.array(2, f32)
        shift = cuda.local.array(2, f32)
        factors = cuda.local.array(6, f32)
        totals = cuda.local.array(4, f32)
        load_constants(weight, before, after, c, channels, taps, scale, shift, factors, weight_sums, totals)
        images, height, width, ho, wo = read_photos(control), strips.height, strips.width, strips.ho, strips.wo
        rows = i32(height if S == 1 else (height + 1) // 2)
        px, py, pg, pd = i32(strips.ldx * element), i32(ldy * element), i32(ldg * element), i32(ldd * element)
        for item in range(i32(i32(cuda.blockIdx.x) * across + ty), strips.items, i32(i32(cuda.gridDim.x) * across)):
            n, column, row0, last = find_strip(item, strips, rows)
            if n < images:
                sides = (
                    u64(x + u64(i64(i32(n * height)) * i64(width * px) + i64(c * element))),
                    u64(y + u64(i64(i32(n * ho)) * i64(wo * py) + i64(c * element))),
                    u64(g + u64(i64(i32(n * ho)) * i64(wo * pg) + i64(c * element))),
                    u64(dx + u64(i64(i32(n * height)) * i64(width * pd) + i64(c * element))),
                )
                execute(sides, (px, py, pg, pd), column, row0, last, strips, (taps, scale, shift, factors),
                        weight_sums, totals)
        place = i64(i64(i32(cuda.blockIdx.y)) * wide * 2)  # the block's first channel
        block, count = (t, wide * across, wide, across), wide * 2
        for k in range(9):
            for i in range(2):  # the inputs were a sixth of their value for ReLU6
                weight_sums[k * 2 + i] = f32(weight_sums[k * 2 + i] * f32(SIX))
            at = i64((i64(i32(cuda.blockIdx.x)) * 9 + k) * channels + place)
            fold(shared, weight_sums, k * 2, block, count, u64(partial + u64(at * 4)))
        for k in range(2):
            at = i64((i64(i32(cuda.blockIdx.x)) * 2 + k) * channels + place)
            fold(shared, totals, k * 2, block, count, u64(sums + u64(at * 4)))

    return depthwise_gradient
