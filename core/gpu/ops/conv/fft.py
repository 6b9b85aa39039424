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
from core.gpu.launch import blocks_of
from core.gpu.ops.conv import transformed
from core.gpu.ops.dense.product import product_nt
from core.gpu.teaching.kernel import DeviceArray, Where, at, kernel, over
from core.gpu.teaching.step_arrays import StepArrays
from core.ops.registry import KernelCase
from core.ops.window import read_window

CHANNELS: Final = 16
"""Channels per block."""
ROWS: Final = 8
"""Threads per channel."""
TILE: Final = 16
LARGEST: Final = 256
"""Side of an image with its border: a line of 16 channels fills 32 KB of shared memory."""


@device_function
def position_of(k: Any, size: Any, lane: Any) -> Any:
    """Position in shared memory to which element k of a line is loaded: the bits of k reversed."""
    reversed_bits = 0
    while size > 1:
        reversed_bits, k, size = 2 * reversed_bits + k % 2, k // 2, size // 2
    return reversed_bits * CHANNELS + lane


@device_function
def transform_line(memory: Any, twiddles: Any, size: Any, lane: Any, line: Any) -> None:
    """Replace a line of complex numbers, all real parts before all imaginary ones, by its spectrum (radix 2)."""
    half, imaginary = 1, size * CHANNELS
    while half < size:
        cuda.syncthreads()  # the line is loaded; the last stage is done
        for pair in range(line, size // 2, ROWS):
            k = pair % half
            a = ((pair - k) * 2 + k) * CHANNELS + lane
            b, angle = a + half * CHANNELS, k * (size // 2 // half)
            cos, sin = twiddles[angle], twiddles[size // 2 + angle]
            real = memory[b] * cos - memory[b + imaginary] * sin
            other = memory[b] * sin + memory[b + imaginary] * cos
            memory[b], memory[b + imaginary] = memory[a] - real, memory[a + imaginary] - other
            memory[a], memory[a + imaginary] = memory[a] + real, memory[a + imaginary] + other
        half *= 2
    cuda.syncthreads()  # the spectrum is complete


@kernel
def transform_rows(x: Batch, spectrum: Batch, twiddles: Vector, step: Int, down: Int, across: Int, pad: Pair) -> None:
    """One block per row of a tile: its frequencies (tiles, rows, frequencies, real and imaginary channels)."""
    memory = cuda.shared.array(0, float32)
    lane, line = cuda.threadIdx.x, cuda.threadIdx.y
    size, depth, c = spectrum.shape[1], x.shape[3], cuda.blockIdx.y * CHANNELS + lane
    tile, row = cuda.blockIdx.x // size, cuda.blockIdx.x % size
    y = tile // across % down * step - pad[0] + row
    for k in range(line, size, ROWS):
        z, to = tile % across * step - pad[1] + k, position_of(k, size, lane)
        inside = 0 <= y < x.shape[1] and 0 <= z < x.shape[2] and c < depth
        memory[to] = x[tile // (down * across), y, z, c] if inside else float32(0)
        memory[size * CHANNELS + to] = float32(0)
    transform_line(memory, twiddles, size, lane, line)
    if c < depth:
        for f in range(line, spectrum.shape[2], ROWS):
            spectrum[tile, row, f, c] = memory[f * CHANNELS + lane]
            spectrum[tile, row, f, depth + c] = memory[(size + f) * CHANNELS + lane]


@kernel
def transform_columns(source: Cube, target: Batch, twiddles: Vector, elements_first: Int) -> None:
    """One block per frequency of a tile's rows. `source` is (tiles, elements, channels), or (elements, tiles, ...)."""
    memory = cuda.shared.array(0, float32)
    lane, line = cuda.threadIdx.x, cuda.threadIdx.y
    size, depth, c = twiddles.size, target.shape[3] // 2, cuda.blockIdx.y * CHANNELS + lane
    tile, f = cuda.blockIdx.x // target.shape[2], cuda.blockIdx.x % target.shape[2]
    for k in range(line, size, ROWS):
        element, to = k * target.shape[2] + f, position_of(k, size, lane)
        a, b = (element, tile) if elements_first else (tile, element)
        memory[to] = source[a, b, c] if c < depth else float32(0)
        memory[size * CHANNELS + to] = source[a, b, depth + c] if c < depth else float32(0)
    transform_line(memory, twiddles, size, lane, line)
    if c < depth:
        for k in range(line, target.shape[1], ROWS):
            target[tile, k, f, c] = memory[k * CHANNELS + lane]
            target[tile, k, f, depth + c] = memory[(size + k) * CHANNELS + lane]


@kernel
def add_imaginary_filters(u: Cube) -> None:
    """u (2 O, elements, 2 C): after the spectra w those of i w, for the imaginary part of ``x conj(w)``."""
    i, filters, depth = cuda.grid(1), u.shape[0] // 2, u.shape[2] // 2
    if i < u.size // 4:
        c, element, o = i % depth, i // depth % u.shape[1], i // (depth * u.shape[1])
        u[filters + o, element, c] = -u[o, element, depth + c]
        u[filters + o, element, depth + c] = u[o, element, c]


@kernel
def transform_back(spectrum: Batch, bias: Vector, out: Batch, twiddles: Vector, down: Int, across: Int) -> None:
    """One block per row of a tile's outputs; the other half of the frequencies is the mirrored conjugate."""
    memory = cuda.shared.array(0, float32)
    lane, line = cuda.threadIdx.x, cuda.threadIdx.y
    size, depth, c = twiddles.size, out.shape[3], cuda.blockIdx.y * CHANNELS + lane
    step = spectrum.shape[1]
    tile, row = cuda.blockIdx.x // step, cuda.blockIdx.x % step
    for k in range(line, size, ROWS):
        f, to = min(k, size - k), position_of(k, size, lane)
        memory[to] = spectrum[tile, row, f, c] if c < depth else float32(0)
        other = spectrum[tile, row, f, depth + c] if c < depth else float32(0)
        memory[size * CHANNELS + to] = other if f == k else -other
    transform_line(memory, twiddles, size, lane, line)
    y = tile // across % down * step + row
    if c < depth and y < out.shape[1]:
        for k in range(line, step, ROWS):
            z = tile % across * step + k
            if z < out.shape[2]:
                out[tile // (down * across), y, z, c] = memory[k * CHANNELS + lane] / float32(size * size) + bias[c]


def lines(count: int, channels: int, size: int) -> Where:
    return at((count, blocks_of(channels, CHANNELS)), (CHANNELS, ROWS), 8 * size * CHANNELS)


def convolve(
    tiled: bool, arrays: StepArrays, x: DeviceArray, weight: DeviceArray, bias: DeviceArray, out: DeviceArray,
    pad: tuple[int, int],
) -> None:  # fmt: skip
    """Note the launches of a convolution of stride 1."""
    (images, height, width, filters), (kernel, depth) = out.shape, (max(weight.shape[1:3]), x.shape[3])
    size = TILE if tiled else padded_side(max(height, width) + kernel - 1)
    step = size - kernel + 1
    down, across, half = blocks_of(height, step), blocks_of(width, step), size // 2 + 1
    tiles, elements = images * down * across, size * half
    angles = 2 * np.pi * np.arange(size // 2) / size
    forward, back = (
        arrays.constant(f"fft {size} {sign}", np.concatenate([np.cos(angles), sign * np.sin(angles)]))
        for sign in (-1, 1)
    )
    v = arrays.scratch("pixels", (tiles, size, half, 2 * depth))
    u = arrays.scratch("filters", (2 * filters, size, half, 2 * depth))
    m = arrays.scratch("products", (elements, tiles, 2 * filters))
    rows = arrays.scratch("rows", (tiles, step, half, 2 * filters))
    tiling, alone = (step, down, across, pad), (0, 1, 1, (0, 0))
    for source, spectrum, count, where in ((x, v, tiles, tiling), (weight, u, filters, alone)):
        transform_rows[lines(count * size, depth, size)](source, spectrum, forward, *where)
        whole = spectrum.reshape(spectrum.shape[0], elements, 2 * depth)
        transform_columns[lines(count * half, depth, size)](whole, spectrum, forward, 0)
    add_imaginary_filters[over(u.size // 4)](u.reshape(2 * filters, elements, 2 * depth))
    flat = 2 * depth * elements
    transformed.multiply_elements(product_nt, v.reshape(tiles, flat), u.reshape(2 * filters, flat), m)
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
