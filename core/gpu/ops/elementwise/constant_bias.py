"""A bias added to every pixel, read from global or from constant memory; the order of axes decides which is faster.

Constant memory broadcasts one word per cycle to all lanes of a warp. With channels first, neighbouring lanes read the
same bias in one cycle; with channels last, they read 32 different ones, one after another.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from core.gpu.compilation.arrays import Int, Vector, index
from core.gpu.compilation.cuda import cuda
from core.ops.contract import Array


@cuda.jit
def from_global(x: Vector, bias: Vector, out: Vector, channels: Int, pixels: Int) -> None:
    """Flat arrays; `pixels` neighbours share a channel: 1 where channels are last."""
    i = index(cuda.grid(1))
    if i < x.size:
        out[i] = x[i] + bias[index(index(i // index(pixels)) % index(channels))]


def make_from_constant(bias: Array) -> Any:
    """The same kernel with the bias, up to 64 KB, compiled into constant memory."""
    values = np.ascontiguousarray(bias, np.float32)

    @cuda.jit
    def from_constant(x: Vector, out: Vector, channels: Int, pixels: Int) -> None:
        table = cuda.const.array_like(values)
        i = index(cuda.grid(1))
        if i < x.size:
            out[i] = x[i] + table[index(index(i // index(pixels)) % index(channels))]

    return from_constant
