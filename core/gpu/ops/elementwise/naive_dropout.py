"""Dropout with the counter-based generator of `core.ops.random`: the same mask on every device, none stored.

- naive: one thread per element makes its photo's stream and its own bits. Forward and gradient are one kernel
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.compilation.cuda import cuda, device_function
from core.gpu.driver.hosted import Arrays, Launcher, flat, over
from core.gpu.kernels.ladder.arrays import Float, Int, Vector, float32
from core.ops.contract import Mode
from core.ops.random import GOLDEN, MASK, threshold
from core.ops.registry import Case

INFERENCE: Final = Mode()


@device_function
def mix(x):
    """`core.ops.random.mix` in 64-bit integers, of which the low 32 bits are kept."""
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


@cuda.jit
def naive(
    x: Vector, out: Vector, volume: Int, seed: Int, step: Int, key: Int, photo0: Int, limit: Int, scale: Float
) -> None:
    """``out = x scale`` where the element's bits reach `limit`, else 0; `volume` elements a photo."""
    i = cuda.grid(1)
    if i < out.size:
        kept = element_bits(seed, step, key, photo0 + i // volume, i % volume) >= limit
        out[i] = x[i] * float32(scale) if kept else float32(0)


def _launch(case: Case, arrays: Arrays, source: Any, target: Any) -> None:
    mode = arrays.get("mode", INFERENCE)
    rate = float(str(case.attributes["rate"])) if mode.training else 0.0
    key = int(str(case.attributes["key"]))
    volume = target.size // target.shape[0]
    limit, scale = threshold(rate), 1 / (1 - rate)
    words = volume, mode.seed, mode.step, key, mode.photo0
    naive[over(target.size)](flat(source), flat(target), *words, limit, scale)


def launch_naive(source: str, target: str) -> Launcher:
    """Launcher from x to out, or from dy to dx."""
    return lambda case, arrays: _launch(case, arrays, arrays[source], arrays[target])
