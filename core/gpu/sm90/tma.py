"""The Tensor Memory Accelerator (TMA) for kernels, and the pipeline of shared-memory stages that it fills.

A tensor map describes a matrix or an activation tensor (`core.gpu.driver.tensor_map`). One thread names a tile of it
and an address in shared memory; TMA computes addresses, fills with zeros beyond the edges and applies the XOR swizzle.

An mbarrier is 8 bytes in shared memory and has phases: one ends when all arrivals and all expected bytes have come.
Each stage of a pipeline has two, `full` and `empty`. Both sides wait for the phase of the parity that they hold, which
changes after each round of all stages: the consumers begin with 0, the producer with 1, since a new barrier counts as
having ended a phase of parity 1. CUTLASS calls this a PipelineTmaAsync.

Source: PTX ISA 8.3, sections 9.7.9.27 (cp.async.bulk.tensor) and 9.7.13.15 (mbarrier).
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.compilation.cuda import device_function, u32
from core.gpu.compilation.ptx import instruction
from core.gpu.driver.tensor_map import TensorMap
from core.gpu.launch import Tensor

TILE_COLUMNS: Final = 64
"""bf16 columns of a tile: a swizzled row of 128 bytes."""


def matrix_map(
    address: int, rows: int, columns: int, pitch: int, tile_rows: int, tile_columns: int = TILE_COLUMNS
) -> TensorMap:
    """Tensor map of a bf16 matrix, a launch's argument; `pitch`: elements from a row to the next."""
    return TensorMap(address, (columns, rows), (pitch,), (tile_columns, tile_rows))


def activation_map(x: Tensor, images: int, rows: int, width: int, channels: int) -> TensorMap:
    """Tensor map of images: tiles of so many rows, pixels of a row and channels."""
    sizes, pitches = (x.padded, x.width, x.height, images), (x.pitch, x.row_pitch, x.image_pitch)
    return TensorMap(x.address, sizes, pitches, (channels, width, rows, 1))


_COPY: Final = "cp.async.bulk{}.shared::cluster.global.mbarrier::complete_tx::bytes "

copy_tile = instruction(
    "copy_tile", _COPY.format(".tensor.2d") + "[$0], [$1, {$2, $3}], [$4];", "", "uliiu", memory=True
)
"""``(to, tensor_map, column, row, barrier)``: start the copy of a tile; the barrier counts its bytes as they come."""

copy_activation_tile = instruction(
    "copy_activation_tile", _COPY.format(".tensor.4d") + "[$0], [$1, {$2, $3, $4, $5}], [$6];", "", "uliiiiu",
    memory=True,
)  # fmt: skip
"""``(to, tensor_map, channel, column, row, image, barrier)``: `copy_tile` of rows of an image, also from beyond it."""

copy_bytes = instruction("copy_bytes", _COPY.format("") + "[$0], [$1], $2, [$3];", "", "uluu", memory=True)
"""``(to, source, size, barrier)``: `copy_tile` of contiguous bytes, a multiple of 16."""

store_tile = instruction(
    "store_tile", "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [$0, {$1, $2}], [$3];", "", "liiu", memory=True
)
"""``(tensor_map, column, row, source)``: start the copy of a tile; what is beyond the matrix is not stored."""

commit_stores = instruction("commit_stores", "cp.async.bulk.commit_group;", "", "", memory=True)
"""The tiles that this thread has begun to store since the last call become a group."""

WAIT_READ: Final = {
    pending: instruction("wait", f"cp.async.bulk.wait_group.read {pending};", "", "", memory=True) for pending in (0, 1)
}
"""``WAIT_READ[n]()``: wait until at most n of this thread's groups still read shared memory."""

wait_stored = instruction("wait", "cp.async.bulk.wait_group 0;", "", "", memory=True)
"""Wait until all stores of this thread are complete."""

prefetch_map = instruction("prefetch_map", "prefetch.tensormap [$0];", "", "l", volatile=True)
"""Load a tensor map into the cache before the first copy."""

make_barrier = instruction("make_barrier", "mbarrier.init.shared::cta.b64 [$0], $1;", "", "uu", memory=True)
"""``(barrier, arrivals)``: initialise an mbarrier whose phases end after so many arrivals."""

show_barriers = instruction("show_barriers", "fence.mbarrier_init.release.cluster;", "", "", memory=True)
"""Make the barriers that this thread has initialised visible to TMA."""

expect_bytes = instruction(
    "expect_bytes", "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;", "", "uu", memory=True
)
"""``(barrier, bytes)``: arrive, and let the phase last until so many bytes have come."""

arrive = instruction("arrive", "mbarrier.arrive.shared::cta.b64 _, [$0];", "", "u", memory=True)
"""``(barrier)``: arrive once."""

wait_for = instruction(
    "wait_for",
    "{.reg .pred p;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 p, [$0], $1;\n"
    "@p bra DONE;\nbra AGAIN;\nDONE:\n}",
    "", "uu", memory=True,
)  # fmt: skip
"""``(barrier, parity)``: wait until the phase of this parity is over."""


def make_barriers(stages: int, consumers: int) -> Any:
    """Device function of one thread: initialise the barriers of all stages, each emptied by so many arrivals."""

    @device_function
    def initialise(full, empty):
        for stage in range(stages):
            make_barrier(u32(full + u32(8 * stage)), u32(1))
            make_barrier(u32(empty + u32(8 * stage)), u32(consumers))
        show_barriers()

    return initialise


def make_advance(stages: int) -> Any:
    """Device function: the stage after this one, and the parity to wait for there."""

    @device_function
    def advance(stage, parity):
        stage = u32(stage + u32(1))
        if stage == u32(stages):
            stage, parity = u32(0), u32(parity ^ u32(1))
        return stage, parity

    return advance
