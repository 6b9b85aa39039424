"""The matrix product by `wgmma`: bf16 factors in swizzled shared memory, float32 sums.

A block of two warpgroups computes a 128 x 256 tile of C in slices 64 deep.

              256 columns
            +-------------------+
    64 rows | warpgroup 0       |
            +-------------------+
    64 rows | warpgroup 1       |
            +-------------------+

Shared memory: four stages, each 128 x 64 of A and 64 x 256 of B, copied by `cp.async` into the 128-byte XOR swizzle:
the 16-byte chunk c of row r is at c xor (r mod 8). A is as in memory, its depth along the rows; B too, parts of 64
columns one after another. While the tensor cores work on a slice, the threads copy the next but one, and its product
begins before this one is complete. Bytes: A once for each 256 columns, B once for each 128 rows.
Source of the layouts: PTX ISA 8.x, section 9.7.15.5.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.compilation import ptx
from core.gpu.compilation.cuda import cuda, device_function, types
from core.gpu.launch import blocks_of, make_launch
from core.gpu.ops.matmul.tensor_core import GROUP, SIGNATURE, product_of, product_values
from core.gpu.select import Case
from core.gpu.sm90.swizzle import aligned, swizzled_high_word
from core.gpu.sm90.wgmma import DEPTH, fence_async_proxy, low_word, make_products, make_wait

i32, u32, u64, f32 = types.int32, types.uint32, types.uint64, types.float32

ROWS: Final = 128
COLUMNS: Final = 256
SUMS: Final = COLUMNS // 2
THREADS: Final = 256
STAGES: Final = 4
AHEAD: Final = STAGES - 2
"""Slices under way: one stage is being read and one still belongs to the product of the turn before."""
A_BYTES: Final = ROWS * DEPTH * 2
B_BYTES: Final = DEPTH * COLUMNS * 2
STAGE: Final = A_BYTES + B_BYTES
SHARED: Final = STAGES * STAGE + 1024
"""The ring, and room to begin it at a multiple of 1024."""
C_ROW: Final = COLUMNS * 2 + 16


def make_slice_product(columns: int) -> Any:
    """Begins the product of 64 rows and so many columns over a slice, in four instructions; B is read transposed."""
    return make_products(columns, [[(2 * k, 0, 128 * k) for k in range(DEPTH // 16)]], (False, True))


HIGH: Final = swizzled_high_word(128)
"""Upper half of the descriptors of both factors."""
start_product, keep_one_product, finish_product = make_slice_product(COLUMNS), make_wait(SUMS, 1), make_wait(SUMS, 0)
wait, wait_all = ptx.WAIT_COPIES[AHEAD - 1], ptx.WAIT_COPIES[0]


@device_function
def send_slice(slot, a, b, row0, column0, first, m, n, k, thread):
    """Start the copies of the slice that begins `first` deep into the stage at `slot`."""
    for j in range(ROWS * 8 // THREADS):
        r, q = i32((thread >> 3) + j * (THREADS // 8)), i32(thread & 7)
        real = row0 + r < m and first + q * 8 < k
        source = u64(a + (u64(row0 + r) * u64(k) + u64(first + q * 8)) * u64(2)) if real else u64(a)
        ptx.copy_async16(u32(slot + u32(r * 128 + ((q ^ (r & 7)) << 4))), source, u32(16 if real else 0))
    for j in range(DEPTH * 32 // THREADS):
        r, q = i32((thread >> 5) + j * (THREADS // 32)), i32(thread & 31)
        real = first + r < k and column0 + q * 8 < n
        source = u64(b + (u64(first + r) * u64(n) + u64(column0 + q * 8)) * u64(2)) if real else u64(b)
        place = u32(slot + u32(A_BYTES + (q >> 3) * (DEPTH * 128) + r * 128 + (((q & 7) ^ (r & 7)) << 4)))
        ptx.copy_async16(place, source, u32(16 if real else 0))


@device_function
def write_tile(acc, base, c, row0, column0, m, n, thread):
    """The sums through shared memory, so that every lane stores 16 bytes."""
    lane, warp = i32(thread & 31), i32(thread >> 5)
    for j in range(SUMS // 4):
        line = i32((warp >> 2) * 64 + (warp & 3) * 16 + (lane >> 2))
        place = u32(base + u32(line * C_ROW + (j * 8 + (lane & 3) * 2) * 2))
        ptx.shared_store1(place, ptx.pack_bf16(acc[j * 4], acc[j * 4 + 1]))
        ptx.shared_store1(u32(place + u32(8 * C_ROW)), ptx.pack_bf16(acc[j * 4 + 2], acc[j * 4 + 3]))
    cuda.syncthreads()  # the tile is in shared memory
    for i in range(thread, ROWS * 32, THREADS):
        r, q = i32(i >> 5), i32((i & 31) * 8)
        if row0 + r < m and column0 + q < n:
            v = ptx.shared_load4(u32(base + u32(r * C_ROW + q * 2)))
            ptx.store4(u64(c + (u64(row0 + r) * u64(n) + u64(column0 + q)) * u64(2)), v[0], v[1], v[2], v[3])


def product(a, b, c, m, n, k):
    """``C = A B``; A (M, K), B (K, N), C (M, N) in bf16 at 64-bit addresses, K and N multiples of 8."""
    base = aligned(ptx.shared_address(cuda.shared.array(0, types.uint8)))
    thread = i32(cuda.threadIdx.x)
    # Rows of a group come first, then its columns: neighbours find each other's slices in L2. (A division by a
    # number unknown at compile time would be a call, and calls keep the assembler from overlapping wgmma.)
    row0 = i32((i32(cuda.blockIdx.z) * GROUP + i32(cuda.blockIdx.x)) * ROWS)
    column0 = i32(i32(cuda.blockIdx.y) * COLUMNS)
    if row0 >= m:
        return
    acc = cuda.local.array(SUMS, f32)
    for i in range(SUMS):
        acc[i] = f32(0.0)
    steps = i32((k + DEPTH - 1) // DEPTH)
    for step in range(AHEAD):
        if step < steps:
            send_slice(u32(base + u32(step * STAGE)), a, b, row0, column0, i32(step * DEPTH), m, n, k, thread)
        ptx.commit_copies()
    for step in range(steps):
        wait()
        fence_async_proxy()
        cuda.syncthreads()  # this turn's slice is here, and no product reads the slot that is filled next
        slot = u32(base + u32((step & (STAGES - 1)) * STAGE))
        half = u32(slot + u32((thread >> 7) * 64 * 128))
        b_low = low_word(u32(slot + u32(A_BYTES)), u32(DEPTH * 128))
        start_product(acc, low_word(half, u32(16)), u32(HIGH), u32(0), b_low, u32(HIGH), u32(1))
        later = i32(step + AHEAD)
        if later < steps:
            at = u32(base + u32((later & (STAGES - 1)) * STAGE))
            send_slice(at, a, b, row0, column0, i32(later * DEPTH), m, n, k, thread)
        ptx.commit_copies()
        keep_one_product(acc)
    finish_product(acc)
    wait_all()
    cuda.syncthreads()  # the ring is free for the result
    write_tile(acc, base, c, row0, column0, m, n, thread)


def write(case: Case) -> None:
    """Blocks of a tile each, in groups of rows."""
    x, x2, out = product_of(case)
    grid = (GROUP, blocks_of(out.channels, COLUMNS), blocks_of(out.width, GROUP * ROWS))
    case.frame.add(
        make_launch(
            case.step.node, case.direction, "wgmma", ("sm90.matmul_wgmma", "product", ()), SIGNATURE,
            product_values(x, x2, out), grid, (THREADS, 1, 1), SHARED, resident=1,
        )
    )  # fmt: skip
