"""Counter-based random bits: the same on every device, in any order, with nothing to store.

Everything is 32-bit unsigned arithmetic that wraps around, so that CPU and CUDA kernels mirror it
exactly. In Numba cast every product back with ``& 0xFFFFFFFF`` (or `uint32`): it widens to 64 bits.

One photo's stream is two words, made once a photo (`stream`); one element then costs two `mix`.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from core.ops.contract import Array

MASK: Final = 0xFFFFFFFF
GOLDEN: Final = 0x9E3779B9
"""2^32 over the golden ratio: steps by it spread evenly over all 32-bit words."""


def mix(x: int) -> int:
    """One 32-bit word to another, one to one. Source: C. Wellons, "hash prospector", lowbias32 (bias 0.17)."""
    x ^= x >> 16
    x = x * 0x7FEB352D & MASK
    x ^= x >> 15
    x = x * 0x846CA68B & MASK
    return x ^ x >> 16


def stream(seed: int, step: int, key: int, photo: int) -> tuple[int, int]:
    """The two words of one photo's stream; each argument counts modulo 2^32."""
    first = 0
    for word in (seed, step, key, photo):
        first = mix((first + GOLDEN + word) & MASK)
    return first, mix((first + GOLDEN) & MASK)


def bits(words: tuple[int, int], count: int) -> Array:
    """Elements 0 to `count` - 1 of a stream: ``mix(mix(element ^ first) + second)``, uint32 ``(count,)``."""
    first, second = words
    return _mix_array(_mix_array(np.arange(count, dtype=np.uint32) ^ np.uint32(first)) + np.uint32(second))


def threshold(rate: float) -> int:
    """An element is dropped when its bits are below this: ``rate`` of all 32-bit words."""
    return min(int(rate * 2.0**32), MASK)


def _mix_array(x: Array) -> Array:
    x = x ^ x >> np.uint32(16)
    x = x * np.uint32(0x7FEB352D)
    x = x ^ x >> np.uint32(15)
    x = x * np.uint32(0x846CA68B)
    return np.asarray(x ^ x >> np.uint32(16))
