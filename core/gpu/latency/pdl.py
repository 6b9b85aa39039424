"""Programmatic dependent launch (PDL): where a kernel waits for the previous one, and what it may load before.

Blocks of a dependent launch begin while the previous kernel runs. Before `wait_for_previous` they may only compute
addresses and load what no kernel of the graph writes, such as packed filters. The next kernel may begin behind the
wait. So at most two kernels share the GPU, and no L1 cache holds what a kernel two places later overwrites.
Loads behind the wait are ordered ones: the assembler may move a read-only load (``.nc``) in front of it.

Source: PTX ISA 8.x, 9.7.13.13 griddepcontrol; CUDA C++ Programming Guide, Programmatic Dependent Launch.
"""

from __future__ import annotations

from typing import Any

from core.gpu.compilation.pdl import LAUNCH_DEPENDENTS, WAIT
from core.gpu.compilation.ptx import instruction

wait_for_previous = instruction("wait_for_previous", f"{WAIT} {LAUNCH_DEPENDENTS}", "", "", memory=True)
"""Wait until the previous kernel has ended and its stores are visible; no wait in an ordinary launch."""


def _load(name: str, kind: str) -> Any:
    text = (
        "{.reg .pred p; setp.ne.u32 p, $5, 0; mov.b32 $0, 0; mov.b32 $1, 0; mov.b32 $2, 0; mov.b32 $3, 0; "
        f"@p ld.global{kind}.v4.u32 {{$0,$1,$2,$3}}, [$4];}}"
    )
    return instruction(name, text, "uuuu", "lu", memory=True)


load4_where = _load("load4_where", "")
"""16 bytes of global memory, ordered with this thread's stores; ``(address, real)``, zeros where not `real`."""

load4_constant_where = _load("load4_constant_where", ".nc")
"""`load4_where` of what no kernel of the graph writes."""
