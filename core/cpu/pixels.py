"""Batch norm's passes over pixels as vector code: channels in lanes, coefficients and sums in registers.

Written as loops over channels, the compiler checks at every pixel whether arrays overlap, and keeps the
sums in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, final

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from core.cpu.instruction_set import InstructionSet, current_isa
from core.cpu.vectors import I64, Vectors, small_function


@final
class Pixels:
    """Emits one function; `a` are its arguments, int64 each."""

    def __init__(self, function: ir.Function, isa: InstructionSet) -> None:
        self.b, self.a = ir.IRBuilder(function.append_basic_block("entry")), function.args
        self.v = Vectors(self.b, isa)

    def for_channels(self, channels: Any, body: Callable[[Any, Any], None]) -> None:
        """`body(first channel, mask)` for every vector of channels; only the last may have a mask."""
        lanes = ir.Constant(I64, self.v.vector_width)
        with cgutils.for_range_slice(self.b, ir.Constant(I64, 0), channels, lanes) as (channel, _):
            left = self.b.sub(channels, channel)
            with self.b.if_else(self.b.icmp_signed(">=", left, lanes)) as (whole, part):
                with whole:
                    body(channel, None)
                with part:
                    body(channel, self.v.first(left))

    @contextmanager
    def for_pixels(self, count: Any) -> Iterator[Any]:
        """A loop over pixels: the number of each."""
        with cgutils.for_range(self.b, count) as loop:
            yield loop.index

    def at(self, base: Any, *terms: tuple[Any, Any]) -> Any:
        """base + the sum of products."""
        for factor, count in terms:
            base = self.b.add(base, self.b.mul(factor, count))
        return base


def _affine(isa: InstructionSet, function: ir.Function) -> None:
    """Row: out = clip(x * scale + shift)."""
    p = Pixels(function, isa)
    out, out_pixel, x, x_pixel, scale, shift, count, channels, clip = p.a
    four, v, b = ir.Constant(I64, 4), p.v, p.b
    low = b.select(b.icmp_signed("!=", clip, ir.Constant(I64, 0)), v.constant(0.0), v.constant(float("-inf")))
    high = b.select(b.icmp_signed("==", clip, ir.Constant(I64, 2)), v.constant(6.0), v.constant(float("inf")))

    def body(channel: Any, mask: Any) -> None:
        factor, term = (v.load(p.at(k, (channel, four)), mask) for k in (scale, shift))
        with cgutils.for_range(b, count) as pixel:
            value = v.multiply_add(v.load(p.at(x, (channel, four), (pixel.index, x_pixel)), mask), factor, term)
            value = b.select(b.fcmp_ordered("<", value, low), low, value)
            value = b.select(b.fcmp_ordered(">", value, high), high, value)
            v.store(value, p.at(out, (channel, four), (pixel.index, out_pixel)), mask)

    p.for_channels(channels, body)
    p.b.ret_void()


def _norm_gradient(isa: InstructionSet, function: ir.Function) -> None:
    """Row: out (+)= dy * k0 + x * k1 + k2."""
    p = Pixels(function, isa)
    out, out_pixel, dy, dy_pixel, x, x_pixel, coefficients, count, channels, accumulate = p.a
    four, v, b = ir.Constant(I64, 4), p.v, p.b
    adds = b.icmp_signed("!=", accumulate, ir.Constant(I64, 0))

    def body(channel: Any, mask: Any) -> None:
        k = [v.load(p.at(coefficients, (channel, four), (channels, ir.Constant(I64, 4 * i))), mask) for i in range(3)]
        with cgutils.for_range(b, count) as pixel:
            seen = v.load(p.at(x, (channel, four), (pixel.index, x_pixel)), mask)
            value = v.multiply_add(seen, k[1], k[2])
            value = v.multiply_add(v.load(p.at(dy, (channel, four), (pixel.index, dy_pixel)), mask), k[0], value)
            place = p.at(out, (channel, four), (pixel.index, out_pixel))
            old = v.slot(v.constant(0.0))
            with b.if_then(adds):
                b.store(v.load(place, mask), old)
            v.store(b.fadd(value, b.load(old)), place, mask)

    p.for_channels(channels, body)
    p.b.ret_void()


def _depthwise(isa: InstructionSet, function: ir.Function) -> None:
    """Row: out = clip(bias + the sum of nine taps times the pixels under them)."""
    p = Pixels(function, isa)
    out, out_pixel, x, x_row, x_pixel, x_step, taps, tap, bias, count, channels, clip = p.a
    four, v, b = ir.Constant(I64, 4), p.v, p.b
    low = b.select(b.icmp_signed("!=", clip, ir.Constant(I64, 0)), v.constant(0.0), v.constant(float("-inf")))
    high = b.select(b.icmp_signed("==", clip, ir.Constant(I64, 2)), v.constant(6.0), v.constant(float("inf")))
    places = [[(x_row, ir.Constant(I64, ky)), (x_pixel, ir.Constant(I64, kx))] for ky in range(3) for kx in range(3)]

    def body(channel: Any, mask: Any) -> None:
        k = [v.load(p.at(taps, (channel, four), (tap, ir.Constant(I64, i))), mask) for i in range(9)]
        start = v.slot(v.constant(0.0))
        with b.if_then(b.icmp_signed("!=", bias, ir.Constant(I64, 0))):
            b.store(v.load(p.at(bias, (channel, four)), mask), start)
        if mask is None and isa.assembly and not isa.masks:
            origin = p.at(x, (channel, four)), p.at(out, (channel, four))
            _depthwise_whole(p, origin, k, b.load(start), (low, high))
            return
        with cgutils.for_range(b, count) as pixel:
            window, value = p.at(x, (channel, four), (pixel.index, x_step)), b.load(start)
            for factor, place in zip(k, places, strict=True):
                value = v.multiply_add(v.load(p.at(window, *place), mask), factor, value)
            value = b.select(b.fcmp_ordered("<", value, low), low, value)
            value = b.select(b.fcmp_ordered(">", value, high), high, value)
            v.store(value, p.at(out, (channel, four), (pixel.index, out_pixel)), mask)

    p.for_channels(channels, body)
    p.b.ret_void()


def _depthwise_whole(p: Pixels, origin: tuple[Any, Any], taps: list[Any], start: Any, clip: tuple[Any, Any]) -> None:
    """`_depthwise` of a whole vector of channels, its nine loads within the multiply-adds, by three addresses."""
    _, out_pixel, _, x_row, x_pixel, x_step, *_, count, _, _ = p.a
    v, b = p.v, p.b
    window, out = v.slot(origin[0]), v.slot(origin[1])
    with cgutils.for_range(b, count):
        value, row = start, b.load(window)
        for first in (0, 3, 6):
            for tap, form in zip(taps[first : first + 3], ("($1)", "($1,$2)", "($1,$2,2)"), strict=True):
                value = v.multiply_add_from(form, row, x_pixel, tap, value)
            row = b.add(row, x_row)
        value = b.select(b.fcmp_ordered("<", value, clip[0]), clip[0], value)
        value = b.select(b.fcmp_ordered(">", value, clip[1]), clip[1], value)
        v.store(value, b.load(out))
        b.store(b.add(b.load(window), x_step), window)
        b.store(b.add(b.load(out), out_pixel), out)


def _sums(isa: InstructionSet, function: ir.Function, gradient: bool) -> None:
    """Image: float64 sums of x and x squared; in backward of dy and dy * (x - mean)."""
    p = Pixels(function, isa)
    x, x_row, x_pixel, dy, dy_row, dy_pixel, mean, height, width, channels, plain, other = p.a
    four, eight, v, b = ir.Constant(I64, 4), ir.Constant(I64, 8), p.v, p.b

    def body(channel: Any, mask: Any) -> None:
        zero = ir.Constant(v.doubles, [0.0] * v.vector_width)
        total, product = v.slot(zero), v.slot(zero)
        middle = v.load(p.at(mean, (channel, four)), mask) if gradient else None
        with cgutils.for_range(b, height) as y, cgutils.for_range(b, width) as pixel:
            seen = v.load(p.at(x, (channel, four), (y.index, x_row), (pixel.index, x_pixel)), mask)
            if gradient:
                first = v.load(p.at(dy, (channel, four), (y.index, dy_row), (pixel.index, dy_pixel)), mask)
                second = b.fpext(b.fmul(first, b.fsub(seen, middle)), v.doubles)
                b.store(b.fadd(b.load(product), second), product)
            else:
                first, wide = seen, b.fpext(seen, v.doubles)
                b.store(v.multiply_add(wide, wide, b.load(product)), product)
            b.store(b.fadd(b.load(total), b.fpext(first, v.doubles)), total)
        v.store(b.load(total), p.at(plain, (channel, eight)), mask)
        v.store(b.load(product), p.at(other, (channel, eight)), mask)

    p.for_channels(channels, body)
    p.b.ret_void()


def row_function(name: str, count: int, emit: Callable[[InstructionSet, ir.Function], None]) -> Any:
    """The function as something kernels may call with `count` int64."""

    def code(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        isa = current_isa()
        builder.call(small_function(builder.module, isa, name, count, partial(emit, isa)), arguments)
        return context.get_dummy_value()

    return types.void(*[types.int64] * count), code


@intrinsic
def affine_row(context, out, out_pixel, x, x_pixel, scale, shift, count, channels, clip):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """out = clip(x * scale + shift) for a row of pixels; clip as `core.cpu.activation.CLIP`."""
    return row_function("affine", 9, _affine)


@intrinsic
def norm_gradient_row(  # type: ignore[no-untyped-def]  # noqa: ANN201
    context, out, out_pixel, dy, dy_pixel, x, x_pixel, coefficients, count, channels, accumulate  # noqa: ANN001
):  # fmt: skip
    """out (+)= dy * k0 + x * k1 + k2 for a row of pixels; `coefficients`: k0, k1, k2 of `channels` floats each."""
    return row_function("norm_gradient", 10, _norm_gradient)


@intrinsic
def depthwise_row(  # type: ignore[no-untyped-def]  # noqa: ANN201
    context, out, out_pixel, x, x_row, x_pixel, x_step, taps, tap, bias, count, channels, clip  # noqa: ANN001
):  # fmt: skip
    """out = clip(bias + 3 x 3 taps of x), `x_step` bytes from window to window; bias 0 is none; `tap` bytes a tap."""
    return row_function("depthwise", 12, _depthwise)


@intrinsic
def moments(  # type: ignore[no-untyped-def]  # noqa: ANN201
    context, x, x_row, x_pixel, height, width, channels, plain, square  # noqa: ANN001
):  # fmt: skip
    """float64 sums of x and of its square over an image, for every channel."""
    signature, code = row_function("moments", 12, partial(_sums, gradient=False))

    def emit(context: Any, builder: ir.IRBuilder, _: Any, a: Any) -> Any:
        nothing = ir.Constant(I64, 0)
        return code(context, builder, signature, [*a[:3], *[nothing] * 4, *a[3:]])

    return types.void(*[types.int64] * 8), emit


@intrinsic
def gradient_moments(  # type: ignore[no-untyped-def]  # noqa: ANN201
    context, x, x_row, x_pixel, dy, dy_row, dy_pixel, mean, height, width, channels, plain, normal  # noqa: ANN001
):  # fmt: skip
    """float64 sums of dy and of dy * (x - mean) over an image, for every channel."""
    return row_function("gradient_moments", 12, partial(_sums, gradient=True))
