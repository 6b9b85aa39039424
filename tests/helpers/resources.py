"""What a kernel needs of a GPU that need not be there: its PTX, registers, stack and spills.

Numba compiles to PTX from the types in the kernel's annotations (`core.gpu.compilation.arrays`);
nvJitLink, which comes with the CUDA wheels, holds the same assembler as the driver and reports.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias, get_type_hints

from core.gpu.compilation.cuda import compile_to_ptx

Capability: TypeAlias = tuple[int, int]

CAPABILITIES: Final[tuple[Capability, ...]] = ((7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0))
"""Turing, Ampere (data centre, desktop), Ada, Hopper, Blackwell (data centre, desktop)."""


@dataclass(frozen=True, slots=True)
class Resources:
    """Per thread: registers, and bytes of stack and spills (both should be 0); shared bytes per block."""

    registers: int
    stack: int
    spills: int
    shared: int


def kernel_ptx(kernel: Any, capability: Capability) -> str:
    """PTX of a `cuda.jit` kernel for a compute capability; argument types from its annotations."""
    hints = get_type_hints(kernel.py_func)
    code = kernel.py_func.__code__
    types = tuple(hints[name] for name in code.co_varnames[: code.co_argcount])
    return compile_to_ptx(kernel.py_func, types, capability, kernel.targetoptions.get("launch_bounds"))[0]


def assemble(ptx: str, capability: Capability) -> Resources:
    """Resources of the one kernel in `ptx`. Raises ImportError where nvJitLink is not installed."""
    own = "a" if ".target sm_90a" in ptx else ""  # with the instructions that only this generation has
    return _read(assembler_log(ptx, f"sm_{capability[0]}{capability[1]}{own}"))


def check_registers(ptx: str, capability: Capability) -> Resources:
    """A kernel's resources; neither an array nor a spilled register of it is in local memory."""
    assert ".local" not in ptx, "an array went to local memory"
    resources = assemble(ptx, capability)
    assert (resources.stack, resources.spills) == (0, 0)
    return resources


def check_overlapping(ptx: str) -> None:
    """The same for a kernel with `wgmma`, whose products the assembler leaves overlapping."""
    assert ".target sm_90a" in ptx
    assert "Potential Performance Loss" not in assembler_log(ptx, "sm_90a")
    check_registers(ptx, (9, 0))


@lru_cache(maxsize=1)
def assembler_log(ptx: str, architecture: str) -> str:
    """What the assembler says of `ptx`: resources, and warnings about lost performance. The last answer is kept: it
    takes up to 3 s, and whoever asks for the warnings asks for the resources too."""
    from cuda.bindings import nvjitlink

    options = [f"-arch={architecture}", "-verbose", "-Xptxas=-v"]
    handle = nvjitlink.create(len(options), options)
    try:
        source = ptx.encode()
        nvjitlink.add_data(handle, nvjitlink.InputType.PTX, source, len(source), "kernel")
        nvjitlink.complete(handle)
        log = bytearray(nvjitlink.get_info_log_size(handle))
        nvjitlink.get_info_log(handle, log)
    finally:
        nvjitlink.destroy(handle)
    return log.decode()


def _read(log: str) -> Resources:
    def number(pattern: str) -> int:
        found = re.findall(pattern, log)
        return max((int(value) for value in found), default=0)

    return Resources(registers=number(r"Used (\d+) registers"), stack=number(r"(\d+) bytes stack frame"),
                     spills=number(r"(\d+) bytes spill stores"), shared=number(r"(\d+) bytes smem"))  # fmt: skip
