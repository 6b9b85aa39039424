"""Convolution algorithms in NumPy, for comparison with the kernels of `core.cpu.kernel_entries`.

Array operations tap by tap; windows unfolded into a matrix (im2col); both also with the batch shared between threads;
Winograd's minimal filtering F(2,3) and F(4,3); the Fourier transform, of whole photos and of tiles. NHWC photos, OHWI
filters, float32. Sources: `core.ops.winograd`; Mathieu, Henaff and LeCun, "Fast training of convolutional networks
through FFTs", 2013.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial, wraps
from typing import Any, Final, TypeAlias

import numpy as np

from core.cores import usable_cores
from core.cpu.kernel_entries import CPU
from core.ops.contract import Array
from core.ops.registry import Kernel, KernelCase, Registry
from core.ops.window import Window, add_windows, pad, read_window, windows
from core.ops.winograd import F2, F4

Run: TypeAlias = Callable[[KernelCase, dict[str, Any]], None]

LOOSE: Final = 1e-4
"""Winograd's transforms and the FFT lose a few bits; F(4,3) the most."""
TILE: Final = 16
"""Side of the outputs of one tile of the tiled FFT; with a 5x5 filter the transforms are 20 x 20."""


def refuse_groups(case: KernelCase) -> str:
    if int(str(case.attributes.get("groups", 1))) > 1:
        return "It does not support groups."
    if case.activation:
        return f"It does not apply the {case.activation} after it."
    return ""


def refuse_strides(case: KernelCase) -> str:
    if read_window(case.attributes).stride != (1, 1):
        return "It supports only stride 1."
    return refuse_groups(case)


def refuse_all_but_3x3(case: KernelCase) -> str:
    if read_window(case.attributes).kernel != (3, 3):
        return "Winograd's F(2,3) and F(4,3) are for 3x3 filters."
    return refuse_strides(case)


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(usable_cores(), "convolution")


def _shares(count: int) -> list[slice]:
    """The batch in one part per core."""
    cores = min(usable_cores(), count)
    edges = np.linspace(0, count, cores + 1).astype(int)
    return [slice(int(a), int(b)) for a, b in zip(edges, edges[1:], strict=False)]


def parallel(run: Run, sums: tuple[str, ...]) -> Run:
    """Run on shares of the batch, one thread each; the arrays in `sums` are added in order."""

    @wraps(run)
    def shared(case: KernelCase, arrays: dict[str, Any]) -> None:
        shares = _shares(len(arrays["x" if "x" in arrays else "dy"]))
        parts = []
        for share in shares:
            part = {k: v[share] if k in ("x", "dy", "out", "dx") else v for k, v in arrays.items()}
            parts.append(part | {k: np.empty_like(arrays[k]) for k in sums if k in arrays})
        list(_pool().map(lambda part: run(case, part), parts))
        for name in sums:
            if name in arrays:
                np.sum([part[name] for part in parts], axis=0, out=arrays[name])

    return shared


def _tap(x: Array, window: Window, i: int, j: int, rows: int, columns: int) -> Array:
    """The padded pixels at tap (i, j), ``(N, rows, columns, C)``."""
    (sy, sx) = window.stride
    return x[:, i : i + sy * rows : sy, j : j + sx * columns : sx][:, :rows, :columns]


def vectorised_forward(case: KernelCase, arrays: dict[str, Any]) -> None:
    """One multiplication and sum of whole arrays per tap and filter."""
    window, out, weight = read_window(case.attributes), arrays["out"], arrays["weight"]
    x = pad(arrays["x"], window, 0.0)
    out[...] = arrays.get("bias", 0.0)
    for i, j in np.ndindex(*window.kernel):
        seen = _tap(x, window, i, j, *out.shape[1:3])
        for o in range(len(weight)):
            out[..., o] += (seen * weight[o, i, j]).sum(-1)


def vectorised_backward_input(case: KernelCase, arrays: dict[str, Any]) -> None:
    window, dy, weight, dx = read_window(case.attributes), arrays["dy"], arrays["weight"], arrays["dx"]
    padded = np.zeros_like(pad(dx, window, 0.0))
    for i, j in np.ndindex(*window.kernel):
        place = _tap(padded, window, i, j, *dy.shape[1:3])
        for o in range(len(weight)):
            place += dy[..., o, None] * weight[o, i, j]
    top, left = window.padding[:2]
    dx[...] = padded[:, top : top + dx.shape[1], left : left + dx.shape[2]]


