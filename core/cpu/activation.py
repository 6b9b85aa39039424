"""Activations as vector code, one table entry each: a value and a gradient.

Kernels identify an activation by its number. Register tiles and vector passes apply those up to `CLIP` themselves
before they store; `activate` applies any other to what the kernel has just written, while it is in the L1 cache.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from llvmlite import ir
from numba.core import cgutils

from core.cpu.vectors import I64, Pixels, Vectors, row_intrinsic
from core.errors import KernelUnavailable

CLIP: Final = 2
"""1 clips below at 0 (ReLU), 2 also above at 6 (ReLU6); gradients have a mask of the same bounds."""


def _sigmoid(v: Vectors, x: Any) -> Any:
    """1 / (1 + exp(-x)), computed from ``exp(-|x|)``, which cannot overflow."""
    small, one = v.exp_below(v.negate(v.absolute(x))), v.constant(1.0)
    return v.b.fdiv(v.where(v.above(x, 0.0), one, small), v.b.fadd(one, small))


def _hard_sigmoid(v: Vectors, x: Any) -> Any:
    return v.scale(v.clip(v.shift(x, 3.0), 0.0, 6.0), 1 / 6)


def _one_minus(v: Vectors, y: Any) -> Any:
    return v.b.fsub(v.constant(1.0), y)


def _hard_swish_gradient(v: Vectors, dy: Any, x: Any) -> Any:
    inside = v.b.fmul(dy, v.scale(v.shift(v.b.fadd(x, x), 3.0), 1 / 6))
    return v.where(v.above(x, -3.0), v.where(v.below(x, 3.0), inside, dy), v.constant(0.0))


def _silu_gradient(v: Vectors, dy: Any, x: Any) -> Any:
    s = _sigmoid(v, x)
    return v.b.fmul(dy, v.multiply_add(v.b.fmul(x, s), _one_minus(v, s), s))


def _between(v: Vectors, dy: Any, y: Any, high: float) -> Any:
    """dy where 0 < y < high, else 0."""
    return v.where(v.b.and_(v.above(y, 0.0), v.below(y, high)), dy, v.constant(0.0))


FORMULAS: Final = (
    ("relu", lambda v, x: v.clip(x, 0.0), lambda v, dy, y: _between(v, dy, y, float("inf"))),
    ("relu6", lambda v, x: v.clip(x, 0.0, 6.0), lambda v, dy, y: _between(v, dy, y, 6.0)),
    ("sigmoid", _sigmoid, lambda v, dy, y: v.b.fmul(v.b.fmul(dy, y), _one_minus(v, y))),
    ("hard_sigmoid", _hard_sigmoid, lambda v, dy, y: v.scale(_between(v, dy, y, 1.0), 1 / 6)),
    ("hard_swish", lambda v, x: v.b.fmul(x, _hard_sigmoid(v, x)), _hard_swish_gradient),
    ("silu", lambda v, x: v.b.fmul(x, _sigmoid(v, x)), _silu_gradient),
)
"""Name, y as a function of x, and the gradient of x as a function of that of y and of y, or of x if
`core.ops.activation` says `needs_input`."""

NUMBERS: Final = {"": 0} | {name: number for number, (name, _, _) in enumerate(FORMULAS, 1)}


def number_of(activation: str, layer: str) -> int:
    """Return the number of an activation, 0 for none. Raises KernelUnavailable if the CPU does not have it."""
    if activation not in NUMBERS:
        raise KernelUnavailable(f"The CPU has no activation {activation!r} ({layer}); it has {', '.join(NUMBERS)[2:]}.")
    return NUMBERS[activation]


def clip_of(number: int) -> int:
    """Return the number of an activation that kernels apply themselves, else 0."""
    return number if number <= CLIP else 0


def _apply(p: Pixels, gradient: bool) -> None:
    """Emit the activation of pixels in place, or its gradient given `seen`, with a branch for each number."""
    number, out, out_pixel, count, channels, *seen = p.a
    v, b = p.v, p.b
    done = b.append_basic_block("done")
    switch = b.switch(number, done)
    for own, (_, value, derivative) in enumerate(FORMULAS, 1):
        block = b.append_basic_block()
        switch.add_case(ir.Constant(I64, own), block)
        b.position_at_end(block)

        def body(channel: Any, mask: Any, value: Any = value, derivative: Any = derivative) -> None:
            with cgutils.for_range(b, count) as pixel:
                place = p.at(out, (channel, 4), (pixel.index, out_pixel))
                x = v.load(place, mask)
                y = value(v, x) if not gradient else derivative(
                    v, x, v.load(p.at(seen[0], (channel, 4), (pixel.index, seen[1])), mask)
                )
                v.store(y, place, mask)

        p.for_channels(channels, body)
        b.branch(done)
    b.position_at_end(done)


activate = row_intrinsic("activate", 5, partial(_apply, gradient=False))
"""``activate(number, out, out_pixel, count, channels)`` applies an activation to `count` pixels in place; 0 changes
nothing."""

activate_gradient = row_intrinsic("activate_gradient", 7, partial(_apply, gradient=True))
"""``activate_gradient(number, out, out_pixel, count, channels, seen, seen_pixel)`` turns the gradient of an
activation's output into that of its input in place; `seen` is the output, or the input if the gradient needs it."""
