"""Convolution with tiles in shared memory: each float read from global memory is used many times.

A block of 32 x 8 threads computes 8 x 8 pixels of 32 channels. It stages, a few channels at a time, the pixels of its
windows (with the border) and the filters. A thread has the sums of one row of eight pixels in registers, so that a
filter tap read from shared memory is used eight times. The gradient of the input is the same loop over dy with rotated
filters; a stride puts zeros between the pixels of dy.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.compilation.arrays import Batch, Filters, Int, Matrix, Pair, Vector, float32, index
from core.gpu.compilation.cuda import cuda
from core.gpu.launch import blocks_of
from core.gpu.teaching.candidates import geometry, groups
from core.gpu.teaching.column_sums import launch_bias_gradient, sum_rows
from core.gpu.teaching.kernel import SHARED_BYTES, at, flat, kernel, over
from core.gpu.teaching.step_arrays import StepArrays
from core.ops.registry import KernelCase
from core.ops.window import read_window

LANES: Final = 32
"""Channels of a block: a warp writes 128 contiguous bytes."""
PATCH: Final = 8
"""A block's pixels are PATCH x PATCH; a thread has one row of them."""
SIDE: Final = 16
"""The filters' gradient: tiles of 16 filters x 16 channels, 16 pixels at a time."""
SLICE_PIXELS: Final = 4096
"""Pixels that a block of the filters' gradient sums; 16 images of 54 x 54 make 12 slices."""


