"""The bf16 matrix product as fast as the vendor's: a warp that only copies, eight that only multiply.

One thread of the ninth warp sends boxes of both factors through the copy engine into a ring of four slices of 64
columns, as far ahead as there is room; two warpgroups multiply 128 x 256 a block from them. The two sides meet at
barriers in shared memory alone: `full` of a slice when its bytes have come, `empty` when all eight warps are done with
it. Nobody computes an address for a copy, and the multiplying warps never wait for one another. A block walks tile
after tile, so that the next tile's slices arrive while this one is stored. Layouts as in `matmul_hopper.py`.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import Any, Final

import numpy as np

from core.gpu.cuda import compile_to_ptx, cuda, device_function, driver, types
from core.gpu.device import Function, check
from core.gpu.hosted import Arrays, blocks, stream_address
from core.gpu.kernels.bulk_copy import (
    BOX_COLUMNS,
    acquire_map,
    arrive,
    copy_box,
    divide,
    encode_map,
    expect_bytes,
    make_barrier,
    show_barriers,
    wait_for,
)
from core.gpu.kernels.matmul_hopper import A_BYTES, CAPABILITY, COLUMNS, ROWS, STAGE, STAGES, descriptor
from core.gpu.kernels.matmul_tensor_core import GROUP, run_in_bf16
from core.gpu.kernels.wgmma import DEPTH, SUMS, finish_product, keep_one_product, start_product
from core.gpu.ptx import pack_bf16, shared_address, shared_load4, shared_store1, store4
from core.ops.registry import Case

i32, u32, u64, f32 = types.int32, types.uint32, types.uint64, types.float32

KINDS: Final = (u64, u64, u64, i32, i32, i32, i32, i32)
"""Addresses of the tensor maps of A and B and of C; rows, columns, depth; tiles down and across."""
MULTIPLIERS: Final = 8
"""Warps that multiply; one more copies."""
THREADS: Final = 32 * (MULTIPLIERS + 1)
BOX: Final = DEPTH * BOX_COLUMNS * 2
"""Bytes of a box of B; a slice has four side by side."""
C_ROW: Final = 64 * 2 + 16
"""Bytes of a line on its way out: 64 columns, and 16 against bank conflicts."""
C_BYTES: Final = 16 * C_ROW
SHARED: Final = STAGES * STAGE + MULTIPLIERS * C_BYTES + 16 * STAGES + 1024
"""The ring, each warp's lines on their way out, the barriers, and room to begin at a multiple of 1024."""


@device_function
def find_tile(tile, down, across):
    """(row, column) of a tile: groups of rows first, so that blocks at work find each other's slices in L2."""
    group = divide(u32(tile), u32(u32(GROUP) * u32(across)))
    inside = u32(u32(tile) - group * u32(GROUP) * u32(across))
    tall = u32(min(u32(u32(down) - group * u32(GROUP)), u32(GROUP)))
    column = divide(inside, tall)
    return i32(group * u32(GROUP) + inside - column * tall), i32(column)


