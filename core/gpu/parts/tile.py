"""The share of a matrix product that a block computes: tiles, and the products of a warp in each arithmetic."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from core.gpu.compilation import ptx
from core.gpu.compilation.cuda import cuda, device_function, f32, i32, i64, u32, u64
from core.gpu.parts.vectors import put4

ELEMENT: Final = {"bf16": 2, "tf32": 4, "float32": 4, "fma": 4}
"""Bytes of an element in memory by arithmetic."""

ONES: Final = {"bf16": 0x3F803F80, "tf32": 0x3F800000, "float32": 0x3F800000, "fma": 0x3F800000}
"""Bits of a fragment register of ones."""


class Tile(NamedTuple):
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
    """Blocks that must fit on a multiprocessor."""

    @property
    def threads(self) -> int:
        return 32 * self.warp_rows * self.warp_columns

    @property
    def fragments(self) -> tuple[int, int]:
        """Fragments of 16 rows, and of 8 columns, of one warp."""
        rows, columns = self.rows // self.warp_rows // 16, self.columns // self.warp_columns // 8
        assert rows > 0
        assert columns % 2 == 0 or columns == 1  # loads of fragments have two at a time
        return rows, columns


@device_function
def multiply_bf16(a, b0, b1, sums, o):
    """Add the product of bf16 fragments, 16 x 8 and 16 deep, to four sums from `o` on; `a` has four registers."""
    r = ptx.mma_bf16(a[0], a[1], a[2], a[3], b0, b1, sums[o], sums[o + 1], sums[o + 2], sums[o + 3])
    sums[o], sums[o + 1], sums[o + 2], sums[o + 3] = r[0], r[1], r[2], r[3]


@device_function
def _multiply_bf16(a, b, sums, at, tiles):
    for n in range(tiles):
        multiply_bf16(a, b[n * 2], b[n * 2 + 1], sums, at + n * 4)


@device_function
def _round(bits):
    return ptx.to_tf32(ptx.bits_to_float(bits))


@device_function
def _split(bits):
    """The tf32 nearest to a float32, and the rest, of which tensor cores ignore the bits beyond tf32.

    `to_tf32` takes four instructions from Hopper on, and its check for NaN is not needed: the rest is NaN too.
    """
    high = u32(u32(bits + u32(0x1000)) & u32(0xFFFFE000))
    return high, ptx.float_to_bits(f32(ptx.bits_to_float(bits) - ptx.bits_to_float(high)))


@device_function
def _multiply_tf32(a, b, sums, at, tiles):
    a0, a1, a2, a3 = _round(a[0]), _round(a[1]), _round(a[2]), _round(a[3])
    for n in range(tiles):
        o = at + n * 4
        b0, b1 = _round(b[n * 2]), _round(b[n * 2 + 1])
        r = ptx.mma_tf32(a0, a1, a2, a3, b0, b1, sums[o], sums[o + 1], sums[o + 2], sums[o + 3])
        sums[o], sums[o + 1], sums[o + 2], sums[o + 3] = r[0], r[1], r[2], r[3]


@device_function
def _multiply_float32(a, b, sums, at, tiles):
    """high x high + high x low + low x high, the small products first.

    Tensor cores truncate sums instead of rounding: adding to the long sum outside them is 10x more exact.
    """
    (h0, l0), (h1, l1), (h2, l2), (h3, l3) = _split(a[0]), _split(a[1]), _split(a[2]), _split(a[3])
    for n in range(tiles):
        o = at + n * 4
        (p0, q0), (p1, q1) = _split(b[n * 2]), _split(b[n * 2 + 1])
        zero = f32(0.0)
        r = ptx.mma_tf32(l0, l1, l2, l3, p0, p1, zero, zero, zero, zero)
        r = ptx.mma_tf32(h0, h1, h2, h3, q0, q1, r[0], r[1], r[2], r[3])
        r = ptx.mma_tf32(h0, h1, h2, h3, p0, p1, r[0], r[1], r[2], r[3])
        for i in range(4):
            sums[o + i] = f32(sums[o + i] + r[i])


@device_function
def _multiply_fma(a, b, sums, at, tiles):
    """The same product without tensor cores, exact to float32: lanes exchange the factors by shuffles.

    Lane 4 g + t holds a's (row g, depth t), (g + 8, t), (g, t + 4), (g + 8, t + 4), b's (depth t, column g) and
    (t + 4, g), and sums (g, 2 t), (g, 2 t + 1), (g + 8, 2 t), (g + 8, 2 t + 1).
    """
    column = u32((i32(cuda.threadIdx.x) & 3) * 8)
    for t in range(4):
        upper, lower = ptx.of_quad(a[0], u32(t)), ptx.of_quad(a[1], u32(t))
        upper4, lower4 = ptx.of_quad(a[2], u32(t)), ptx.of_quad(a[3], u32(t))
        even, odd = u32(column + u32(t)), u32(column + u32(t + 4))
        for n in range(tiles):
            o = at + n * 4
            left, right = ptx.of_lane(b[n * 2], even), ptx.of_lane(b[n * 2], odd)
            left4, right4 = ptx.of_lane(b[n * 2 + 1], even), ptx.of_lane(b[n * 2 + 1], odd)
            sums[o] = f32(f32(sums[o] + f32(upper * left)) + f32(upper4 * left4))
            sums[o + 1] = f32(f32(sums[o + 1] + f32(upper * right)) + f32(upper4 * right4))
            sums[o + 2] = f32(f32(sums[o + 2] + f32(lower * left)) + f32(lower4 * left4))
            sums[o + 3] = f32(f32(sums[o + 3] + f32(lower * right)) + f32(lower4 * right4))


MULTIPLY: Final = {"bf16": _multiply_bf16, "tf32": _multiply_tf32, "float32": _multiply_float32, "fma": _multiply_fma}
"""``MULTIPLY[arithmetic](a, b, sums, at, tiles)``: one fragment of 16 rows times `tiles` fragments of 8 columns.

