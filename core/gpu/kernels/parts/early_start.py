"""A kernel that starts before the one in front of it has ended: what its code must say, and what it may load then.

Source: PTX ISA 8.x, section 9.7.13 (griddepcontrol). Blocks launched early wait for the kernel in front, all of it and
what it wrote, at one place; until then they may only work out addresses and load what no kernel of the graph writes,
such as packed filters. The next kernel is let in behind that place: so at most two kernels share the GPU, and nobody's
first-level cache holds what a kernel two places ahead overwrites. Loads behind it are ordered ones: the assembler may
move a load of the read-only kind in front of it.
"""

from __future__ import annotations

from typing import Any

from core.gpu.compilation.cuda import intrinsic, types
from core.gpu.compilation.early import LET_NEXT_START, WAIT
from core.gpu.compilation.ptx import instruction

_u, _l = types.uint32, types.uint64


@intrinsic
def wait_for_previous(context):
    """Go on when the kernel in front has ended and its stores are seen; at once if it was not launched early."""
    return instruction(f"{WAIT} {LET_NEXT_START}", [], [], True, True)


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
