"""The instruction set of the kernels, the widest of the processor or forced by a variable, and the kernel cache."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import llvmlite.binding
import numba

from core.errors import DeviceError
from core.storage import NO_ROOM
from core.user_cache import find_writable, make_kernel_folder, make_temporary_folder, user_kernel_folder

VARIABLE: Final = "LEAFCLINIC_CPU"


@dataclass(frozen=True, slots=True)
class InstructionSet:
    """A vector width (floats) and the tile sizes of the micro-kernel.

    `tile_heights[v]`: heights, in rows, for which a tile of v vectors is compiled; v * height accumulators,
    v filter vectors and one broadcast must fit the registers. `tile_heights[0]` is the depthwise tile, one
    vector wide, whose A is a vector too. `masks`: a masked store costs no more than a plain one; otherwise
    (20 cycles on Zen 3 with AVX2, branches without) every tile is compiled a second time for whole vectors.

    `call_cycles`: overhead of a tile besides its multiply-adds (prologue, epilogue, call). `again_cycles`: cost, for
    each float of A, of reading A again for columns in tiles of another width.
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
        "avx512", 16,
        {4: (1, 2, 3, 4, 5, 6), 2: (1, 2, 4, 7, 8, 12, 13, 14), 1: (1, 2, 4, 7, 8, 12, 13, 14),
         0: (1, 2, 3, 4, 7, 8, 14)},
        assembly=True, masks=True, call_cycles=40.0, again_cycles=0.0,
    ),
    # 16 registers: 4 x 3 + 3 + 1 = 16, 6 x 2 + 2 + 1 = 15, 12 x 1 + 1 + 1 = 14. Cycles measured on Zen 3.
    "avx2": InstructionSet(
        "avx2", 8,
        {3: (1, 2, 3, 4), 2: (1, 2, 3, 4, 5, 6), 1: (1, 2, 4, 7, 8, 12), 0: (1, 2, 3, 4, 7, 8, 14)},
        assembly=True, masks=False, call_cycles=14.0, again_cycles=0.4,
    ),
    # SSE2 and NEON have 16 and 32 registers of 4 floats; plain vector IR, no assembly.
    "portable": InstructionSet(
        "portable", 4,
        {2: (1, 2, 3, 4, 5, 6), 1: (1, 2, 4, 8), 0: (1, 2, 3, 4, 8)},
        assembly=False, masks=False, call_cycles=40.0, again_cycles=0.0,
    ),
}  # fmt: skip


def problem(name: str, features: Mapping[str, bool]) -> str | None:
    """Return why the processor cannot run the instruction set, or None."""
    needed = {"avx512": ("avx512f", "avx512vl", "avx512bw", "avx512dq"), "avx2": ("avx2", "fma"), "portable": ()}
    missing = [feature for feature in needed[name] if not features.get(feature)]
    if missing:
        return f"This processor has no {', '.join(missing)}, which the {name} kernels need."
    return None


def choose_isa(wanted: str, features: Mapping[str, bool]) -> InstructionSet:
    """Return the instruction set by name, or the widest the processor has. Raises DeviceError."""
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
    """Return the instruction set of this process, which the first call fixes."""
    return choose_isa(os.environ.get(VARIABLE, ""), llvmlite.binding.get_host_cpu_features())


KERNEL_SOURCES: Final = (
    "activation", "atomics", "batch_norm", "context", "convolution", "depthwise", "elementwise", "execution", "im2col",
    "instruction_set", "loss", "memory", "microkernel", "naive", "optimizer", "photo", "pooling",
    "records", "tile_code", "tiled", "timing", "vectors", "../ops/photo", "../program",
)  # fmt: skip
"""Modules whose source or numbers determine the compiled code."""


@functools.cache
def kernel_home() -> Path | None:
    """Return the folder of compiled kernels, or None where none can be written.

    Raises InputError where other users can write to it: Numba's cache consists of pickles, through which they could
    run their code.
    """
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    return find_writable(lambda: make_kernel_folder(Path(chosen) / "leafclinic") if chosen else user_kernel_folder())


@functools.cache
def cache_folder() -> Path:
    """Return the folder of the kernels compiled for this instruction set from these sources.

    Numba keys its cache by the source file of a function and the processor, not by the modules the
    function uses nor by environment variables; a hash of the sources in the folder's name
    keeps stale kernels from running.
    """
    digest = hashlib.sha256(numba.__version__.encode())
    for name in KERNEL_SOURCES:
        digest.update((Path(__file__).parent / f"{name}.py").read_bytes())
    name = f"{current_isa().name}-{digest.hexdigest()[:16]}"
    home = kernel_home()
    folder = find_writable(lambda: make_kernel_folder(home / name)) if home else None
    return folder or make_temporary_folder() / name


def cached(decorate: Callable[..., Any], *arguments: Any, **options: Any) -> Callable[[Any], Any]:
    """Apply a Numba decorator with its cache in `cache_folder`.

    Where the disk is full, compiled code is not kept and is compiled again at each start; `core.doctor` reports that.
    Numba does not sync its files: those that a power failure damaged are removed and written again.
    """

    def wrap(function: Any) -> Any:
        before = numba.config.CACHE_DIR
        numba.config.CACHE_DIR = str(cache_folder())
        try:
            return decorate(*arguments, cache=True, **options)(function)
        except OSError as error:  # compiled, but not saved
            if error.errno not in NO_ROOM:
                raise
            return decorate(*arguments, **options)(function)
        except Exception:  # noqa: BLE001 - a damaged pickle raises any
            for file in cache_folder().glob(f"*/{function.__module__.rpartition('.')[2]}.{function.__name__}-*"):
                file.unlink(missing_ok=True)
            return decorate(*arguments, cache=True, **options)(function)
        finally:
            numba.config.CACHE_DIR = before

    return wrap
