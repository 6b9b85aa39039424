"""The block size of a convolution with tiles in shared memory, as the earlier work wrote it: 8x8 to 32x32 threads."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from numba import float32

from core.gpu.compilation.cuda import cuda
from core.gpu.prepared import current_stream
from core.laboratory.timing import time_on_device

BLOCKS = (8, 16, 24, 32)


def block_sizes(batch: int) -> Iterator[tuple[str, float]]:
    """Milliseconds of a 3x3 convolution of 64 channels at 54 pixels by the simple kernel in blocks of N x N threads."""
    side, channels = 54, 64
    rng = np.random.default_rng(0)
    x = cuda.to_device(rng.standard_normal((batch, side + 2, side + 2, channels), np.float32))
    weight = cuda.to_device(rng.standard_normal((channels, 3, 3, channels), np.float32))
    out = cuda.to_device(np.full((batch, side, side, channels), np.nan, np.float32))
    first = None
    for block in BLOCKS:
        kernel = blocked_convolution(block)
        run = partial(launch_blocked, kernel, block, x, weight, out)
        milliseconds = time_on_device(run)
        result = out.copy_to_host()
        first = result if first is None else first
        assert np.allclose(result, first, rtol=1e-3, atol=1e-3), block
        yield f"shared memory, {block}x{block} threads", milliseconds


def launch_blocked(kernel: Any, block: int, x: Any, weight: Any, out: Any) -> None:
    n, rows, columns, channels = out.shape
    grid = -(-(n * rows * columns) // block), -(-channels // block)
    kernel[grid, (block, block), current_stream()](x, weight, out)


def blocked_convolution(block: int) -> Any:
    """One output per thread, (pixel, channel) in blocks of N x N, tiles of N channels of x and filters in shared
    memory: the original's kernel."""
    pitch = block + 1

    @cuda.jit  # type: ignore[untyped-decorator]
    def convolve(x: Any, weight: Any, out: Any) -> None:
        pixels = cuda.shared.array((block, pitch), float32)
        filters = cuda.shared.array((block, pitch), float32)
        i, j = cuda.threadIdx.y, cuda.threadIdx.x
        pixel, o = cuda.blockIdx.x * block + i, cuda.blockIdx.y * block + j
        mine = cuda.blockIdx.y * block + i  # the filter that this thread stages
        rows, columns, depth = out.shape[1], out.shape[2], x.shape[3]
        n, y, z = pixel // (rows * columns), pixel // columns % rows, pixel % columns
        total = float32(0)
        for ky in range(weight.shape[1]):
            for kx in range(weight.shape[2]):
                for c0 in range(0, depth, block):
                    c = c0 + j
                    here = pixel < out.shape[0] * rows * columns and c < depth
                    pixels[i, j] = x[n, y + ky, z + kx, c] if here else float32(0)
                    filters[i, j] = weight[mine, ky, kx, c] if mine < out.shape[3] and c < depth else float32(0)
                    cuda.syncthreads()
                    for k in range(block):
                        total += pixels[i, k] * filters[j, k]
                    cuda.syncthreads()
        if pixel < out.shape[0] * rows * columns and o < out.shape[3]:
            out[n, y, z, o] = total

    return convolve
