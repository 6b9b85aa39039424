"""Which vector instructions the kernels use: chosen by what the processor has, or forced by a variable."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import llvmlite.binding
import numba

from core.errors import DeviceError
from core.storage import NO_ROOM
from core.user_cache import kept, make_kernel_folder, passing, user_kernel_folder

VARIABLE: Final = "LEAFCLINIC_CPU"


@final
@dataclass(frozen=True, slots=True)
class InstructionSet:
    """A vector width (floats) with the micro-kernel's tile sizes: vectors wide -> rows high.

    `tile_heights[v]` lists the heights for which a tile of v vectors is compiled; v * height accumulators,
    v filter vectors and one broadcast must fit the registers. `tile_heights[0]` is the depthwise tile, one
    vector wide, whose A is a vector too. `masks`: a masked store costs no more than a plain one; where it does
    (20 cycles on Zen 3 with AVX2, branches without) every tile exists once more for whole vectors.

    `call_cycles`: what a tile costs besides its multiply-adds (prologue, epilogue, call). `again_cycles`: what it
    costs, for each float of A, to go through A once more for columns in tiles of another width.
    """

    name: str
    vector_width: int
    tile_heights: Mapping[int, tuple[int, ...]]
    assembly: bool
    masks: bool
    call_cycles: float
    again_cycles: float


INSTRUCTION_SETS: Final = {
    # 32 registers: 6 x 4 + 4 + 1 = 29, 14 x 2 + 2 + 1 = 31. Cycles measured on Zen 5.
    "avx512": InstructionSet(
        "avx512",
        16,
        {
            4: (1, 2, 3, 4, 5, 6), 2: (1, 2, 4, 7, 8, 12, 13, 14), 1: (1, 2, 4, 7, 8, 12, 13, 14),
            0: (1, 2, 3, 4, 7, 8, 14),
        },
        assembly=True, masks=True, call_cycles=40.0, again_cycles=0.0,
    ),
    # 16 registers: 4 x 3 + 3 + 1 = 16, 6 x 2 + 2 + 1 = 15, 12 x 1 + 1 + 1 = 14. Cycles measured on Zen 3.
    "avx2": InstructionSet(
        "avx2",
        8,
        {3: (1, 2, 3, 4), 2: (1, 2, 3, 4, 5, 6), 1: (1, 2, 4, 7, 8, 12), 0: (1, 2, 3, 4, 7, 8, 14)},
        assembly=True, masks=False, call_cycles=14.0, again_cycles=0.4,
    ),
    # SSE2 and NEON have 16 and 32 registers of 4 floats; plain vector IR, no assembly.
    "portable": InstructionSet(
        "portable",
        4,
        {2: (1, 2, 3, 4, 5, 6), 1: (1, 2, 4, 8), 0: (1, 2, 3, 4, 8)},
        assembly=False, masks=False, call_cycles=40.0, again_cycles=0.0,
    ),
}  # fmt: skip


def problem(name: str, features: Mapping[str, bool]) -> str | None:
    """Why the processor cannot run the isa, or None."""
    needed = {"avx512": ("avx512f", "avx512vl", "avx512bw", "avx512dq"), "avx2": ("avx2", "fma"), "portable": ()}
    missing = [feature for feature in needed[name] if not features.get(feature)]
    if missing:
        return f"This processor has no {', '.join(missing)}, which the {name} kernels need."
    return None


def choose_isa(wanted: str, features: Mapping[str, bool]) -> InstructionSet:
    """The isa by name, or the widest the processor has. Raises DeviceError with a sentence."""
    if wanted:
        if wanted not in INSTRUCTION_SETS:
            known = ", ".join(INSTRUCTION_SETS)
            raise DeviceError(f"{VARIABLE}={wanted} is not one of {known}. Unset it or use one of these.")
        reason = problem(wanted, features)
        if reason is not None:
            raise DeviceError(f"{VARIABLE}={wanted} cannot be used. {reason} Unset the variable.")
        return INSTRUCTION_SETS[wanted]
    return next(isa for name, isa in INSTRUCTION_SETS.items() if problem(name, features) is None)


@functools.cache
def current_isa() -> InstructionSet:
    """The isa of this process, fixed by the first call."""
    return choose_isa(os.environ.get(VARIABLE, ""), llvmlite.binding.get_host_cpu_features())


KERNEL_SOURCES: Final = (
    "activation", "atomics", "batch_norm", "depthwise_row", "elementwise", "entry", "im2col", "instruction_set", "loss",
    "maximum", "memory", "microkernel", "naive", "packing", "peak", "photo", "pixels", "pooling", "tiled", "update",
    "vectors", "execution",
)  # fmt: skip
"""Modules whose text decides what is compiled."""


@functools.cache
def kernel_home() -> Path | None:
    """Where compiled kernels are kept for the next start, or None where nothing can be. Raises InputError where other
    users can write there: Numba's cache is pickles, so they could have their code run."""
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    return kept(lambda: make_kernel_folder(Path(chosen) / "leafclinic") if chosen else user_kernel_folder())


@functools.cache
def cache_folder() -> Path:
    """Where compiled kernels are kept: one folder per isa and state of the sources.

    Numba keys its cache by the source file of a function and the processor, not by the modules the
    function uses nor by variables; with their text in the folder's name a stale kernel cannot run.
    """
    digest = hashlib.sha256(numba.__version__.encode())
    for name in KERNEL_SOURCES:
        digest.update(Path(__file__).with_name(f"{name}.py").read_bytes())
    name = f"{current_isa().name}-{digest.hexdigest()[:16]}"
    home = kernel_home()
    folder = kept(lambda: make_kernel_folder(home / name)) if home else None
    return folder or passing() / name


def cached(decorate: Callable[..., Any], *arguments: Any, **options: Any) -> Callable[[Any], Any]:
    """A Numba decorator whose cache lies in `cache_folder`. Where that is full, compiled code is not kept: like that of
    a user without such a folder it is made anew at each start, and `core.doctor` says so."""

    def wrap(function: Any) -> Any:
        before = numba.config.CACHE_DIR
        numba.config.CACHE_DIR = str(cache_folder())
        try:
            return decorate(*arguments, cache=True, **options)(function)
        except OSError as error:  # compiled, but not written
            if error.errno not in NO_ROOM:
                raise
            return decorate(*arguments, **options)(function)
        finally:
            numba.config.CACHE_DIR = before

    return wrap
