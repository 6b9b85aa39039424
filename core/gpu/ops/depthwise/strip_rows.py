"""Both executions of the 3x3 depthwise strips: down the rows of an image with stride 1, and with stride 2.

A thread has two columns of four channels of the output. `inside` has a bit for each column of the input that is not
padding; `places` are the columns' byte offsets in a row.
"""

from __future__ import annotations

from typing import Any

from core.gpu.compilation.cuda import cuda, device_function, types
from core.gpu.compilation.ptx import load_float
from core.gpu.parts.channels import make_apply_norm, make_load, make_store, make_unpack
from core.gpu.parts.vectors import activate

i32, i64, u64, f32 = types.int32, types.int64, types.uint64, types.float32


def columns_read(stride: int) -> int:
    """Columns of the input that two columns of the output see."""
    return 4 if stride == 1 else 5


def make_row_products(element: int, stride: int, norm: int, rows: int) -> Any:
    """Device function: adds a row's pixels times their taps to one to three rows of sums.

    The next row's loads start as soon as their registers are free.
    """
    WORDS, PX, S = element, columns_read(stride), stride
    load, unpack, apply_norm = make_load(WORDS), make_unpack(element, 4), make_apply_norm(norm)

    @device_function
    def add_row(raw, inside, scale, shift, following, places, taps, one, ky, two, ky2, three, ky3):
        v = cuda.local.array(4, dtype=types.float32)
        for p in range(PX):
            unpack(raw, p * WORDS, v, 0)
            load(u64(following + u64(places[p])), raw, p * WORDS)
            for i in range(4):
                v[i] = apply_norm(v[i], scale[i], shift[i])
                v[i] = v[i] if (inside >> p) & 1 != 0 else f32(0.0)
            for q in range(2):
                kx = p - q * S
                if kx >= 0 and kx < 3:
                    for i in range(4):
                        o, k = q * 4 + i, kx * 4 + i
                        one[o] = f32(one[o] + f32(v[i] * taps[ky * 12 + k]))
                        if rows > 1:
                            two[o] = f32(two[o] + f32(v[i] * taps[ky2 * 12 + k]))
                        if rows > 2:
                            three[o] = f32(three[o] + f32(v[i] * taps[ky3 * 12 + k]))

    return add_row


def make_finish(element: int, normal: bool) -> Any:
    """Device function: stores two columns of a row; with the norms adds them to the sums, else adds the bias first."""
    NORMAL, store = normal, make_store(element, 4)

    @device_function
    def finish(sums, target, next_column, real, bias, activation, totals):
        if NORMAL:
            if real:
                for q in range(2):
                    for i in range(4):
                        v = sums[q * 4 + i] if q == 0 or next_column != 0 else f32(0.0)
                        totals[i] = f32(totals[i] + v)
                        totals[4 + i] = f32(totals[4 + i] + f32(v * v))
        else:
            for i in range(8):
                b = load_float(u64(bias + u64((i & 3) * 4))) if bias != u64(0) else f32(0.0)
                sums[i] = activate(f32(sums[i] + b), activation)
        store(target, sums, 0)
        if next_column != 0:
            store(u64(target + u64(i64(next_column))), sums, 4)

    return finish


def make_dense(element: int, norm: int) -> Any:
    """Device function for stride 1: rows row0 to last of the output; the first row of the input is already in `raw`."""
    turn3, finish = make_row_products(element, 1, norm, 3), make_finish(element, norm >= 0)

    @device_function
    def run_dense(
        image, target, line, target_line, row0, last, height, inside, beside, real, bias, activation, places, taps,
        scale, shift, raw, first, second, third, totals,
    ):
        for y in range(i32(row0 - 1), i32(last + 1)):
            for i in range(8):
                first[i], second[i], third[i] = second[i], third[i], f32(0.0)
            following = u64(image + u64(i64(min(i32(y + 1), i32(height - 1))) * line))
            turn3(raw, inside if y >= 0 and y < height else i32(0), scale, shift, following, places, taps,
                  first, 2, second, 1, third, 0)
            if y > row0:
                finish(first, target, beside, real, bias, activation, totals)
                target = u64(target + u64(target_line))

    return run_dense


def make_strided(element: int, norm: int) -> Any:
    """Device function for stride 2: the same."""
    turn1, turn2 = make_row_products(element, 2, norm, 1), make_row_products(element, 2, norm, 2)
    finish = make_finish(element, norm >= 0)

    @device_function
    def run_strided(
        image, target, line, target_line, row0, last, height, inside, beside, real, bias, activation, places, taps,
        scale, shift, raw, first, second, third, totals,
    ):
        y = i32(row0 * 2 - 1)
        following = u64(image + u64(i64(y + 1) * line))
        turn1(raw, inside if y >= 0 else i32(0), scale, shift, following, places, taps, second, 0, second, 0,
              second, 0)
        for _ in range(row0, last):
            following = u64(image + u64(i64(min(i32(y + 2), i32(height - 1))) * line))
            turn1(raw, inside, scale, shift, following, places, taps, second, 1, second, 0, second, 0)
            following = u64(image + u64(i64(min(i32(y + 3), i32(height - 1))) * line))
            for i in range(8):
                third[i] = f32(0.0)
            turn2(raw, inside if y + 2 < height else i32(0), scale, shift, following, places, taps, second, 2,
                  third, 0, third, 0)
            finish(second, target, beside, real, bias, activation, totals)
            for i in range(8):
                second[i] = third[i]
            target = u64(target + u64(target_line))
            y = i32(y + 2)

    return run_strided
