"""Blocks and tile products of the 1x1 convolutions between a wide and a narrow feature map. bf16 only.

A block computes one tile of pixels after another. The wide side (the depthwise convolution's, six times the channels)
is read and written once. A thread has the same eight channels in every tile, so that the batch norm's factors of these
channels stay in registers. The narrow side and the filters are in shared memory.

    shared memory: filters | wide tile (rows of an odd number of 16 bytes: no bank conflicts) | two narrow tiles

A thread's share of a wide tile is `chunks` vectors of 16 bytes, `rows` pixels apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Any, Final

from core.gpu.arguments import CONTROL, KernelSignature, ints, pitches, pointers
from core.gpu.compilation import ptx
from core.gpu.compilation.cuda import cuda, device_function, f32, i32, i64, u32, u64
from core.gpu.parts.channels import ceiling, make_apply_norm, make_load, make_unpack
from core.gpu.parts.tile import multiply_bf16
from core.gpu.parts.vectors import PACK

SIGNATURE: Final = KernelSignature((
    *pointers(x="(pixels, wide), before its batch norm; 0 where the wide side is written",
              g="gradient of that batch norm's output (pixels, wide), or 0",
              saved="factors of that batch norm (`ops.norm.batch_norm.make_finish`), or 0",
              weight="packed filters (channels of out, depth)",
              source="(pixels, narrow): what is read of the narrow side, or 0", out="output (pixels, wide or narrow)",
              partial="float32 (blocks, wide, narrow): filter gradients of each block; 0 forward",
              sums="float32 (blocks, 2, channels): sums of out, and of out times itself or x; or 0"),
    CONTROL,
    *ints(pixels="pixels in all", hw="pixels of an image", depth="elements from a filter to the next"),
    *pitches(ldx="x", ldg="g", lds="source", ldo="out"),
    *ints(accumulate="1 adds to out, on the narrow side"),
))  # fmt: skip

WARPS: Final = {32: 4, 96: 6, 144: 9, 192: 6}
"""Warps per block by wide channels: their threads are a multiple of the vectors of a pixel."""
PIXELS: Final = {32: 64, 96: 48, 144: 96, 192: 48}
"""Pixels per tile of a convolution to the wide side, the fastest measured."""
MAX_FILTERS: Final = 12288
"""Most filter gradients that fit into the registers of a block."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A block: `wide` and `narrow` channels, its warps, and the pixels of a tile."""

    wide: int
    narrow: int
    warps: int
    pixels: int

    @property
    def threads(self) -> int:
        return 32 * self.warps

    @property
    def vectors(self) -> int:
        """Vectors (16 bytes) of a pixel of the wide side."""
        return self.wide // 8

    @property
    def rows(self) -> int:
        """Pixels that all threads have together, a vector each."""
        return self.threads // self.vectors

    @property
    def chunks(self) -> int:
        """Vectors of the wide tile per thread."""
        return self.pixels * self.vectors // self.threads

    @property
    def gradient_tiles(self) -> tuple[int, int, int]:
        """Of the filter gradients: rows of warps; a warp's tiles of 16 wide channels, and of 8 narrow ones."""
        down = gcd(self.warps, self.wide // 16)
        return down, self.wide // 16 // down, self.narrow // 8 // (self.warps // down)

    @property
    def depth(self) -> int:
        """Narrow channels up to the next multiple of 16, the depth of an mma."""
        return -(-self.narrow // 16) * 16

    @property
    def wide_row(self) -> int:
        """Bytes per row of the wide tile: an odd number of 16, so that ldmatrix reads eight rows without conflicts."""
        return (self.wide // 8 | 1) * 16

    @property
    def narrow_row(self) -> int:
        """Bytes per row of the narrow tile, likewise."""
        return (self.depth // 8 | 1) * 16


def suits_block(wide: int, narrow: int) -> bool:
    """Whether there are blocks for so many channels, in both directions."""
    known = wide in WARPS and narrow % 8 == 0 and narrow * 2 <= wide and wide * narrow <= MAX_FILTERS
    return known and _warps_down(wide, narrow) > 0


def _warps_down(wide: int, narrow: int) -> int:
    """Rows of warps, of 16 pixels each, where the warps of a row share the narrow channels evenly; 0: none."""
    warps = WARPS[wide]
    fitting = (n for n in range(3, warps + 1) if warps % n == 0 and narrow // 8 % (warps // n) == 0)
    return next(fitting, 0)


def shape_to_wide(wide: int, narrow: int) -> Shape:
    """Block of a convolution to the wide side."""
    return Shape(wide, narrow, WARPS[wide], PIXELS[wide])


def shape_to_narrow(wide: int, narrow: int) -> Shape:
    """Block of a convolution to the narrow side, where each warp computes 16 pixels."""
    return Shape(wide, narrow, WARPS[wide], 16 * _warps_down(wide, narrow))


def make_coefficients(norm: int) -> Any:
    """Device function: eight floats of one row of `saved` (`batch_norm.make_finish`), over `ceiling(norm)`."""
    factor = 1.0 / ceiling(norm)

    @device_function
    def coefficients(at, out):
        for half in range(2):
            v = ptx.load4_ordered(u64(at + u64(half * 16)))
            for i in range(4):
                out[half * 4 + i] = f32(ptx.bits_to_float(v[i]) * f32(factor))

    return coefficients


def make_fetch(shape: Shape) -> Any:
    """Device function: loads a thread's vectors of a wide tile into registers; `x` points at its channels."""
    load, chunks, rows = make_load(4), shape.chunks, shape.rows

    @device_function
    def fetch(x, first, pixels, ldx, raw):
        for j in range(chunks):
            load(u64(x + u64(i64(min(i32(first + j * rows), i32(pixels - 1))) * ldx * 2)), raw, j * 4)

    return fetch


def make_transform(shape: Shape, gradient: bool, norm: int) -> Any:
    """Device function: stores a thread's vectors of the wide side to a tile in shared memory.

    Forward ``activation(one x + two)``, with `norm` as in `make_apply_norm` and factors divided by `ceiling(norm)`;
    backward the batch norm's gradient ``one g + two x + three``, zeros for images that only fill the batch.
    """
    unpack, pack, apply_norm, end = make_unpack(2, 8), PACK[2], make_apply_norm(norm), ceiling(norm)
    chunks, rows, row = shape.chunks, shape.rows, shape.wide_row

    @device_function
    def transform(raw_x, raw_g, first, real, one, two, three, to):
        a = cuda.local.array(8, f32)
        b = cuda.local.array(8, f32)
        for j in range(chunks):
            unpack(raw_x, j * 4, a, 0)
            if gradient:
                unpack(raw_g, j * 4, b, 0)
            for i in range(8):
                if gradient:
                    a[i] = f32(f32(b[i] * one[i]) + f32(f32(a[i] * two[i]) + three[i]))
                else:
                    a[i] = f32(apply_norm(a[i], one[i], two[i]) * f32(end))
            v = pack(a)
            if gradient and first + j * rows >= real:
                v = u32(0), u32(0), u32(0), u32(0)
            ptx.shared_store4(u32(to + u32(j * rows * row)), v[0], v[1], v[2], v[3])

    return transform


def make_copy_rows(rows: int, vectors: int, used: int, row: int, threads: int) -> Any:
    """Device function: copies `rows` rows of `vectors` vectors (16 bytes) from global to shared memory; zeros after
    `used` vectors and from row `limit` on."""
    LOADS = rows * vectors

    @device_function
    def copy_rows(to, source, pitch, limit, tid):
        for i in range(tid, LOADS, threads):
            r, vector = i32(i // vectors), i32(i % vectors)
            ok = r < limit and vector < used
            at = u64(source + u64((i64(r) * pitch + vector * 8) * 2))
            ptx.copy_async16(u32(to + u32(r * row + vector * 16)), at if ok else source, u32(16) if ok else u32(0))

    return copy_rows


def make_product(steps: int, tiles: int, row: int) -> Any:
    """Device function: ``acc += a b^T`` for 16 rows of a and `tiles` x 8 of b, `row` bytes apart, over `steps` x 16."""

    @device_function
    def product(a, b, lane, acc):
        at_a = u32(a + u32((lane & 15) * row + (lane >> 4) * 16))
        at_b = u32(b + u32((lane & 7) * row + ((lane >> 3) & 1) * 16))
        for k in range(steps):
            v = ptx.ldmatrix4(u32(at_a + u32(k * 32)))
            for n in range(tiles):
                w = ptx.ldmatrix2(u32(at_b + u32(n * 8 * row + k * 32)))
                multiply_bf16(v, w[0], w[1], acc, n * 4)

    return product


def make_gradient_product(shape: Shape) -> Any:
    """Device function: ``acc += a^T b`` over the pixels of a tile, for a warp's columns of a (wide) and b (narrow)."""
    steps, row_a, row_b, (_, high, tiles) = shape.pixels // 16, shape.wide_row, shape.narrow_row, shape.gradient_tiles

    @device_function
    def product(a, b, lane, acc):
        at_a = u32(a + u32(((lane & 7) + ((lane >> 4) << 3)) * row_a + ((lane >> 3) & 1) * 16))
        at_b = u32(b + u32((lane & 15) * row_b))
        for k in range(steps):
            for m in range(high):
                v = ptx.ldmatrix4_transposed(u32(at_a + u32(k * 16 * row_a + m * 32)))
                for n in range(tiles):
                    w = ptx.ldmatrix2_transposed(u32(at_b + u32(k * 16 * row_b + n * 16)))
                    multiply_bf16(v, w[0], w[1], acc, (m * tiles + n) * 4)

    return product


def make_write_sums(shape: Shape) -> Any:
    """Device function: stores the sums of `make_gradient_product` to the block's filter gradients ``(wide, narrow)`` at
    `mine`; `lower` and `right` are the row and column of the warp."""
    narrow, (_, high, tiles) = shape.narrow, shape.gradient_tiles

    @device_function
    def write_sums(weight_sums, mine, lower, right, lane):
        for m in range(high):
            for n in range(tiles):
                row, column = i32((lower * high + m) * 16 + (lane >> 2)), i32((right * tiles + n) * 8 + (lane & 3) * 2)
                o, at = (m * tiles + n) * 4, u64(mine + u64(i64((row * narrow + column) * 4)))
                ptx.store2(at, ptx.float_to_bits(weight_sums[o]), ptx.float_to_bits(weight_sums[o + 1]))
                below = u64(at + u64(narrow * 32))
                ptx.store2(below, ptx.float_to_bits(weight_sums[o + 2]), ptx.float_to_bits(weight_sums[o + 3]))

    return write_sums