a: 4 registers; b: 2 per tile; sums: 4 per tile from `at` on.
"""


def make_filter_loader(tiles: int, row: int) -> Any:
    """Device function: fragments of `tiles` x 8 filters, one depth step, from rows of `row` bytes at an address."""
    PAIRS, SINGLE = tiles // 2, tiles == 1

    @device_function
    def load(at, lane, out):
        if SINGLE:
            two = ptx.ldmatrix2(u32(at + u32((lane & 7) * row + ((lane >> 3) & 1) * 16)))
            out[0], out[1] = two[0], two[1]
        else:
            mine = u32(at + u32(((lane & 7) + ((lane >> 4) << 3)) * row + ((lane >> 3) & 1) * 16))
            for n in range(PAIRS):
                put4(ptx.ldmatrix4(u32(mine + u32(n * 16 * row))), out, n * 4)

    return load


def crossed_row(columns: int, element: int) -> int:
    """Bytes of a stage's row along which fragments are not read but across it: so that they have no bank conflicts."""
    return columns * element + (16 if element == 2 else 32)


def make_row_sender(rows: int, columns: int, threads: int, element: int) -> Any:
    """Device function that starts the copies of a stage's rows of a matrix: rows `at` to `end`, columns from `first` to
    `limit`, zeros beyond them."""
    VEC, TH, ROW = 16 // element, threads, crossed_row(columns, element)
    CH = columns // VEC
    LOADS, ROUNDS = rows * CH, (rows * CH + TH - 1) // TH

    @device_function
    def send_rows(slot, matrix, at, end, first, limit, pitch, tid):
        for j in range(ROUNDS):
            r, part = i32((tid + j * TH) // CH), i32((tid + j * TH) % CH)
            ok = at + r < end and first + part * VEC < limit
            source = u64(matrix + u64((i64(at + r) * i64(pitch) + i64(first + part * VEC)) * element))
            if LOADS % TH == 0 or tid + j * TH < LOADS:
                to = u32(slot + u32(r * ROW + part * 16))
                ptx.copy_async16(to, source if ok else matrix, u32(16) if ok else u32(0))

    return send_rows


def make_fragment_loaders(element: int, row_a: int, row_b: int, TN: int) -> tuple[Any, Any]:
    """Device functions that read fragments whose rows lie along pixels: `a(stage, k, column)`, `b(..., out)`."""
    if element == 2:

        def load_a(stage, k, column, lane):
            at = (k + (lane & 7) + ((lane >> 4) << 3)) * row_a + (column + ((lane >> 3) & 1) * 8) * 2
            return ptx.ldmatrix4_transposed(u32(stage + u32(at)))

        def load_b(stage, k, column, lane, out):
            if TN == 1:
                t2 = ptx.ldmatrix2_transposed(u32(stage + u32((k + (lane & 15)) * row_b + column * 2)))
                out[0], out[1] = t2[0], t2[1]
            else:
                for n2 in range(TN // 2):
                    at = (k + (lane & 15)) * row_b + (column + n2 * 16 + (lane >> 4) * 8) * 2
                    put4(ptx.ldmatrix4_transposed(u32(stage + u32(at))), out, n2 * 4)
    else:

        def load_a(stage, k, column, lane):
            at = u32(stage + u32((k + (lane & 3)) * row_a + (column + (lane >> 2)) * 4))
            return (
                ptx.shared_load1(at), ptx.shared_load1(u32(at + u32(32))),
                ptx.shared_load1(u32(at + u32(4 * row_a))), ptx.shared_load1(u32(at + u32(4 * row_a + 32))),
            )

        def load_b(stage, k, column, lane, out):
            at = u32(stage + u32((k + (lane & 3)) * row_b + (column + (lane >> 2)) * 4))
            for n in range(TN):
                out[n * 2] = ptx.shared_load1(u32(at + u32(n * 32)))
                out[n * 2 + 1] = ptx.shared_load1(u32(at + u32(n * 32 + 4 * row_b)))

    return device_function(load_a), device_function(load_b)


def make_multiplier(arithmetic: str, tile: Tile, row: int, crossed: bool = False) -> Any:
    """Device function: one stage's product of a warp's pixels and filters, added to its sums.

    Rows of both are in shared memory, `row` bytes apart; `pixels` is the address of the warp's first row, `filters`
    that of its first filter; `held` has two registers per column fragment. `crossed`: rows of filters lie along the
    depth.
    """
    (TM, TN), KS = tile.fragments, tile.depth // 32
    element = ELEMENT[arithmetic]
    across = crossed_row(tile.columns, element)
    STEP = 32 // element * across if crossed else 32
    mma, load_rows, (_, load_crossed) = (
        MULTIPLY[arithmetic], make_filter_loader(TN, row), make_fragment_loaders(element, across, across, TN)
    )  # fmt: skip

    @device_function
    def multiply(pixels, filters, lane, acc, held):
        mine = u32(pixels + u32((lane & 15) * row + (lane >> 4) * 16))
        for kk in range(KS):
            if crossed:
                load_crossed(u32(filters + u32(kk * STEP)), 0, 0, lane, held)
            else:
                load_rows(u32(filters + u32(kk * STEP)), lane, held)
            for tm in range(TM):
                mma(ptx.ldmatrix4(u32(mine + u32(tm * 16 * row + kk * 32))), held, acc, tm * TN * 4, TN)

    return multiply


@device_function
def exchange(r, lane):
    """Transpose 4 x 4 registers between the 4 lanes of a quad."""
    for stage in range(2):
        step = 1 << stage
        odd = (lane >> stage) & 1
        for k in range(2):
            i = 2 * k if stage == 0 else k
            j = i + step
            got = ptx.shuffle_bits(r[i] if odd == 1 else r[j], u32(step))
            if odd == 1:
                r[i] = got
            else:
                r[j] = got
