"""Vectors of 16 bytes, eight bf16 or four float32: the vector of a thread, and arithmetic on its four registers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from core.gpu.compilation import ptx
from core.gpu.compilation.cuda import device_function, f32, i32, i64, u32, u64
from core.gpu.parts.channels import make_unpack


def fast_divisor(divisor: int) -> tuple[int, int]:
    """(multiplier, shift) such that ``n // divisor == (high32(n * multiplier) + n) >> shift`` for n < 2^31.

    Source: Granlund and Montgomery, "Division by invariant integers using multiplication", 1994.
    """
    shift = (divisor - 1).bit_length()
    return ((1 << 32) * ((1 << shift) - divisor)) // divisor + 1, shift


@device_function
def divide(n, by):
    """`n` over the divisor that `fast_divisor` prepared."""
    return ptx.divide_fast(u32(n), u32(by[0]), u32(by[1]))


def in_turn(steps: Sequence[Any]) -> Any:
    """Device function that calls each of `steps` with its arguments: a loop that is always unrolled.

    The compiler does not unroll loops around loads, and each iteration then waits for its own load.
    """
    first = steps[0]
    if len(steps) == 1:
        return first
    rest = in_turn(steps[1:])

    @device_function
    def run(*arguments):
        first(*arguments)
        rest(*arguments)

    return run


def unrolled(step: Any, count: int) -> Any:
    """Device function that calls `step` with its arguments and k, for each k below `count`, as `in_turn` does."""

    def at(k: int) -> Any:
        @device_function
        def one(*arguments):
            step(*arguments, k)

        return one

    return in_turn([at(k) for k in range(count)])


@device_function
def clear(values):
    """Set a local array to zero."""
    for i in range(len(values)):
        values[i] = 0


@device_function
def put4(values, array, at):
    """Four values, such as a load's, into a local array from `at` on. In some loops it keeps the array in memory."""
    for i in range(4):
        array[at + i] = values[i]


@device_function
def find_vector(at, vectors, by_vectors):
    """(pixel, vector of it) of thread `at`: one thread per vector, `vectors` per pixel, with their fast divisor."""
    pixel = divide(at, by_vectors)
    return pixel, i32(u32(at) - pixel * u32(vectors))


@device_function
def find_pixel(at, pixels):
    """(pixel, vector of the pixel, image, row, column) of thread `at`; `pixels` is `core.gpu.arguments.PIXELS`."""
    pixel, vector = find_vector(at, pixels.vectors, pixels.by_vectors)
    n = divide(pixel, pixels.by_area)
    rest = u32(pixel - n * u32(pixels.area))
    row = i32(divide(rest, pixels.by_columns))
    return pixel, vector, n, row, i32(rest - u32(row * pixels.columns))


@device_function
def activate(value, activation):
    """0 leaves the value, 1 is ReLU, 2 is ReLU6."""
    if activation != 0:
        value = value if value > f32(0.0) else f32(0.0)
        if activation == 2:
            value = value if value < f32(6.0) else f32(6.0)
    return value


@device_function
def passes(value, activation):
    """Whether the gradient passes an activation whose output was `value`."""
    return (value > f32(0.0) and (activation == 1 or value < f32(6.0))) or activation == 0


@device_function
def _keep_pair(v, y, activation):
    low = v & u32(0xFFFF) if passes(ptx.low_bf16(y), activation) else u32(0)
    high = v & u32(0xFFFF0000) if passes(ptx.high_bf16(y), activation) else u32(0)
    return u32(low | high)


def _on_four(apply: Any) -> Any:
    """A function of two registers, and perhaps an activation, on four registers of each."""

    @device_function
    def four(v, w, *more):
        return apply(v[0], w[0], *more), apply(v[1], w[1], *more), apply(v[2], w[2], *more), apply(v[3], w[3], *more)

    return four


KEEP: Final = {
    2: _on_four(_keep_pair),
    4: _on_four(device_function(lambda v, y, activation: v if passes(ptx.bits_to_float(y), activation) else u32(0))),
}
"""``KEEP[bytes](v, y, activation)``: v where the gradient passes the activation with output y, else 0."""

ADD: Final = {
    2: _on_four(device_function(lambda v, w: ptx.pack_bf16(
        f32(ptx.low_bf16(v) + ptx.low_bf16(w)), f32(ptx.high_bf16(v) + ptx.high_bf16(w))
    ))),
    4: _on_four(device_function(lambda v, w: ptx.float_to_bits(f32(ptx.bits_to_float(v) + ptx.bits_to_float(w))))),
}  # fmt: skip
"""``ADD[bytes](v, w)``: elementwise sum."""


def _make_unpack(element: int) -> Any:
    unpack = make_unpack(element, 16 // element)
    return device_function(lambda v, out: unpack(v, 0, out, 0))


UNPACK: Final = {2: _make_unpack(2), 4: _make_unpack(4)}
"""``UNPACK[bytes](v, out)``: the elements of 16 bytes as float32 into a local array."""

PACK: Final = {
    2: device_function(lambda x: (
        ptx.pack_bf16(x[0], x[1]), ptx.pack_bf16(x[2], x[3]), ptx.pack_bf16(x[4], x[5]), ptx.pack_bf16(x[6], x[7])
    )),
    4: device_function(lambda x: (
        ptx.float_to_bits(x[0]), ptx.float_to_bits(x[1]), ptx.float_to_bits(x[2]), ptx.float_to_bits(x[3])
    )),
}  # fmt: skip
"""``PACK[bytes](x)``: 16 bytes from a local array of float32."""


def make_take(element: int) -> Any:
    """Device function: a vector of pixel (y, x) of image n as float32 into `out`; undefined unless `ok`."""
    unpack, VEC = UNPACK[element], 16 // element

    @device_function
    def take(photos, ok, n, y, x, height, width, pitch, vector, out):
        row = i64((i64(n) * height + y) * width + x)
        unpack(ptx.load4(u64(photos + u64((row * pitch + vector * VEC) * element)) if ok else photos), out)

    return take


def make_deliver(element: int) -> Any:
    """Device function: store a vector of pixel `row`, masked by an activation, and added to what is there if
    `accumulate`; ldm and ldo are the pitches of mask and out."""
    keep, add, VEC = KEEP[element], ADD[element], 16 // element

    @device_function
    def deliver(v, mask, out, row, vector, ldm, ldo, masking, accumulate):
        if masking != 0:
            v = keep(v, ptx.load4(u64(mask + u64((row * ldm + vector * VEC) * element))), masking)
        target = u64(out + u64((row * ldo + vector * VEC) * element))
        if accumulate != 0:
            v = add(v, ptx.load4_ordered(target))
        ptx.store4(target, v[0], v[1], v[2], v[3])

    return deliver
