"""Convolution, from one thread per output up. NHWC photos, OHWI filters, any kernel and stride.

- naive:       this file. One thread per element of the result, all reads from global memory
- shared:      `shared.py`. A block keeps its part of the input (with its border) and of the filters
               in shared memory and uses each of them many times
- im2col:      `im2col.py`. Windows unfolded into a matrix, then the tiled product of `ops/dense/product.py`
- tensor_core: `implicit_gemm.py`. The same product without the unfolded matrix, on the matrix units

Each level has three kernels: forward, the gradient of the input, the gradient of the filters. The naive ones compute
convolutions in groups, too, and depthwise ones, which have as many groups as channels.
"""

from __future__ import annotations

from core.gpu.compilation.arrays import Batch, Filters, Int, Pair, Vector, float32
from core.gpu.compilation.cuda import cuda
from core.gpu.teaching.kernel import kernel


@kernel
def naive_forward(x: Batch, weight: Filters, bias: Vector, out: Batch, stride: Pair, pad: Pair, groups: Int) -> None:
    """One thread per output. Neighbouring threads have neighbouring filters: x is broadcast, weight is not."""
    i = cuda.grid(1)
    if i >= out.size:
        return
    filters, depth = weight.shape[0], weight.shape[3]
    o = i % filters
    column = i // filters % out.shape[2]
    row = i // (filters * out.shape[2]) % out.shape[1]
    n = i // (filters * out.shape[2] * out.shape[1])
    channel = o // (filters // groups) * depth
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
    """One thread per input element gathers from every output whose window saw it (no atomics)."""
    i = cuda.grid(1)
    if i >= dx.size:
        return
    channels, each = dx.shape[3], weight.shape[0] // groups
    c = i % channels
    z = i // channels % dx.shape[2]
    y = i // (channels * dx.shape[2]) % dx.shape[1]
    n = i // (channels * dx.shape[2] * dx.shape[1])
    first = c // weight.shape[3] * each
    total = float32(0)
    for ky in range(weight.shape[1]):
        row, rest = (y + pad[0] - ky) // stride[0], (y + pad[0] - ky) % stride[0]
        if rest == 0 and 0 <= row < dy.shape[1]:
            for kx in range(weight.shape[2]):
                column, rest = (z + pad[1] - kx) // stride[1], (z + pad[1] - kx) % stride[1]
                if rest == 0 and 0 <= column < dy.shape[2]:
                    for o in range(first, first + each):
                        total += dy[n, row, column, o] * weight[o, ky, kx, c % weight.shape[3]]
    dx[n, y, z, c] = total


@kernel
def naive_backward_weight(x: Batch, dy: Batch, dweight: Filters, stride: Pair, pad: Pair, groups: Int) -> None:
    """One thread per weight loops over all pixels of all images: few threads, long loops."""
    i = cuda.grid(1)
    if i >= dweight.size:
        return
    filters, height, width, depth = dweight.shape
    c = i % depth
    kx = i // depth % width
    ky = i // (depth * width) % height
    o = i // (depth * width * height)
    channel = o // (filters // groups) * depth + c
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
