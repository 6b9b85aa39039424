"""One kernel launch as data, the arrays it works on, and a kernel's arguments by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Final, NamedTuple, final

from core.gpu.compilation.compiler import Argument as Constant
from core.gpu.compilation.compiler import Recipe
from core.gpu.parts.vectors import fast_divisor

RELU: Final = {"": 0, "relu": 1, "relu6": 2}
"""Activations by the number that kernels take as argument."""


@final
@dataclass(frozen=True, slots=True)
class Tensor:
    """Activations ``(N, height, width, channels)`` on the device; pitches in elements, channels padded to 16 bytes."""

    address: int
    height: int
    width: int
    channels: int
    pitch: int
    element: int
    row: int = 0
    photo: int = 0

    @property
    def row_pitch(self) -> int:
        return self.row or self.width * self.pitch

    @property
    def image_pitch(self) -> int:
        return self.photo or self.height * self.row_pitch

    @property
    def vector(self) -> int:
        """Elements in 16 bytes."""
        return 16 // self.element

    @property
    def padded(self) -> int:
        """Channels, rounded up to 16 bytes."""
        return -(-self.channels // self.vector) * self.vector

    def first_of(self, slices: int) -> Tensor:
        """The first of equal slices of the channels."""
        return replace(self, channels=self.channels // slices)


class Target(NamedTuple):
    """How a gradient is written: masked by an activation, and added or not."""

    mask: Tensor | None = None
    masking: str = ""
    accumulate: bool = False

    @property
    def values(self) -> dict[str, int]:
        """Values of the arguments `MASK` and `MASKING`, and the mask's pitch."""
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

POINTER: Final = "uint64"
INTEGER: Final = "int32"
DIVISOR: Final = "divisor"
"""A divisor prepared by `fast_divisor`, as `core.gpu.parts.vectors.divide` takes it."""


@final
@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a kernel: a type of `core.gpu.compilation.cuda.types` or `DIVISOR`, and its meaning."""

    name: str
    type: str
    meaning: str


def arguments(kind: str, /, **meanings: str) -> tuple[Argument, ...]:
    """Arguments of one type: a keyword is the name, its value the meaning."""
    return tuple(Argument(name, kind, meaning) for name, meaning in meanings.items())


def pitches(**tensors: str) -> tuple[Argument, ...]:
    """Elements from a pixel of each tensor to the next; a keyword is the argument's name, its value the tensor."""
    return tuple(Argument(name, INTEGER, f"elements from a pixel of {of} to the next") for name, of in tensors.items())


def divisions(**divisors: str) -> tuple[Argument, ...]:
    """Fast divisions, ``by_NAME`` for each keyword; its value says what the divisor is."""
    return tuple(Argument(f"by_{name}", DIVISOR, f"division by {what}") for name, what in divisors.items())


@final
@dataclass(frozen=True, slots=True)
class Group:
    """Arguments that several kernels share: such a kernel has one parameter for them, a named tuple."""

    name: str
    arguments: tuple[Argument, ...]

    @property
    def type(self) -> str:
        """Names and types of the fields; `core.gpu.compilation.arrays` makes the type of the tuple."""
        return " ".join(f"{argument.name}:{argument.type}" for argument in self.arguments)


MASKING: Final = (
    Argument("masking", INTEGER, "activation that `mask` is the output of (`core.gpu.launch.RELU`)"),
    Argument("accumulate", INTEGER, "1 adds to out"),
)
MASK: Final = Argument("mask", POINTER, "output of the activation whose gradient is applied; 0 for none")
"""What kernels take of a `Target`, together with the pitch of the mask."""


PIXELS: Final = Group("pixels", (
    Argument("total", INTEGER, "vectors (16 bytes) in all, one per thread"),
    Argument("vectors", INTEGER, "vectors per pixel"),
    *divisions(vectors="`vectors`", area="`area`", columns="`columns`"),
    Argument("area", INTEGER, "pixels per image; in the gradient of a max pool blocks of stride x stride pixels"),
    Argument("columns", INTEGER, "pixels per row"),
))  # fmt: skip
"""The pixels of a kernel with one thread per vector of each (`core.gpu.parts.vectors.find_pixel`)."""

PADDING: Final = arguments(INTEGER, top="padding above", left="padding on the left")
"""What kernels over windows take of their padding, where its other sides follow from the sizes."""

SIDES: Final = Group("sides", (
    Argument("height", INTEGER, "rows of x or dx"),
    Argument("width", INTEGER, "columns of x or dx"),
    Argument("ho", INTEGER, "rows of out or dy"),
    Argument("wo", INTEGER, "columns of out or dy"),
    *pitches(ldx="x or dx", ldo="out or dy"),
))  # fmt: skip
"""Both sides of a kernel over windows."""


