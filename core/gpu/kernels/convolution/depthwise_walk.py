"""Depthwise 3x3 forward: a thread walks down two columns of four channels, the sums of three rows in its registers.

In training it reads the output of the convolution before it and applies that one's batch norm and activation on the
way, so that the normalised photo is never stored, and it leaves the sums that the next batch norm wants.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.compilation.cuda import cuda, device_function, types
from core.gpu.compilation.ptx import load1, load_float
from core.gpu.kernels.parts.channels import make_fold, make_load, make_squash, make_store, make_unpack
from core.gpu.kernels.parts.fragments import divide
from core.gpu.kernels.parts.lanes import activate

i32, u32, i64, u64, f32 = types.int32, types.uint32, types.int64, types.uint64, types.float32

ARGUMENTS: Final = (
    *(types.uint64,) * 5,  # x, packed filters (9, channels), bias (0: none), out, saved of the batch norm before
    *(types.uint64,) * 2,  # partial sums for the batch norm behind (blocks, 2, channels), control block
    *(types.int32,) * 3,  # lanes (of four channels) a pixel, lanes a block, items: photos x strips x pairs
    *(types.int32,) * 3,  # pairs of columns, strips of rows, rows a strip
    *(types.uint32,) * 4,  # fast division by pairs and by strips
    *(types.int32,) * 6,  # height, width of x, of out; pixel pitch of x, of out
    types.int32,  # activation of out
)

CHANNELS: Final = 4
THREADS: Final = 128


def blocks(element: int, stride: int, normal: bool) -> int:
    """Blocks a multiprocessor: as many as the registers allow. `normal`: with the batch norms around."""
    return 2 if element == 4 else 3 if stride == 2 and not normal else 4


def make_depthwise_walk(element: int, stride: int, norm: int) -> Any:
    """Grid: (blocks, parts of the channels). `norm`: -1 reads x as it is and adds bias and activation; 0, 1, 2 read
    it through batch norm and no activation, ReLU, ReLU6, and sum what they write."""
    WORDS, PX = element, 4 if stride == 1 else 5
    NORMAL, SIX, S = norm >= 0, 6.0 if norm == 2 else 1.0, stride
    RAW, STORED = WORDS * PX, THREADS * CHANNELS
    load, unpack, store = make_load(WORDS), make_unpack(element, CHANNELS), make_store(element, CHANNELS)
    squash, fold = make_squash(norm), make_fold(CHANNELS)

    @device_function
    def fetch(row, places, raw):
        for p in range(PX):
            load(u64(row + u64(places[p])), raw, p * WORDS)

    def make_turn(rows):
        """Device function: the pixels of a row, zeros outside, times their taps onto one to three rows of sums; the
        next row's loads start as soon as their registers are free."""

        @device_function
        def turn(raw, inside, scale, shift, following, places, taps, one, ky, two, ky2, three, ky3):
            v = cuda.local.array(4, dtype=types.float32)
            for p in range(PX):
                unpack(raw, p * WORDS, v, 0)
                load(u64(following + u64(places[p])), raw, p * WORDS)
                for i in range(4):
                    v[i] = squash(v[i], scale[i], shift[i])
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

        return turn

    turn1, turn2, turn3 = make_turn(1), make_turn(2), make_turn(3)

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

    def depthwise_forward(
        x, weight, bias, out, saved, partial, control, lanes, wide, items, pairs, strips, tall,
        p_mul, p_shift, s_mul, s_shift, height, width, ho, wo, ldx, ldo, activation,
    ):
        shared = cuda.shared.array(STORED, dtype=types.float32)
        t, threads = i32(cuda.threadIdx.x), i32(cuda.blockDim.x)
        ty, across = i32(t // wide), i32(threads // wide)
        c = i32((i32(cuda.blockIdx.y) * wide + t - ty * wide) * 4)
        channels = i32(lanes * 4)
        taps = cuda.local.array(36, dtype=types.float32)
        words = cuda.local.array(4, dtype=types.uint32)
        scale = cuda.local.array(4, dtype=types.float32)
        shift = cuda.local.array(4, dtype=types.float32)
        totals = cuda.local.array(8, dtype=types.float32)
        for k in range(9):
            load(u64(weight + u64((i64(k) * channels + c) * element)), words, 0)
            unpack(words, 0, taps, k * 4)
        for i in range(4):
            totals[i], totals[4 + i] = f32(0.0), f32(0.0)
            if NORMAL:
                scale[i] = f32(load_float(u64(saved + u64((i64(channels) * 2 + c + i) * 4))) * f32(1.0 / SIX))
                shift[i] = f32(load_float(u64(saved + u64((i64(channels) * 3 + c + i) * 4))) * f32(1.0 / SIX))
                for k in range(9):
                    taps[k * 4 + i] = f32(taps[k * 4 + i] * f32(SIX))
        mine = u64(bias + u64(i64(c) * 4)) if bias != u64(0) else u64(0)
        raw = cuda.local.array(RAW, dtype=types.uint32)
        places = cuda.local.array(PX, dtype=types.int32)
        first = cuda.local.array(8, dtype=types.float32)
        second = cuda.local.array(8, dtype=types.float32)
        third = cuda.local.array(8, dtype=types.float32)
        line, target_line = i64(i64(width) * ldx * element), i64(i64(wo) * ldo * element)
        photos = i32(load1(control)) if NORMAL else i32(0)
        for item in range(i32(i32(cuda.blockIdx.x) * across + ty), items, i32(i32(cuda.gridDim.x) * across)):
            strip = i32(divide(item, p_mul, p_shift))
            n = i32(divide(strip, s_mul, s_shift))
            column, row0 = i32((item - strip * pairs) * 2), i32((strip - n * strips) * tall)
            last = i32(min(i32(row0 + tall), ho))
            inside = i32(0)
            for p in range(PX):
                z = i32(column * S - 1 + p)
                inside = i32(inside | (i32(1 << p) if z >= 0 and z < width else i32(0)))
                places[p] = i32(min(max(z, i32(0)), i32(width - 1)) * ldx * element)
            photo = u64(x + u64(i64(i32(n * height)) * line + i64(c * element)))
            target = u64(out + u64(i64(i32(n * ho + row0)) * target_line + i64(i32((column * ldo + c) * element))))
            beside = i32(ldo * element) if column + 1 < wo else i32(0)
            y = i32(row0 * S - 1)
            fetch(u64(photo + u64(i64(max(y, i32(0))) * line)), places, raw)
            for i in range(8):
                second[i], third[i] = f32(0.0), f32(0.0)
            if S == 2:
                following = u64(photo + u64(i64(y + 1) * line))
                turn1(raw, inside if y >= 0 else i32(0), scale, shift, following, places, taps, second, 0, second, 0,
                      second, 0)
                for _ in range(row0, last):
                    following = u64(photo + u64(i64(min(i32(y + 2), i32(height - 1))) * line))
                    turn1(raw, inside, scale, shift, following, places, taps, second, 1, second, 0, second, 0)
                    following = u64(photo + u64(i64(min(i32(y + 3), i32(height - 1))) * line))
                    for i in range(8):
                        third[i] = f32(0.0)
                    turn2(raw, inside if y + 2 < height else i32(0), scale, shift, following, places, taps, second, 2,
                          third, 0, third, 0)
                    finish(second, target, beside, n < photos, mine, activation, totals)
                    for i in range(8):
                        second[i] = third[i]
                    target = u64(target + u64(target_line))
                    y = i32(y + 2)
            else:
                for y in range(i32(row0 - 1), i32(last + 1)):
                    for i in range(8):
                        first[i], second[i], third[i] = second[i], third[i], f32(0.0)
                    following = u64(photo + u64(i64(min(i32(y + 1), i32(height - 1))) * line))
                    turn3(raw, inside if y >= 0 and y < height else i32(0), scale, shift, following, places, taps,
                          first, 2, second, 1, third, 0)
                    if y > row0:
                        finish(first, target, beside, n < photos, mine, activation, totals)
                        target = u64(target + u64(target_line))
        if NORMAL:
            at = i64(i64(i32(cuda.blockIdx.x)) * 2 * channels + i64(i32(cuda.blockIdx.y)) * wide * 4)
            fold(shared, totals, 0, t, wide, across, u64(partial + u64(at * 4)))
            fold(shared, totals, 4, t, wide, across, u64(partial + u64((at + channels) * 4)))

    return depthwise_forward
