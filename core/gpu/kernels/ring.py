"""A ring of slices in shared memory: the copy engine fills them in turn, warps use them in turn.

Each has two barriers, `full` and `empty`. A side waits for the phase of the parity that it holds, which changes each
time round: the user begins with 0, the sender with 1, since a new barrier counts as having ended a phase of parity 1.
"""

from __future__ import annotations

from typing import Any

from core.gpu.cuda import device_function, types

u32 = types.uint32


def make_advance(stages: int) -> Any:
    """Device function: the slice after this one, and the parity to wait for there."""

    @device_function
    def advance(slot, parity):
        slot = u32(slot + u32(1))
        if slot == u32(stages):
            slot, parity = u32(0), u32(parity ^ u32(1))
        return slot, parity

    return advance
