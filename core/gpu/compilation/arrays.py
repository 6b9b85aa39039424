"""Types of the arguments of teaching kernels: arrays, as Numba compiles them and as the driver passes them.

All arrays are C-contiguous, float32 unless the name says otherwise, channels last. Numba passes an array as words of
8 bytes: two that are zero here, elements, bytes of one, address, then sizes and strides; a pair as its two numbers.
A group of arguments (`core.gpu.arguments.Group`), of kind "name:type name:type", is a named tuple of its fields.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from core.gpu.compilation.cuda import types

float32: Any = types.float32
float64: Any = types.float64
int32: Any = types.int32
int64: Any = types.int64
index: Any = types.uint32
"""An index that is never negative: Numba then omits the wrap-around of negative ones, which is slow."""

KINDS: Final[Mapping[str, Any]] = {
    "Batch": float32[:, :, :, ::1],  # (N, H, W, C)
    "Filters": float32[:, :, :, ::1],  # (O, KH, KW, C)
    "Cube": float32[:, :, ::1],  # (slices, rows, columns)
    "Matrix": float32[:, ::1],  # (rows, columns)
    "Vector": float32[::1],
    "Integers": int32[::1],
    "Float": float64,
    "Int": int64,
    "Pair": types.UniTuple(int64, 2),  # type: ignore[attr-defined]  # (vertical, horizontal)
    "divisor": types.UniTuple(types.uint32, 2),  # type: ignore[attr-defined]  # (multiplier, shift)
}
"""Types by the name in the annotations, and in `Recipe.types`."""

if TYPE_CHECKING:
    Batch: TypeAlias = Any
    Filters: TypeAlias = Any
    Cube: TypeAlias = Any
    Matrix: TypeAlias = Any
    Vector: TypeAlias = Any
    Integers: TypeAlias = Any
    Float: TypeAlias = float
    Int: TypeAlias = int
    Pair: TypeAlias = tuple[int, int]
else:
    globals().update(KINDS)


def type_of(kind: str) -> Any:
    if ":" in kind:
        fields = [field.split(":") for field in kind.split()]
        group = namedtuple("Group", [name for name, _ in fields])  # type: ignore[misc]  # names known at run time
        return types.NamedTuple([type_of(kind) for _, kind in fields], group)  # type: ignore[attr-defined]
    return KINDS.get(kind) or getattr(types, kind)


def words(kind: str) -> tuple[str, ...]:
    """Types of the words in which the driver passes an argument of a kind; of other kinds, the kind itself."""
    if ":" in kind:
        return tuple(word for field in kind.split() for word in words(field.split(":")[1]))
    if kind not in KINDS:
        return (kind,)
    if kind in ("Float", "Int"):
        return ("float64" if kind == "Float" else "int64",)
    if kind in ("Pair", "divisor"):
        return ("int64" if kind == "Pair" else "uint32",) * 2
    return ("int64",) * (5 + 2 * int(KINDS[kind].ndim))
