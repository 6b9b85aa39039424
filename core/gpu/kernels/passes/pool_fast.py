"""Max pooling, 16 bytes of channels a lane: the winner's place is kept as a byte, so that the gradient gathers.

A place of 127 marks a window whose winner did not pass the producer's ReLU: its mask costs nothing more.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from core.gpu.compilation.cuda import cuda, device_function, types
from core.gpu.compilation.ptx import (
    fma_bf16,
    high_bf16,
    load1,
    load2,
    load4,
    load4_ordered,
    permute,
    store1,
    store2,
    store4,
)
from core.gpu.kernels.parts.lanes import ADD, PACK, UNPACK, find_pixel, in_turn, passes

i32, u32, i64, u64, f32 = types.int32, types.uint32, types.int64, types.uint64, types.float32

STOPPED: Final = 127
"""Place of a winner whose gradient the ReLU before the pool stops; windows have fewer places."""

ONES: Final = 0x3F803F80
"""A pair of bf16 ones."""

EVERY: Final = 0x01010101
"""A byte four times."""

ARGUMENTS: Final = (
    *(types.uint64,) * 3,  # x, out, places (0: keep none); or dy, dx, places
    *(types.int32,) * 2,  # lanes in all, lanes a pixel
    *(types.uint32,) * 6,  # fast division by lanes a pixel; by pixels (blocks of pixels) of a photo, by their width
    *(types.int32,) * 2,  # those pixels a photo, their width
    *(types.int32,) * 4,  # height, width of x; height, width of out
    *(types.int32,) * 3,  # pixel pitch of x, of out, of places
    *(types.int32,) * 4,  # padding (top, left); activation of x's producer; accumulate
)

Shape: TypeAlias = tuple[int, int, int, int]
"""Kernel and stride (rows, columns): constants of a kernel, so that its loads are all under way at once."""


@device_function
def write_places(target, marks, wide):
    words = cuda.local.array(2, dtype=types.uint32)
    words[0], words[1] = u32(0), u32(0)
    for i in range(len(marks)):
        words[i // 4] = u32(words[i // 4] | u32(marks[i] << u32(8 * (i % 4))))
    if wide:
        store2(target, words[0], words[1])
    else:
        store1(target, words[0])


def make_positive_max_pool(shape: Shape) -> Any:
    """Forward kernel for bf16 that passed a ReLU: half the instructions of `make_max_pool`.

    The bits of numbers that are not negative are in their order. So one integer holds value and place (the upper and
    lower half; 255 less the place, for the first of equal ones to win), and one maximum finds both.
    """
    KH, KW, SY, SX = shape

    def make_tap(ky: int, kx: int) -> Any:
        MARK = 255 - (ky * KW + kx)

        @device_function
        def tap(x, n, y, xx, height, width, ldx, part, best):
            ok = y + ky >= 0 and y + ky < height and xx + kx >= 0 and xx + kx < width
            row = i64((i64(n) * height + y + ky) * width + xx + kx)
            v = load4(u64(x + u64((row * ldx + part * 8) * 2)) if ok else x)
            for i in range(4):
                pair = v[i] if ok else u32(0)
                low, high = i32(permute(pair, u32(MARK), u32(0x1054))), i32(permute(pair, u32(MARK), u32(0x3254)))
                best[2 * i] = low if low > best[2 * i] else best[2 * i]
                best[2 * i + 1] = high if high > best[2 * i + 1] else best[2 * i + 1]

        return tap

    take_taps = in_turn([make_tap(ky, kx) for ky in range(KH) for kx in range(KW)])

    def max_pool(
        x, out, places, total, lanes, l_mul, l_shift, hw_mul, hw_shift, w_mul, w_shift, hw, wide,
        height, width, ho, wo, ldx, ldo, ldp, top, left, activation, accumulate,
    ):
        at = i32(cuda.grid(1))
        if at >= total:
            return
        pixel, part, n, oy, ox = find_pixel(at, lanes, l_mul, l_shift, hw_mul, hw_shift, w_mul, w_shift, hw, wide)
        best = cuda.local.array(8, dtype=types.int32)
        for i in range(8):
            best[i] = i32(0)
        take_taps(x, n, i32(oy * SY - top), i32(ox * SX - left), height, width, ldx, part, best)
        row = i64(pixel)
        pairs = cuda.local.array(4, dtype=types.uint32)
        for i in range(4):
            pairs[i] = permute(u32(best[2 * i]), u32(best[2 * i + 1]), u32(0x7632))
        store4(u64(out + u64((row * ldo + part * 8) * 2)), pairs[0], pairs[1], pairs[2], pairs[3])
        if places != u64(0):
            marks = cuda.local.array(8, dtype=types.uint32)
            for i in range(8):
                value = high_bf16(u32(best[i]))
                marks[i] = u32(255) - u32(u32(best[i]) & u32(255)) if passes(value, activation) else u32(STOPPED)
            write_places(u64(places + u64(row * ldp + part * 8)), marks, True)

    return max_pool


def make_max_pool(element: int, shape: Shape) -> Any:
    """Forward kernel, one lane an output pixel: out and places from x."""
    unpack, pack, VEC = UNPACK[element], PACK[element], 16 // element
    KH, KW, SY, SX = shape
    WIDE = VEC == 8

    def max_pool(
        x, out, places, total, lanes, l_mul, l_shift, hw_mul, hw_shift, w_mul, w_shift, hw, wide,
        height, width, ho, wo, ldx, ldo, ldp, top, left, activation, accumulate,
    ):
        at = i32(cuda.grid(1))
        if at >= total:
            return
        pixel, part, n, oy, ox = find_pixel(at, lanes, l_mul, l_shift, hw_mul, hw_shift, w_mul, w_shift, hw, wide)
        best = cuda.local.array(VEC, dtype=types.float32)
        value = cuda.local.array(VEC, dtype=types.float32)
        place = cuda.local.array(VEC, dtype=types.int32)
        for i in range(VEC):
            best[i], place[i] = f32(-3.0e38), i32(0)
        for ky in range(KH):
            y = i32(oy * SY - top + ky)
            for kx in range(KW):
                xx = i32(ox * SX - left + kx)
                ok = y >= 0 and y < height and xx >= 0 and xx < width
                row = i64((i64(n) * height + y) * width + xx)
                unpack(load4(u64(x + u64((row * ldx + part * VEC) * element)) if ok else x), value)
                for i in range(VEC):
                    if ok and not value[i] <= best[i]:
                        best[i], place[i] = value[i], i32(ky * KW + kx)
        row = i64(pixel)
        v = pack(best)
        store4(u64(out + u64((row * ldo + part * VEC) * element)), v[0], v[1], v[2], v[3])
        if places != u64(0):
            marks = cuda.local.array(VEC, dtype=types.uint32)
            for i in range(VEC):
                marks[i] = u32(place[i]) if passes(best[i], activation) else u32(STOPPED)
            write_places(u64(places + u64(row * ldp + part * VEC)), marks, WIDE)

    return max_pool


def make_sharing(shape: Shape) -> tuple[list[Any], list[tuple[int, int]]]:
    """(device functions, windows): each shares a window's gradients out to a stride x stride block of pixels.

    Of 8 channels in bf16, by the winners' places. `windows` see the block, so many rows and columns before its own.

    A byte of ``(places ^ place) + 127`` has its sign set where the places differ (neither is above 127, so that
    nothing is carried); `permute` makes masks of the signs. At most four windows see a pixel where the kernel is
    not larger than twice the stride, so that a sum is rounded three times at most.
    """
    KH, KW, SY, SX = shape
    windows = [(da, db) for da in range((KH - 1) // SY + 1) for db in range((KW - 1) // SX + 1)]

    def make_share(k: int, da: int, db: int, i: int, j: int) -> Any:
        MINE, AT = ((i + da * SY) * KW + j + db * SX) * EVERY, (i * SX + j) * 4

        @device_function
        def share(v, found, sums):
            for half in range(2):
                other = u32(u32(found[k * 2 + half] ^ u32(MINE)) + u32(127 * EVERY))
                o, q = AT + half * 2, k * 4 + half * 2
                one = u32(v[q] & ~permute(other, u32(0), u32(0x9988)))
                two = u32(v[q + 1] & ~permute(other, u32(0), u32(0xBBAA)))
                sums[o], sums[o + 1] = fma_bf16(one, u32(ONES), sums[o]), fma_bf16(two, u32(ONES), sums[o + 1])

        return share

    return [
        in_turn([
            make_share(k, da, db, i, j)
            for i in range(min(SY, KH - da * SY))
            for j in range(min(SX, KW - db * SX))
        ])
        for k, (da, db) in enumerate(windows)
    ], windows


def make_packed_max_pool_gradient(shape: Shape) -> Any:
    """`make_max_pool_gradient` for bf16, four channels at a time: sums stay pairs of bf16."""
    shares, windows = make_sharing(shape)
    take_shares = in_turn(shares)
    _, _, SY, SX = shape
    SUMS, WORDS, PLACES, add = SY * SX * 4, 4 * len(windows), 2 * len(windows), ADD[2]

    def make_load(k: int, da: int, db: int) -> Any:
        @device_function
        def load(dy, places, n, a, b, ho, wo, ldo, ldp, part, v, found):
            ok = a >= da and a - da < ho and b >= db and b - db < wo
            row = i64((i64(n) * ho + a - da) * wo + b - db) if ok else i64(0)
            four, two = load4(u64(dy + u64((row * ldo + part * 8) * 2))), load2(u64(places + u64(row * ldp + part * 8)))
            for i in range(4):
                v[k * 4 + i] = four[i]
            for i in range(2):
                found[k * 2 + i] = two[i] if ok else u32(STOPPED * EVERY)

        return load

    load_windows = in_turn([make_load(k, da, db) for k, (da, db) in enumerate(windows)])

    def max_pool_gradient(
        dy, dx, places, total, lanes, l_mul, l_shift, hw_mul, hw_shift, w_mul, w_shift, hw, wide,
        height, width, ho, wo, ldx, ldo, ldp, top, left, activation, accumulate,
    ):
        at = i32(cuda.grid(1))
        if at >= total:
            return
        _, part, n, a, b = find_pixel(at, lanes, l_mul, l_shift, hw_mul, hw_shift, w_mul, w_shift, hw, wide)
        v = cuda.local.array(WORDS, dtype=types.uint32)
        found = cuda.local.array(PLACES, dtype=types.uint32)
        sums = cuda.local.array(SUMS, dtype=types.uint32)
        load_windows(dy, places, n, a, b, ho, wo, ldo, ldp, part, v, found)
        for i in range(SUMS):
            sums[i] = u32(0)
        take_shares(v, found, sums)
        for i in range(SY):
            for j in range(SX):
                y, x, o = i32(a * SY + i - top), i32(b * SX + j - left), (i * SX + j) * 4
                if y >= 0 and y < height and x >= 0 and x < width:
                    row = i64((i64(n) * height + y) * width + x)
                    target = u64(dx + u64((row * ldx + part * 8) * 2))
                    s = (sums[o], sums[o + 1], sums[o + 2], sums[o + 3])
                    if accumulate != 0:
                        s = add(s, load4_ordered(target))
                    store4(target, s[0], s[1], s[2], s[3])

    return max_pool_gradient


def make_max_pool_gradient(element: int, shape: Shape) -> Any:
    """Gradient kernel, one lane a block of stride x stride pixels of dx: all its windows are read once."""
    unpack, pack, add, VEC = UNPACK[element], PACK[element], ADD[element], 16 // element
    KH, KW, SY, SX = shape
    DOWN, ACROSS, SUMS = (KH - 1) // SY + 1, (KW - 1) // SX + 1, SY * SX * VEC
    WIDE = VEC == 8

    def max_pool_gradient(
        dy, dx, places, total, lanes, l_mul, l_shift, hw_mul, hw_shift, w_mul, w_shift, hw, wide,
        height, width, ho, wo, ldx, ldo, ldp, top, left, activation, accumulate,
    ):
        at = i32(cuda.grid(1))
        if at >= total:
            return
        _, part, n, a, b = find_pixel(at, lanes, l_mul, l_shift, hw_mul, hw_shift, w_mul, w_shift, hw, wide)
        sums = cuda.local.array(SUMS, dtype=types.float32)
        value = cuda.local.array(VEC, dtype=types.float32)
        for i in range(SUMS):
            sums[i] = f32(0.0)
        for da in range(DOWN):
            for db in range(ACROSS):
                oy, ox = i32(a - da), i32(b - db)
                ok = oy >= 0 and oy < ho and ox >= 0 and ox < wo
                row = i64((i64(n) * ho + oy) * wo + ox) if ok else i64(0)
                unpack(load4(u64(dy + u64((row * ldo + part * VEC) * element))), value)
                source = u64(places + u64(row * ldp + part * VEC))
                words = load2(source) if WIDE else (load1(source), u32(0))
                for c in range(VEC):
                    place = u32(words[c // 4] >> u32(8 * (c % 4))) & u32(255) if ok else u32(254)
                    for i in range(SY):
                        for j in range(SX):
                            if i + da * SY < KH and j + db * SX < KW:
                                mine = u32((i + da * SY) * KW + j + db * SX)
                                o = (i * SX + j) * VEC + c
                                sums[o] = f32(sums[o] + (value[c] if place == mine else f32(0.0)))
        for i in range(SY):
            for j in range(SX):
                y, x = i32(a * SY + i - top), i32(b * SX + j - left)
                if y >= 0 and y < height and x >= 0 and x < width:
                    for c in range(VEC):
                        value[c] = sums[(i * SX + j) * VEC + c]
                    row = i64((i64(n) * height + y) * width + x)
                    target = u64(dx + u64((row * ldx + part * VEC) * element))
                    v = pack(value)
                    if accumulate != 0:
                        v = add(v, load4_ordered(target))
                    store4(target, v[0], v[1], v[2], v[3])

    return max_pool_gradient
