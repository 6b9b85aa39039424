"""Weight gradient of a 1x1 convolution with many filters and few channels (a fire's expand): ``dW = dy^T x``.

Tiling: a block has `columns` filters and takes every so many-th tile of 64 pixels. A warpgroup has 64 filters by all
channels; both factors are read transposed, and the sums stay in registers until the block ends. The bias gradient is
one more product, with ones. One more warp sends for the tiles.

                channels (<= 64)   ones
               +----------------+ +---+
    64 filters |  warpgroup 0   | | 8 |   sums over 64 pixels a step
               +----------------+ +---+
    64 filters |  warpgroup 1   | | 8 |
               +----------------+ +---+

Shared memory: stages, each dy in TMA tiles of 64 filters and x in one (swizzled) | ones | barriers.
Bytes: dy once, x once for each block of filters, and the partial sums; the floor is (x + dy) / bandwidth.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.compilation.cuda import cuda, device_function, types
from core.gpu.compilation.ptx import shared_address, shared_store1, store_float
from core.gpu.kernels.parts.lanes import in_turn
from core.gpu.kernels.parts.tile import Tile
from core.gpu.launch import INTEGER, POINTER, Argument, KernelSignature
from core.gpu.sm90.pipeline import make_advance, make_barriers
from core.gpu.sm90.pointwise_gradients import CHANNELS, WIDE, make_sender, slot_bytes
from core.gpu.sm90.swizzle import PIXELS, aligned, line_bytes, swizzled_high_word
from core.gpu.sm90.tma import TENSOR_MAP, arrive, prefetch_map, wait_for
from core.gpu.sm90.wgmma import fence_async_proxy, high_word, low_word, make_products, make_wait

i32, u32, i64, u64, f32 = types.int32, types.uint32, types.int64, types.uint64, types.float32

SIGNATURE: Final = KernelSignature((
    Argument("map_dy", TENSOR_MAP, "gradient of the output, pixels x filters"),
    Argument("map_x", TENSOR_MAP, "input, pixels x channels"),
    Argument("partial", POINTER, "partial weight and bias gradients, one of each block"),
    Argument("tiles", INTEGER, "tiles of 64 pixels"),
    Argument("filters", INTEGER, "filters"),
    Argument("size", INTEGER, "floats of a partial result"),
))  # fmt: skip

ONES: Final = 256
"""Bytes of the ones: 8 columns, 16 deep."""


def threads_of(tile: Tile) -> int:
    """The warpgroups, and a warp that sends."""
    return tile.threads + 32


def shared_bytes(tile: Tile) -> int:
    """Bytes of dynamic shared memory: stages, ones, barriers."""
    return 1024 + tile.stages * (slot_bytes(tile) + 16) + ONES


def make_point_filters(numbers: tuple[int, ...]) -> Any:
    """The kernel as a Python function; columns are a block's filters, the tile's depth all channels."""
    tile = Tile(*numbers)
    BN, ST, GROUPS, NARROW = tile.columns, tile.stages, tile.warp_rows // 4, tile.depth // 2
    LINE, SLOT, NACC = line_bytes(NARROW), slot_bytes(tile), NARROW // 2
    HIGH, HIGH_DY = swizzled_high_word(LINE), swizzled_high_word(2 * CHANNELS)
    assert BN == GROUPS * CHANNELS
    assert NARROW <= CHANNELS
    filters_of = make_products(NARROW, [[(k * 128, 0, k * LINE) for k in range(PIXELS // 16)]], (True, True))
    biases_of = make_products(8, [[(k * 128, 0, 0) for k in range(PIXELS // 16)]], (True, False))
    finish, finish_biases, send, advance = make_wait(NACC, 0), make_wait(4, 0), make_sender(tile), make_advance(ST)
    open_barriers = make_barriers(ST, 4 * GROUPS)

    def make_write(j: int) -> Any:
        @device_function
        def write(acc, out, first, filters, lane):
            for half in range(2):
                f = i32(first + half * 8)
                if f < filters:
                    at = u64(out + u64((f * NARROW + j * 8 + (lane & 3) * 2) * 4))
                    store_float(at, acc[j * 4 + half * 2])
                    store_float(u64(at + u64(4)), acc[j * 4 + half * 2 + 1])

        return write

    write = in_turn([make_write(j) for j in range(NARROW // 8)])

    @device_function
    def write_biases(acc, out, first, filters, lane):
        for half in range(2):
            if (lane & 3) == 0 and first + half * 8 < filters:
                store_float(u64(out + u64((first + half * 8) * 4)), acc[half * 2])

    def gradient(map_dy, map_x, partial, tiles, filters, size):
        ring = aligned(shared_address(cuda.shared.array(0, types.uint8)))
        ones = u32(ring + u32(ST * SLOT))
        full = u32(ones + u32(ONES))
        empty = u32(full + u32(8 * ST))
        thread, bn = i32(cuda.threadIdx.x), i32(i32(cuda.blockIdx.y) * BN)
        lane, warp = i32(thread & 31), i32(thread >> 5)
        if thread == 0:
            open_barriers(full, empty)
        if thread < ONES // 4:
            shared_store1(u32(ones + u32(thread * 4)), u32(0x3F803F80))  # a pair of bf16 ones
        fence_async_proxy()
        cuda.syncthreads()  # the barriers are initialised
        if warp == 4 * GROUPS:
            if lane == 0:
                prefetch_map(map_dy)
                send(ring, full, empty, map_dy, map_x, bn, tiles)
        else:
            group = i32(warp >> 2)
            sums = cuda.local.array(NACC, dtype=types.float32)
            totals = cuda.local.array(4, dtype=types.float32)
            for i in range(NACC):
                sums[i] = f32(0.0)
            for i in range(4):
                totals[i] = f32(0.0)
            slot, parity, at = u32(0), u32(0), i32(cuda.blockIdx.x)
            while at < tiles:
                wait_for(u32(full + slot * u32(8)), parity)  # the tiles of x and dy have arrived
                a = low_word(u32(ring + slot * u32(SLOT) + u32(group * WIDE)), u32(16))
                b = low_word(u32(ring + slot * u32(SLOT) + u32(GROUPS * WIDE)), u32(16))
                filters_of(sums, a, u32(HIGH_DY), u32(0), b, u32(HIGH), u32(1))
                biases_of(totals, a, u32(HIGH_DY), u32(0), low_word(ones, u32(128)), high_word(u32(128)), u32(1))
                finish(sums)
                finish_biases(totals)
                if lane == 0:
                    arrive(u32(empty + slot * u32(8)))  # this warp reads the stage no more
                slot, parity = advance(slot, parity)
                at = i32(at + i32(cuda.gridDim.x))
            out = u64(partial + u64(i64(i32(cuda.blockIdx.x)) * i64(size) * 4))
            first = i32(bn + group * CHANNELS + (warp & 3) * 16 + (lane >> 2))
            write(sums, out, first, filters, lane)
            write_biases(totals, u64(out + u64(filters * NARROW * 4)), first, filters, lane)

    return gradient
