"""Hopper, the generation with `wgmma` and TMA: the PTX that its own instructions need.

Numba's compiler knows neither the target sm_90a nor parameters of 128 bytes. Both are a few words of the PTX: the
target's name, and tensor maps as parameters that TMA reads where they are, so that a kernel's first tile
waits for no fence and nothing in memory has to outlive a captured graph.
"""

from __future__ import annotations

import re
from typing import Any, Final

from core.gpu.compilation.cuda import compile_to_ptx, types

CAPABILITY: Final = (9, 0)
MAP: Final = "tensor_map"
"""Kind of an argument that is a tensor map; the kernel sees its address."""


def ptx_for_hopper(kernel: Any, kinds: tuple[str, ...], threads: int, blocks: int = 1) -> tuple[str, str]:
    """(PTX, entry name) of a kernel; `kinds` names its arguments' types."""
    signature = tuple(types.uint64 if kind == MAP else getattr(types, kind) for kind in kinds)
    text, entry = compile_to_ptx(kernel, signature, CAPABILITY, (threads, blocks))
    text = re.sub(r"^\.version .*$", ".version 8.3", text, count=1, flags=re.MULTILINE)
    text = for_own_target(text)
    for i in (i for i, kind in enumerate(kinds) if kind == MAP):
        name = f"{entry}_param_{i}"
        text = text.replace(f".param .u64 {name}", f".param .align 64 .b8 {name}[128]", 1)
        load = rf"ld\.param\.u64\s+(%rd\d+), \[{name}\];"
        text = re.sub(load, rf"mov.b64 \1, {name};\n\tcvta.param.u64 \1, \1;", text)
    return text, entry


def for_own_target(ptx: str) -> str:
    """The same for sm_90a, the only target that knows `wgmma`."""
    return ptx.replace(".target sm_90", ".target sm_90a", 1)
