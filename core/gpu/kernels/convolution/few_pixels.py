"""Convolution of few pixels: every load of a block is under way at once, and its warps share the sum's depth.

One photo's layers are bound by the time from one load to the next, not by bytes or products. So nothing goes through
shared memory but the sums: a lane loads 16 bytes of a pixel and of a filter straight into the registers of an `mma`.
Eight neighbouring elements a lane are not where the product wants them, but the same ones of both factors are in the
same place, and a sum knows no order. The warps' sums are added in a fixed order at the end.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Any, Final, final

from core.gpu.compilation.cuda import cuda, device_function, types
from core.gpu.compilation.ptx import (
    bits_to_float,
    float_to_bits,
    max_bf16,
    mma_bf16,
    shared_address,
    shared_load4,
    shared_store2,
    store4,
)
from core.gpu.kernels.parts.early_start import load4_constant_where, load4_where, wait_for_previous
from core.gpu.kernels.parts.fragments import divide
from core.gpu.kernels.parts.lanes import PACK, UNPACK, activate
from core.gpu.kernels.parts.pixels import pixel_of_row

i32, u32, i64, u64, f32 = types.int32, types.uint32, types.int64, types.uint64, types.float32

ARGUMENTS: Final = (
    *(types.uint64,) * 5,  # x, packed filters, bias (0: none), out, what is added to the sums (0: nothing)
    *(types.int32,) * 4,  # rows, columns, packed row length, parts of the sum
    *(types.uint32,) * 6,  # fast division by pixels of a photo, by the width, by parts of a pixel
    *(types.int32,) * 3,  # pixels of a photo, width (of the output), parts of a pixel
    *(types.int32,) * 5,  # height, width, pixel pitch, row pitch, photo pitch of the input, in elements
    *(types.int32,) * 4,  # stride y, x; padding top, left
    *(types.int32,) * 3,  # pixel pitch of out, of what is added; activation
)

PART: Final = 8
"""bf16 elements in 16 bytes."""
CHUNK: Final = 4
"""Parts that one warp multiplies at a time: one for each lane of a quad, two products deep."""
PADDING: Final = 8
"""Floats behind a row of sums, against bank conflicts."""
REGISTERS, MOST_REGISTERS, BESIDE = 65536, 230, 60
"""Registers of a multiprocessor, of a thread at most, and those of a thread that hold neither factors nor sums."""


@final
@dataclass(frozen=True, slots=True)
class Few:
    """A block: warps along the columns, each with so many fragments of 16 rows and 8 columns; warps along the depth."""

    rows: int
    columns: int
    across: int
    slices: int

    @property
    def numbers(self) -> tuple[int, ...]:
        """The fields, for a recipe."""
        return astuple(self)

    @property
    def threads(self) -> int:
        return 32 * self.across * self.slices

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns of a block."""
        return 16 * self.rows, PART * self.columns * self.across

    @property
    def rounds(self) -> int:
        """Parts of the output that a thread writes."""
        return -(-self.size[0] * self.size[1] // PART // self.threads)

    @property
    def shared(self) -> int:
        """Bytes of dynamic shared memory: the sums of all warps."""
        tall, wide = self.size
        return 4 * self.slices * tall * (wide + PADDING)

    def turns(self, parts: int) -> int:
        """Chunks of a warp, for a sum of so many parts."""
        return -(-parts // (CHUNK * self.slices))

    def suits(self, parts: int) -> bool:
        """Whether the factors fit into the registers and the sums into the shared memory."""
        held = self.turns(parts) * (8 * self.rows + 4 * self.columns) + 4 * self.rows * self.columns
        registers = (held + BESIDE) * self.threads
        return held + BESIDE <= MOST_REGISTERS and registers <= REGISTERS and self.shared <= 48 << 10


def make_loads(shape: Few, turns: int) -> Any:
    """Device function: a warp's filters, `turns` chunks of them, into registers."""
    TN, TURNS = shape.columns, turns

    @device_function
    def load_filters(weight, column, limit, depth, first, parts, held):
        for c in range(TURNS):
            part = i32(first + c * 4)
            for n in range(TN):
                ok = column + n * 8 < limit and part < parts
                at = u64(weight + u64((i64(column + n * 8) * i64(depth) + i64(part) * 8) * 2))
                v = load4_constant_where(at if ok else weight, u32(1) if ok else u32(0))
                for i in range(4):
                    held[(c * TN + n) * 4 + i] = v[i]

    return load_filters


def make_pixel_loads(shape: Few, turns: int, kernel_width: int) -> Any:
    """Device function: the same of its pixels, zeros beyond the photo's border."""
    TM, TURNS, KW = shape.rows * 2, turns, kernel_width

    @device_function
    def load_pixels(x, py, px, pa, first, parts, c_mul, c_shift, c_parts, height, width, row, pitch, held):
        for c in range(TURNS):
            part = i32(first + c * 4)
            tap = i32(divide(u32(part), c_mul, c_shift))
            within = i32(part - tap * c_parts)
            ky = i32(tap // KW)
            kx = i32(tap - ky * KW)
            offset = i64(i32(ky * row + kx * pitch + within * 8)) * 2
            for m in range(TM):
                ok = u32(py[m] + ky) < u32(height) and u32(px[m] + kx) < u32(width) and part < parts
                v = load4_where(u64(pa[m] + u64(offset)) if ok else x, u32(1) if ok else u32(0))
                for i in range(4):
                    held[(c * TM + m) * 4 + i] = v[i]

    return load_pixels


def make_window_finder(shape: Few) -> Any:
    """Device function: where the windows of a lane's pixels begin, as row, column and address."""
    BOTH = shape.rows * 2

    @device_function
    def find_windows(x, first, rows, hw_mul, hw_shift, w_mul, w_shift, hw, wo, window, pitch, row, photo, py, px, pa):
        for m in range(BOTH):
            pixel = i32(first + m * 8)
            n = divide(u32(pixel), hw_mul, hw_shift)
            oy = divide(u32(u32(pixel) - n * u32(hw)), w_mul, w_shift)
            ox = u32(u32(pixel) - n * u32(hw) - oy * u32(wo))
            py[m] = i32(i32(oy) * window[0] - window[2] if pixel < rows else i32(-(1 << 20)))
            px[m] = i32(i32(ox) * window[1] - window[3])
            pa[m] = u64(x + u64((i64(n) * i64(photo) + i64(py[m]) * i64(row) + i64(px[m]) * i64(pitch)) * 2))

    return find_windows


def make_pooled_loads(shape: Few, turns: int) -> Any:
    """The same of a max pool's output, 3x3 from values that are not negative: the largest of nine pixels each."""
    TM, TURNS = shape.rows * 2, turns

    @device_function
    def load_pixels(x, py, px, pa, first, parts, c_mul, c_shift, c_parts, height, width, row, pitch, held):
        nine = cuda.local.array(36, dtype=types.uint32)
        for c in range(TURNS):
            part = i32(first + c * 4)
            for m in range(TM):
                for k in range(9):
                    ok = u32(py[m] + k // 3) < u32(height) and u32(px[m] + k % 3) < u32(width) and part < parts
                    at = u64(pa[m] + u64(i64(i32((k // 3) * row + (k % 3) * pitch + part * 8)) * 2))
                    v = load4_where(at if ok else x, u32(1) if ok else u32(0))
                    for i in range(4):
                        nine[k * 4 + i] = v[i]
                for i in range(4):
                    top = nine[i]
                    for k in range(1, 9):
                        top = max_bf16(top, nine[k * 4 + i])
                    held[(c * TM + m) * 4 + i] = top

    return load_pixels


def make_products(shape: Few, turns: int) -> Any:
    """Device function: pixels times filters, added to the warp's sums."""
    TM, TN, TURNS = shape.rows, shape.columns, turns

    @device_function
    def multiply(a, b, acc):
        for c in range(TURNS):
            for m in range(TM):
                p = (c * TM + m) * 8
                for n in range(TN):
                    q, o = (c * TN + n) * 4, (m * TN + n) * 4
                    for half in range(0, 4, 2):
                        r = mma_bf16(
                            a[p + half], a[p + 4 + half], a[p + half + 1], a[p + 5 + half], b[q + half],
                            b[q + half + 1], acc[o], acc[o + 1], acc[o + 2], acc[o + 3],
                        )  # fmt: skip
                        acc[o], acc[o + 1], acc[o + 2], acc[o + 3] = r[0], r[1], r[2], r[3]

    return multiply


def make_outputs(shape: Few, place: Any) -> tuple[Any, Any, Any, Any]:
    """Device functions for a thread's 16-byte parts of the output: biases; what is added to them; sums stored; written.

    `place(row, about)` is a device function that gives the pixel of a block's row, or -1.
    """
    (ROWS, COLUMNS), (TM, TN), TH, SL = shape.size, (shape.rows, shape.columns), shape.threads, shape.slices
    PARTS, ROW, ROUNDS, pack, unpack = COLUMNS // PART, 4 * (COLUMNS + PADDING), shape.rounds, PACK[2], UNPACK[2]

    @device_function
    def begin(tid, bias, weight, first, limit, noted):
        for j in range(ROUNDS):
            part = i32((tid + j * TH) % PARTS)
            ok = bias != u64(0) and first + part * 8 < limit
            for h in range(2):
                at = u64(bias + u64(i64(first + part * 8 + h * 4) * 4))
                v = load4_constant_where(at if ok else weight, u32(1) if ok else u32(0))
                for i in range(4):
                    noted[j * 8 + h * 4 + i] = bits_to_float(v[i])

    @device_function
    def add(tid, other, pitch, bn, columns, value, noted, about):
        for j in range(ROUNDS):
            r, part = i32((tid + j * TH) // PARTS), i32((tid + j * TH) % PARTS)
            pixel = place(r, about) if r < ROWS and bn + part * 8 < columns else i32(-1)
            at = u64(other + u64((i64(pixel) * i64(pitch) + i64(bn + part * 8)) * 2))
            unpack(load4_where(at if pixel >= 0 else other, u32(1) if pixel >= 0 else u32(0)), value)
            for i in range(8):
                noted[j * 8 + i] = f32(noted[j * 8 + i] + value[i])

    @device_function
    def stage(acc, base, slice, column, g, t):
        for m in range(TM):
            for n in range(TN):
                o = (m * TN + n) * 4
                at = u32(base + u32((slice * ROWS + m * 16 + g) * ROW + (column + n * 8 + t * 2) * 4))
                shared_store2(at, float_to_bits(acc[o]), float_to_bits(acc[o + 1]))
                shared_store2(u32(at + u32(8 * ROW)), float_to_bits(acc[o + 2]), float_to_bits(acc[o + 3]))

    @device_function
    def write(tid, base, out, pitch, bn, columns, activation, value, noted, about):
        for j in range(ROUNDS):
            r, part = i32((tid + j * TH) // PARTS), i32((tid + j * TH) % PARTS)
            pixel = place(r, about) if r < ROWS and bn + part * 8 < columns else i32(-1)
            if pixel >= 0:
                for i in range(8):
                    value[i] = noted[j * 8 + i]
                for s in range(SL):
                    at = u32(base + u32((s * ROWS + r) * ROW + part * 32))
                    low, high = shared_load4(at), shared_load4(u32(at + u32(16)))
                    for i in range(4):
                        value[i] = f32(value[i] + bits_to_float(low[i]))
                        value[i + 4] = f32(value[i + 4] + bits_to_float(high[i]))
                for i in range(8):
                    value[i] = activate(value[i], activation)
                v = pack(value)
                store4(u64(out + u64((i64(pixel) * i64(pitch) + i64(bn + part * 8)) * 2)), v[0], v[1], v[2], v[3])

    return begin, add, stage, write


def make_few_pixels(numbers: tuple[int, ...], turns: int, kernel_width: int, added: bool, pooled: bool = False) -> Any:
    """The kernel. `turns`: chunks of a warp; `added`: another photo of the output's shape is added to the sums.

    `pooled`: a 1x1 convolution of a max pool's output that reads the pool's input; stride and padding are the pool's.
    """
    shape = Few(*numbers)
    TM, TN, SL, BOTH = shape.rows, shape.columns, shape.slices, 2 * shape.rows
    ROWS, COLUMNS = shape.size
    NA, NB, NACC, NOTED = turns * TM * 8, turns * TN * 4, TM * TN * 4, shape.rounds * 8
    find_windows, load_filters = make_window_finder(shape), make_loads(shape, turns)
    load_pixels = make_pooled_loads(shape, turns) if pooled else make_pixel_loads(shape, turns, kernel_width)
    multiply, (begin_outputs, add, stage, write) = make_products(shape, turns), make_outputs(shape, pixel_of_row)

    def few_pixels(
        x, weight, bias, out, other, rows, columns, depth, parts,
        hw_mul, hw_shift, w_mul, w_shift, c_mul, c_shift, hw, wo, c_parts,
        height, width, pitch, row, photo, sy, sx, pt, pl, ldc, ldo, activation,
    ):
        shared = cuda.shared.array(0, dtype=types.uint8)
        base = shared_address(shared)
        tid = i32(cuda.threadIdx.x)
        lane, warp = i32(tid & 31), i32(tid >> 5)
        g, t = i32(lane >> 2), i32(lane & 3)
        mine, wn = i32(warp % SL), i32((warp // SL) * (TN * 8))
        bm, bn = i32(i32(cuda.blockIdx.x) * ROWS), i32(i32(cuda.blockIdx.y) * COLUMNS)
        begin = i32(mine * (turns * 4) + t)
        b = cuda.local.array(NB, dtype=types.uint32)
        load_filters(weight, i32(bn + wn + g), columns, depth, begin, parts, b)
        noted = cuda.local.array(NOTED, dtype=types.float32)
        begin_outputs(tid, bias, weight, bn, columns, noted)
        py = cuda.local.array(BOTH, dtype=types.int32)
        px = cuda.local.array(BOTH, dtype=types.int32)
        pa = cuda.local.array(BOTH, dtype=types.uint64)
        find_windows(
            x, i32(bm + g), rows, hw_mul, hw_shift, w_mul, w_shift, hw, wo, (sy, sx, pt, pl), pitch, row, photo, py,
            px, pa,
        )  # fmt: skip
        wait_for_previous()
        a = cuda.local.array(NA, dtype=types.uint32)
        load_pixels(x, py, px, pa, begin, parts, c_mul, c_shift, c_parts, height, width, row, pitch, a)
        value = cuda.local.array(8, dtype=types.float32)
        if added:
            add(tid, other, ldo, bn, columns, value, noted, (bm, rows))
        acc = cuda.local.array(NACC, dtype=types.float32)
        for i in range(NACC):
            acc[i] = f32(0.0)
        multiply(a, b, acc)
        stage(acc, base, mine, wn, g, t)
        cuda.syncthreads()
        write(tid, base, out, ldc, bn, columns, activation, value, noted, (bm, rows))

    return few_pixels
