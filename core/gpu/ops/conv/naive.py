"""Convolution, naive: one thread per element of the result. NHWC images, OHWI filters, any kernel, stride and groups.

The levels after it are in `shared.py`, `im2col.py` and `implicit_gemm.py`. A depthwise convolution has as many groups
as channels, and a dense layer is a 1x1 convolution of one pixel.
"""

from __future__ import annotations

from core.gpu.compilation.arrays import Batch, Filters, Int, Pair, Vector, float32
from core.gpu.compilation.cuda import cuda
from core.gpu.teaching.kernel import indices, kernel


@kernel
def naive_forward(x: Batch, weight: Filters, bias: Vector, out: Batch, stride: Pair, pad: Pair, groups: Int) -> None:
    """One thread per output. Neighbouring threads have neighbouring filters: x is broadcast."""
    i = cuda.grid(1)
    if i >= out.size:
        return
    n, row, column, o = indices(i, out.shape)
    depth = weight.shape[3]
    channel = o // (weight.shape[0] // groups) * depth
    total = bias[o]
    for ky in range(weight.shape[1]):
        y = row * stride[0] - pad[0] + ky
        if 0 <= y < x.shape[1]:
            for kx in range(weight.shape[2]):
                z = column * stride[1] - pad[1] + kx
                if 0 <= z < x.shape[2]:
                    for c in range(depth):
                        total += x[n, y, z, channel + c] * weight[o, ky, kx, c]
    out[n, row, column, o] = total


@kernel
def naive_backward_input(dy: Batch, weight: Filters, dx: Batch, stride: Pair, pad: Pair, groups: Int) -> None:
    """One thread per input element gathers from every output whose window contains it (no atomics)."""
    i = cuda.grid(1)
    if i >= dx.size:
        return
    n, y, z, c = indices(i, dx.shape)
    filters = weight.shape[0] // groups  # of a group
    first = c // weight.shape[3] * filters
    total = float32(0)
    for ky in range(weight.shape[1]):
        row, rest = (y + pad[0] - ky) // stride[0], (y + pad[0] - ky) % stride[0]
        if rest == 0 and 0 <= row < dy.shape[1]:
            for kx in range(weight.shape[2]):
                column, rest = (z + pad[1] - kx) // stride[1], (z + pad[1] - kx) % stride[1]
                if rest == 0 and 0 <= column < dy.shape[2]:
                    for o in range(first, first + filters):
                        total += dy[n, row, column, o] * weight[o, ky, kx, c % weight.shape[3]]
    dx[n, y, z, c] = total


@kernel
def naive_backward_weight(x: Batch, dy: Batch, dweight: Filters, stride: Pair, pad: Pair, groups: Int) -> None:
    """One thread per weight loops over all pixels of all images: few threads, long loops."""
    i = cuda.grid(1)
    if i >= dweight.size:
        return
    o, ky, kx, c = indices(i, dweight.shape)
    channel = o // (dweight.shape[0] // groups) * dweight.shape[3] + c
    total = float32(0)
    for n in range(dy.shape[0]):
        for row in range(dy.shape[1]):
            y = row * stride[0] - pad[0] + ky
            if 0 <= y < x.shape[1]:
                for column in range(dy.shape[2]):
                    z = column * stride[1] - pad[1] + kx
                    if 0 <= z < x.shape[2]:
                        total += dy[n, row, column, o] * x[n, y, z, channel]
    dweight[o, ky, kx, c] = total
