"""Counter-based random numbers (Philox4x32-10): every value is a pure function of its counter.

Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3". NumPy's Philox needs one object
per stream; this one draws for all photos of a batch with a dozen array operations.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from core.ops.contract import Array

_ROUNDS: Final = 10
_MULTIPLY: Final = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL: Final = (0x9E3779B9, 0xBB67AE85)
_LOW: Final = np.uint64(0xFFFFFFFF)
_HALF: Final = np.uint64(32)


def philox(counters: Array, key: tuple[int, int]) -> Array:
    """Four random words for each counter: uint32 ``(N, 4)`` from integers ``(N, 4)`` and a key of two words."""
    c0, c1, c2, c3 = (np.asarray(counters[:, i]).astype(np.uint64) & _LOW for i in range(4))
    k0, k1 = key[0] & 0xFFFFFFFF, key[1] & 0xFFFFFFFF
    for _ in range(_ROUNDS):
        p0, p1 = c0 * _MULTIPLY[0], c2 * _MULTIPLY[1]
        c0, c1, c2, c3 = (p1 >> _HALF) ^ c1 ^ np.uint64(k0), p1 & _LOW, (p0 >> _HALF) ^ c3 ^ np.uint64(k1), p0 & _LOW
        k0, k1 = (k0 + _WEYL[0]) & 0xFFFFFFFF, (k1 + _WEYL[1]) & 0xFFFFFFFF
    return np.stack((c0, c1, c2, c3), axis=1).astype(np.uint32)


def uniforms(count: int, first: Array, second: Array, third: int, key: tuple[int, int]) -> Array:
    """Float64 ``(N, count)`` in [0, 1): row n is a function of (first[n], second[n], third, key) alone."""
    blocks = -(-count // 4)
    counters = np.empty((len(first), blocks, 4), np.uint64)
    counters[:, :, 0] = np.asarray(first)[:, None]
    counters[:, :, 1] = np.asarray(second)[:, None]
    counters[:, :, 2] = third
    counters[:, :, 3] = np.arange(blocks)
    words = philox(counters.reshape(-1, 4), key).reshape(len(first), blocks * 4)
    return words[:, :count] * 2.0**-32
