"""Max pooling over windows, and its gradient: a thread takes one vector (16 bytes of channels) of a pixel.

Forward: a thread compares the pixels of its window; the place of the maximum in the window is kept as a byte. A place
of 127 (`STOPPED`) marks a maximum that did not pass the producer's ReLU, so that x need not be kept as a mask.
Gradient: a thread writes a block of stride x stride pixels of dx. It reads every window that meets the block once and
adds its gradient to the pixel of its place, so that no two threads write one place.

    grid: vectors / 256     block: 256 threads, neighbouring vectors of a pixel first, then neighbouring pixels

Shared memory: none; neighbouring windows meet in the L1 cache. Bytes: x, out and (training) a byte of each channel of
out; backward dy, the bytes and dx; each once.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.compilation import ptx
from core.gpu.compilation.cuda import cuda, device_function, types
from core.gpu.kernels.parts.lanes import ADD, PACK, UNPACK, find_pixel, in_turn, passes
from core.gpu.kernels.parts.winners import EVERY, STOPPED, Shape, make_sharing, write_places
from core.gpu.launch import INTEGER, POINTER, Argument, KernelSignature, divisions, pitches

i32, u32, i64, u64, f32 = types.int32, types.uint32, types.int64, types.uint64, types.float32

WHERE: Final = (
    Argument("total", INTEGER, "vectors (of 16 bytes) in all, one a thread"),
    Argument("lanes", INTEGER, "vectors a pixel"),
    *divisions(lanes="`lanes`", area="`area`", columns="`columns`"),
    Argument("area", INTEGER, "pixels of an image that have a thread each (for a gradient blocks of stride x stride)"),
    Argument("columns", INTEGER, "those of one of its rows"),
    Argument("height", INTEGER, "rows of x or dx"),
    Argument("width", INTEGER, "columns of x or dx"),
    Argument("ho", INTEGER, "rows of out or dy"),
    Argument("wo", INTEGER, "columns of out or dy"),
    *pitches(ldx="x or dx", ldo="out or dy"),
)  # fmt: skip
"""Which pixel a thread has: shared by all pools over windows."""

_PADDING: Final = (
    Argument("ldp", INTEGER, "bytes from a pixel of `places` to the next"),
    Argument("top", INTEGER, "padding above"),
    Argument("left", INTEGER, "padding on the left"),
)  # fmt: skip

FORWARD: Final = KernelSignature((
    Argument("x", POINTER, "activations (N, height, width, C)"),
    Argument("out", POINTER, "activations (N, ho, wo, C)"),
    Argument("places", POINTER, "uint8 (N, ho, wo, C): each maximum's place in its window; 0 keeps none"),
    *WHERE, *_PADDING,
    Argument("activation", INTEGER, "activation of the step that wrote x (`core.gpu.launch.RELU`)"),
))  # fmt: skip

GRADIENT: Final = KernelSignature((
    Argument("dy", POINTER, "gradient of out"),
    Argument("dx", POINTER, "gradient of x"),
    Argument("places", POINTER, "what the forward kernel kept"),
    *WHERE, *_PADDING,
    Argument("accumulate", INTEGER, "1 adds to dx"),
))  # fmt: skip


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
            v = ptx.load4(u64(x + u64((row * ldx + part * 8) * 2)) if ok else x)
            for i in range(4):
                pair = v[i] if ok else u32(0)
                low = i32(ptx.permute(pair, u32(MARK), u32(0x1054)))
                high = i32(ptx.permute(pair, u32(MARK), u32(0x3254)))
                best[2 * i] = low if low > best[2 * i] else best[2 * i]
                best[2 * i + 1] = high if high > best[2 * i + 1] else best[2 * i + 1]

        return tap

    take_taps = in_turn([make_tap(ky, kx) for ky in range(KH) for kx in range(KW)])

    def max_pool(
        x, out, places, total, lanes, by_lanes_mul, by_lanes_shift, by_area_mul, by_area_shift,
        by_columns_mul, by_columns_shift, area, columns,
        height, width, ho, wo, ldx, ldo, ldp, top, left, activation,
    ):
        at = i32(cuda.grid(1))
        if at >= total:
            return
        pixel, part, n, oy, ox = find_pixel(
            at, lanes, by_lanes_mul, by_lanes_shift, by_area_mul, by_area_shift, by_columns_mul, by_columns_shift,
            area, columns,
        )
        best = cuda.local.array(8, dtype=types.int32)
        for i in range(8):
            best[i] = i32(0)
        take_taps(x, n, i32(oy * SY - top), i32(ox * SX - left), height, width, ldx, part, best)
        row = i64(pixel)
        pairs = cuda.local.array(4, dtype=types.uint32)
        for i in range(4):
            pairs[i] = ptx.permute(u32(best[2 * i]), u32(best[2 * i + 1]), u32(0x7632))
        ptx.store4(u64(out + u64((row * ldo + part * 8) * 2)), pairs[0], pairs[1], pairs[2], pairs[3])
        if places != u64(0):
            marks = cuda.local.array(8, dtype=types.uint32)
            for i in range(8):
                value = ptx.high_bf16(u32(best[i]))
                marks[i] = u32(255) - u32(u32(best[i]) & u32(255)) if passes(value, activation) else u32(STOPPED)
            write_places(u64(places + u64(row * ldp + part * 8)), marks, True)

    return max_pool


def make_max_pool(element: int, shape: Shape) -> Any:
    """Forward kernel: out and places from x."""
    unpack, pack, VEC = UNPACK[element], PACK[element], 16 // element
    KH, KW, SY, SX = shape
    WIDE = VEC == 8

    def max_pool(
        x, out, places, total, lanes, by_lanes_mul, by_lanes_shift, by_area_mul, by_area_shift,
        by_columns_mul, by_columns_shift, area, columns,
        height, width, ho, wo, ldx, ldo, ldp, top, left, activation,
    ):
        at = i32(cuda.grid(1))
        if at >= total:
            return
        pixel, part, n, oy, ox = find_pixel(
            at, lanes, by_lanes_mul, by_lanes_shift, by_area_mul, by_area_shift, by_columns_mul, by_columns_shift,
            area, columns,
        )
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
                unpack(ptx.load4(u64(x + u64((row * ldx + part * VEC) * element)) if ok else x), value)
                for i in range(VEC):
                    if ok and not value[i] <= best[i]:
                        best[i], place[i] = value[i], i32(ky * KW + kx)
        row = i64(pixel)
        v = pack(best)
        ptx.store4(u64(out + u64((row * ldo + part * VEC) * element)), v[0], v[1], v[2], v[3])
        if places != u64(0):
            marks = cuda.local.array(VEC, dtype=types.uint32)
            for i in range(VEC):
                marks[i] = u32(place[i]) if passes(best[i], activation) else u32(STOPPED)
            write_places(u64(places + u64(row * ldp + part * VEC)), marks, WIDE)

    return max_pool


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
            four = ptx.load4(u64(dy + u64((row * ldo + part * 8) * 2)))
            two = ptx.load2(u64(places + u64(row * ldp + part * 8)))
            for i in range(4):
                v[k * 4 + i] = four[i]
            for i in range(2):
                found[k * 2 + i] = two[i] if ok else u32(STOPPED * EVERY)

        return load

    load_windows = in_turn([make_load(k, da, db) for k, (da, db) in enumerate(windows)])

    def max_pool_gradient(
        dy, dx, places, total, lanes, by_lanes_mul, by_lanes_shift, by_area_mul, by_area_shift,
        by_columns_mul, by_columns_shift, area, columns,
        height, width, ho, wo, ldx, ldo, ldp, top, left, accumulate,
    ):
        at = i32(cuda.grid(1))
        if at >= total:
            return
        _, part, n, a, b = find_pixel(
            at, lanes, by_lanes_mul, by_lanes_shift, by_area_mul, by_area_shift, by_columns_mul, by_columns_shift,
            area, columns,
        )
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
                        s = add(s, ptx.load4_ordered(target))
                    ptx.store4(target, s[0], s[1], s[2], s[3])

    return max_pool_gradient


def make_max_pool_gradient(element: int, shape: Shape) -> Any:
    """Gradient kernel for every element and window."""
    unpack, pack, add, VEC = UNPACK[element], PACK[element], ADD[element], 16 // element
    KH, KW, SY, SX = shape
    DOWN, ACROSS, SUMS = (KH - 1) // SY + 1, (KW - 1) // SX + 1, SY * SX * VEC
    WIDE = VEC == 8

    def max_pool_gradient(
        dy, dx, places, total, lanes, by_lanes_mul, by_lanes_shift, by_area_mul, by_area_shift,
        by_columns_mul, by_columns_shift, area, columns,
        height, width, ho, wo, ldx, ldo, ldp, top, left, accumulate,
    ):
        at = i32(cuda.grid(1))
        if at >= total:
            return
        _, part, n, a, b = find_pixel(
            at, lanes, by_lanes_mul, by_lanes_shift, by_area_mul, by_area_shift, by_columns_mul, by_columns_shift,
            area, columns,
        )
        sums = cuda.local.array(SUMS, dtype=types.float32)
        value = cuda.local.array(VEC, dtype=types.float32)
        for i in range(SUMS):
            sums[i] = f32(0.0)
        for da in range(DOWN):
            for db in range(ACROSS):
                oy, ox = i32(a - da), i32(b - db)
                ok = oy >= 0 and oy < ho and ox >= 0 and ox < wo
                row = i64((i64(n) * ho + oy) * wo + ox) if ok else i64(0)
                unpack(ptx.load4(u64(dy + u64((row * ldo + part * VEC) * element))), value)
                source = u64(places + u64(row * ldp + part * VEC))
                words = ptx.load2(source) if WIDE else (ptx.load1(source), u32(0))
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
                        v = add(v, ptx.load4_ordered(target))
                    ptx.store4(target, v[0], v[1], v[2], v[3])

    return max_pool_gradient
