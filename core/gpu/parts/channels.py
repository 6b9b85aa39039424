"""A few neighbouring channels of a pixel per thread, for the depthwise kernels."""

from __future__ import annotations

from typing import Any

from core.gpu.compilation import ptx
from core.gpu.compilation.cuda import cuda, device_function, f32, i32, i64, u64


def make_load(words: int) -> Any:
    """Device function: `words` of 4 bytes from an address into a local array from index `at` on."""

    @device_function
    def load(address, raw, at):
        if words == 1:
            raw[at] = ptx.load1(address)
        elif words == 2:
            raw[at], raw[at + 1] = ptx.load2(address)
        else:
            raw[at], raw[at + 1], raw[at + 2], raw[at + 3] = ptx.load4(address)

    return load


def make_unpack(element: int, channels: int) -> Any:
    """Device function: the channels of raw words from `at` on as float32 into `out` from `to` on."""
    words = channels * element // 4

    @device_function
    def unpack(raw, at, out, to):
        for i in range(words):
            if element == 2:
                out[to + 2 * i], out[to + 2 * i + 1] = ptx.low_bf16(raw[at + i]), ptx.high_bf16(raw[at + i])
            else:
                out[to + i] = ptx.bits_to_float(raw[at + i])

    return unpack


def make_store(element: int, channels: int) -> Any:
    """Device function: float32 values from `at` on to an address."""

    @device_function
    def store(address, values, at):
        if element == 2 and channels == 2:
            ptx.store1(address, ptx.pack_bf16(values[at], values[at + 1]))
        elif element == 2:
            low, high = ptx.pack_bf16(values[at], values[at + 1]), ptx.pack_bf16(values[at + 2], values[at + 3])
            ptx.store2(address, low, high)
        elif channels == 2:
            ptx.store2(address, ptx.float_to_bits(values[at]), ptx.float_to_bits(values[at + 1]))
        else:
            ptx.store4(
                address, ptx.float_to_bits(values[at]), ptx.float_to_bits(values[at + 1]),
                ptx.float_to_bits(values[at + 2]), ptx.float_to_bits(values[at + 3]),
            )

    return store


def ceiling(norm: int) -> float:
    """Upper bound of the activation after a batch norm, which `make_apply_norm` scales to 1; 1 without a bound."""
    return 6.0 if norm == 2 else 1.0


def make_apply_norm(norm: int) -> Any:
    """Device function ``activation(x scale + shift)``; norm: 0 none, 1 ReLU, 2 ReLU6 over six, -1 leaves x.

    ReLU6 is one instruction where the result is a sixth: the multiply-add that clamps to [0, 1].
    """

    @device_function
    def apply_norm(x, scale, shift):
        if norm == 2:
            return ptx.fma_clamped(x, scale, shift)
        if norm == 1:
            return max(f32(x * scale + shift), f32(0.0))
        return f32(x * scale + shift) if norm == 0 else x

    return apply_norm


def make_fold(channels: int) -> Any:
    """Device function: one sum per thread and channel, from `at` on, added over the block's rows of threads in order.

    `block`: the thread's number, all threads, threads per row, rows. The first of `count` channels is at `target`.
    """

    @device_function
    def fold(shared, sums, at, block, count, target):
        t, threads, wide, rows = block
        cuda.syncthreads()  # the previous sums are added
        for i in range(channels):
            shared[i32(t * channels + i)] = sums[at + i]
        cuda.syncthreads()  # the sums of all threads are stored
        for c in range(t, count, threads):
            total = f32(0.0)
            for row in range(rows):
                total = f32(total + shared[i32(row * wide * channels + c)])
            ptx.store_float(u64(target + u64(i64(c) * 4)), total)

    return fold
