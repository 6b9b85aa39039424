"""Elementwise work on channel slices, 16 bytes a lane: sums, copies, activations, masks, dropout, sigmoid."""

from __future__ import annotations

from typing import Any, Final

from core.gpu.compilation.cuda import cuda, device_function, types
from core.gpu.compilation.ptx import load1, load4_ordered
from core.gpu.kernels.parts.fragments import divide
from core.gpu.kernels.parts.lanes import PACK, UNPACK, activate, find_lane, make_deliver

i32, u32, i64, u64, f32 = types.int32, types.uint32, types.int64, types.uint64, types.float32

ARGUMENTS: Final = (
    *(types.uint64,) * 4,  # a, b (0: none), mask (0: none), out
    *(types.int32,) * 2,  # lanes in all, lanes a pixel
    *(types.uint32,) * 2,  # fast division by lanes a pixel
    *(types.int32,) * 4,  # pixel pitches of a, b, mask, out
    *(types.int32,) * 3,  # activation, masking, accumulate
)


def make_combine(element: int, kind: str) -> Any:
    """``out = activation(a + b)`` kept where the mask lets the gradient pass; "sigmoid" maps a, and
    "sigmoid_gradient" gives ``a b (1 - b)``."""
    unpack, pack, deliver, VEC = UNPACK[element], PACK[element], make_deliver(element), 16 // element
    FORWARD, GRADIENT = kind == "sigmoid", kind == "sigmoid_gradient"

    def combine(a, b, mask, out, total, lanes, l_mul, l_shift, lda, ldb, ldm, ldo, activation, masking, accumulate):
        at = i32(cuda.grid(1))
        if at >= total:
            return
        pixel, part = find_lane(at, lanes, l_mul, l_shift)
        row = i64(pixel)
        x = cuda.local.array(VEC, dtype=types.float32)
        y = cuda.local.array(VEC, dtype=types.float32)
        unpack(load4_ordered(u64(a + u64((row * lda + part * VEC) * element))), x)
        if b != u64(0):
            unpack(load4_ordered(u64(b + u64((row * ldb + part * VEC) * element))), y)
        else:
            for i in range(VEC):
                y[i] = f32(0.0)
        for i in range(VEC):
            if FORWARD:
                x[i] = f32(f32(1.0) / f32(f32(1.0) + cuda.libdevice.expf(f32(-x[i]))))
            elif GRADIENT:
                x[i] = f32(x[i] * y[i] * f32(f32(1.0) - y[i]))
            else:
                x[i] = activate(f32(x[i] + y[i]), activation)
        deliver(pack(x), mask, out, row, part, ldm, ldo, masking, accumulate)

    return combine


@device_function
def mix(x):
    """`core.ops.random.mix`: one word to another."""
    x = u32(x ^ u32(x >> u32(16)))
    x = u32(u64(x) * u64(0x7FEB352D))
    x = u32(x ^ u32(x >> u32(15)))
    x = u32(u64(x) * u64(0x846CA68B))
    return u32(x ^ u32(x >> u32(16)))


DROPOUT_ARGUMENTS: Final = (
    *(types.uint64,) * 4,  # a, mask (0: none), out, control block (`core.gpu.lowering.control`)
    *(types.int32,) * 3,  # lanes in all, lanes a pixel, channels
    *(types.uint32,) * 4,  # fast division by lanes a pixel, by pixels a photo
    types.int32,  # pixels a photo
    *(types.int32,) * 3,  # pixel pitches of a, mask, out
    *(types.int32,) * 2,  # masking, accumulate
    *(types.uint32,) * 2,  # key, threshold
    types.float32,  # scale
)


def make_dropout(element: int) -> Any:
    """``out = a`` where the counter's bits reach the threshold, scaled, else 0: forward and gradient alike."""
    unpack, pack, deliver, VEC = UNPACK[element], PACK[element], make_deliver(element), 16 // element

    def dropout(
        a, mask, out, control, total, lanes, channels, l_mul, l_shift, hw_mul, hw_shift, hw, lda, ldm, ldo,
        masking, accumulate, key, threshold, scale,
    ):
        at = i32(cuda.grid(1))
        if at >= total:
            return
        pixel, part = find_lane(at, lanes, l_mul, l_shift)
        row = i64(pixel)
        n = divide(pixel, hw_mul, hw_shift)
        place = u32(u32(pixel - n * u32(hw)) * u32(channels) + u32(part * VEC))
        first = u32(0)
        words = cuda.local.array(4, dtype=types.uint32)
        words[0] = load1(u64(control + u64(8)))
        words[1] = load1(u64(control + u64(4)))
        words[2] = key
        words[3] = u32(load1(u64(control + u64(12))) + n)
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
