"""Elementwise work on channel slices: sums, products, copies, activations and their gradients, dropout.

    grid: vectors / 256     block: 256 threads, one vector (16 bytes of channels of a pixel) each

Pitches are arguments, so inputs and output may be channel slices of a concatenation. A gradient is masked by the
activation of the value's producer and added to what is there, where asked. Shared memory: none. Bytes: every input and
the output once: the floor.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.compilation.cuda import cuda, device_function, types
from core.gpu.compilation.ptx import load4_ordered
from core.gpu.control import make_reader
from core.gpu.launch import DIVISOR, INTEGER, MASK, MASKING, POINTER, Argument, KernelSignature, pitches
from core.gpu.ops.elementwise.activations import ACTIVATIONS
from core.gpu.parts.vectors import PACK, UNPACK, activate, divide, find_vector, make_deliver

i32, u32, i64, u64, f32 = types.int32, types.uint32, types.int64, types.uint64, types.float32

_WHERE: Final = (
    Argument("total", INTEGER, "vectors (of 16 bytes) in all, one a thread"),
    Argument("lanes", INTEGER, "vectors a pixel"),
)  # fmt: skip
_BY_LANES: Final = Argument("by_lanes", DIVISOR, "division by `lanes`")
_LDA: Final = Argument("lda", INTEGER, "elements from a pixel of a to the next")
_PITCHES: Final = pitches(ldm="mask", ldo="out")

COMBINE: Final = KernelSignature((
    Argument("a", POINTER, "activations (pixels, C)"),
    Argument("b", POINTER, "activations (pixels, C), or factors of a product (N, C); 0 for none"),
    MASK,
    Argument("out", POINTER, "activations (pixels, C)"),
    *_WHERE, _BY_LANES,
    Argument("by_area", DIVISOR, "division by the pixels of an image"),
    _LDA,
    Argument("ldb", INTEGER, "elements from a pixel of b to the next; of a product from an image to the next"),
    *_PITCHES,
    Argument("activation", INTEGER, "applied to the sum (`core.gpu.launch.RELU`)"),
    *MASKING,
))  # fmt: skip


@device_function
def _add(a, b, activation):
    return activate(f32(a + b), activation)


@device_function
def _multiply(a, b, activation):
    return f32(a * b)


def make_apply(kind: str) -> Any:
    """Device function of elements of a and b, and the number of a fused activation."""
    if kind in ("sum", "product"):
        return _add if kind == "sum" else _multiply
    value, gradient = ACTIVATIONS[kind.removesuffix("_gradient")]
    if kind.endswith("_gradient"):

        @device_function
        def apply(a, b, activation):
            return gradient(a, b)

    else:

        @device_function
        def apply(a, b, activation):
            return value(a)

    return apply


def make_combine(element: int, kind: str) -> Any:
    """The kernel of a kind; what it computes is kept where the mask lets the gradient pass.

    "sum": ``activation(a + b)``. "product": a times b, the factor of its image and channel. "NAME": activation of a.
    "NAME_gradient": its gradient, from that of its output, a, and what it needs to see, b.
    """
    unpack, pack, deliver, VEC = UNPACK[element], PACK[element], make_deliver(element), 16 // element
    apply, PRODUCT = make_apply(kind), kind == "product"

    def combine(
        a, b, mask, out, total, lanes, by_lanes_mul, by_lanes_shift, by_area_mul, by_area_shift, lda, ldb, ldm, ldo,
        activation, masking, accumulate,
    ):
        at = i32(cuda.grid(1))
        if at >= total:
            return
        pixel, part = find_vector(at, lanes, by_lanes_mul, by_lanes_shift)
        row = i64(pixel)
        x = cuda.local.array(VEC, dtype=types.float32)
        y = cuda.local.array(VEC, dtype=types.float32)
        unpack(load4_ordered(u64(a + u64((row * lda + part * VEC) * element))), x)
        if b != u64(0):
            other = i64(divide(pixel, by_area_mul, by_area_shift)) if PRODUCT else row
            unpack(load4_ordered(u64(b + u64((other * ldb + part * VEC) * element))), y)
        else:
            for i in range(VEC):
                y[i] = f32(0.0)
        for i in range(VEC):
            x[i] = apply(x[i], y[i], activation)
        deliver(pack(x), mask, out, row, part, ldm, ldo, masking, accumulate)

    return combine


_read_seed, _read_step, _read_first = (make_reader(name) for name in ("seed", "step", "photo0"))


@device_function
def mix(x):
    """`core.ops.dropout.mix`: one word to another."""
    x = u32(x ^ u32(x >> u32(16)))
    x = u32(u64(x) * u64(0x7FEB352D))
    x = u32(x ^ u32(x >> u32(15)))
    x = u32(u64(x) * u64(0x846CA68B))
    return u32(x ^ u32(x >> u32(16)))


DROPOUT: Final = KernelSignature((
    Argument("a", POINTER, "activations (pixels, C), or their gradient"),
    MASK,
    Argument("out", POINTER, "activations (pixels, C)"),
    Argument("control", POINTER, "control block of the step (`core.gpu.control`)"),
    *_WHERE,
    Argument("channels", INTEGER, "C"),
    _BY_LANES,
    Argument("by_area", DIVISOR, "division by `area`"),
    Argument("area", INTEGER, "pixels of an image"),
    _LDA, *_PITCHES, *MASKING,
    Argument("key", "uint32", "of the layer, so that two layers draw different bits"),
    Argument("threshold", "uint32", "a draw below it makes a zero"),
    Argument("scale", "float32", "1 / (1 - rate)"),
))  # fmt: skip


def make_dropout(element: int) -> Any:
    """``out = a`` where the counter's bits reach the threshold, scaled, else 0: forward and gradient alike."""
    unpack, pack, deliver, VEC = UNPACK[element], PACK[element], make_deliver(element), 16 // element

    def dropout(
        a, mask, out, control, total, lanes, channels, by_lanes_mul, by_lanes_shift, by_area_mul, by_area_shift,
        area, lda, ldm, ldo,
        masking, accumulate, key, threshold, scale,
    ):
        at = i32(cuda.grid(1))
        if at >= total:
            return
        pixel, part = find_vector(at, lanes, by_lanes_mul, by_lanes_shift)
        row = i64(pixel)
        n = divide(pixel, by_area_mul, by_area_shift)
        place = u32(u32(pixel - n * u32(area)) * u32(channels) + u32(part * VEC))
        first = u32(0)
        words = cuda.local.array(4, dtype=types.uint32)
        words[0] = _read_seed(control)
        words[1] = u32(_read_step(control))
        words[2] = key
        words[3] = u32(u32(_read_first(control)) + n)
        for i in range(4):
            first = mix(u32(u32(first + u32(0x9E3779B9)) + words[i]))
        second = mix(u32(first + u32(0x9E3779B9)))
        x = cuda.local.array(VEC, dtype=types.float32)
        unpack(load4_ordered(u64(a + u64((row * lda + part * VEC) * element))), x)
        for i in range(VEC):
            drawn = mix(u32(mix(u32(u32(place + u32(i)) ^ first)) + second))
            x[i] = f32(x[i] * scale) if drawn >= threshold else f32(0.0)
        deliver(pack(x), mask, out, row, part, ldm, ldo, masking, accumulate)

    return dropout
