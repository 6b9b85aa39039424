"""Convolution with tiles in shared memory: each float read from global memory is used many times.

A block of 32 x 8 threads makes 8 x 8 pixels of 32 channels. It stages, a few channels at a time, the
pixels its windows see (with the border) and the filters; a thread keeps the sums of one row of eight
pixels in registers, so that a filter tap read from shared memory serves eight times. The gradient of
the input is the same walk over dy with the filters turned around; a stride puts zeros between its pixels.
"""

from __future__ import annotations

from typing import Final

from core.gpu.compilation.cuda import cuda
from core.gpu.driver.hosted import SHARED_BYTES, Arrays, as_matrix, at, blocks, flat, over, scratch, zeros
from core.gpu.kernels.ladder.arrays import Batch, Filters, Int, Matrix, Pair, Vector, float32, index
from core.gpu.kernels.ladder.cases import geometry, groups, refuse_fused
from core.gpu.kernels.ladder.reduction import launch_sum_columns, sum_slices
from core.ops.registry import Case
from core.ops.window import read_window

LANES: Final = 32
"""Channels of a block: a warp writes 128 contiguous bytes."""
PATCH: Final = 8
"""A block's pixels are PATCH x PATCH; a thread has one row of them."""
SIDE: Final = 16
"""The filters' gradient: tiles of 16 filters x 16 channels, 16 pixels at a time."""
SLICE_PIXELS: Final = 4096
"""Pixels a block of the filters' gradient sums; 16 photos of 54 x 54 make 12 slices."""


