"""Hopper's copy engine as functions for kernels: whole boxes of a matrix travel by themselves and report to a barrier.

A tensor map describes the matrix (`encode_map`, on the host); one thread names a box of it and a place in shared
memory, and the engine computes addresses, fills up with zeros beyond the edges and swizzles. A barrier of 8 bytes in
shared memory has phases: one ends when all arrivals and all expected bytes have come. Source: PTX ISA 8.3, sections
9.7.9.27 (cp.async.bulk.tensor) and 9.7.13.15 (mbarrier).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from core.gpu.cuda import driver, intrinsic, types
from core.gpu.device import check
from core.gpu.ptx import instruction

_u, _l, _i = types.uint32, types.uint64, types.int32

BOX_COLUMNS = 64
"""bf16 columns of a box: the 128 bytes of one swizzled line."""


@lru_cache(maxsize=64)
def encode_map(address: int, rows: int, columns: int, box_rows: int) -> Any:
    """Tensor map of a row-major bf16 matrix, a launch's argument: boxes of `box_rows` x 64, swizzled by 128 bytes."""
    long, short = driver.cuuint64_t, driver.cuuint32_t
    return check(
        driver.cuTensorMapEncodeTiled(
            driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, address,
            [long(columns), long(rows)], [long(columns * 2)], [short(BOX_COLUMNS), short(box_rows)],
            [short(1), short(1)], driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
            driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    )  # fmt: skip


@intrinsic
def copy_box(context, place, tensor_map, column, row, barrier):
    """Start the copy of the box at (row, column) to shared memory; the barrier counts its bytes as they come."""
    text = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1, {$2, $3}], [$4];"
    return instruction(text, [], [_u, _l, _i, _i, _u], True, True)


@intrinsic
def prefetch_map(context, tensor_map):
    """Have a tensor map at hand when the first box is asked for."""
    return instruction("prefetch.tensormap [$0];", [], [_l], True, False)


@intrinsic
def make_barrier(context, barrier, arrivals):
    """A barrier whose phases end after so many arrivals."""
    return instruction("mbarrier.init.shared::cta.b64 [$0], $1;", [], [_u, _u], True, True)


@intrinsic
def show_barriers(context):
    """Make the barriers that this thread has made visible to the copy engine."""
    return instruction("fence.mbarrier_init.release.cluster;", [], [], True, True)


@intrinsic
def expect_bytes(context, barrier, size):
    """Arrive, and let the phase last until so many bytes have come."""
    return instruction("mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;", [], [_u, _u], True, True)


@intrinsic
def arrive(context, barrier):
    """Arrive once."""
    return instruction("mbarrier.arrive.shared::cta.b64 _, [$0];", [], [_u], True, True)


@intrinsic
def wait_for(context, barrier, parity):
    """Wait until the phase of this parity is over; parity 1 of a new barrier counts as over."""
    text = (
        "{.reg .pred p;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 p, [$0], $1;\n"
        "@p bra DONE;\nbra AGAIN;\nDONE:\n}"
    )
    return instruction(text, [], [_u, _u], True, True)


@intrinsic
def divide(context, n, divisor):
    """Unsigned 32-bit division: Numba's own is 64 bits wide and asks for zero."""
    return instruction("div.u32 $0, $1, $2;", [_u], [_u, _u], False)