def make_shared(forward: bool) -> Any:
    """Kernel for the output from x, or the gradient of the input from dy, with rotated taps.

    Grid: (patches of `out`, groups of 32 of its channels, images); `chunk` channels of x at a time.
    """

    @kernel
    def shared(x: Batch, weight: Filters, bias: Vector, out: Batch, stride: Pair, pad: Pair, chunk: Int) -> None:
        memory = cuda.shared.array(0, float32)
        lane, line = cuda.threadIdx.x, cuda.threadIdx.y
        height, width = weight.shape[1], weight.shape[2]
        down, right = (stride[0], stride[1]) if forward else (1, 1)
        tall, wide = (PATCH - 1) * down + height, (PATCH - 1) * right + width
        filters_at = tall * wide * chunk  # the filters are behind the pixels: (taps, chunk, 32)
        across = (out.shape[2] + PATCH - 1) // PATCH
        row0 = cuda.blockIdx.x // across * PATCH
        column0 = cuda.blockIdx.x % across * PATCH
        mine, n = cuda.blockIdx.y * LANES + lane, cuda.blockIdx.z
        total = cuda.local.array(PATCH, float32)
        for p in range(PATCH):
            total[p] = bias[mine] if forward and mine < out.shape[3] else float32(0)
        for c0 in range(0, x.shape[3], chunk):
            for i in range(line * LANES + lane, tall * wide * chunk, LANES * PATCH):
                c = c0 + i % chunk
                if forward:
                    y, z = row0 * down - pad[0] + i // chunk // wide, column0 * right - pad[1] + i // chunk % wide
                    on = c < x.shape[3]
                else:  # a stride puts zeros between the gradient's pixels
                    y = row0 + pad[0] - (height - 1) + i // chunk // wide
                    z = column0 + pad[1] - (width - 1) + i // chunk % wide
                    on = y % stride[0] == 0 and z % stride[1] == 0 and c < x.shape[3]
                    y, z = y // stride[0], z // stride[1]
                inside = on and 0 <= y < x.shape[1] and 0 <= z < x.shape[2]
                memory[i] = x[n, y, z, c] if inside else float32(0)
            for i in range(line, height * width * chunk, PATCH):
                c, tap = c0 + i % chunk, i // chunk
                o, k = (mine, c) if forward else (c, mine)
                inside = mine < out.shape[3] and c < x.shape[3]
                memory[filters_at + i * LANES + lane] = (
                    weight[o, tap // width, tap % width, k] if inside else float32(0)
                )
            cuda.syncthreads()  # pixels and filters are staged
            step = right * chunk  # from one pixel of a thread to the next
            for tap in range(height * width):
                ky, kx = tap // width, tap % width
                if not forward:
                    ky, kx = height - 1 - ky, width - 1 - kx
                at = ((line * down + ky) * wide + kx) * chunk
                for c in range(chunk):
                    w = memory[index(filters_at + (tap * chunk + c) * LANES + lane)]
                    for p in range(PATCH):
                        total[p] += memory[index(at + p * step + c)] * w
            cuda.syncthreads()  # no thread reads them any more
        for p in range(PATCH):
            if row0 + line < out.shape[1] and column0 + p < out.shape[2] and mine < out.shape[3]:
                out[n, row0 + line, column0 + p, mine] = total[p]

    return shared


shared_forward: Final = make_shared(True)
shared_backward_input: Final = make_shared(False)


@kernel
def shared_backward_weight(
    x: Batch, dy: Batch, partials: Matrix, weight: Filters, stride: Pair, pad: Pair, pixels: Int
) -> None:
    """Grid: (tiles of filters x channels, taps, slices of `pixels` pixels); `weight` only lends its shape."""
    dy_tile = cuda.shared.array((SIDE, SIDE), float32)  # (pixel, filter)
    x_tile = cuda.shared.array((SIDE, SIDE), float32)  # (pixel, channel)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    filters, _, width, depth = weight.shape
    across = (depth + SIDE - 1) // SIDE
    o0 = cuda.blockIdx.x // across * SIDE
    c0 = cuda.blockIdx.x % across * SIDE
    ky, kx = cuda.blockIdx.y // width, cuda.blockIdx.y % width
    rows, columns = dy.shape[1], dy.shape[2]
    first = cuda.blockIdx.z * pixels
    last = min(first + pixels, dy.shape[0] * rows * columns)
    total = float32(0)
    for pixel0 in range(first, last, SIDE):
        pixel = pixel0 + ty
        n, row, column = pixel // (rows * columns), pixel // columns % rows, pixel % columns
        y = row * stride[0] - pad[0] + ky
        z = column * stride[1] - pad[1] + kx
        dy_tile[ty, tx] = dy[n, row, column, o0 + tx] if pixel < last and o0 + tx < filters else float32(0)
        inside = 0 <= y < x.shape[1] and 0 <= z < x.shape[2] and pixel < last and c0 + tx < depth
        x_tile[ty, tx] = x[n, y, z, c0 + tx] if inside else float32(0)
        cuda.syncthreads()  # sixteen pixels are staged
        for p in range(SIDE):
            total += dy_tile[p, index(ty)] * x_tile[p, index(tx)]
        cuda.syncthreads()  # no thread reads them any more
    if o0 + ty < filters and c0 + tx < depth:
        partials[cuda.blockIdx.z, ((o0 + ty) * weight.shape[1] * width + cuda.blockIdx.y) * depth + c0 + tx] = total


def _chunk(case: KernelCase, forward: bool) -> tuple[int, int]:
    """(channels staged at a time, shared bytes); 0 channels where even one does not fit."""
    window = read_window(case.attributes)
    tile = 1
    for size, stride in zip(window.kernel, window.stride, strict=True):
        tile *= (PATCH - 1) * (stride if forward else 1) + size
    each = 4 * (tile + window.kernel[0] * window.kernel[1] * LANES)
    chunk = min(SHARED_BYTES // 2 // each or SHARED_BYTES // each, 16)
    depth = case.inputs[0][-1] if forward else case.output[-1]
    chunk = min(chunk, depth)
    return chunk, chunk * each


def refuse(case: KernelCase) -> str:
    if groups(case) > 1:
        return "The shared level convolves all channels at once; it has no groups."
    if not min(_chunk(case, True)[0], _chunk(case, False)[0]):
        return f"A kernel of {case.attributes['kernel']} does not fit into {SHARED_BYTES // 1024} KB of shared memory."
    return ""


def launch_shared(forward: bool, case: KernelCase, arrays: StepArrays) -> None:
    kernel, (chunk, size) = shared_forward if forward else shared_backward_input, _chunk(case, forward)
    x, out = (arrays[role] for role in (("x", "out") if forward else ("dy", "dx")))
    bias = arrays["bias"] if forward else arrays.zeros(1)
    images, height, width, channels = out.shape
    grid = (blocks_of(height, PATCH) * blocks_of(width, PATCH), blocks_of(channels, LANES), images)
    kernel[at(grid, (LANES, PATCH), size)](x, arrays["weight"], bias, out, *geometry(case), chunk)


def launch_shared_backward_weight(case: KernelCase, arrays: StepArrays) -> None:
    x, dy, dweight = arrays["x"], arrays["dy"], arrays["dweight"]
    filters, height, width, depth = dweight.shape
    slices = blocks_of(dy.size // filters, SLICE_PIXELS)
    partials = arrays.scratch("weight slices", (slices, dweight.size))
    grid = (blocks_of(filters, SIDE) * blocks_of(depth, SIDE), height * width, slices)
    shared_backward_weight[at(grid, (SIDE, SIDE))](x, dy, partials, dweight, *geometry(case), SLICE_PIXELS)
    sum_rows[over(dweight.size)](partials, flat(dweight))
    launch_bias_gradient(arrays)
