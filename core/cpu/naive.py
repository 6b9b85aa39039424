"""The convolution as its definition: one thread, seven loops, bounds checked at every tap."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from core.cpu.level import cached
from core.ops.attributes import read_int
from core.ops.registry import Case
from core.ops.window import read_window


def run_forward(case: Case, arrays: dict[str, Any]) -> None:
    """``out = act(bias + x * weight)``."""
    bias = arrays.get("bias", np.zeros(case.output[2], np.float32))
    _forward(arrays["x"], arrays["weight"], bias, *_numbers(case), arrays["out"])
    if case.activation:
        np.clip(arrays["out"], 0, 6 if case.activation == "relu6" else None, out=arrays["out"])


def run_backward_input(case: Case, arrays: dict[str, Any]) -> None:
    """dx from dy, after the activation's mask."""
    arrays["dx"][...] = 0
    _backward_input(_masked(case, arrays), arrays["weight"], *_numbers(case), arrays["dx"])


def run_backward_weight(case: Case, arrays: dict[str, Any]) -> None:
    """dweight and dbias from dy, after the activation's mask."""
    dy = _masked(case, arrays)
    arrays["dweight"][...] = 0
    _backward_weight(arrays["x"], dy, *_numbers(case), arrays["dweight"])
    if "dbias" in arrays:
        arrays["dbias"][...] = dy.sum((0, 1, 2))


def _numbers(case: Case) -> tuple[int, int, int, int, int]:
    window = read_window(case.attributes)
    return *window.stride, *window.padding[:2], read_int(case.attributes, "groups", low=1)


def _masked(case: Case, arrays: dict[str, Any]) -> Any:
    if not case.activation:
        return arrays["dy"]
    out = np.empty_like(arrays["dy"])
    run_forward(case, {**arrays, "out": out})
    return np.where((out > 0) & (out < (6 if case.activation == "relu6" else np.inf)), arrays["dy"], np.float32(0))


@cached(numba.njit, nogil=True)
def _forward(x, weight, bias, sy, sx, top, left, groups, out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    filters, kh, kw, depth = weight.shape
    for n in range(out.shape[0]):
        for oy in range(out.shape[1]):
            for ox in range(out.shape[2]):
                for o in range(filters):
                    first = o // (filters // groups) * depth
                    total = bias[o]
                    for i in range(kh):
                        for j in range(kw):
                            y, z = oy * sy + i - top, ox * sx + j - left
                            if 0 <= y < x.shape[1] and 0 <= z < x.shape[2]:
                                for c in range(depth):
                                    total += x[n, y, z, first + c] * weight[o, i, j, c]
                    out[n, oy, ox, o] = total


@cached(numba.njit, nogil=True)
def _backward_input(dy, weight, sy, sx, top, left, groups, dx):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    filters, kh, kw, depth = weight.shape
    for n in range(dy.shape[0]):
        for oy in range(dy.shape[1]):
            for ox in range(dy.shape[2]):
                for o in range(filters):
                    first = o // (filters // groups) * depth
                    for i in range(kh):
                        for j in range(kw):
                            y, z = oy * sy + i - top, ox * sx + j - left
                            if 0 <= y < dx.shape[1] and 0 <= z < dx.shape[2]:
                                for c in range(depth):
                                    dx[n, y, z, first + c] += dy[n, oy, ox, o] * weight[o, i, j, c]


@cached(numba.njit, nogil=True)
def _backward_weight(x, dy, sy, sx, top, left, groups, dweight):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    filters, kh, kw, depth = dweight.shape
    for n in range(dy.shape[0]):
        for oy in range(dy.shape[1]):
            for ox in range(dy.shape[2]):
                for o in range(filters):
                    first = o // (filters // groups) * depth
                    for i in range(kh):
                        for j in range(kw):
                            y, z = oy * sy + i - top, ox * sx + j - left
                            if 0 <= y < x.shape[1] and 0 <= z < x.shape[2]:
                                for c in range(depth):
                                    dweight[o, i, j, c] += dy[n, oy, ox, o] * x[n, y, z, first + c]