@device_function
def send_tiles(ring, full, empty, map_a, map_b, down, across, steps):
    """One thread: the slices of all tiles of this block, as far ahead as the ring has room."""
    slot, parity = u32(0), u32(1)
    tile = i32(cuda.blockIdx.x)
    while tile < down * across:
        row, column = find_tile(tile, down, across)
        step = i32(0)
        while step < steps:
            wait_for(u32(empty + slot * u32(8)), parity)
            barrier, place = u32(full + slot * u32(8)), u32(ring + slot * u32(STAGE))
            expect_bytes(barrier, u32(STAGE))
            copy_box(place, map_a, i32(step * DEPTH), i32(row * ROWS), barrier)
            for box in range(COLUMNS // BOX_COLUMNS):
                first = i32(column * COLUMNS + box * BOX_COLUMNS)
                copy_box(u32(place + u32(A_BYTES + box * BOX)), map_b, first, i32(step * DEPTH), barrier)
            slot = u32((slot + u32(1)) & u32(STAGES - 1))
            parity = u32(parity ^ u32(slot == 0))
            step = i32(step + 1)
        tile = i32(tile + i32(cuda.gridDim.x))


@device_function
def release(empty, slot, lane):
    """This warp reads the slice no more."""
    if lane == 0:
        arrive(u32(empty + slot * u32(8)))


@device_function
def multiply_tiles(ring, full, empty, lines, c, m, n, warp, lane, down, across, steps):
    """Eight warps: the product of every slice as it comes, begun before the one before it is complete."""
    acc = cuda.local.array(SUMS, f32)
    slot, parity, last = u32(0), u32(0), u32(0)
    mine = u32(u32(warp >> 2) * u32(64 * 128))
    tile = i32(cuda.blockIdx.x)
    while tile < down * across:
        row, column = find_tile(tile, down, across)
        for i in range(SUMS):
            acc[i] = f32(0.0)
        step = i32(0)
        while step < steps:
            wait_for(u32(full + slot * u32(8)), parity)
            place = u32(ring + slot * u32(STAGE))
            right = descriptor(u32(place + u32(A_BYTES)), u32(BOX))
            start_product(acc, descriptor(u32(place + mine), u32(16)), right)
            keep_one_product(acc)
            if step > 0:
                release(empty, last, lane)
            last = slot
            slot = u32((slot + u32(1)) & u32(STAGES - 1))
            parity = u32(parity ^ u32(slot == 0))
            step = i32(step + 1)
        finish_product(acc)
        release(empty, last, lane)
        write_lines(acc, lines, c, i32(row * ROWS + warp * 16), i32(column * COLUMNS), m, n, lane)
        tile = i32(tile + i32(cuda.gridDim.x))


@device_function
def write_lines(acc, lines, c, row, column, m, n, lane):
    """A warp's 16 x 256 sums, 64 columns at a time through its own lines, so that every lane stores 16 bytes."""
    for part in range(COLUMNS // 64):
        place = u32(lines + u32((lane >> 2) * C_ROW + (lane & 3) * 4))
        for j in range(8):
            o = (part * 8 + j) * 4
            shared_store1(u32(place + u32(j * 16)), pack_bf16(acc[o], acc[o + 1]))
            shared_store1(u32(place + u32(j * 16 + 8 * C_ROW)), pack_bf16(acc[o + 2], acc[o + 3]))
        cuda.syncwarp()  # the lines are complete
        for i in range(4):
            r, q = i32(i * 4 + (lane >> 3)), i32(lane & 7)
            v = shared_load4(u32(lines + u32(r * C_ROW + q * 16)))
            at = i32(column + part * 64 + q * 8)
            if row + r < m and at < n:
                store4(u64(c + (u64(row + r) * u64(n) + u64(at)) * u64(2)), v[0], v[1], v[2], v[3])
        cuda.syncwarp()  # the lines are free


def product(map_a, map_b, c, m, n, k, down, across):
    """``C = A B``; A (M, K), B (K, N), C (M, N) in bf16, K and N multiples of 8."""
    ring = u32((u32(shared_address(cuda.shared.array(0, types.uint8))) + u32(1023)) & u32(0xFFFFFC00))
    lines = u32(ring + u32(STAGES * STAGE))
    full = u32(lines + u32(MULTIPLIERS * C_BYTES))
    empty = u32(full + u32(8 * STAGES))
    thread = i32(cuda.threadIdx.x)
    lane, warp = i32(thread & 31), i32(thread >> 5)
    steps = i32((k + DEPTH - 1) // DEPTH)
    if thread == 0:
        for stage in range(STAGES):
            make_barrier(u32(full + u32(8 * stage)), u32(1))
            make_barrier(u32(empty + u32(8 * stage)), u32(MULTIPLIERS))
        show_barriers()
    cuda.syncthreads()  # the barriers stand
    if warp == MULTIPLIERS:
        if lane == 0:
            acquire_map(map_a)
            acquire_map(map_b)
            send_tiles(ring, full, empty, map_a, map_b, down, across, steps)
    else:
        mine = u32(lines + u32(warp) * u32(C_BYTES))
        multiply_tiles(ring, full, empty, mine, c, m, n, warp, lane, down, across, steps)


@cache
def ptx() -> tuple[str, str]:
    """(PTX, entry name), for the target that knows wgmma and the version that knows tensor maps in global memory."""
    text, entry = compile_to_ptx(product, KINDS, CAPABILITY, (THREADS, 1))
    text = re.sub(r"^\.version .*$", ".version 8.3", text, count=1, flags=re.MULTILINE)
    return text.replace(".target sm_90", ".target sm_90a", 1), entry


@cache
def load() -> Function:
    """The kernel on the current GPU, which must be a Hopper."""
    text, entry = ptx()
    cuda.current_context()  # the driver loads into it
    module = check(driver.cuModuleLoadData(text.encode() + b"\0"))
    return Function(check(driver.cuModuleGetFunction(module, entry.encode())), ("uint64",) * 3 + ("int32",) * 5)


@lru_cache(maxsize=64)
def make_maps(a: int, b: int, m: int, n: int, k: int) -> Any:
    """Tensor maps of both factors on the device; kept, since a captured graph goes on reading them."""
    return cuda.to_device(np.array(encode_map(a, m, k, ROWS) + encode_map(b, k, n, DEPTH), np.uint64))


def multiply(a: Any, b: Any, c: Any) -> None:
    """``c = a b`` on device matrices of bf16 bits (uint16)."""
    (m, k), n = a.shape, b.shape[1]
    at = [int(x.__cuda_array_interface__["data"][0]) for x in (a, b, c)]
    maps = int(make_maps(at[0], at[1], m, n, k).__cuda_array_interface__["data"][0])
    down, across = blocks(m, ROWS), blocks(n, COLUMNS)
    grid = min(down * across, cuda.get_current_device().MULTIPROCESSOR_COUNT)
    values = (maps, maps + 128, at[2], m, n, k, down, across)
    load().launch((grid, 1, 1), (THREADS, 1, 1), SHARED, stream_address(), values)


def launch(case: Case, arrays: Arrays) -> None:
    """float32 matrices are rounded to bf16 first; matrices of bf16 bits are taken as they are."""
    run_in_bf16(multiply, arrays)
