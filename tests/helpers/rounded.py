"""Values rounded to bf16, and their bits."""

import numpy as np


def to_bits(array):
    """The bits of bf16, rounded to nearest, ties to even."""
    words = np.ascontiguousarray(array, np.float32).view(np.uint32)
    return ((words + 0x7FFF + (words >> 16 & 1)) >> 16).astype(np.uint16)


def of_bits(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def bf16(array):
    """Rounded to nearest, ties to even, as float64."""
    return of_bits(to_bits(array)).astype(np.float64)


def cut_to_bf16(values):
    """The nearest bf16 below in size, as float64 and as the 16 bits of each."""
    bits = (np.asarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return of_bits(bits).astype(np.float64), bits
