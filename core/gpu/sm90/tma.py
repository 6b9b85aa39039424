"""The Tensor Memory Accelerator (TMA) as functions for kernels: it copies whole tiles and reports to a barrier.

A tensor map describes a matrix or an activation tensor (`core.gpu.driver.tensor_map`). One thread names a tile of it
and a place in shared memory; TMA computes addresses, fills with zeros beyond the edges and applies the XOR swizzle. A
barrier is 8 bytes in shared memory and has phases: one ends when all arrivals and all expected bytes have come.
Source: PTX ISA 8.3, sections 9.7.9.27 (cp.async.bulk.tensor) and 9.7.13.15 (mbarrier).
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.compilation.cuda import intrinsic, types
from core.gpu.compilation.hopper import MAP
from core.gpu.compilation.ptx import instruction
from core.gpu.driver.tensor_map import TensorMap

_u, _l, _i = types.uint32, types.uint64, types.int32

TENSOR_MAP: Final = MAP
"""Type of a kernel's argument that is a tensor map."""

TILE_COLUMNS: Final = 64
"""bf16 columns of a tile: a swizzled line of 128 bytes."""


def matrix_map(address: int, rows: int, columns: int, tile_rows: int) -> TensorMap:
    """Tensor map of a row-major bf16 matrix, a launch's argument: tiles of `tile_rows` x 64."""
    return TensorMap(address, rows, columns, columns, tile_rows, TILE_COLUMNS)


@intrinsic
def copy_tile(context, place, tensor_map, column, row, barrier):
    """Start the copy of the tile at (row, column) to shared memory; the barrier counts its bytes as they come."""
    text = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1, {$2, $3}], [$4];"
    return instruction(text, [], [_u, _l, _i, _i, _u], True, True)


@intrinsic
def copy_activation_tile(context, place, tensor_map, channel, column, row, image, barrier):
    """`copy_tile` of some rows of one image of an activation tensor; they may begin beyond its edges."""
    text = (
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1, {$2, $3, $4, $5}], "
        "[$6];"
    )
    return instruction(text, [], [_u, _l, _i, _i, _i, _i, _u], True, True)


@intrinsic
def copy_bytes(context, place, source, size, barrier):
    """`copy_tile` of contiguous bytes, a multiple of 16."""
    text = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1], $2, [$3];"
    return instruction(text, [], [_u, _l, _u, _u], True, True)


@intrinsic
def store_tile(context, tensor_map, column, row, place):
    """Start the copy of a tile from shared memory to (row, column); what is beyond the matrix is not stored."""
    text = "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [$0, {$1, $2}], [$3];"
    return instruction(text, [], [_l, _i, _i, _u], True, True)


@intrinsic
def commit_stores(context):
    """The tiles that this thread has begun to store since the last call become a group."""
    return instruction("cp.async.bulk.commit_group;", [], [], True, True)


def _make_store_wait(pending: int, read: str) -> Any:
    @intrinsic
    def wait(context):
        return instruction(f"cp.async.bulk.wait_group{read} {pending};", [], [], True, True)

    return wait


WAIT_READ: Final = {pending: _make_store_wait(pending, ".read") for pending in (0, 1)}
"""``WAIT_READ[n]()``: wait until at most n of this thread's groups still read shared memory."""

wait_stored = _make_store_wait(0, "")
"""Wait until all that this thread stored is in place."""


@intrinsic
def prefetch_map(context, tensor_map):
    """Load a tensor map into the cache before the first copy."""
    return instruction("prefetch.tensormap [$0];", [], [_l], True, False)


@intrinsic
def make_barrier(context, barrier, arrivals):
    """A barrier whose phases end after so many arrivals."""
    return instruction("mbarrier.init.shared::cta.b64 [$0], $1;", [], [_u, _u], True, True)


@intrinsic
def show_barriers(context):
    """Make the barriers that this thread has made visible to TMA."""
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
