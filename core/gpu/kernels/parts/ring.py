"""A ring of slices in shared memory: the copy engine fills them in turn, warps use them in turn.

Each has two barriers, `full` and `empty`. A side waits for the phase of the parity that it holds, which changes each
time round: the user begins with 0, the sender with 1, since a new barrier counts as having ended a phase of parity 1.
"""

from __future__ import annotations

from typing import Any

from core.gpu.compilation.cuda import device_function, types
from core.gpu.kernels.parts.bulk_copy import make_barrier, show_barriers

u32 = types.uint32


def make_opening(stages: int, users: int) -> Any:
    """Device function of one thread that makes the barriers of so many slices, each emptied by so many arrivals."""

    @device_function
    def open_ring(full, empty):
        for number in range(stages):
            make_barrier(u32(full + u32(8 * number)), u32(1))
            make_barrier(u32(empty + u32(8 * number)), u32(users))
        show_barriers()

    return open_ring


def make_advance(stages: int) -> Any:
    """Device function: the slice after this one, and the parity to wait for there."""

    @device_function
    def advance(slot, parity):
        slot = u32(slot + u32(1))
        if slot == u32(stages):
            slot, parity = u32(0), u32(parity ^ u32(1))
        return slot, parity

    return advance
