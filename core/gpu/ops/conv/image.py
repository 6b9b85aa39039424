"""The first convolution, of the network's input, on the tensor cores: no unfolding in memory at all.

Computes ``out = activation(conv(x) + bias)`` for up to four channels, padded to 8 (bf16) or 16 bytes a pixel.

```
 image rows of a group in shared memory:   |p0 p1|p2 p3|p4 p5|p6 p7| ...    16 bytes: two (bf16) or one pixel
   row r of a fragment = output pixel r:    ^---------^  window of pixel 0, kh rows of `steps` x 32 bytes
                                                  ^---------^  window of pixel 1, `right` bytes later
```

The 16 output pixels of a fragment are rows of ldmatrix that overlap in shared memory. A block keeps all filters there,
``columns x (kh steps 32 + 16)`` bytes, and goes through groups of output rows; while it computes one group, the image
rows of the next arrive (two buffers of `span` bytes). A warp has two fragments of 16 pixels x all filters. Sums leave
as 16 bytes a thread after a 4 x 4 exchange between neighbouring lanes. Bytes: image and out once each, plus the rows
that two groups share.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.compilation.cuda import cuda, device_function, types
from core.gpu.compilation.ptx import (
    WAIT_COPIES,
    commit_copies,
    copy_async16,
    float_to_bits,
    ldmatrix4,
    load_float,
    pack_bf16,
    shared_address,
    store2,
    store4,
)
from core.gpu.kernels.parts.fragments import ELEMENT, divide, exchange, multiply_add
from core.gpu.kernels.parts.lanes import activate
from core.gpu.launch import DIVISOR, INTEGER, POINTER, Argument, KernelSignature

i32, u32, i64, u64, f32 = types.int32, types.uint32, types.int64, types.uint64, types.float32

SIGNATURE: Final = KernelSignature((
    Argument("x", POINTER, "image with its border (N, rows, row_bytes)"),
    Argument("weight", POINTER, "packed filters"),
    Argument("bias", POINTER, "float32 (columns,); 0 for none"),
    Argument("out", POINTER, "activations (N, height, width, columns)"),
    Argument("total", INTEGER, "groups of rows in all"),
    Argument("groups", INTEGER, "groups of an image"),
    Argument("by_groups", DIVISOR, "division by `groups`"),
    Argument("rows", INTEGER, "output rows of a group"),
    Argument("height", INTEGER, "rows of out"),
    Argument("width", INTEGER, "columns of out"),
    Argument("across", INTEGER, "fragments of 16 pixels across a row"),
    Argument("row_bytes", INTEGER, "bytes of an image row"),
    Argument("group_bytes", INTEGER, "bytes of a group's image rows"),
    Argument("span", INTEGER, "bytes of those and of what fragments read past them"),
    Argument("down", INTEGER, "bytes from a window to the one below"),
    Argument("right", INTEGER, "bytes from a window to the next"),
    Argument("filter_bytes", INTEGER, "bytes of a packed filter"),
    Argument("image_bytes", INTEGER, "bytes of an image"),
    Argument("ldo", INTEGER, "elements from a pixel of out to the next"),
    Argument("activation", INTEGER, "of out (`core.gpu.launch.RELU`)"),
))  # fmt: skip


def group_span(rows: int, across: int, kh: int, steps: int, down: int, right: int, row_bytes: int) -> int:
    """Bytes of a group of image rows and of what fragments read past it: 16 windows each, real ones or not.

    `across` fragments start every `right` bytes times 16; a window's row is `steps` of 32 bytes.
    """
    group = (rows - 1) * down + kh * row_bytes
    reach = (rows - 1) * down + (kh - 1) * row_bytes + (16 * across - 1) * right + 32 * steps
    return max(group, reach)


def shared_bytes(columns: int, kh: int, steps: int, span: int) -> int:
    """Filters with padded rows, and two groups of image rows of `span` bytes."""
    return columns * (kh * steps * 32 + 16) + 2 * span


@device_function
def send_group(to, x, group, about, sizes, tid, step):
    """Start the copies of a group's image rows, 16 bytes a thread and `step` bytes at a time.

    `about`: groups of an image and the division by them, output rows of a group; `sizes`: bytes from a window to the
    one below, of a group, of an image.
    """
    n = divide(group, about[1], about[2])
    first = i32(i32(u32(group) - n * u32(about[0])) * about[3] * sizes[0])
    size = i32(min(sizes[1], i32(sizes[2] - first)))
    source = u64(x + u64(i64(n) * i64(sizes[2]) + i64(first)))
    for i in range(tid * 16, size, step):
        copy_async16(u32(to + u32(i)), u64(source + u64(i)), u32(16))


def make_pair_writer(element: int, tn: int) -> Any:
    """Device function: bias and activation of a warp's two fragments of `tn` x 8 filters, and their way to memory.

    `where`: image, first output row of the group, rows in it, first columns, number of the first fragment, fragments.
    """
    HALF, TN, GROUPS = element == 2, tn, tn // 4

    @device_function
    def write_pair(acc, quad, bias, out, ldo, activation, where, height, width, lane):
        n, top, r0, r1, c0, c1, pair, tiles = where
        g, t = i32(lane >> 2), i32(lane & 3)
        for m in range(2):
            oy = i32(top + (r0 if m == 0 else r1))
            for half in range(2):
                ox = i32((c0 if m == 0 else c1) + g + half * 8)
                ok = oy < height and ox < width and pair + m < tiles
                row = i64((i64(n) * height + oy) * width + ox)
                for part in range(GROUPS):
                    for j in range(4):
                        o = (m * TN + part * 4 + j) * 4 + half * 2
                        column = i32((part * 4 + j) * 8 + t * 2)
                        b0, b1 = f32(0.0), f32(0.0)
                        if bias != u64(0):
                            b0 = load_float(u64(bias + u64(i64(column) * 4)))
                            b1 = load_float(u64(bias + u64(i64(column) * 4 + 4)))
                        v0 = activate(f32(acc[o] + b0), activation)
                        v1 = activate(f32(acc[o + 1] + b1), activation)
                        if HALF:
                            quad[j] = pack_bf16(v0, v1)
                        elif ok:
                            target = u64(out + u64((row * ldo + column) * 4))
                            store2(target, float_to_bits(v0), float_to_bits(v1))
                    if HALF:
                        exchange(quad, lane)
                        if ok:
                            target = u64(out + u64((row * ldo + (part * 4 + t) * 8) * 2))
                            store4(target, quad[0], quad[1], quad[2], quad[3])

    return write_pair


def make_photo_convolution(arithmetic: str, columns: int, kh: int, steps: int, warps: int) -> Any:
    """The kernel for `columns` filters (a multiple of 32), windows of kh rows x steps fragments of 32 bytes."""
    E, TN, TH = ELEMENT[arithmetic], columns // 8, 32 * warps
    DEPTH, WROW = kh * steps * 32, kh * steps * 32 + 16
    CHUNKS, FILTERS, NACC, NB = DEPTH // 16, columns * (kh * steps * 32 + 16), 2 * TN * 4, TN * 2
    COLUMNS, KH, STEPS, WARPS = columns, kh, steps, warps
    mma, write_pair, wait, wait_all = multiply_add(arithmetic), make_pair_writer(E, TN), WAIT_COPIES[1], WAIT_COPIES[0]

    def convolution(
        x, weight, bias, out, total, groups, by_groups_mul, by_groups_shift, rows, height, width, across,
        row_bytes, group_bytes, span, down, right, filter_bytes, image_bytes, ldo, activation,
    ):
        shared = cuda.shared.array(0, dtype=types.uint8)
        base = shared_address(shared)
        tid = i32(cuda.threadIdx.x)
        lane, warp = i32(tid & 31), i32(tid >> 5)
        for i in range(tid, COLUMNS * CHUNKS, TH):
            f, q = i32(i // CHUNKS), i32(i % CHUNKS)
            copy_async16(u32(base + u32(f * WROW + q * 16)), u64(weight + u64(i64(f) * filter_bytes + q * 16)), u32(16))
        group, slot = i32(cuda.blockIdx.x), u32(0)
        about, sizes = (groups, by_groups_mul, by_groups_shift, rows), (down, group_bytes, image_bytes)
        send_group(u32(base + u32(FILTERS)), x, group, about, sizes, tid, TH * 16)
        commit_copies()
        acc = cuda.local.array(NACC, dtype=types.float32)
        quad = cuda.local.array(4, dtype=types.uint32)
        bf = cuda.local.array(NB, dtype=types.uint32)
        while group < total:
            following = i32(group + i32(cuda.gridDim.x))
            if following < total:
                to = u32(base + u32(FILTERS) + u32(slot ^ u32(1)) * u32(span))
                send_group(to, x, following, about, sizes, tid, TH * 16)
            commit_copies()
            wait()
            cuda.syncthreads()  # the group's rows have arrived
            photo = u32(base + u32(FILTERS) + slot * u32(span))
            n = i32(divide(group, by_groups_mul, by_groups_shift))
            top = i32(i32(group - n * groups) * rows)
            tiles = i32(rows * across)
            for pair in range(i32(warp * 2), tiles, 2 * WARPS):
                for i in range(NACC):
                    acc[i] = f32(0.0)
                r0, r1 = i32(pair // across), i32((pair + 1) // across)
                c0, c1 = i32((pair - r0 * across) * 16), i32((pair + 1 - r1 * across) * 16)
                from0 = u32(photo + u32(r0 * down + (c0 + (lane & 15)) * right + (lane >> 4) * 16))
                from1 = u32(photo + u32(min(r1, rows - 1) * down + (c1 + (lane & 15)) * right + (lane >> 4) * 16))
                filters = u32(base + u32(((lane & 7) + ((lane >> 4) << 3)) * WROW + ((lane >> 3) & 1) * 16))
                for ky in range(KH):
                    for s in range(STEPS):
                        at = u32(filters + u32((ky * STEPS + s) * 32))
                        for n2 in range(TN // 2):
                            b4 = ldmatrix4(u32(at + u32(n2 * 16 * WROW)))
                            for i in range(4):
                                bf[n2 * 4 + i] = b4[i]
                        step = u32(ky * row_bytes + s * 32)
                        mma(ldmatrix4(u32(from0 + step)), bf, acc, 0, TN)
                        mma(ldmatrix4(u32(from1 + step)), bf, acc, TN * 4, TN)
                where = (n, top, r0, r1, c0, c1, pair, tiles)
                write_pair(acc, quad, bias, out, ldo, activation, where, height, width, lane)
            cuda.syncthreads()  # nobody reads the group's rows any more
            group, slot = following, u32(slot ^ u32(1))
        wait_all()

    return convolution
