"""The end of a prediction in one launch: global average pool, dense layer, logits.

    grid: (classes / 16, images); a block of 16 warps computes the mean of all channels, a warp the logit of one class

    shared memory, float32: (1 + groups, channels): the means, then partial sums of groups of pixels

Every block computes the mean again, from the L2 cache: that costs less than a second launch for one or two images. A
warp loads its class's weights before the previous kernel has ended. Bytes: x and weights once; floor: the latency of
two loads and three barriers.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.compilation.cuda import cuda, types
from core.gpu.compilation.ptx import load_float, shuffle_xor, store_float
from core.gpu.kernels.parts.lanes import UNPACK
from core.gpu.latency.pdl import load4_constant_where, load4_where, wait_for_previous
from core.gpu.launch import INTEGER, POINTER, Argument, KernelSignature

i32, u32, i64, u64, f32 = types.int32, types.uint32, types.int64, types.uint64, types.float32

SIGNATURE: Final = KernelSignature((
    Argument("x", POINTER, "activations (N, pixels, C), bf16"),
    Argument("weight", POINTER, "packed weights (classes, depth), bf16"),
    Argument("bias", POINTER, "float32 (classes), or 0"),
    Argument("logits", POINTER, "float32 (N, classes)"),
    Argument("area", INTEGER, "pixels of an image"),
    Argument("ldx", INTEGER, "elements from a pixel of x to the next"),
    Argument("classes", INTEGER, "units of the dense layer"),
    Argument("depth", INTEGER, "elements of a packed row of weights"),
    Argument("factor", "float32", "1 / area"),
))  # fmt: skip

WARPS: Final = 16
THREADS: Final = 32 * WARPS
IN_FLIGHT: Final = 4
"""Pixels that a thread loads before it adds the first."""
MOST_IMAGES: Final = 2
"""Above, three launches share the work better."""
MOST_VECTORS: Final = 256
"""Vectors of a class's weights that a warp holds in registers: eight a lane."""


def shared_bytes(vectors: int) -> int:
    """The means, and partial sums of groups of pixels."""
    return 4 * 8 * vectors * (1 + max(1, THREADS // vectors))


def make_classify(vectors: int) -> Any:
    """bf16, so many vectors a pixel; dynamic shared memory as `shared_bytes`."""
    unpack, VECTORS, TURNS = UNPACK[2], vectors, -(-vectors // 32)
    WIDE, GROUPS, CHANNELS = min(vectors, THREADS), max(1, THREADS // vectors), 8 * vectors
    HELD, ASKED, TH = TURNS * 4, IN_FLIGHT * 4, THREADS

    def classify(x, weight, bias, logits, area, ldx, classes, depth, factor):
        means = cuda.shared.array(0, dtype=types.float32)
        tid, image = i32(cuda.threadIdx.x), i32(cuda.blockIdx.y)
        lane, warp = i32(tid & 31), i32(tid >> 5)
        mine = i32(i32(cuda.blockIdx.x) * 16 + warp)
        filters = cuda.local.array(HELD, dtype=types.uint32)
        asked = cuda.local.array(ASKED, dtype=types.uint32)
        value = cuda.local.array(8, dtype=types.float32)
        sums = cuda.local.array(8, dtype=types.float32)
        for k in range(TURNS):  # weights do not depend on the previous kernel: they are loaded before it ends
            part = i32(lane + k * 32)
            ok = part < VECTORS and mine < classes
            at = u64(weight + u64((i64(mine) * i64(depth) + i64(part) * 8) * 2))
            v = load4_constant_where(at if ok else weight, u32(1) if ok else u32(0))
            for i in range(4):
                filters[k * 4 + i] = v[i]
        wait_for_previous()
        group = i32(tid // WIDE)
        base = u64(x + u64(i64(image) * i64(area) * i64(ldx) * 2))
        if group < GROUPS:
            part = i32(tid - group * WIDE)
            for i in range(8):
                sums[i] = f32(0.0)
            for first in range(group, area, GROUPS * 4):
                for k in range(4):  # four loads in flight
                    p = i32(first + k * GROUPS)
                    at = u64(base + u64((i64(p) * i64(ldx) + i64(part) * 8) * 2))
                    v = load4_where(at if p < area else x, u32(1) if p < area else u32(0))
                    for i in range(4):
                        asked[k * 4 + i] = v[i]
                for k in range(4):
                    unpack((asked[k * 4], asked[k * 4 + 1], asked[k * 4 + 2], asked[k * 4 + 3]), value)
                    for i in range(8):
                        sums[i] = f32(sums[i] + value[i])
            for i in range(8):
                means[i32((1 + group) * CHANNELS + part * 8 + i)] = sums[i]
        cuda.syncthreads()  # the partial sums of all groups of pixels are there
        for c in range(tid, CHANNELS, TH):
            total = f32(0.0)
            for g in range(GROUPS):
                total = f32(total + means[i32((1 + g) * CHANNELS + c)])
            means[c] = f32(total * factor)
        cuda.syncthreads()  # the means are there
        total = f32(0.0)
        for k in range(TURNS):
            part = i32(lane + k * 32)
            unpack((filters[k * 4], filters[k * 4 + 1], filters[k * 4 + 2], filters[k * 4 + 3]), value)
            for i in range(8):
                total = f32(total + f32(value[i] * means[i32(min(part, i32(VECTORS - 1)) * 8 + i)]))
        for step in range(5):
            total = f32(total + shuffle_xor(total, u32(1 << step)))
        if lane == 0 and mine < classes:
            if bias != u64(0):
                total = f32(total + load_float(u64(bias + u64(i64(mine) * 4))))
            store_float(u64(logits + u64(i64(i32(image * classes + mine)) * 4)), total)

    return classify
