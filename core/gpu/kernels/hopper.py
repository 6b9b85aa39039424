"""Hopper's own kernels from Python to the driver: the text that its instructions need, and one way to load them.

Numba's compiler knows neither the target sm_90a nor parameters of 128 bytes. Both are a few words of the PTX: the
target's name, and tensor maps as parameters that the copy engine reads where they are, so that a kernel's first box
waits for no fence and nothing in memory has to outlive a captured graph.
"""

from __future__ import annotations

import re
from typing import Any, Final

from core.gpu.cuda import compile_to_ptx, cuda, driver, types
from core.gpu.device import Function, check

CAPABILITY: Final = (9, 0)
MAP: Final = "tensor_map"
"""Kind of an argument that is a tensor map; the kernel sees its address."""


def ptx_for_hopper(kernel: Any, kinds: tuple[str, ...], threads: int, blocks: int = 1) -> tuple[str, str]:
    """(PTX, entry name) of a kernel; `kinds` names its arguments' types."""
    signature = tuple(types.uint64 if kind == MAP else getattr(types, kind) for kind in kinds)
    text, entry = compile_to_ptx(kernel, signature, CAPABILITY, (threads, blocks))
    text = re.sub(r"^\.version .*$", ".version 8.3", text, count=1, flags=re.MULTILINE)
    text = text.replace(".target sm_90", ".target sm_90a", 1)
    for i in (i for i, kind in enumerate(kinds) if kind == MAP):
        name = f"{entry}_param_{i}"
        text = text.replace(f".param .u64 {name}", f".param .align 64 .b8 {name}[128]", 1)
        load = rf"ld\.param\.u64\s+(%rd\d+), \[{name}\];"
        text = re.sub(load, rf"mov.b64 \1, {name};\n\tcvta.param.u64 \1, \1;", text)
    return text, entry


def load_for_hopper(kernel: Any, kinds: tuple[str, ...], threads: int) -> Function:
    """The kernel on the current GPU, which must be a Hopper."""
    text, entry = ptx_for_hopper(kernel, kinds, threads)
    cuda.current_context()  # the driver loads into it
    module = check(driver.cuModuleLoadData(text.encode() + b"\0"))
    return Function(check(driver.cuModuleGetFunction(module, entry.encode())), kinds)
