"""Compiles kernels from Python to PTX, which is kept in the user's cache folder by the hash of its source.

A kernel takes long to compile and a network needs some twenty, so missing ones are compiled in parallel in child
processes (Numba compiles one at a time within a process). ``python -m core.gpu.compilation.compiler MAJOR.MINOR``
compiles the recipes that it reads as JSON lines.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, TypeAlias

from core.child_process import child_environment, module_command
from core.cores import usable_cores
from core.gpu.compilation import generations
from core.gpu.compilation.generations import Capability
from core.storage import write_file
from core.user_cache import user_kernel_folder

Constant: TypeAlias = str | int | bool | tuple[int, ...]

ALONE: Final = 3
"""Most kernels that are compiled in this process: starting another costs a second."""

SOURCES: Final = (
    *(f"gpu/{name}/**/*.py" for name in ("compilation", "parts", "ops", "sm90", "latency", "teaching")),
    "gpu/control.py", "gpu/launch.py", "ops/activation.py", "ops/dropout.py", "ops/photo.py", "program.py",
)
"""Files of core with device code, and with numbers that it contains."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to make one kernel: ``getattr(module, factory)(*constants)``, or the function itself without constants.

    `module` is relative to `core.gpu` ("ops.pool.max_pool"); `types` are those of the kernel's arguments, by name;
    `threads` per block and `resident` blocks per multiprocessor bound its registers. `dependent`: the kernel may begin
    before the previous one has ended (programmatic dependent launch, `core.gpu.compilation.generations`).
    """

    module: str
    factory: str
    constants: tuple[Constant, ...]
    types: tuple[str, ...]
    threads: int
    resident: int = 1
    dependent: bool = False

    def function(self) -> Any:
        made = getattr(importlib.import_module(f"core.gpu.{self.module}"), self.factory)
        return made(*self.constants) if self.constants else made


def compile_recipes(recipes: Sequence[Recipe], capability: Capability) -> dict[Recipe, tuple[str, str]]:
    """(PTX, entry name) of each recipe, from the cache if possible."""
    missing = [r for r in recipes if not _path(r, capability).exists()]
    if len(missing) > ALONE:
        _compile_apart(missing, capability)
    for recipe in missing:  # what another process failed to compile fails here, with its own error
        if not _path(recipe, capability).exists():
            _compile(recipe, capability)
    return {r: _read(_path(r, capability)) for r in recipes}


def compile_kernel(recipe: Recipe, capability: Capability) -> tuple[str, str]:
    """Compile a recipe. Returns (PTX, entry name)."""
    from core.gpu.compilation.arrays import type_of, words  # numba.cuda costs a second: only to compile
    from core.gpu.compilation.cuda import compile_to_ptx, types

    signature = tuple(types.uint64 if kind == generations.MAP else type_of(kind) for kind in recipe.types)
    made, bounds = recipe.function(), (recipe.threads, recipe.resident)
    plain = getattr(made, "py_func", made)  # of a teaching kernel
    ptx, entry = compile_to_ptx(plain, signature, capability, bounds, fast=plain is made)
    kinds = [word for kind in recipe.types for word in words(kind)]
    return generations.adapt(ptx, entry, kinds, capability, recipe.dependent), entry


def _compile(recipe: Recipe, capability: Capability) -> None:
    ptx, entry = compile_kernel(recipe, capability)
    write_file(_path(recipe, capability), f"// {entry}\n{ptx}")


def _compile_apart(recipes: Sequence[Recipe], capability: Capability) -> None:
    """Compile in as many processes as this one may use cores."""
    workers = min(len(recipes), usable_cores())
    command = module_command("core.gpu.compilation.compiler", f"{capability[0]}.{capability[1]}")
    running = []
    for first in range(workers):
        process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, env=child_environment())
        assert process.stdin is not None
        process.stdin.write("".join(_to_line(r) for r in recipes[first::workers]))
        process.stdin.close()
        running.append(process)
    for process in running:
        process.wait()


def _read(path: Path) -> tuple[str, str]:
    text = path.read_text(encoding="utf-8")
    head, ptx = text.split("\n", 1)
    return ptx, head.removeprefix("// ")


def _path(recipe: Recipe, capability: Capability) -> Path:
    key = hashlib.sha256(f"{source_hash()} {_to_line(recipe)} {capability}".encode()).hexdigest()[:24]
    return user_kernel_folder() / f"{recipe.module}-{key}.ptx"


@cache
def source_hash() -> str:
    """Hash of all SOURCES, since kernels use each other's device functions."""
    files = (file for pattern in SOURCES for file in sorted(Path(__file__).parents[2].glob(pattern)))
    text = b"".join(file.read_bytes() for file in files)
    return hashlib.sha256(text + version("numba-cuda").encode()).hexdigest()


def _to_line(recipe: Recipe) -> str:
    return json.dumps(astuple(recipe)) + "\n"


def _from_line(line: str) -> Recipe:
    module, factory, constants, types, threads, resident, dependent = json.loads(line)
    plain = tuple(tuple(a) if isinstance(a, list) else a for a in constants)
    return Recipe(module, factory, plain, tuple(types), threads, resident, dependent)


def main(capability: str, lines: Iterable[str]) -> None:
    """Compile every recipe of `lines` for a capability written "9.0"."""
    major, minor = (int(part) for part in capability.split("."))
    for line in lines:
        _compile(_from_line(line), (major, minor))


if __name__ == "__main__":
    main(sys.argv[1], sys.stdin)
