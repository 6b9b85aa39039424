"""Convolution by the Fourier transform: one product per frequency, whatever the size of the filter.

`fft` transforms the whole image, `fft_tiled` overlapping tiles of 16 x 16 pixels. A block transforms one line of 16
channels in shared memory: rows first, of which half the frequencies are kept (the image is real), then columns. A
complex product over channels is a real one of twice the depth and twice the filters.
Source: Mathieu, Henaff and LeCun, "Fast training of convolutional networks through FFTs", 2013.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from core.gpu.compilation.arrays import Batch, Cube, Int, Pair, Vector, float32
from core.gpu.compilation.cuda import cuda, device_function
from core.gpu.ops.conv import transformed
from core.gpu.ops.dense.product import product_nt
from core.gpu.teaching.kernel import DeviceArray, Where, at, blocks, kernel, over
from core.gpu.teaching.step_arrays import StepArrays
from core.ops.registry import KernelCase
from core.ops.window import read_window

LANES: Final = 16
"""Channels of a block."""
LINES: Final = 8
"""Threads a channel."""
TILE: Final = 16
LARGEST: Final = 256
"""Side of an image with its border: a line of 16 channels fills 32 KB of shared memory."""


@device_function
def place_of(k: Any, size: Any, lane: Any) -> Any:
    """Where element k of a line is loaded to: the bits of k in reverse order."""
    found = 0
    while size > 1:
        found, k, size = 2 * found + k % 2, k // 2, size // 2
    return found * LANES + lane


@device_function
def transform_line(memory: Any, twiddles: Any, size: Any, lane: Any, line: Any) -> None:
    """In place: a line of complex numbers, all real parts before all imaginary ones, becomes its spectrum."""
    half, imaginary = 1, size * LANES
    while half < size:
        cuda.syncthreads()  # the line is loaded; the last stage is done
        for pair in range(line, size // 2, LINES):
            k = pair % half
            a = ((pair - k) * 2 + k) * LANES + lane
            b, turn = a + half * LANES, k * (size // 2 // half)
            cos, sin = twiddles[turn], twiddles[size // 2 + turn]
            real = memory[b] * cos - memory[b + imaginary] * sin
            other = memory[b] * sin + memory[b + imaginary] * cos
            memory[b], memory[b + imaginary] = memory[a] - real, memory[a + imaginary] - other
            memory[a], memory[a + imaginary] = memory[a] + real, memory[a + imaginary] + other
        half *= 2
    cuda.syncthreads()  # the spectrum is complete


@kernel
def transform_rows(
    x: Batch, spectrum: Batch, twiddles: Vector, step: Int, down: Int, across: Int, pad: Pair
) -> None:
    """A block per row of a tile: its frequencies (tiles, rows, frequencies, real and imaginary channels)."""
    memory = cuda.shared.array(0, float32)
    lane, line = cuda.threadIdx.x, cuda.threadIdx.y
    size, depth, c = spectrum.shape[1], x.shape[3], cuda.blockIdx.y * LANES + lane
    tile, row = cuda.blockIdx.x // size, cuda.blockIdx.x % size
    y = tile // across % down * step - pad[0] + row
    for k in range(line, size, LINES):
        z, to = tile % across * step - pad[1] + k, place_of(k, size, lane)
        inside = 0 <= y < x.shape[1] and 0 <= z < x.shape[2] and c < depth
        memory[to] = x[tile // (down * across), y, z, c] if inside else float32(0)
        memory[size * LANES + to] = float32(0)
    transform_line(memory, twiddles, size, lane, line)
    if c < depth:
        for f in range(line, spectrum.shape[2], LINES):
            spectrum[tile, row, f, c] = memory[f * LANES + lane]
            spectrum[tile, row, f, depth + c] = memory[(size + f) * LANES + lane]


@kernel
def transform_columns(source: Cube, target: Batch, twiddles: Vector, places_first: Int) -> None:
    """A block per frequency of a tile's rows. `source` is (tiles, places, channels), or products by place."""
    memory = cuda.shared.array(0, float32)
    lane, line = cuda.threadIdx.x, cuda.threadIdx.y
    size, depth, c = twiddles.size, target.shape[3] // 2, cuda.blockIdx.y * LANES + lane
    tile, f = cuda.blockIdx.x // target.shape[2], cuda.blockIdx.x % target.shape[2]
    for k in range(line, size, LINES):
        place, to = k * target.shape[2] + f, place_of(k, size, lane)
        a, b = (place, tile) if places_first else (tile, place)
        memory[to] = source[a, b, c] if c < depth else float32(0)
        memory[size * LANES + to] = source[a, b, depth + c] if c < depth else float32(0)
    transform_line(memory, twiddles, size, lane, line)
    if c < depth:
        for k in range(line, target.shape[1], LINES):
            target[tile, k, f, c] = memory[k * LANES + lane]
            target[tile, k, f, depth + c] = memory[(size + k) * LANES + lane]


