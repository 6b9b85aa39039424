"""Weight gradient of the image's convolution from the gradient after its 3x3 max pool of stride 2.

``dweight[f, ky, kx, c] = sum over windows of d[y, x, f] image[2 y + ky, 2 x + kx, c]``, where d is the gradient that
the pool passes back. d is never in global memory: a block gathers two rows of it from the pool's windows and the
positions of their maxima (`winners.make_sharing`) into shared memory while `wgmma` multiplies the two rows before.

                    filters
               +---------------+   a product's 64 rows are 8 image rows of 8 elements (one more than a window of 7 has,
    8 rows x   |  warpgroup g  |   it is ignored); warpgroup g has 16 bytes of each row: vector g of a window.
    8 elements +---------------+   Both factors are read transposed: 8 windows of an image row are a core matrix.

A k block is two rows of d. A block takes its share of all k blocks and keeps its sums in registers; `reduction` adds
the blocks' in order. The bias gradient is the sum of the gradients of all windows whose maximum passes the ReLU.

Shared memory: image rows of two k blocks | d of two k blocks | three rows of the pool's gradients and positions | sums
for the bias. Bytes: images once, the pool's gradient and positions once, and the partial sums.
Floor: these bytes / bandwidth. Source: NVIDIA CUTLASS, split-K; PTX ISA 8.x, 9.7.15 (wgmma without swizzle).
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.arguments import KernelSignature, divisions, ints, pointers
from core.gpu.compilation import ptx
from core.gpu.compilation.cuda import cuda, device_function, f32, i32, i64, u8, u32, u64
from core.gpu.parts.vectors import clear, divide, in_turn, put4
from core.gpu.parts.winners import EVERY, STOPPED, make_sharing
from core.gpu.sm90.wgmma import fence_async_proxy, high_word, low_word, make_products, make_wait

ROWS: Final = 2
"""Rows of the convolution's output in a k block."""
PRODUCT_ROWS: Final = 8
"""Image rows of a product."""
IMAGE_ROWS: Final = 2 * (ROWS - 1) + PRODUCT_ROWS
"""Image rows of a k block."""
RING_ROWS: Final = 3
"""Rows of the pool's windows in shared memory: two that read the rows of a k block, and the next."""
ZERO_BYTES: Final = 256
"""Zeros after the image rows, read by windows past the end of a row."""
ROW_PADDING: Final = 16
"""Zeros between image rows, in bytes: a product reads a pixel of all its rows at once, from different banks."""

SIGNATURE: Final = KernelSignature((
    *pointers(x="images", dy="gradient of the pool's output",
              partial="partial weight and bias gradients, one of each block",
              positions="of the pool's maxima, a byte each"),
    *ints(total="k blocks in all", per_block="k blocks of a block", image_blocks="k blocks of an image"),
    *divisions(image_blocks="`image_blocks`"),
    *ints(hp="rows of the pool's output", wp="columns of the pool's output", rows="rows of an image",
          row_vectors="vectors of an image row", image_bytes="bytes of an image", channels="channels of a window's row",
          depth="elements of a filter", size="floats of a partial sum"),
))  # fmt: skip


def vector_bytes(steps: int) -> int:
    """From 8 filters' gradients to the next 8's: `steps` x 16 pixels, and 16 bytes against bank conflicts."""
    return steps * 256 + 16


