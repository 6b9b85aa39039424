"""Types of kernel arguments. Numba compiles from them, readers learn shapes from them.

All arrays are C-contiguous, float32 unless the name says otherwise, channels last. A Python number
passed at launch is an int64 or a float64, hence `Int` and `Float`.
"""

from typing import TYPE_CHECKING, Any, TypeAlias

from core.gpu.compilation.cuda import types

float32: Any = types.float32
float64: Any = types.float64
int32: Any = types.int32
int64: Any = types.int64
index: Any = types.uint32
"""An index that is never negative: Numba then leaves out the wrap-around of negative ones, which costs more than
the multiplication it serves (the tiled matrix product gains 1.6x by it)."""

if TYPE_CHECKING:
    Batch: TypeAlias = Any
    Filters: TypeAlias = Any
    Cube: TypeAlias = Any
    Matrix: TypeAlias = Any
    Vector: TypeAlias = Any
    Labels: TypeAlias = Any
    Halves: TypeAlias = Any
    Float: TypeAlias = float
    Int: TypeAlias = int
    Pair: TypeAlias = tuple[int, int]
else:
    Batch = float32[:, :, :, ::1]  # (N, H, W, C)
    Filters = float32[:, :, :, ::1]  # (O, KH, KW, C)
    Cube = float32[:, :, ::1]  # (slices, rows, columns)
    Matrix = float32[:, ::1]  # (rows, columns)
    Vector = float32[::1]
    Labels = int32[::1]
    Halves = types.uint16[::1]  # bits of bf16
    Float = float64
    Int = int64
    Pair = types.UniTuple(int64, 2)  # (vertical, horizontal)