@kernel
def add_imaginary_filters(u: Cube) -> None:
    """u (2 O, places, 2 C): behind spectra w those of i w, which give the imaginary part of ``x conj(w)``."""
    i, filters, depth = cuda.grid(1), u.shape[0] // 2, u.shape[2] // 2
    if i < u.size // 4:
        c, place, o = i % depth, i // depth % u.shape[1], i // (depth * u.shape[1])
        u[filters + o, place, c] = -u[o, place, depth + c]
        u[filters + o, place, depth + c] = u[o, place, c]


@kernel
def transform_back(spectrum: Batch, bias: Vector, out: Batch, twiddles: Vector, down: Int, across: Int) -> None:
    """A block per row of a tile's outputs; the other half of the frequencies is the mirrored conjugate."""
    memory = cuda.shared.array(0, float32)
    lane, line = cuda.threadIdx.x, cuda.threadIdx.y
    size, depth, c = twiddles.size, out.shape[3], cuda.blockIdx.y * LANES + lane
    step = spectrum.shape[1]
    tile, row = cuda.blockIdx.x // step, cuda.blockIdx.x % step
    for k in range(line, size, LINES):
        f, to = min(k, size - k), place_of(k, size, lane)
        memory[to] = spectrum[tile, row, f, c] if c < depth else float32(0)
        other = spectrum[tile, row, f, depth + c] if c < depth else float32(0)
        memory[size * LANES + to] = other if f == k else -other
    transform_line(memory, twiddles, size, lane, line)
    y = tile // across % down * step + row
    if c < depth and y < out.shape[1]:
        for k in range(line, step, LINES):
            z = tile % across * step + k
            if z < out.shape[2]:
                out[tile // (down * across), y, z, c] = memory[k * LANES + lane] / float32(size * size) + bias[c]


def lines(count: int, channels: int, size: int) -> Where:
    return at((count, blocks(channels, LANES)), (LANES, LINES), 8 * size * LANES)


def convolve(
    tiled: bool, arrays: StepArrays, x: DeviceArray, weight: DeviceArray, bias: DeviceArray, out: DeviceArray,
    pad: tuple[int, int],
) -> None:  # fmt: skip
    """Note the launches of a convolution of stride 1."""
    (images, height, width, filters), (kernel, depth) = out.shape, (max(weight.shape[1:3]), x.shape[3])
    size = TILE if tiled else padded_side(max(height, width) + kernel - 1)
    step = size - kernel + 1
    down, across, half = blocks(height, step), blocks(width, step), size // 2 + 1
    tiles, places = images * down * across, size * half
    turns = 2 * np.pi * np.arange(size // 2) / size
    there, back = (
        arrays.notes.constant(f"fft {size} {sign}", np.concatenate([np.cos(turns), sign * np.sin(turns)]))
        for sign in (-1, 1)
    )
    v = arrays.scratch("pixels", (tiles, size, half, 2 * depth))
    u = arrays.scratch("filters", (2 * filters, size, half, 2 * depth))
    m = arrays.scratch("products", (places, tiles, 2 * filters))
    rows = arrays.scratch("rows", (tiles, step, half, 2 * filters))
    tiling, alone = (step, down, across, pad), (0, 1, 1, (0, 0))
    for source, spectrum, count, where in ((x, v, tiles, tiling), (weight, u, filters, alone)):
        transform_rows[lines(count * size, depth, size)](source, spectrum, there, *where)
        whole = spectrum.reshape(spectrum.shape[0], places, 2 * depth)
        transform_columns[lines(count * half, depth, size)](whole, spectrum, there, 0)
    add_imaginary_filters[over(u.size // 4)](u.reshape(2 * filters, places, 2 * depth))
    flat = 2 * depth * places
    transformed.multiply_places(product_nt, v.reshape(tiles, flat), u.reshape(2 * filters, flat), m)
    transform_columns[lines(tiles * half, filters, size)](m, rows, back, 1)
    transform_back[lines(tiles * step, filters, size)](rows, bias, out, back, down, across)


def padded_side(side: int) -> int:
    """The next power of two, from 2 on."""
    return max(2, 1 << (side - 1).bit_length())


def refuse_tiled(case: KernelCase) -> str:
    if max(read_window(case.attributes).kernel) > TILE // 2:
        return f"Its tiles of {TILE} pixels are for filters up to {TILE // 2} pixels wide."
    return transformed.refuse(case)


def refuse(case: KernelCase) -> str:
    side = max(*case.inputs[0][:2], *case.output[:2]) + max(read_window(case.attributes).kernel) - 1
    if padded_side(side) > LARGEST:
        return f"A line of an image has at most {LARGEST} pixels with its border."
    return transformed.refuse(case)
