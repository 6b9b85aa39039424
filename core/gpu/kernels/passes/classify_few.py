"""The end of a prediction in one launch: the mean over a photo's pixels, the classifier's products, the logits.

Every block works out the mean again, which few blocks do at once from the second-level cache; a warp is a class.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.compilation.cuda import cuda, types
from core.gpu.compilation.ptx import load_float, shuffle_xor, store_float
from core.gpu.kernels.parts.early_start import load4_constant_where, load4_where, wait_for_previous
from core.gpu.kernels.parts.lanes import UNPACK

i32, u32, i64, u64, f32 = types.int32, types.uint32, types.int64, types.uint64, types.float32

ARGUMENTS: Final = (
    *(types.uint64,) * 4,  # x, packed filters, bias (0: none), logits
    *(types.int32,) * 4,  # pixels a photo, pixel pitch of x, classes, packed row length
    types.float32,  # one over the pixels
)

WARPS: Final = 16
THREADS: Final = 32 * WARPS
AT_ONCE: Final = 4
"""Pixels that a thread asks for before it adds the first."""
MOST_PHOTOS: Final = 2
"""Beyond, three launches share the work out better."""
MOST_LANES: Final = 256
"""As many filters of a class as a warp holds ahead in its registers: eight times 16 bytes a lane."""


def shared_bytes(lanes: int) -> int:
    """The means, and partial sums over groups of pixels."""
    return 4 * 8 * lanes * (1 + max(1, THREADS // lanes))


def make_classify(lanes: int) -> Any:
    """bf16, so many lanes of eight channels a pixel; dynamic shared memory as `shared_bytes` says.

    Grid: classes over `WARPS`, photos.
    """
    unpack, LANES, TURNS = UNPACK[2], lanes, -(-lanes // 32)
    WIDE, GROUPS, CHANNELS = min(lanes, THREADS), max(1, THREADS // lanes), 8 * lanes
    HELD, ASKED, TH = TURNS * 4, AT_ONCE * 4, THREADS

    def classify(x, weight, bias, logits, hw, ldx, classes, depth, factor):
        means = cuda.shared.array(0, dtype=types.float32)
        tid, photo = i32(cuda.threadIdx.x), i32(cuda.blockIdx.y)
        lane, warp = i32(tid & 31), i32(tid >> 5)
        mine = i32(i32(cuda.blockIdx.x) * 16 + warp)
        filters = cuda.local.array(HELD, dtype=types.uint32)
        asked = cuda.local.array(ASKED, dtype=types.uint32)
        value = cuda.local.array(8, dtype=types.float32)
        sums = cuda.local.array(8, dtype=types.float32)
        for k in range(TURNS):
            part = i32(lane + k * 32)
            ok = part < LANES and mine < classes
            at = u64(weight + u64((i64(mine) * i64(depth) + i64(part) * 8) * 2))
            v = load4_constant_where(at if ok else weight, u32(1) if ok else u32(0))
            for i in range(4):
                filters[k * 4 + i] = v[i]
        wait_for_previous()
        group = i32(tid // WIDE)
        base = u64(x + u64(i64(photo) * i64(hw) * i64(ldx) * 2))
        if group < GROUPS:
            part = i32(tid - group * WIDE)
            for i in range(8):
                sums[i] = f32(0.0)
            for first in range(group, hw, GROUPS * 4):
                for k in range(4):
                    p = i32(first + k * GROUPS)
                    at = u64(base + u64((i64(p) * i64(ldx) + i64(part) * 8) * 2))
                    v = load4_where(at if p < hw else x, u32(1) if p < hw else u32(0))
                    for i in range(4):
                        asked[k * 4 + i] = v[i]
                for k in range(4):
                    unpack((asked[k * 4], asked[k * 4 + 1], asked[k * 4 + 2], asked[k * 4 + 3]), value)
                    for i in range(8):
                        sums[i] = f32(sums[i] + value[i])
            for i in range(8):
                means[i32((1 + group) * CHANNELS + part * 8 + i)] = sums[i]
        cuda.syncthreads()
        for c in range(tid, CHANNELS, TH):
            total = f32(0.0)
            for g in range(GROUPS):
                total = f32(total + means[i32((1 + g) * CHANNELS + c)])
            means[c] = f32(total * factor)
        cuda.syncthreads()
        total = f32(0.0)
        for k in range(TURNS):
            part = i32(lane + k * 32)
            unpack((filters[k * 4], filters[k * 4 + 1], filters[k * 4 + 2], filters[k * 4 + 3]), value)
            for i in range(8):
                total = f32(total + f32(value[i] * means[i32(min(part, i32(LANES - 1)) * 8 + i)]))
        for step in range(5):
            total = f32(total + shuffle_xor(total, u32(1 << step)))
        if lane == 0 and mine < classes:
            if bias != u64(0):
                total = f32(total + load_float(u64(bias + u64(i64(mine) * 4))))
            store_float(u64(logits + u64(i64(i32(photo * classes + mine)) * 4)), total)

    return classify
