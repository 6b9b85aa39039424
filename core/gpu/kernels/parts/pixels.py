"""Which pixel a row of a block's tile is: device functions `place(row, about)` for the epilogue, -1 outside."""

from __future__ import annotations

from core.gpu.compilation.cuda import device_function, types
from core.gpu.kernels.parts.fragments import divide

i32, u32 = types.int32, types.uint32


@device_function
def pixel_of_row(r, about):
    """Rows are consecutive pixels: `about` is (first pixel, pixels)."""
    return i32(about[0] + r) if about[0] + r < about[1] else i32(-1)


@device_function
def pixel_of_number(r, about):
    """Rows are consecutive numbers in a numbering with a zero pixel at every border: rows of width + 1 numbers, images
    of height + 1 rows.

    `about`: first number, numbers in all, height, width, fast division by numbers an image and by width + 1. The result
    is ``(n height + y) width + x``.
    """
    p = i32(about[0] + r)
    n = divide(max(p, 0), about[4], about[5])
    rest = u32(u32(max(p, 0)) - n * u32((about[2] + 1) * (about[3] + 1)))
    y = i32(divide(rest, about[6], about[7]))
    x = i32(rest - u32(y * (about[3] + 1)))
    ok = p >= 0 and p < about[1] and y < about[2] and x < about[3]
    return i32((i32(n) * about[2] + y) * about[3] + x) if ok else i32(-1)