def vectorised_backward_weight(case: KernelCase, arrays: dict[str, Any]) -> None:
    window, dy, dweight = read_window(case.attributes), arrays["dy"], arrays["dweight"]
    x = pad(arrays["x"], window, 0.0)
    for i, j in np.ndindex(*window.kernel):
        seen = _tap(x, window, i, j, *dy.shape[1:3])
        for o in range(len(dweight)):
            dweight[o, i, j] = (seen * dy[..., o, None]).sum((0, 1, 2))
    if "dbias" in arrays:
        arrays["dbias"][...] = dy.sum((0, 1, 2))


def _columns(case: KernelCase, x: Array) -> Array:
    """Windows as rows, ``(N rows columns, kh kw C)``."""
    window = read_window(case.attributes)
    seen = windows(x, window)  # (N, rows, columns, C, kh, kw)
    return np.ascontiguousarray(seen.transpose(0, 1, 2, 4, 5, 3)).reshape(-1, seen[0, 0, 0].size)


def im2col_forward(case: KernelCase, arrays: dict[str, Any]) -> None:
    weight, out = arrays["weight"], arrays["out"]
    product = _columns(case, arrays["x"]) @ weight.reshape(len(weight), -1).T
    out[...] = product.reshape(out.shape) + arrays.get("bias", np.float32(0))


def im2col_backward_input(case: KernelCase, arrays: dict[str, Any]) -> None:
    dy, weight, dx = arrays["dy"], arrays["weight"], arrays["dx"]
    _, height, width, depth = weight.shape
    spread = dy.reshape(-1, len(weight)) @ weight.reshape(len(weight), -1)
    parts = spread.reshape(*dy.shape[:3], height, width, depth).transpose(0, 1, 2, 5, 3, 4)
    dx[...] = add_windows(parts, read_window(case.attributes), *dx.shape[1:3])


def im2col_backward_weight(case: KernelCase, arrays: dict[str, Any]) -> None:
    dy, dweight = arrays["dy"].reshape(-1, arrays["dy"].shape[-1]), arrays["dweight"]
    dweight[...] = (dy.T @ _columns(case, arrays["x"])).reshape(dweight.shape)
    if "dbias" in arrays:
        arrays["dbias"][...] = dy.sum(0)


def _transformed(convolve: Callable[[Array, Array], Array], case: KernelCase, arrays: dict[str, Any]) -> None:
    """Forward with a function of (padded photos, filters) at stride 1."""
    x = pad(arrays["x"], read_window(case.attributes), 0.0)
    arrays["out"][...] = convolve(x, arrays["weight"]) + arrays.get("bias", np.float32(0))


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


def _make_kernels() -> tuple[Kernel, ...]:
    taps = "array operations, one tap of one filter at a time"
    unfolded = "windows unfolded into a matrix, one matrix product"
    kernels = []
    for direction, *runs in (
        ("forward", vectorised_forward, im2col_forward),
        ("backward_input", vectorised_backward_input, im2col_backward_input),
        ("backward_weight", vectorised_backward_weight, im2col_backward_weight),
    ):
        for name, run, idea in zip(("vectorised", "im2col"), runs, (taps, unfolded), strict=True):
            shared = parallel(run, ("dweight", "dbias") if direction == "backward_weight" else ())
            kernels.append(Kernel("conv2d", direction, "cpu", name, run, idea, LOOSE, refuse_groups))
            kernels.append(Kernel("conv2d", direction, "cpu", f"{name}_parallel", shared,
                                  f"{idea}, threads share the batch", LOOSE, refuse_groups))
    for name, convolve, idea, refuse in (
        ("winograd", partial(winograd_convolve, tile=2), "F(2,3): 16 products for 4 outputs instead of 36",
         refuse_all_but_3x3),
        ("winograd_f4", partial(winograd_convolve, tile=4), "F(4,3): 36 products for 16 outputs instead of 144",
         refuse_all_but_3x3),
        ("fft", fft_convolve, "a product of spectra of the whole photo", refuse_strides),
        ("fft_tiled", fft_convolve_tiled, "a product of spectra of overlapping tiles", refuse_strides),
    ):
        kernels.append(Kernel("conv2d", "forward", "cpu", name, partial(_transformed, convolve), idea, LOOSE, refuse))
    return tuple(kernels)


NUMPY_KERNELS: Final = _make_kernels()
"""The kernels of this module."""
LABORATORY: Final = Registry({kernel.key: kernel for kernel in (*CPU.kernels, *NUMPY_KERNELS)}.values())
"""The CPU's kernels and those of this module, which replace the im2col of plans."""
