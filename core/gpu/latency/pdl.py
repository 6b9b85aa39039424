"""Programmatic dependent launch (PDL): where a kernel waits for the previous one, and what it may load before.

Blocks of a dependent launch begin while the previous kernel runs. Before `wait_for_previous` they may only compute
addresses and load what no kernel of the graph writes, such as packed filters. The next kernel may begin behind the
wait. So at most two kernels share the GPU, and no L1 cache holds what a kernel two places later overwrites.
Loads behind the wait are ordered ones: the assembler may move a read-only load (``.nc``) in front of it.

Source: PTX ISA 8.x, 9.7.13.13 griddepcontrol; CUDA C++ Programming Guide, Programmatic Dependent Launch.
"""

from __future__ import annotations

from typing import Any

from core.gpu.compilation.cuda import intrinsic, types
from core.gpu.compilation.pdl import LAUNCH_DEPENDENTS, WAIT
from core.gpu.compilation.ptx import instruction

_u, _l = types.uint32, types.uint64


@intrinsic
def wait_for_previous(context):
    """Wait until the previous kernel has ended and its stores are visible; no wait in an ordinary launch."""
    return instruction(f"{WAIT} {LAUNCH_DEPENDENTS}", [], [], True, True)


def _load(kind: str) -> Any:
    text = (
        "{.reg .pred p; setp.ne.u32 p, $5, 0; mov.b32 $0, 0; mov.b32 $1, 0; mov.b32 $2, 0; mov.b32 $3, 0; "
        f"@p ld.global{kind}.v4.u32 {{$0,$1,$2,$3}}, [$4];}}"
    )
    return instruction(text, [_u] * 4, [_l, _u], True, True)


@intrinsic
def load4_where(context, address, real):
    """16 bytes of global memory, ordered with this thread's stores; zeros where not `real`."""
    return _load("")


@intrinsic
def load4_constant_where(context, address, real):
    """`load4_where` of what no kernel of the graph writes."""
    return _load(".nc")
