"""The Tensor Memory Accelerator (TMA) as functions for kernels: it copies whole tiles and reports to a barrier.

A tensor map describes a matrix or an activation tensor (`core.gpu.driver.tensor_map`). One thread names a tile of it
and a place in shared memory; TMA computes addresses, fills with zeros beyond the edges and applies the XOR swizzle. A
barrier is 8 bytes in shared memory and has phases: one ends when all arrivals and all expected bytes have come.
Source: PTX ISA 8.3, sections 9.7.9.27 (cp.async.bulk.tensor) and 9.7.13.15 (mbarrier).
"""

from __future__ import annotations

from typing import Final

from core.gpu.compilation.hopper import MAP
from core.gpu.compilation.ptx import instruction
from core.gpu.driver.tensor_map import TensorMap

TENSOR_MAP: Final = MAP
"""Type of a kernel's argument that is a tensor map."""

TILE_COLUMNS: Final = 64
"""bf16 columns of a tile: a swizzled line of 128 bytes."""


def matrix_map(address: int, rows: int, columns: int, tile_rows: int) -> TensorMap:
    """Tensor map of a row-major bf16 matrix, a launch's argument: tiles of `tile_rows` x 64."""
    return TensorMap(address, rows, columns, columns, tile_rows, TILE_COLUMNS)


copy_tile = instruction(
    "copy_tile",
    "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1, {$2, $3}], [$4];",
    "", "uliiu", memory=True,
)  # fmt: skip
"""``(place, tensor_map, column, row, barrier)``: start the copy of a tile to shared memory.

The barrier counts its bytes as they come.
"""

copy_activation_tile = instruction(
    "copy_activation_tile",
    "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1, {$2, $3, $4, $5}], "
    "[$6];",
    "", "uliiiiu", memory=True,
)  # fmt: skip
"""``(place, tensor_map, channel, column, row, image, barrier)``: `copy_tile` of rows of one image.

They may begin beyond its edges.
"""

copy_bytes = instruction(
    "copy_bytes", "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1], $2, [$3];",
    "", "uluu", memory=True,
)  # fmt: skip
"""``(place, source, size, barrier)``: `copy_tile` of contiguous bytes, a multiple of 16."""

store_tile = instruction(
    "store_tile", "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [$0, {$1, $2}], [$3];",
    "", "liiu", memory=True,
)  # fmt: skip
"""``(tensor_map, column, row, place)``: start the copy of a tile; what is beyond the matrix is not stored."""

commit_stores = instruction("commit_stores", "cp.async.bulk.commit_group;", "", "", memory=True)
"""The tiles that this thread has begun to store since the last call become a group."""

WAIT_READ: Final = {
    pending: instruction("wait", f"cp.async.bulk.wait_group.read {pending};", "", "", memory=True) for pending in (0, 1)
}
"""``WAIT_READ[n]()``: wait until at most n of this thread's groups still read shared memory."""

wait_stored = instruction("wait", "cp.async.bulk.wait_group 0;", "", "", memory=True)
"""Wait until all that this thread stored is in place."""

prefetch_map = instruction("prefetch_map", "prefetch.tensormap [$0];", "", "l", volatile=True)
"""Load a tensor map into the cache before the first copy."""

make_barrier = instruction("make_barrier", "mbarrier.init.shared::cta.b64 [$0], $1;", "", "uu", memory=True)
"""A barrier whose phases end after so many arrivals."""

show_barriers = instruction("show_barriers", "fence.mbarrier_init.release.cluster;", "", "", memory=True)
"""Make the barriers that this thread has made visible to TMA."""

expect_bytes = instruction(
    "expect_bytes", "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;",
    "", "uu", memory=True,
)  # fmt: skip
"""Arrive, and let the phase last until so many bytes have come."""

arrive = instruction("arrive", "mbarrier.arrive.shared::cta.b64 _, [$0];", "", "u", memory=True)
"""Arrive once."""

wait_for = instruction(
    "wait_for",
    "{.reg .pred p;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 p, [$0], $1;\n"
    "@p bra DONE;\nbra AGAIN;\nDONE:\n}",
    "", "uu", memory=True,
)  # fmt: skip
"""Wait until the phase of this parity is over; parity 1 of a new barrier counts as over."""

divide = instruction("divide", "div.u32 $0, $1, $2;", "u", "uu")
"""Unsigned 32-bit division: Numba's own is 64 bits wide and asks for zero."""
