"""The share of a matrix product that a block computes, and the inner product that all convolutions run on it."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Any, final

from core.gpu.compilation.cuda import device_function, types
from core.gpu.compilation.ptx import ldmatrix4
from core.gpu.kernels.parts.fragments import make_filter_loader, multiply_add

i32, u32 = types.int32, types.uint32


@final
@dataclass(frozen=True, slots=True)
class Tile:
    """A block's work: rows x columns of the product, depth of a stage, stages, warps along rows and columns.

    Depth is bytes of a stage's row, for a weight gradient pixels of a stage.
    """

    rows: int
    columns: int
    depth: int = 64
    stages: int = 3
    warp_rows: int = 4
    warp_columns: int = 2
    blocks: int = 2
    """Blocks the compiler must fit on a multiprocessor."""

    @property
    def numbers(self) -> tuple[int, ...]:
        """The fields, for a recipe."""
        return astuple(self)

    @property
    def threads(self) -> int:
        return 32 * self.warp_rows * self.warp_columns

    @property
    def fragments(self) -> tuple[int, int]:
        """Fragments of 16 rows, and of 8 columns, of one warp."""
        return self.rows // self.warp_rows // 16, self.columns // self.warp_columns // 8


def make_multiplier(arithmetic: str, tile: Tile, row: int, filter_row: int) -> Any:
    """Device function: one stage's product of a warp's pixels and filters, added to its sums.

    Rows of both lie in shared memory, `row` and `filter_row` bytes apart; `pixels` is the address of the warp's
    first row, `filters` that of its first filter; `held` has room for two registers a column fragment.
    """
    (TM, TN), KS = tile.fragments, tile.depth // 32
    mma, load_filters = multiply_add(arithmetic), make_filter_loader(TN, filter_row)

    @device_function
    def multiply(pixels, filters, lane, acc, held):
        mine = u32(pixels + u32((lane & 15) * row + (lane >> 4) * 16))
        for kk in range(KS):
            load_filters(u32(filters + u32(kk * 32)), lane, held)
            for tm in range(TM):
                mma(ldmatrix4(u32(mine + u32(tm * 16 * row + kk * 32))), held, acc, tm * TN * 4, TN)

    return multiply
