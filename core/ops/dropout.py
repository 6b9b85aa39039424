"""Dropout: in training each element is zeroed with probability `rate`, the rest scaled by ``1 / (1 - rate)``.

The mask is a function of (seed, step, key, photo, element) and is computed again where it is needed: the same on every
device, in any order, with nothing to store. `key` distinguishes the dropouts of one network; the photo is its index in
the step, the element its flat channels-last index in the photo. Source: Srivastava et al., 2014.

The random bits are 32-bit unsigned arithmetic that wraps around, so that kernels compute the same. A photo's stream is
two words; an element then costs two `mix`. In Numba cast every product back to uint32: it widens to 64 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

import numpy as np

from core.graph import Attributes, Shape
from core.ops.attributes import only_input, read_int, read_number
from core.ops.contract import Array, Call, Cost, Gradients, Mode, Op, Result, volume

MASK: Final = 0xFFFFFFFF
GOLDEN: Final = 0x9E3779B9
"""2^32 over the golden ratio: steps by it spread evenly over all 32-bit words."""
Word = TypeVar("Word", int, Array)


def mix(x: Word) -> Word:
    """Map a 32-bit word, or uint64 words, to another, one to one. Source: C. Wellons, "hash prospector", lowbias32."""
    x = x ^ x >> 16
    x = x * 0x7FEB352D & MASK
    x = x ^ x >> 15
    x = x * 0x846CA68B & MASK
    return x ^ x >> 16


def stream(seed: int, step: int, key: int, photo: int) -> tuple[int, int]:
    """Return the two words of one photo's stream; each argument counts modulo 2^32."""
    first = 0
    for word in (seed, step, key, photo):
        first = mix((first + GOLDEN + word) & MASK)
    return first, mix((first + GOLDEN) & MASK)


def bits(words: tuple[int, int], count: int) -> Array:
    """Return elements 0 to `count` - 1 of a stream: ``mix(mix(element ^ first) + second)``, uint32 ``(count,)``."""
    first, second = words
    return mix(mix(np.arange(count, dtype=np.uint64) ^ first) + second & MASK).astype(np.uint32)


def threshold(rate: float) -> int:
    """Return ``rate`` of all 32-bit words: an element is dropped when its bits are below this."""
    return int(rate * 2.0**32)


MAX_RATE: Final = 0.99


def _shape(attributes: Attributes, inputs: Sequence[Shape]) -> Shape:
    read_number(attributes, "rate", 0.0, MAX_RATE)
    read_int(attributes, "key", low=0)
    return only_input(inputs)


def scales(attributes: Attributes, shape: Shape, mode: Mode) -> Array:
    """Return the factor of every element, 0 or ``1 / (1 - rate)``: float32 of the batch's shape."""
    rate, key = read_number(attributes, "rate", 0.0, MAX_RATE), read_int(attributes, "key", low=0)
    keep = np.empty(shape, np.float32)
    for n in range(shape[0]):
        drawn = bits(stream(mode.seed, mode.step, key, mode.photo0 + n), volume(shape[1:]))
        keep[n] = (drawn >= threshold(rate)).reshape(shape[1:])
    return keep * np.float32(1 / (1 - rate))


def _scaled(call: Call, x: Array) -> Array:
    return x * scales(call.attributes, x.shape, call.mode).astype(x.dtype) if call.mode.training else x


DROPOUT: Final = Op(
    name="dropout", defaults={"rate": 0.5, "key": 0}, shape=_shape,
    forward=lambda call: Result(_scaled(call, call.inputs[0])),
    backward=lambda call, result, gradient: Gradients((_scaled(call, gradient),)),
    cost=lambda attributes, inputs, output: Cost(volume(output), 8 * volume(output)),
)
