"""Teaching kernels: functions on arrays, launched as in CUDA Python. A launch is added to the plan of its arrays."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from math import prod
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from core.gpu.compilation.arrays import KINDS
from core.gpu.compilation.compiler import Recipe
from core.gpu.compilation.cuda import device_function
from core.gpu.launch import THREADS, blocks_of

if TYPE_CHECKING:
    from core.gpu.teaching.step_arrays import StepArrays

SHARED_BYTES: Final = 48 * 1024
"""Shared memory of a block on every GPU without an opt-in."""

Where: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], int]
"""Blocks, threads of a block, bytes of dynamic shared memory."""


def over(count: int, threads: int = THREADS) -> Where:
    """One thread for each of `count` items, `threads` a block."""
    return at((blocks_of(count, threads),), (threads,))


def at(grid: tuple[int, ...], block: tuple[int, ...], shared: int = 0) -> Where:
    return grid, block, shared


@dataclass(frozen=True, slots=True)
class DeviceArray:
    """A C-contiguous array of a plan, 4 bytes an element, as a teaching kernel's argument; `buffer` is its name in the
    arena, `owner` has the step whose launches read and write it."""

    owner: StepArrays
    address: int
    shape: tuple[int, ...]
    buffer: str = ""

    @property
    def size(self) -> int:
        return prod(self.shape)

    def reshape(self, *shape: int) -> DeviceArray:
        return DeviceArray(self.owner, self.address, shape, self.buffer)

    @property
    def words(self) -> tuple[int, ...]:
        """The words that the driver passes (`core.gpu.compilation.arrays`)."""
        strides = [4 * prod(self.shape[axis + 1 :]) for axis in range(len(self.shape))]
        return 0, 0, self.size, 4, self.address, *self.shape, *strides


def flat(array: DeviceArray) -> DeviceArray:
    return array.reshape(array.size)


def as_matrix(array: DeviceArray) -> DeviceArray:
    """The same memory, ``(..., C)`` as ``(everything else, C)``."""
    channels = array.shape[-1]
    return array.reshape(array.size // channels, channels)


class TeachingKernel:
    """A kernel on arrays. ``kernel[over(out.size)](x, out)`` adds its launch; annotations are the argument types.

    `resident` blocks must fit on a multiprocessor, which limits the registers per thread. `made_by`: the function of
    the module that returns the kernel, and its arguments; other kernels are variables of their module.
    """

    def __init__(self, function: Callable[..., None], resident: int = 1, made_by: tuple[str, ...] = ()) -> None:
        self.py_func, self.resident, self.made_by = function, resident, made_by

    @cached_property
    def parameters(self) -> tuple[tuple[str, str], ...]:
        """(name, type) of each parameter; an annotation is the name of a type, or the type where it was evaluated."""
        names: dict[Any, Any] = {kind: name for name, kind in KINDS.items()}
        return tuple((n, str(names.get(k, k))) for n, k in self.py_func.__annotations__.items() if n != "return")

    @property
    def types(self) -> tuple[str, ...]:
        return tuple(kind for _, kind in self.parameters)

    @cached_property
    def name(self) -> str:
        """Name of the variable of its module that holds it; not that of its function."""
        return next(n for n, value in vars(sys.modules[self.py_func.__module__]).items() if value is self)

    def recipe(self, threads: int) -> Recipe:
        module = self.py_func.__module__.removeprefix("core.gpu.")
        factory, constants = (self.made_by[0], self.made_by[1:]) if self.made_by else (self.name, ())
        return Recipe(module, factory, constants, self.types, threads, self.resident)

    def __getitem__(self, where: Where) -> Callable[..., None]:
        return partial(self._launch, where)

    def _launch(self, where: Where, *arguments: Any) -> None:
        arrays = [a for a in arguments if isinstance(a, DeviceArray)]
        values: list[Any] = []
        for kind, argument in zip(self.types, arguments, strict=True):
            several = argument.words if isinstance(argument, DeviceArray) else argument
            values += several if isinstance(several, tuple) else [several]
            dimensions = getattr(KINDS[kind], "ndim", 0)
            if dimensions != (len(argument.shape) if isinstance(argument, DeviceArray) else 0):
                raise TypeError(f"{self.py_func.__name__}: {kind} has {dimensions} dimensions, not {argument}")
        arrays[0].owner.add(self.recipe(prod(where[1])), where, tuple(values), arrays)


def kernel(function: Callable[..., None]) -> TeachingKernel:
    return TeachingKernel(function)


@device_function
def indices(i: int, shape: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    """The four indices of element `i` of an array; neighbouring elements differ in the last."""
    _, height, width, depth = shape
    row, y_and_n = i // depth, i // (depth * width)
    return y_and_n // height, y_and_n % height, row % width, i % depth
