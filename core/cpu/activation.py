"""Activations as vector code, one table entry each: a value and a gradient.

Kernels know an activation by its number. Those up to `CLIP` are clips, which register tiles and vector passes apply
themselves on the way out; any other is applied by `activate` to what such a kernel has just written, still in the
first cache.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from core.cpu.instruction_set import InstructionSet
from core.cpu.pixels import Pixels, row_function
from core.cpu.vectors import I64, Vectors
from core.errors import KernelUnavailable

CLIP: Final = 2
"""1 clips below at 0, 2 also above at 6; in gradients the same for the mask."""


def _sigmoid(v: Vectors, x: Any) -> Any:
    """From ``exp(-|x|)``, so that nothing overflows."""
    small, one = v.exp_below(v.negate(v.absolute(x))), v.constant(1.0)
    return v.b.fdiv(v.where(v.above(x, 0.0), one, small), v.b.fadd(one, small))


def _hard_sigmoid(v: Vectors, x: Any) -> Any:
    return v.scale(v.clip(v.shift(x, 3.0), 0.0, 6.0), 1 / 6)


def _rest(v: Vectors, y: Any) -> Any:
    """1 - y."""
    return v.b.fsub(v.constant(1.0), y)


def _hard_swish_gradient(v: Vectors, dy: Any, x: Any) -> Any:
    inside = v.b.fmul(dy, v.scale(v.shift(v.b.fadd(x, x), 3.0), 1 / 6))
    return v.where(v.above(x, -3.0), v.where(v.below(x, 3.0), inside, dy), v.constant(0.0))


def _silu_gradient(v: Vectors, dy: Any, x: Any) -> Any:
    s = _sigmoid(v, x)
    return v.b.fmul(dy, v.multiply_add(v.b.fmul(x, s), _rest(v, s), s))


def _between(v: Vectors, dy: Any, y: Any, high: float) -> Any:
    """dy where y is strictly between 0 and a bound."""
    return v.where(v.b.and_(v.above(y, 0.0), v.below(y, high)), dy, v.constant(0.0))


ROWS: Final = (
    ("relu", lambda v, x: v.clip(x, 0.0), lambda v, dy, y: _between(v, dy, y, float("inf"))),
    ("relu6", lambda v, x: v.clip(x, 0.0, 6.0), lambda v, dy, y: _between(v, dy, y, 6.0)),
    ("sigmoid", _sigmoid, lambda v, dy, y: v.b.fmul(v.b.fmul(dy, y), _rest(v, y))),
    ("hard_sigmoid", _hard_sigmoid, lambda v, dy, y: v.scale(_between(v, dy, y, 1.0), 1 / 6)),
    ("hard_swish", lambda v, x: v.b.fmul(x, _hard_sigmoid(v, x)), _hard_swish_gradient),
    ("silu", lambda v, x: v.b.fmul(x, _sigmoid(v, x)), _silu_gradient),
)
"""Name, y of x, and the gradient of x from that of y and from y, or from x where `core.ops.activation` says so."""

NUMBERS: Final = {"": 0} | {name: number for number, (name, _, _) in enumerate(ROWS, 1)}


def number_of(activation: str, layer: str) -> int:
    """The number of an activation, 0 for none. Raises KernelUnavailable where the CPU does not have it."""
    if activation not in NUMBERS:
        raise KernelUnavailable(f"The CPU has no activation {activation!r} ({layer}); it has {', '.join(NUMBERS)[2:]}.")
    return NUMBERS[activation]


def clip_of(number: int) -> int:
    """The number where kernels apply the activation themselves, else 0."""
    return number if number <= CLIP else 0


def _apply(isa: InstructionSet, function: ir.Function, gradient: bool) -> None:
    """Pixels: out = value of out, or the gradient of out given `seen`; a branch for each number."""
    p = Pixels(function, isa)
    number, out, out_pixel, seen, seen_pixel, count, channels = p.a
    four, v, b = ir.Constant(I64, 4), p.v, p.b
    done = function.append_basic_block("done")
    switch = b.switch(number, done)
    for own, (_, value, derivative) in enumerate(ROWS, 1):
        block = function.append_basic_block()
        switch.add_case(ir.Constant(I64, own), block)
        b.position_at_end(block)

        def body(channel: Any, mask: Any, value: Any = value, derivative: Any = derivative) -> None:
            with p.for_pixels(count) as pixel:
                place = p.at(out, (channel, four), (pixel, out_pixel))
                x = v.load(place, mask)
                y = value(v, x) if not gradient else derivative(
                    v, x, v.load(p.at(seen, (channel, four), (pixel, seen_pixel)), mask)
                )
                v.store(y, place, mask)

        p.for_channels(channels, body)
        b.branch(done)
    b.position_at_end(done)
    b.ret_void()


@intrinsic
def activate(context, number, out, out_pixel, count, channels):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Apply an activation to `count` pixels in place; 0 and other unknown numbers leave them."""
    signature, code = row_function("activate", 7, partial(_apply, gradient=False))

    def emit(context: Any, builder: ir.IRBuilder, _: Any, a: Any) -> Any:
        nothing = ir.Constant(I64, 0)
        return code(context, builder, signature, [*a[:3], nothing, nothing, *a[3:]])

    return types.void(*[types.int64] * 5), emit


@intrinsic
def activate_gradient(  # type: ignore[no-untyped-def]  # noqa: ANN201
    context, number, out, out_pixel, seen, seen_pixel, count, channels  # noqa: ANN001
):  # fmt: skip
    """Turn the gradient of an activation's output into that of its input, in place, given what it needs to see."""
    return row_function("activate_gradient", 7, partial(_apply, gradient=True))
