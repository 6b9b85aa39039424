"""Convolutions in another basis: Winograd's minimal filtering and the Fourier transform. Stride 1, no padding.

Sources: `core.ops.winograd`; Mathieu, Henaff and LeCun, "Fast training of convolutional networks through FFTs", 2013.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from core.ops.contract import Array
from core.ops.winograd import F2, F4

TILE: Final = 16
"""Side of the outputs of one tile of the tiled FFT; with a 5x5 filter the transforms are 20 x 20."""


def winograd_convolve(x: Array, weight: Array, tile: int) -> Array:
    """x ``(N, H, W, C)``, 3x3 filters ``(O, 3, 3, C)`` to ``(N, H - 2, W - 2, O)``; `tile` 2 or 4 outputs a side."""
    pixels, filters, results = F2 if tile == 2 else F4
    n, height, width, depth = x.shape
    rows, columns, side = -(-(height - 2) // tile), -(-(width - 2) // tile), tile + 2
    x = np.pad(x, ((0, 0), (0, rows * tile + 2 - height), (0, columns * tile + 2 - width), (0, 0)))
    view = np.lib.stride_tricks.sliding_window_view(x, (side, side), axis=(1, 2))[:, ::tile, ::tile]
    u = _both_sides(filters, weight.transpose(0, 3, 1, 2))  # (O, C, side, side)
    v = _both_sides(pixels, view)  # (N, rows, columns, C, side, side)
    flat = v.reshape(-1, depth, side * side).transpose(2, 0, 1) @ u.reshape(-1, depth, side * side).transpose(2, 1, 0)
    m = flat.transpose(1, 2, 0).reshape(n, rows, columns, len(weight), side, side)
    y = _both_sides(results, m)  # (N, rows, columns, O, tile, tile)
    y = y.transpose(0, 1, 4, 2, 5, 3).reshape(n, rows * tile, columns * tile, len(weight))
    return y[:, : height - 2, : width - 2]


def _both_sides(matrix: Array, squares: Array) -> Array:
    """``matrix square matrix^T`` of every square in the last two axes."""
    return np.asarray(matrix @ squares @ matrix.T)


def fft_convolve(x: Array, weight: Array) -> Array:
    """x ``(N, H, W, C)``, filters ``(O, kh, kw, C)`` to ``(N, H - kh + 1, W - kw + 1, O)``."""
    kh, kw = weight.shape[1:3]
    height, width = x.shape[1:3]
    seen = np.fft.rfft2(x, axes=(1, 2))
    taps = np.conj(np.fft.rfft2(weight, s=(height, width), axes=(1, 2)))  # conjugate: correlation, not convolution
    product = np.einsum("nhwc,ohwc->nhwo", seen, taps, optimize=True)
    out = np.fft.irfft2(product, s=(height, width), axes=(1, 2))
    return out[:, : height - kh + 1, : width - kw + 1].astype(x.dtype)


def fft_convolve_tiled(x: Array, weight: Array) -> Array:
    """The same tile by tile: short transforms, and only a border of kernel - 1 pixels is read twice."""
    kh, kw = weight.shape[1:3]
    n, height, width, depth = x.shape
    rows, columns = -(-(height - kh + 1) // TILE), -(-(width - kw + 1) // TILE)
    tall, wide = TILE + kh - 1, TILE + kw - 1
    x = np.pad(x, ((0, 0), (0, rows * TILE + kh - 1 - height), (0, columns * TILE + kw - 1 - width), (0, 0)))
    view = np.lib.stride_tricks.sliding_window_view(x, (tall, wide), axis=(1, 2))[:, ::TILE, ::TILE]
    tiles = view.transpose(0, 1, 2, 4, 5, 3).reshape(n * rows * columns, tall, wide, depth)
    out = fft_convolve(tiles, weight).reshape(n, rows, columns, TILE, TILE, len(weight))
    out = out.transpose(0, 1, 3, 2, 4, 5).reshape(n, rows * TILE, columns * TILE, len(weight))
    return out[:, : height - kh + 1, : width - kw + 1]