def pixel_values(images: int, height: int, width: int, vectors: int) -> dict[str, int]:
    """Values of `PIXELS`."""
    return {
        "total": images * height * width * vectors, "vectors": vectors, "by_vectors": vectors,
        "by_area": height * width, "by_columns": width, "area": height * width, "columns": width,
    }  # fmt: skip


def side_values(x: Tensor, out: Tensor) -> dict[str, int]:
    """Values of `SIDES`."""
    return {"height": x.height, "width": x.width, "ho": out.height, "wo": out.width, "ldx": x.pitch, "ldo": out.pitch}


@final
@dataclass(frozen=True, slots=True)
class KernelSignature:
    """A kernel's arguments, declared once: types for the compiler, packing by name, and their documentation."""

    arguments: tuple[Argument | Group, ...]

    @property
    def flat(self) -> tuple[Argument, ...]:
        """Every argument, with those of the groups, in the order in which the driver passes them."""
        return tuple(one for a in self.arguments for one in (a.arguments if isinstance(a, Group) else (a,)))

    @property
    def kinds(self) -> tuple[str, ...]:
        """Types of the kernel function's parameters, for `Recipe.kinds`."""
        return tuple(argument.type for argument in self.arguments)

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the kernel function's parameters; a test compares them with the function."""
        return tuple(argument.name for argument in self.arguments)

    def pack(self, **values: Any) -> tuple[Any, ...]:
        """Values in the order of the parameters; a `DIVISOR` is given as a number. Raises TypeError on a wrong name."""
        names = {argument.name for argument in self.flat}
        if set(values) != names:
            raise TypeError(f"missing {sorted(names - set(values))}, unknown {sorted(set(values) - names)}")
        packed: list[Any] = []
        for argument in self.flat:
            value = values[argument.name]
            packed.extend(fast_divisor(value) if argument.type == DIVISOR else (value,))
        return tuple(packed)


@final
@dataclass(frozen=True, slots=True)
class Launch:
    """A launch: kernel, grid, block, dynamic shared memory and arguments, and its names in timings.

    Launches of `stream` 1 overlap those of stream 0; each starts after the stream-0 launches before it. `join` waits
    for all of stream 1.
    """

    layer: str
    direction: str
    kernel: str
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


WINDOW: Final = 6
"""Launches of stream 0 in a window; stream 0 waits for the work of stream 1 two windows earlier."""


def windows_of(launches: Sequence[Launch]) -> list[int]:
    """The window of each launch: stream 0 begins window w + 2 after the work of stream 1 in window w."""
    windows, count = [], 0
    for launch in launches:
        count += launch.stream == 0
        windows.append(count // WINDOW)
    return windows


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
    layer: str, direction: str, kernel: str, factory: Callable[..., Any], constants: tuple[Constant, ...],
    signature: KernelSignature, values: Mapping[str, Any], grid: tuple[int, ...], block: tuple[int, ...] = (THREADS,),
    shared: int = 0, moved: int = 0, resident: int = RESIDENT, **more: Any,
) -> Launch:  # fmt: skip
    """A launch with arguments by name; `factory` makes the kernel from the constants, and is it where there are none.

    Grid and block are 1 along the axes that they lack. `moved`: the fewest bytes moved.
    """
    module = factory.__module__.removeprefix("core.gpu.")
    recipe = Recipe(module, factory.__name__, constants, signature.kinds, prod(block), resident)
    return Launch(
        layer, direction, kernel, recipe, three(grid), three(block), shared, signature.pack(**values), bytes=moved,
        **more,
    )  # fmt: skip


def three(sides: tuple[int, ...]) -> tuple[int, int, int]:
    """Sides along three axes, 1 along those that are missing."""
    x, y, z = (*sides, 1, 1)[:3]
    return x, y, z


def vectors_of(t: Tensor) -> int:
    """16-byte vectors per pixel."""
    return t.padded // t.vector


WIDEST: Final = 64
"""Most threads of a row (`vectors_per_row`)."""
BUSY: Final = 0.9
"""Share of the threads of whole warps that is enough: rows of two threads keep all busy, at half the bandwidth."""


def vectors_per_row(vectors: int, threads: int, widest: int = WIDEST) -> int:
    """Width of the rows in which a block's threads share a pixel's vectors.

    The largest divisor of `vectors` that leaves few threads of whole warps idle.
    """
    widths = [w for w in range(min(vectors, widest, threads), 0, -1) if vectors % w == 0]

    def busy(wide: int) -> float:
        used = threads // wide * wide
        return used / (-(-used // 32) * 32)

    return next((wide for wide in widths if busy(wide) >= BUSY), widths[0])