def shared_bytes(row_vectors: int, vectors: int, steps: int, filters: int, pooled: int) -> int:
    """Image rows and gradients of two k blocks, three rows of `pooled` gradients and positions, the bias's sums."""
    image = IMAGE_ROWS * (row_vectors * 16 + ROW_PADDING) + ZERO_BYTES
    gradients = ROWS * (filters // 8) * vector_bytes(steps)
    return 2 * (image + gradients) + RING_ROWS * pooled * filters * 3 + 4096 * vectors


def workers(threads: int, filters: int) -> int:
    """Threads that gather: whole pixels of 8 filters each."""
    return threads // (filters // 8) * (filters // 8)


def make_row_loader(warps: int) -> Any:
    """Device function: start the copies of a k block's image rows; zeros after the first `real`."""

    @device_function
    def load_rows(to, x, real, row_vectors, tid):
        for r in range(i32(tid >> 5), IMAGE_ROWS, warps):
            for i in range(i32(tid & 31), row_vectors, 32):
                source = u64(x + u64(u32((r * row_vectors + i) * 16)))
                target = u32(to + u32(r * (row_vectors * 16 + ROW_PADDING) + i * 16))
                ptx.copy_async16(target, source if r < real else x, u32(16) if r < real else u32(0))

    return load_rows


def make_window_loader(filters: int, threads: int) -> tuple[Any, Any]:
    """Device functions: address of a k block's own row of the pool's windows; start the copies of that row.

    A row has gradients, then positions.
    """
    N, EIGHTS, TH = filters, filters // 8, threads

    @device_function
    def window_row(ring, k_block, wp):
        return u32(ring + u32(u32(k_block + RING_ROWS) % u32(RING_ROWS)) * u32(wp * (N * 3)))

    @device_function
    def copy(to, source, count, tid):
        """Start the copies of `count` x 16 contiguous bytes."""
        for i in range(tid, count, TH):
            ptx.copy_async16(u32(to + u32(i * 16)), u64(source + u64(u32(i * 16))), u32(16))

    @device_function
    def load_windows(ring, dy, positions, k_block, image_blocks, by_image_blocks, hp, wp, tid):
        n = i32(divide(u32(k_block), by_image_blocks))
        a = i32(k_block - n * image_blocks)
        if a < hp:
            first, row = i64(i32(n * hp + a) * wp) * N, window_row(ring, k_block, wp)
            copy(row, u64(dy + u64(first * 2)), i32(wp * EIGHTS), tid)
            count = i32(wp * (N // 16))
            copy(u32(row + u32(wp * N * 2)), u64(positions + u64(first)), count, tid)

    return window_row, load_windows


def make_gather(filters: int, steps: int, threads: int) -> Any:
    """Device function: the two rows of d of a k block; a: the row of its own windows in the image."""
    N, EIGHTS, VECTOR, WORKERS = filters, filters // 8, vector_bytes(steps), workers(threads, filters)
    TASKS, (shares, windows) = steps * 8 * EIGHTS, make_sharing((3, 3, 2, 2))
    WORDS, POSITIONS = 4 * len(windows), 2 * len(windows)

    def make_take(k: int, da: int, db: int) -> Any:
        share = shares[k]

        @device_function
        def take(above, own, a, b, vector, hp, wp, v, positions, four):
            ok = a >= da and a - da < hp and b >= db and b - db < wp
            row = own if da == 0 else above
            q = i32(b - db) if ok else i32(0)
            put4(ptx.shared_load4(u32(row + u32(q * (N * 2) + vector * 16))), v, k * 4)
            at = u32(row + u32(wp * (N * 2) + q * N + vector * 8))
            one, two = ptx.shared_load1(at), ptx.shared_load1(u32(at + u32(4)))
            positions[k * 2] = one if ok else u32(STOPPED * EVERY)
            positions[k * 2 + 1] = two if ok else u32(STOPPED * EVERY)
            share(v, positions, four)

        return take

    take_windows = in_turn([make_take(k, da, db) for k, (da, db) in enumerate(windows)])

    @device_function
    def gather(to, above, own, a, hp, wp, tid):
        v = cuda.local.array(WORDS, u32)
        positions = cuda.local.array(POSITIONS, u32)
        four = cuda.local.array(16, u32)  # gradients of 2 x 2 pixels
        if tid < WORKERS:
            vector = i32(tid % EIGHTS)
            for i in range(tid, TASKS, WORKERS):
                b = i32(i // EIGHTS)
                clear(four)
                take_windows(above, own, a, b, vector, hp, wp, v, positions, four)
                for j in range(4):
                    at = u32(to + u32(((j >> 1) * EIGHTS + vector) * VECTOR + (2 * b + (j & 1)) * 16))
                    ptx.shared_store4(at, four[4 * j], four[4 * j + 1], four[4 * j + 2], four[4 * j + 3])

    return gather


def make_bias_sums(filters: int, threads: int) -> tuple[Any, Any]:
    """Device functions: a row's gradients that pass the ReLU, added to the thread's eight sums for the bias; all
    threads' sums of each filter, added in order."""
    N, EIGHTS, WORKERS = filters, filters // 8, workers(threads, filters)

    @device_function
    def add_windows(row, stored, a, hp, wp, tid):
        sums = cuda.local.array(8, f32)
        if tid < WORKERS and a < hp:
            for j in range(2):
                v = ptx.shared_load4(u32(stored + u32(j * 16)))
                for i in range(4):
                    sums[4 * j + i] = ptx.bits_to_float(v[i])
            for i in range(tid, wp * EIGHTS, WORKERS):
                v = ptx.shared_load4(u32(row + u32(i * 16)))
                at = u32(row + u32(wp * (N * 2) + i * 8))
                positions = (ptx.shared_load1(at), ptx.shared_load1(u32(at + u32(4))))
                for j in range(4):
                    low = u32(positions[j // 2] >> u32(16 * (j % 2))) & u32(255)
                    high = u32(positions[j // 2] >> u32(16 * (j % 2) + 8)) & u32(255)
                    sums[2 * j] = f32(sums[2 * j] + (ptx.low_bf16(v[j]) if low != u32(STOPPED) else f32(0.0)))
                    sums[2 * j + 1] = f32(sums[2 * j + 1] + (ptx.high_bf16(v[j]) if high != u32(STOPPED) else f32(0.0)))
            for j in range(2):
                ptx.shared_store4(
                    u32(stored + u32(j * 16)), ptx.float_to_bits(sums[4 * j]), ptx.float_to_bits(sums[4 * j + 1]),
                    ptx.float_to_bits(sums[4 * j + 2]), ptx.float_to_bits(sums[4 * j + 3]),
                )

    @device_function
    def add_biases(base, target, tid):
        cuda.syncthreads()  # the sums of all threads are stored
        if tid < N:
            total = f32(0.0)
            for i in range(WORKERS // EIGHTS):
                at = u32(base + u32(((i * EIGHTS + (tid >> 3)) * 8 + (tid & 7)) * 4))
                total = f32(total + ptx.bits_to_float(ptx.shared_load1(at)))
            ptx.store_float(u64(target + u64(tid * 4)), total)

    return add_windows, add_biases


def make_store(kernel: int, filters: int) -> Any:
    """Device function: a warp's sums to the block's partial sum, rows of `depth` for each filter."""
    KH, EIGHTS = kernel, filters // 8

    @device_function
    def store(acc, partial, group, warp, lane, channels, depth):
        g, t = i32(lane >> 2), i32(lane & 3)
        for half in range(2):
            ky = i32((warp & 3) * 2 + half)
            column = i32(ky * channels + group * 8 + g)
            if ky < KH:
                for i in range(EIGHTS):
                    for j in range(2):
                        f = i32(i * 8 + t * 2 + j)
                        ptx.store_float(u64(partial + u64((i64(f) * depth + column) * 4)), acc[i * 4 + half * 2 + j])

    return store


def make_image_gradient(kernel: int, vectors: int, steps: int, filters: int) -> Any:
    """The kernel for windows of `kernel` rows of `vectors`, a warpgroup each; `steps` x 16 pixels of a row."""
    N, EIGHTS, TH, NACC, VECTOR = filters, filters // 8, 128 * vectors, filters // 2, vector_bytes(steps)
    BLOCK = ROWS * EIGHTS * VECTOR
    order = [(r, k) for r in range(ROWS) for k in range(steps)]
    products = make_products(filters, [[(k * 16, 2 * r, r * EIGHTS * VECTOR // 16 + k * 16) for r, k in order]],
                             (True, True))  # fmt: skip
    finish, wait_all, load_rows = make_wait(NACC, 0), ptx.WAIT_COPIES[0], make_row_loader(4 * vectors)
    (window_row, load_windows), gather = make_window_loader(N, TH), make_gather(N, steps, TH)
    (add_windows, add_biases), store = make_bias_sums(N, TH), make_store(kernel, N)

    def image_pool_gradient(
        x, dy, partial, positions, total, per_block, image_blocks, by_image_blocks, hp, wp, rows, row_vectors,
        image_bytes, channels, depth, size,
    ):
        base = ptx.shared_address(cuda.shared.array(0, u8))
        tid = i32(cuda.threadIdx.x)
        lane, warp = i32(tid & 31), i32(tid >> 5)
        group = i32(warp >> 2)
        pitch = i32(row_vectors * 16 + ROW_PADDING)
        image_stage = i32(IMAGE_ROWS * pitch + ZERO_BYTES)
        gradients = u32(base + u32(2 * image_stage))
        for i in range(tid, 2 * image_stage // 16, TH):
            ptx.shared_store4(u32(base + u32(i * 16)), u32(0), u32(0), u32(0), u32(0))
        cuda.syncthreads()  # what the copies do not write stays zero
        acc = cuda.local.array(NACC, f32)
        clear(acc)
        block = i32(cuda.blockIdx.x)
        k_block = i32(block * per_block)
        end = i32(min(k_block + per_block, total))
        stage, ring = u32(1), u32(gradients + u32(2 * BLOCK))
        biases = u32(ring + u32(RING_ROWS * wp * N * 3))
        ptx.shared_store4(u32(biases + u32(tid * 32)), u32(0), u32(0), u32(0), u32(0))
        ptx.shared_store4(u32(biases + u32(tid * 32 + 16)), u32(0), u32(0), u32(0), u32(0))
        start, k_block = k_block, i32(k_block - 3)  # three rounds fill the pipeline: windows, gather, multiply
        while k_block < end:
            tid = ptx.hold32(tid)  # keeps values computed from it out of registers between rounds
            wait_all()
            fence_async_proxy()
            cuda.syncthreads()  # this k block and the next windows are in shared memory; the other stage is free
            if k_block >= start:
                a_low = low_word(u32(base + stage * u32(image_stage) + u32(group * 16)), u32(128))
                b_low = low_word(u32(gradients + stage * u32(BLOCK)), u32(128))
                products(acc, a_low, high_word(u32(pitch)), u32(pitch >> 4), b_low, high_word(u32(VECTOR)), u32(1))
            stage, k_block = u32(stage ^ u32(1)), i32(k_block + 1)
            if k_block + 2 >= start and k_block + 1 >= 0 and k_block + 1 < end:
                load_windows(ring, dy, positions, i32(k_block + 1), image_blocks, by_image_blocks, hp, wp, tid)
            if k_block >= start and k_block < end:  # gathered while the products are in flight
                n = i32(divide(u32(k_block), by_image_blocks))
                a = i32(k_block - n * image_blocks)
                image = u64(x + u64(i64(n) * i64(image_bytes) + i64(4 * a * row_vectors) * 16))
                load_rows(u32(base + stage * u32(image_stage)), image, i32(rows - 4 * a), row_vectors, tid)
                ptx.commit_copies()
                own = window_row(ring, k_block, wp)
                d = u32(gradients + stage * u32(BLOCK))
                gather(d, window_row(ring, i32(k_block - 1), wp), own, a, hp, wp, tid)
                add_windows(own, u32(biases + u32(tid * 32)), a, hp, wp, tid)
            ptx.commit_copies()
            finish(acc)
        wait_all()
        partial = u64(partial + u64(i64(block) * i64(size) * 4))
        store(acc, partial, group, warp, lane, channels, depth)
        add_biases(biases, u64(partial + u64(i64(N) * depth * 4)), tid)

    return image_pool_gradient
