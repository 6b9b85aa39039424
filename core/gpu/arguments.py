"""A kernel's arguments, declared once by name: types for the compiler, packing, and their documentation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from core.gpu.compilation.generations import MAP
from core.gpu.parts.vectors import fast_divisor

POINTER: Final = "uint64"
INTEGER: Final = "int32"
DIVISOR: Final = "divisor"
"""A divisor prepared by `fast_divisor`, as `core.gpu.parts.vectors.divide` takes it."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a kernel: a type of `core.gpu.compilation.cuda.types` or `DIVISOR`, and its meaning."""

    name: str
    type: str
    meaning: str


def arguments(kind: str, /, **meanings: str) -> tuple[Argument, ...]:
    """Arguments of one type: a keyword is the name, its value the meaning."""
    return tuple(Argument(name, kind, meaning) for name, meaning in meanings.items())


pointers: Final = partial(arguments, POINTER)
ints: Final = partial(arguments, INTEGER)
tensor_maps: Final = partial(arguments, MAP)
"""`arguments` of the most frequent types, and of tensor maps (`core.gpu.driver.tensor_map`)."""


def pitches(**tensors: str) -> tuple[Argument, ...]:
    """Elements from a pixel of each tensor to the next; a keyword is the argument's name, its value the tensor."""
    return tuple(Argument(name, INTEGER, f"elements from a pixel of {of} to the next") for name, of in tensors.items())


def divisions(**divisors: str) -> tuple[Argument, ...]:
    """Fast divisions, ``by_NAME`` for each keyword; its value says what the divisor is."""
    return tuple(Argument(f"by_{name}", DIVISOR, f"division by {what}") for name, what in divisors.items())


@dataclass(frozen=True, slots=True)
class Group:
    """Arguments that several kernels share: such a kernel has one parameter for them, a named tuple."""

    name: str
    arguments: tuple[Argument, ...]

    @property
    def type(self) -> str:
        """Names and types of the fields; `core.gpu.compilation.arrays` makes the type of the tuple."""
        return " ".join(f"{argument.name}:{argument.type}" for argument in self.arguments)


ACTIVATION: Final = Argument("activation", INTEGER, "applied to what is written (`core.gpu.launch.RELU`)")
CONTROL: Final = Argument("control", POINTER, "control block of the step (`core.gpu.control`)")

MASKING: Final = ints(
    masking="activation that `mask` is the output of (`core.gpu.launch.RELU`)", accumulate="1 adds to out"
)
MASK: Final = Argument("mask", POINTER, "output of the activation whose gradient is applied; 0 for none")
"""What kernels take of a `core.gpu.launch.Target`, together with the pitch of the mask."""

VECTORS: Final = (
    *ints(total="vectors (16 bytes) in all, one per thread", vectors="vectors per pixel"),
    *divisions(vectors="`vectors`"),
)  # fmt: skip
"""The vectors of a kernel with one thread for each (`core.gpu.parts.vectors.find_vector`)."""

PIXELS: Final = Group("pixels", (
    *VECTORS, *divisions(area="`area`", columns="`columns`"),
    *ints(area="pixels per image; in the gradient of a max pool blocks of stride x stride pixels",
          columns="pixels per row"),
))  # fmt: skip
"""The pixels of a kernel with one thread per vector of each (`core.gpu.parts.vectors.find_pixel`)."""

PADDING: Final = ints(top="padding above", left="padding on the left")
"""What kernels over windows take of their padding, where its other sides follow from the sizes."""

SIZES: Final = ints(
    height="rows of x or dx", width="columns of x or dx", ho="rows of out or dy", wo="columns of out or dy"
)
SIDES: Final = Group("sides", (*SIZES, *pitches(ldx="x or dx", ldo="out or dy")))
"""Both sides of a kernel over windows."""

STRIPS: Final = Group("strips", (
    *ints(groups="groups of channels per pixel", wide="groups per block",
          items="work items: images x strips x pairs of columns", pairs="pairs of columns",
          per_image="strips of rows per image", rows="rows per strip"),
    *divisions(pairs="`pairs`", per_image="`per_image`"),
    *SIZES,
    *pitches(ldx="x"),
))  # fmt: skip
"""The strips of a depthwise convolution."""

@dataclass(frozen=True, slots=True)
class KernelSignature:
    """A kernel's arguments, declared once: types for the compiler, packing by name, and their documentation."""

    arguments: tuple[Argument | Group, ...]

    @property
    def flat(self) -> tuple[Argument, ...]:
        """Every argument, with those of the groups, in the order in which the driver passes them."""
        return tuple(one for a in self.arguments for one in (a.arguments if isinstance(a, Group) else (a,)))

    @property
    def types(self) -> tuple[str, ...]:
        """Types of the kernel function's parameters, for `core.gpu.compilation.compiler.Recipe`."""
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
