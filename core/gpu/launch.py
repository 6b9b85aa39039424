"""One kernel launch as data, and the arrays it works on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Final, NamedTuple

from core.gpu.arguments import KernelSignature
from core.gpu.compilation.compiler import Constant, Recipe

RELU: Final = {"": 0, "relu": 1, "relu6": 2}
"""Activations by the number that kernels take as argument."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """Activations ``(N, height, width, channels)``; `pitch`: elements, of `element` bytes, from a pixel to the next."""

    address: int
    height: int
    width: int
    channels: int
    pitch: int
    element: int

    @property
    def row_pitch(self) -> int:
        return self.width * self.pitch

    @property
    def image_pitch(self) -> int:
        return self.height * self.row_pitch

    @property
    def vector(self) -> int:
        """Elements in 16 bytes."""
        return 16 // self.element

    @property
    def padded(self) -> int:
        """Channels, rounded up to 16 bytes."""
        return -(-self.channels // self.vector) * self.vector

    @property
    def vectors(self) -> int:
        """16-byte vectors per pixel."""
        return self.padded // self.vector

    def first_of(self, slices: int) -> Tensor:
        """The first of equal slices of the channels."""
        return replace(self, channels=self.channels // slices)

    def pixel_values(self, images: int) -> dict[str, int]:
        """Values of `core.gpu.arguments.PIXELS`."""
        area, vectors = self.height * self.width, self.vectors
        return {
            "total": images * area * vectors, "vectors": vectors, "by_vectors": vectors, "by_area": area,
            "by_columns": self.width, "area": area, "columns": self.width,
        }  # fmt: skip

    def side_values(self, out: Tensor) -> dict[str, int]:
        """Values of `core.gpu.arguments.SIDES` for windows of this tensor."""
        sides = {"height": self.height, "width": self.width, "ho": out.height, "wo": out.width}
        return {**sides, "ldx": self.pitch, "ldo": out.pitch}


class Target(NamedTuple):
    """How a gradient is written: masked by an activation, and added or not."""

    mask: Tensor | None = None
    masking: str = ""
    accumulate: bool = False

    @property
    def values(self) -> dict[str, int]:
        """Values of `core.gpu.arguments.MASK` and `MASKING`, and the mask's pitch."""
        mask = self.mask
        return {
            "mask": mask.address if mask else 0, "ldm": mask.pitch if mask else 0,
            "masking": RELU[self.masking] if mask else 0, "accumulate": int(self.accumulate),
        }  # fmt: skip

    @property
    def passes(self) -> int:
        """Accesses per element: written, read to add, its mask read."""
        return 1 + int(self.accumulate) + (self.mask is not None)


PLAIN: Final = Target()
"""A result that is neither masked nor added, as in the forward pass."""


@dataclass(frozen=True, slots=True)
class Launch:
    """How a kernel is made (`recipe`), grid, block, bytes of dynamic shared memory (`shared`), arguments (`values`).

    Launches of `stream` 1 overlap those of stream 0; each starts after the stream-0 launches before it. `join` waits
    for all of stream 1.
    """

    layer: str
    direction: str
    recipe: Recipe
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    values: tuple[Any, ...]
    flops: int = 0
    bytes: int = 0
    stream: int = 0
    join: bool = False
    dependent: bool = False
    """Whether it may begin before the previous launch has ended (`core.gpu.compilation.generations`)."""

    @property
    def kernel(self) -> str:
        """Name of the kernel in timings: its function, or the factory ``make_NAME``, in the recipe's module."""
        return self.recipe.factory.removeprefix("make_")


INTERVAL: Final = 6
"""Launches of stream 0 in an interval; stream 0 waits for the work of stream 1 two intervals earlier."""


def intervals_of(launches: Sequence[Launch]) -> list[int]:
    """The interval of each launch: stream 0 begins interval i + 2 after the work of stream 1 in interval i."""
    intervals, count = [], 0
    for launch in launches:
        count += launch.stream == 0
        intervals.append(count // INTERVAL)
    return intervals


def blocks_of(count: int, size: int) -> int:
    """Blocks of `size` that cover `count`."""
    return -(-count // size)


THREADS: Final = 256
"""Threads per block of a kernel with one thread per vector."""
RESIDENT: Final = 3
"""Blocks of these that must fit on a multiprocessor, to hide the latency of loads."""
SUM_BLOCKS: Final = 4
"""Blocks per multiprocessor for sums over pixels."""


def make_launch(
    layer: str, direction: str, factory: Callable[..., Any], constants: tuple[Constant, ...],
    signature: KernelSignature, values: Mapping[str, Any], grid: tuple[int, ...], block: tuple[int, ...] = (THREADS,),
    shared: int = 0, moved: int = 0, resident: int = RESIDENT, **more: Any,
) -> Launch:  # fmt: skip
    """A launch with arguments by name; `factory` makes the kernel from the constants, and is it where there are none.

    Grid and block are 1 along the axes that they lack. `moved`: the fewest bytes moved.
    """
    module = factory.__module__.removeprefix("core.gpu.")
    recipe = Recipe(module, factory.__name__, constants, signature.types, prod(block), resident)
    return Launch(
        layer, direction, recipe, three(grid), three(block), shared, signature.pack(**values), bytes=moved, **more
    )


def three(sides: tuple[int, ...]) -> tuple[int, int, int]:
    """Sides along three axes, 1 along those that are missing."""
    x, y, z = (*sides, 1, 1)[:3]
    return x, y, z


WIDEST: Final = 64
"""Most threads of a row (`vectors_per_row`)."""
BUSY: Final = 0.9
"""Share of the threads of whole warps that is enough: rows of two threads keep all busy, at half the bandwidth."""


def vectors_per_row(vectors: int, threads: int) -> int:
    """Width of the rows in which a block's threads share a pixel's vectors.

    The largest divisor of `vectors` that leaves few threads of whole warps idle.
    """
    widths = [w for w in range(min(vectors, WIDEST, threads), 0, -1) if vectors % w == 0]

    def busy(wide: int) -> float:
        used = threads // wide * wide
        return used / (-(-used // 32) * 32)

    return next((wide for wide in widths if busy(wide) >= BUSY), widths[0])