@cuda.jit
def shared_forward(x: Batch, weight: Filters, bias: Vector, out: Batch, stride: Pair, pad: Pair, chunk: Int) -> None:
    """Grid: (pixel patches of one photo, groups of 32 filters, photos)."""
    memory = cuda.shared.array(0, float32)
    lane = cuda.threadIdx.x
    line = cuda.threadIdx.y
    height, width = weight.shape[1], weight.shape[2]
    tall = (PATCH - 1) * stride[0] + height
    wide = (PATCH - 1) * stride[1] + width
    filters_at = tall * wide * chunk  # the filters lie behind the pixels: (taps, chunk, 32)
    across = (out.shape[2] + PATCH - 1) // PATCH
    row0 = cuda.blockIdx.x // across * PATCH
    column0 = cuda.blockIdx.x % across * PATCH
    o = cuda.blockIdx.y * LANES + lane
    n = cuda.blockIdx.z
    total = cuda.local.array(PATCH, float32)
    for p in range(PATCH):
        total[p] = bias[o] if o < out.shape[3] else float32(0)
    for c0 in range(0, x.shape[3], chunk):
        for i in range(line * LANES + lane, tall * wide * chunk, LANES * PATCH):
            c = c0 + i % chunk
            y = row0 * stride[0] - pad[0] + i // chunk // wide
            z = column0 * stride[1] - pad[1] + i // chunk % wide
            inside = 0 <= y < x.shape[1] and 0 <= z < x.shape[2] and c < x.shape[3]
            memory[i] = x[n, y, z, c] if inside else float32(0)
        for i in range(line, height * width * chunk, PATCH):
            c = c0 + i % chunk
            tap = i // chunk
            inside = o < out.shape[3] and c < x.shape[3]
            memory[filters_at + i * LANES + lane] = weight[o, tap // width, tap % width, c] if inside else float32(0)
        cuda.syncthreads()  # pixels and filters are staged
        step = stride[1] * chunk  # from one pixel of a thread to the next
        for tap in range(height * width):
            at = ((line * stride[0] + tap // width) * wide + tap % width) * chunk
            for c in range(chunk):
                w = memory[index(filters_at + (tap * chunk + c) * LANES + lane)]
                for p in range(PATCH):
                    total[p] += memory[index(at + p * step + c)] * w
        cuda.syncthreads()  # nobody reads them any more
    for p in range(PATCH):
        if row0 + line < out.shape[1] and column0 + p < out.shape[2] and o < out.shape[3]:
            out[n, row0 + line, column0 + p, o] = total[p]


@cuda.jit
def shared_backward_input(dy: Batch, weight: Filters, dx: Batch, stride: Pair, pad: Pair, chunk: Int) -> None:
    """Grid: (patches of input pixels, groups of 32 input channels, photos); `chunk` filters at a time."""
    memory = cuda.shared.array(0, float32)
    lane = cuda.threadIdx.x
    line = cuda.threadIdx.y
    height, width = weight.shape[1], weight.shape[2]
    tall = PATCH - 1 + height
    wide = PATCH - 1 + width
    filters_at = tall * wide * chunk
    across = (dx.shape[2] + PATCH - 1) // PATCH
    y0 = cuda.blockIdx.x // across * PATCH
    z0 = cuda.blockIdx.x % across * PATCH
    c = cuda.blockIdx.y * LANES + lane
    n = cuda.blockIdx.z
    total = cuda.local.array(PATCH, float32)
    for p in range(PATCH):
        total[p] = float32(0)
    for o0 in range(0, dy.shape[3], chunk):
        for i in range(line * LANES + lane, tall * wide * chunk, LANES * PATCH):
            o = o0 + i % chunk
            down = y0 + pad[0] - (height - 1) + i // chunk // wide
            right = z0 + pad[1] - (width - 1) + i // chunk % wide
            row, column = down // stride[0], right // stride[1]
            on = down % stride[0] == 0 and right % stride[1] == 0 and o < dy.shape[3]
            inside = on and 0 <= row < dy.shape[1] and 0 <= column < dy.shape[2]
            memory[i] = dy[n, row, column, o] if inside else float32(0)
        for i in range(line, height * width * chunk, PATCH):
            o = o0 + i % chunk
            tap = i // chunk
            inside = o < dy.shape[3] and c < dx.shape[3]
            memory[filters_at + i * LANES + lane] = weight[o, tap // width, tap % width, c] if inside else float32(0)
        cuda.syncthreads()  # gradients and filters are staged
        for tap in range(height * width):
            at = ((line + height - 1 - tap // width) * wide + width - 1 - tap % width) * chunk
            for o in range(chunk):
                w = memory[index(filters_at + (tap * chunk + o) * LANES + lane)]
                for p in range(PATCH):
                    total[p] += memory[index(at + p * chunk + o)] * w
        cuda.syncthreads()  # nobody reads them any more
    for p in range(PATCH):
        if y0 + line < dx.shape[1] and z0 + p < dx.shape[2] and c < dx.shape[3]:
            dx[n, y0 + line, z0 + p, c] = total[p]


@cuda.jit
def shared_backward_weight(
    x: Batch, dy: Batch, parts: Matrix, weight: Filters, stride: Pair, pad: Pair, pixels: Int
) -> None:
    """Grid: (tiles of filters x channels, taps, slices of `pixels` pixels); `weight` only lends its shape."""
    dy_tile = cuda.shared.array((SIDE, SIDE), float32)  # (pixel, filter)
    x_tile = cuda.shared.array((SIDE, SIDE), float32)  # (pixel, channel)
    tx = cuda.threadIdx.x
    ty = cuda.threadIdx.y
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
        cuda.syncthreads()  # nobody reads them any more
    if o0 + ty < filters and c0 + tx < depth:
        parts[cuda.blockIdx.z, ((o0 + ty) * weight.shape[1] * width + cuda.blockIdx.y) * depth + c0 + tx] = total


def _chunk(case: Case, forward: bool) -> tuple[int, int]:
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


def refuse(case: Case) -> str | None:
    if groups(case) > 1:
        return "The shared level convolves all channels at once; it has no groups."
    if not min(_chunk(case, True)[0], _chunk(case, False)[0]):
        return f"A kernel of {case.attributes['kernel']} does not fit into {SHARED_BYTES // 1024} KB of shared memory."
    return refuse_fused(case)


def launch_shared_forward(case: Case, arrays: Arrays) -> None:
    x, weight, out = arrays["x"], arrays["weight"], arrays["out"]
    bias = arrays["bias"] if "bias" in arrays else zeros(arrays, "bias", weight.shape[0])
    chunk, size = _chunk(case, True)
    grid = (blocks(out.shape[1], PATCH) * blocks(out.shape[2], PATCH), blocks(out.shape[3], LANES), out.shape[0])
    shared_forward[at(grid, (LANES, PATCH), size)](x, weight, bias, out, *geometry(case), chunk)


def launch_shared_backward_input(case: Case, arrays: Arrays) -> None:
    dy, weight, dx = arrays["dy"], arrays["weight"], arrays["dx"]
    chunk, size = _chunk(case, False)
    grid = (blocks(dx.shape[1], PATCH) * blocks(dx.shape[2], PATCH), blocks(dx.shape[3], LANES), dx.shape[0])
    shared_backward_input[at(grid, (LANES, PATCH), size)](dy, weight, dx, *geometry(case), chunk)


def launch_shared_backward_weight(case: Case, arrays: Arrays) -> None:
    x, dy, dweight = arrays["x"], arrays["dy"], arrays["dweight"]
    filters, height, width, depth = dweight.shape
    slices = blocks(dy.size // filters, SLICE_PIXELS)
    parts = scratch(arrays, "weight slices", (slices, dweight.size))
    grid = (blocks(filters, SIDE) * blocks(depth, SIDE), height * width, slices)
    shared_backward_weight[at(grid, (SIDE, SIDE))](x, dy, parts, dweight, *geometry(case), SLICE_PIXELS)
    sum_slices[over(dweight.size)](parts, flat(dweight))
    if "dbias" in arrays:
        launch_sum_columns(arrays, as_matrix(dy), arrays["dbias"])
