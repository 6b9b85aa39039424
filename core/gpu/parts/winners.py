"""Positions of the maxima of pooling windows as bytes, and the gradient distributed by them."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from core.gpu.compilation.cuda import cuda, device_function, u32
from core.gpu.compilation.ptx import fma_bf16, permute, store1, store2
from core.gpu.parts.tile import ONES
from core.gpu.parts.vectors import in_turn

STOPPED: Final = 127
"""Position of a maximum whose gradient is zero by the ReLU before the pool; windows have fewer positions."""

EVERY: Final = 0x01010101
"""Repeats a byte four times."""

Shape: TypeAlias = tuple[int, int, int, int]
"""Kernel and stride (rows, columns): constants of a kernel, so that all its loads are issued together."""


@device_function
def write_positions(target, marks, wide):
    words = cuda.local.array(2, u32)
    words[0], words[1] = u32(0), u32(0)
    for i in range(len(marks)):
        words[i // 4] = u32(words[i // 4] | u32(marks[i] << u32(8 * (i % 4))))
    if wide:
        store2(target, words[0], words[1])
    else:
        store1(target, words[0])


def make_sharing(shape: Shape) -> tuple[list[Any], list[tuple[int, int]]]:
    """(device functions, windows): each adds a window's gradients to a stride x stride block of pixels.

    For 8 channels in bf16, by the positions of the maxima. `windows` are the offsets in rows and columns, from the
    block's own window, of those that contain its pixels.

    A byte of ``(positions ^ position) + 127`` has its sign set if the positions differ (both are at most 127, so
    nothing is carried); `permute` makes masks of the signs. At most four windows contain a pixel if the kernel is not
    larger than twice the stride, so a sum is rounded at most three times.
    """
    KH, KW, SY, SX = shape
    windows = [(da, db) for da in range((KH - 1) // SY + 1) for db in range((KW - 1) // SX + 1)]

    def make_share(k: int, da: int, db: int, i: int, j: int) -> Any:
        MINE, AT, PAIR = ((i + da * SY) * KW + j + db * SX) * EVERY, (i * SX + j) * 4, ONES["bf16"]

        @device_function
        def share(v, positions, sums):
            for half in range(2):
                other = u32(u32(positions[k * 2 + half] ^ u32(MINE)) + u32(127 * EVERY))
                o, q = AT + half * 2, k * 4 + half * 2
                one = u32(v[q] & ~permute(other, u32(0), u32(0x9988)))
                two = u32(v[q + 1] & ~permute(other, u32(0), u32(0xBBAA)))
                sums[o], sums[o + 1] = fma_bf16(one, u32(PAIR), sums[o]), fma_bf16(two, u32(PAIR), sums[o + 1])

        return share

    return [
        in_turn([
            make_share(k, da, db, i, j)
            for i in range(min(SY, KH - da * SY))
            for j in range(min(SX, KW - db * SX))
        ])
        for k, (da, db) in enumerate(windows)
    ], windows
