"""Machine code of the register tiles: generated from their IR without Numba, and kept in the folder of kernels.

The IR is written as LLVM's optimizer would leave it, so it only needs code generation. That takes a fifth of the time
of Numba's pipeline, and all kernels share the result: they call a tile by its address.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import threading
from pathlib import Path
from typing import Any, Final

import llvmlite.binding as llvm
import numpy as np
import numpy.typing as npt
from llvmlite import ir

from core.cpu.instruction_set import INSTRUCTION_SETS, InstructionSet, cache_folder
from core.cpu.microkernel import WHOLE, add_tile, tile_shapes
from core.errors import StorageError
from core.storage import write_file

NAME: Final = "tile_code.tiles"
"""Start of the file name, before the hash of the processor; also the name in `core.cpu.precompilation`."""
DIGEST: Final = hashlib.sha256().digest_size
"""Bytes of the hash at the start of the file. Damaged code is generated again, not run."""
_ENGINES: Final = list[Any]()
"""Keeps the loaded code in memory."""
_LOADING: Final = threading.Lock()


def tile_table(name: str) -> npt.NDArray[np.int64]:
    """Return the addresses of an instruction set's tiles by shape (`core.cpu.microkernel.make_tile`), 0 for none.

    All callers get one array, in threads too: records hold its address.
    """
    with _LOADING:
        return _load_table(name)


@functools.cache
def _load_table(name: str) -> npt.NDArray[np.int64]:
    isa = INSTRUCTION_SETS[name]
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3, jit=True
    )
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(_object_code(isa, machine)))
    engine.finalize_object()
    _ENGINES.append(engine)
    table = np.zeros(2 * WHOLE, np.int64)
    for vectors, rows, whole in tile_shapes(isa):
        table[whole * WHOLE + vectors * 64 + rows] = engine.get_function_address(_name(vectors, rows, whole))
    return table


def code_file(name: str) -> Path:
    """Return the file of the tiles' code of an instruction set on this processor."""
    processor = f"{name} {llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()} {llvm.llvm_version_info}"
    return cache_folder() / f"{NAME}-{hashlib.sha256(processor.encode()).hexdigest()[:16]}.o"


def _object_code(isa: InstructionSet, machine: Any) -> bytes:
    """Return the object file from the cache, or a new one."""
    file = code_file(isa.name)
    with contextlib.suppress(OSError):
        kept = file.read_bytes()
        if hashlib.sha256(kept[DIGEST:]).digest() == kept[:DIGEST]:
            return kept[DIGEST:]
    code = bytes(machine.emit_object(llvm.parse_assembly(str(_module(isa)))))
    with contextlib.suppress(StorageError):  # a full disk: the next start generates it again
        write_file(file, hashlib.sha256(code).digest() + code)
    return code


def _module(isa: InstructionSet) -> ir.Module:
    module = ir.Module()
    module.triple = llvm.get_process_triple()
    if isa.assembly:
        llvm.initialize_native_asmparser()  # without it LLVM aborts the process at inline assembly
    for vectors, rows, whole in tile_shapes(isa):
        add_tile(module, isa, _name(vectors, rows, whole), vectors, rows, whole)
    return module


def _name(vectors: int, rows: int, whole: bool) -> str:
    return f"tile_{vectors}x{rows}" + "_whole" * whole
