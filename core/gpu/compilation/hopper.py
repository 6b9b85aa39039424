"""Hopper, the generation with `wgmma` and TMA: the PTX that its own instructions need.

Numba's compiler knows neither the target sm_90a nor parameters of 128 bytes. Both are a few words of the PTX: the
target's name, and tensor maps as parameters that TMA reads where they are, so that a kernel's first tile
waits for no fence and nothing in memory has to outlive a captured graph.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

MAP: Final = "tensor_map"
"""Kind of an argument that is a tensor map; the kernel sees its address."""


def with_maps(ptx: str, entry: str, kinds: Sequence[str]) -> str:
    """The kernel's PTX with tensor maps as parameters; `kinds` names the type of each."""
    ptx = re.sub(r"^\.version .*$", ".version 8.3", ptx, count=1, flags=re.MULTILINE)
    for i in (i for i, kind in enumerate(kinds) if kind == MAP):
        name = f"{entry}_param_{i}"
        ptx = ptx.replace(f".param .u64 {name}", f".param .align 64 .b8 {name}[128]", 1)
        load = rf"ld\.param\.u64\s+(%rd\d+), \[{name}\];"
        ptx = re.sub(load, rf"mov.b64 \1, {name};\n\tcvta.param.u64 \1, \1;", ptx)
    return ptx


def for_own_target(ptx: str) -> str:
    """The same for sm_90a, the only target that knows `wgmma`."""
    return ptx.replace(".target sm_90", ".target sm_90a", 1)
