"""What the PTX of a kernel needs on each generation of GPUs.

**Turing** (7.5: GeForce GTX 16 and RTX 20, Tesla T4) has neither asynchronous copies nor tensor cores for float32. The
same kernels run there with every copy as a load and a store, and with products by ordinary multiply-adds
(`core.gpu.parts.tile.MULTIPLY["fma"]`), in float32 only. The ring of stages stays correct: a slot is filled only after
the barrier that ends its last use.

**Hopper** (9.0) needs the target sm_90a for `wgmma`, and for TMA parameters of 128 bytes. Numba's compiler knows
neither. As parameters, tensor maps need no fence, and no memory that outlives a captured graph.

**Programmatic dependent launch** (PDL, from 9.0): a launch may begin while the previous one runs. Its blocks are
scheduled, its code and arguments fetched, and they wait inside the kernel. A kernel without a wait of its own
(`core.gpu.latency.block`) gets one before its first access to memory.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, TypeAlias

Capability: TypeAlias = tuple[int, int]
TURING: Final[Capability] = (7, 5)
"""The oldest generation that the kernels are compiled for and tested with."""
AMPERE: Final[Capability] = (8, 0)
"""The first with asynchronous copies, bf16 and tf32."""
HOPPER: Final[Capability] = (9, 0)
"""The first with TMA, `wgmma` and `griddepcontrol`."""

MAP: Final = "tensor_map"
"""Kind of an argument that is a tensor map; the kernel sees its address."""

WAIT: Final = "griddepcontrol.wait;"
LAUNCH_DEPENDENTS: Final = "griddepcontrol.launch_dependents;"


def adapt(ptx: str, entry: str, kinds: Sequence[str], capability: Capability, dependent: bool) -> str:
    """The PTX for a compute capability; `kinds` has the type of each parameter, `dependent` adds a wait."""
    if capability < AMPERE:
        ptx = without_async_copies(ptx)
    if capability < HOPPER:
        ptx = ptx.replace(WAIT, "").replace(LAUNCH_DEPENDENTS, "")
    if MAP in kinds:
        ptx = _with_maps(ptx, entry, kinds)
    if MAP in kinds or "wgmma" in ptx:
        ptx = ptx.replace(".target sm_90", ".target sm_90a", 1)
    return _with_wait(ptx) if dependent and WAIT not in ptx else ptx


_COPY: Final = re.compile(r"cp\.async\.c[ag]\.shared\.global \[(%\w+)\], \[(%\w+)\], 16, (%\w+);")
_REST: Final = re.compile(r"cp\.async\.(commit_group|wait_group \d+);")
_LOAD_AND_STORE: Final = (
    r"{.reg .pred real; .reg .b32 a, b, c, d; mov.b32 a, 0; mov.b32 b, 0; mov.b32 c, 0; mov.b32 d, 0; "
    r"setp.ne.u32 real, \3, 0; @real ld.global.v4.u32 {a, b, c, d}, [\2]; st.shared.v4.u32 [\1], {a, b, c, d};}"
)
"""All 16 bytes or zeros: no kernel copies a part of them."""


def without_async_copies(ptx: str) -> str:
    return _REST.sub("", _COPY.sub(_LOAD_AND_STORE, ptx))


def _with_maps(ptx: str, entry: str, kinds: Sequence[str]) -> str:
    ptx = re.sub(r"^\.version .*$", ".version 8.3", ptx, count=1, flags=re.MULTILINE)
    for i in (i for i, kind in enumerate(kinds) if kind == MAP):
        name = f"{entry}_param_{i}"
        ptx = ptx.replace(f".param .u64 {name}", f".param .align 64 .b8 {name}[128]", 1)
        load = rf"ld\.param\.u64\s+(%rd\d+), \[{name}\];"
        ptx = re.sub(load, rf"mov.b64 \1, {name};\n\tcvta.param.u64 \1, \1;", ptx)
    return ptx


_HARMLESS: Final = re.compile(
    r"\s*($|\.|(//|(ld\.param|mov|cvta?|add|sub|mul|mad|sh[lr]|and|or|xor|setp|selp|min|max)\b))"
)
"""An empty line, a declaration, a comment, or an instruction that computes from arguments and registers alone."""


def _with_wait(ptx: str) -> str:
    """The kernel with a wait for the previous one, as late as its first lines allow; then the next one may begin.

    Loads through the read-only path become ordinary ones: the assembler could move them before the wait.
    """
    head, body = ptx.split(".visible .entry", 1)
    lines = body.split("\n")
    begin = lines.index("{") + 1
    at = next(i for i, line in enumerate(lines) if i >= begin and not _HARMLESS.match(line))
    lines[at:at] = [f"\t{WAIT}", f"\t{LAUNCH_DEPENDENTS}"]
    return head + ".visible .entry" + "\n".join(lines).replace("ld.global.nc.", "ld.global.")
