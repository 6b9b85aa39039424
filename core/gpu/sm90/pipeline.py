"""A pipeline of stages in shared memory: TMA fills them in turn, warps use them in turn.

Each stage has two barriers, `full` and `empty`. A side waits for the phase of the parity that it holds, which changes
after each round of all stages: the consumer begins with 0, the producer with 1, since a new barrier counts as having
ended a phase of parity 1. (CUTLASS calls this a PipelineTmaAsync.)
"""

from __future__ import annotations

from typing import Any

from core.gpu.compilation.cuda import device_function, types
from core.gpu.sm90.tma import make_barrier, show_barriers

u32 = types.uint32


def make_barriers(stages: int, consumers: int) -> Any:
    """Device function of one thread that makes the barriers of all stages, each emptied by so many arrivals."""

    @device_function
    def open_barriers(full, empty):
        for number in range(stages):
            make_barrier(u32(full + u32(8 * number)), u32(1))
            make_barrier(u32(empty + u32(8 * number)), u32(consumers))
        show_barriers()

    return open_barriers


def make_advance(stages: int) -> Any:
    """Device function: the stage after this one, and the parity to wait for there."""

    @device_function
    def advance(slot, parity):
        slot = u32(slot + u32(1))
        if slot == u32(stages):
            slot, parity = u32(0), u32(parity ^ u32(1))
        return slot, parity

    return advance
