"""Numbers that look random and are the same on every machine and in every version of NumPy."""

import zlib

import numpy as np

from core.ops.dropout import bits, stream


def words(name, count):
    """uint32 ``(count,)``, a function of the name."""
    return bits(stream(zlib.crc32(name.encode()), 0, 0, 0), count)


def noise(name, shape):
    """Float64 between -1 and 1, evenly spread, exact in float32; a function of the name."""
    count = int(np.prod(shape))
    return ((words(name, count) >> np.uint32(8)) * 2.0**-23 - 1.0).reshape(shape)


def integers(name, shape, low, high):
    """int32 from `low` to `high` - 1."""
    count = int(np.prod(shape))
    return (low + (words(name, count) % np.uint32(high - low)).astype(np.int32)).reshape(shape)
