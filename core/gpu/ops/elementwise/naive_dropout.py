"""Dropout with the counter-based generator of `core.ops.dropout`: the same mask on every device, none stored.

One thread per element makes its image's stream and its own bits. Forward and gradient are one kernel.
"""

from __future__ import annotations

from core.gpu.compilation.arrays import Float, Int, Integers, Vector, float32, int64
from core.gpu.compilation.cuda import cuda, device_function
from core.gpu.teaching.kernel import kernel
from core.ops.dropout import GOLDEN, MASK


@device_function
def mix(x):
    """`core.ops.dropout.mix` in 64-bit integers, of which the low 32 bits are kept."""
    x ^= x >> 16
    x = x * 0x7FEB352D & MASK
    x ^= x >> 15
    x = x * 0x846CA68B & MASK
    return x ^ (x >> 16)


@device_function
def element_bits(seed, step, key, photo, element):
    """The 32 bits of one element of one photo."""
    first = mix((GOLDEN + seed) & MASK)
    first = mix((first + GOLDEN + step) & MASK)
    first = mix((first + GOLDEN + key) & MASK)
    first = mix((first + GOLDEN + photo) & MASK)
    second = mix((first + GOLDEN) & MASK)
    return mix((mix(element ^ first) + second) & MASK)


@kernel
def naive(
    x: Vector, out: Vector, seed: Integers, step: Integers, photo0: Integers, volume: Int, key: Int, limit: Int,
    scale: Float,
) -> None:  # fmt: skip
    """``out = x scale`` where the element's bits reach `limit`, else 0; `volume` elements an image."""
    i = cuda.grid(1)
    if i < out.size:
        word, now, image = int64(seed[0]) & MASK, int64(step[0]), int64(photo0[0]) + i // volume
        kept = element_bits(word, now, key, image, i % volume) >= limit
        out[i] = x[i] * float32(scale) if kept else float32(0)
