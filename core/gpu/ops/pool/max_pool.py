"""Max pooling over windows, and its gradient: one thread per vector (16 bytes of channels) of a pixel.

Forward: a thread compares the pixels of its window. Training stores the position of each maximum in its window as a
byte, or 127 (`STOPPED`) where the maximum did not pass the ReLU before the pool, so that x is not kept as a mask.
Gradient: a thread writes a block of stride x stride pixels of dx. It reads every window that overlaps the block once
and adds the window's gradient to the pixel at the stored position. No two threads write the same pixel.

    grid: vectors / 256     block: 256 threads, neighbouring vectors of a pixel first, then neighbouring pixels

Shared memory: none; overlapping windows hit the L1 cache. Bytes, each once: x, out and (training) a byte per channel of
out; backward dy, the bytes and dx.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from core.gpu.arguments import PADDING, PIXELS, SIDES, KernelSignature, ints, pointers
from core.gpu.compilation import ptx
from core.gpu.compilation.cuda import cuda, device_function, f32, i32, i64, u32, u64
from core.gpu.frame import Frame
from core.gpu.gradients import shared_activation
from core.gpu.launch import RELU, THREADS, Tensor, blocks_of, make_launch
from core.gpu.parts.vectors import ADD, PACK, UNPACK, clear, find_pixel, in_turn, make_take, passes, put4
from core.gpu.parts.winners import EVERY, STOPPED, Shape, make_sharing, write_positions
from core.gpu.select import Case
from core.ops.window import read_window
from core.program import Step

_PITCH: Final = ints(ldp="bytes from a pixel of `positions` to the next")

FORWARD: Final = KernelSignature((
    *pointers(x="activations (N, height, width, C)", out="activations (N, ho, wo, C)",
              positions="uint8 (N, ho, wo, C): position of each maximum in its window; 0 stores none"),
    PIXELS, SIDES, *_PITCH, *PADDING,
    *ints(activation="activation of the step that wrote x (`core.gpu.launch.RELU`)"),
))  # fmt: skip

GRADIENT: Final = KernelSignature((
    *pointers(dy="gradient of out", dx="gradient of x", positions="positions stored by the forward kernel"),
    PIXELS, SIDES, *_PITCH, *PADDING,
    *ints(accumulate="1 adds to dx"),
))  # fmt: skip


def make_search(element: int, shape: Shape) -> Any:
    """Device function: maxima of a window and their positions, for any numbers; returns the maxima as 16 bytes."""
    take, pack, VEC, (KH, KW, _, _) = make_take(element), PACK[element], 16 // element, shape

    @device_function
    def search(x, n, y0, x0, sides, vector, best, marks):
        value = cuda.local.array(VEC, f32)
        for i in range(VEC):
            best[i], marks[i] = f32(-3.0e38), u32(0)
        for ky in range(KH):
            y = i32(y0 + ky)
            for kx in range(KW):
                xx = i32(x0 + kx)
                ok = y >= 0 and y < sides.height and xx >= 0 and xx < sides.width
                take(x, ok, n, y, xx, sides.height, sides.width, sides.ldx, vector, value)
                for i in range(VEC):
                    if ok and not value[i] <= best[i]:  # also takes a NaN
                        best[i], marks[i] = value[i], u32(ky * KW + kx)
        return pack(best)

    return search


def make_nonnegative_search(shape: Shape) -> Any:
    """Device function: the same for bf16 that passed a ReLU, with half the instructions.

    The bits of non-negative numbers are ordered as the numbers. So one integer holds the value in its upper half and
    255 minus the position in its lower half (the first of equal maxima wins), and one integer maximum finds both.
    """
    KH, KW, _, _ = shape

    def make_tap(ky: int, kx: int) -> Any:
        MARK = 255 - (ky * KW + kx)

        @device_function
        def tap(x, n, y, xx, sides, vector, found):
            ok = y + ky >= 0 and y + ky < sides.height and xx + kx >= 0 and xx + kx < sides.width
            row = i64((i64(n) * sides.height + y + ky) * sides.width + xx + kx)
            v = ptx.load4(u64(x + u64((row * sides.ldx + vector * 8) * 2)) if ok else x)
            for i in range(4):
                pair = v[i] if ok else u32(0)
                low = i32(ptx.permute(pair, u32(MARK), u32(0x1054)))
                high = i32(ptx.permute(pair, u32(MARK), u32(0x3254)))
                found[2 * i] = low if low > found[2 * i] else found[2 * i]
                found[2 * i + 1] = high if high > found[2 * i + 1] else found[2 * i + 1]

        return tap

    take_taps = in_turn([make_tap(ky, kx) for ky in range(KH) for kx in range(KW)])

    @device_function
    def search(x, n, y0, x0, sides, vector, best, marks):
        found = cuda.local.array(8, i32)
        clear(found)
        take_taps(x, n, y0, x0, sides, vector, found)
        for i in range(8):
            best[i], marks[i] = ptx.high_bf16(u32(found[i])), u32(255) - u32(u32(found[i]) & u32(255))
        return (
            ptx.permute(u32(found[0]), u32(found[1]), u32(0x7632)),
            ptx.permute(u32(found[2]), u32(found[3]), u32(0x7632)),
            ptx.permute(u32(found[4]), u32(found[5]), u32(0x7632)),
            ptx.permute(u32(found[6]), u32(found[7]), u32(0x7632)),
        )

    return search


def make_max_pool(element: int, shape: Shape, nonnegative: bool) -> Any:
    """Forward kernel: out and the positions of the maxima from x; `nonnegative`: x is bf16 without negative numbers."""
    VEC, (_, _, SY, SX), WIDE = 16 // element, shape, element == 2
    search = make_nonnegative_search(shape) if nonnegative else make_search(element, shape)

    def max_pool(x, out, positions, pixels, sides, ldp, top, left, activation):
        at = i32(cuda.grid(1))
        if at >= pixels.total:
            return
        pixel, vector, n, oy, ox = find_pixel(at, pixels)
        best = cuda.local.array(VEC, f32)
        marks = cuda.local.array(VEC, u32)
        v = search(x, n, i32(oy * SY - top), i32(ox * SX - left), sides, vector, best, marks)
        ptx.store4(u64(out + u64((i64(pixel) * sides.ldo + vector * VEC) * element)), v[0], v[1], v[2], v[3])
        if positions != u64(0):
            for i in range(VEC):
                marks[i] = marks[i] if passes(best[i], activation) else u32(STOPPED)
            write_positions(u64(positions + u64(i64(pixel) * ldp + vector * VEC)), marks, WIDE)

    return max_pool


def make_gather(shape: Shape) -> Any:
    """Device function: float32 sums of a block of stride x stride pixels."""
    unpack, (KH, KW, SY, SX) = UNPACK[4], shape
    DOWN, ACROSS = (KH - 1) // SY + 1, (KW - 1) // SX + 1

    @device_function
    def gather(dy, positions, n, a, b, sides, ldp, vector, sums):
        value = cuda.local.array(4, f32)
        clear(sums)
        for da in range(DOWN):
            for db in range(ACROSS):
                oy, ox = i32(a - da), i32(b - db)
                ok = oy >= 0 and oy < sides.ho and ox >= 0 and ox < sides.wo
                row = i64((i64(n) * sides.ho + oy) * sides.wo + ox) if ok else i64(0)
                unpack(ptx.load4(u64(dy + u64((row * sides.ldo + vector * 4) * 4))), value)
                word = ptx.load1(u64(positions + u64(row * ldp + vector * 4)))
                for c in range(4):
                    position = u32(word >> u32(8 * c)) & u32(255) if ok else u32(254)
                    for i in range(SY):
                        for j in range(SX):
                            if i + da * SY < KH and j + db * SX < KW:
                                mine = u32((i + da * SY) * KW + j + db * SX)
                                o = (i * SX + j) * 4 + c
                                sums[o] = f32(sums[o] + (value[c] if position == mine else f32(0.0)))

    return gather


def make_packed_gather(shape: Shape) -> Any:
    """`make_gather` for bf16: sums stay pairs of bf16, and positions are compared four at a time."""
    shares, windows = make_sharing(shape)
    take_shares = in_turn(shares)
    WORDS, POSITIONS = 4 * len(windows), 2 * len(windows)

    def make_load(k: int, da: int, db: int) -> Any:
        @device_function
        def load(dy, positions, n, a, b, sides, ldp, vector, v, found):
            ok = a >= da and a - da < sides.ho and b >= db and b - db < sides.wo
            row = i64((i64(n) * sides.ho + a - da) * sides.wo + b - db) if ok else i64(0)
            put4(ptx.load4(u64(dy + u64((row * sides.ldo + vector * 8) * 2))), v, k * 4)
            two = ptx.load2(u64(positions + u64(row * ldp + vector * 8)))
            for i in range(2):
                found[k * 2 + i] = two[i] if ok else u32(STOPPED * EVERY)

        return load

    load_windows = in_turn([make_load(k, da, db) for k, (da, db) in enumerate(windows)])

    @device_function
    def gather(dy, positions, n, a, b, sides, ldp, vector, sums):
        v = cuda.local.array(WORDS, u32)
        found = cuda.local.array(POSITIONS, u32)
        load_windows(dy, positions, n, a, b, sides, ldp, vector, v, found)  # all loads are issued before the first use
        clear(sums)
        take_shares(v, found, sums)

    return gather


def make_max_pool_gradient(element: int, shape: Shape) -> Any:
    """Gradient kernel; a pixel's sums are four registers, in bf16 pairs of them."""
    add, VEC, (_, _, SY, SX), PACKED = ADD[element], 16 // element, shape, element == 2
    gather = make_packed_gather(shape) if PACKED else make_gather(shape)
    bits = device_function(lambda v: v) if PACKED else ptx.float_to_bits
    SUMS, NUMBER = SY * SX * 4, u32 if PACKED else f32

    def max_pool_gradient(dy, dx, positions, pixels, sides, ldp, top, left, accumulate):
        at = i32(cuda.grid(1))
        if at >= pixels.total:
            return
        _, vector, n, a, b = find_pixel(at, pixels)
        sums = cuda.local.array(SUMS, NUMBER)
        gather(dy, positions, n, a, b, sides, ldp, vector, sums)
        for i in range(SY):
            for j in range(SX):
                y, x = i32(a * SY + i - top), i32(b * SX + j - left)
                if y >= 0 and y < sides.height and x >= 0 and x < sides.width:
                    row = i64((i64(n) * sides.height + y) * sides.width + x)
                    target = u64(dx + u64((row * sides.ldx + vector * VEC) * element))
                    k = (i * SX + j) * 4
                    v = bits(sums[k]), bits(sums[k + 1]), bits(sums[k + 2]), bits(sums[k + 3])
                    if accumulate != 0:
                        v = add(v, ptx.load4_ordered(target))
                    ptx.store4(target, v[0], v[1], v[2], v[3])

    return max_pool_gradient


def max_forward(case: Case) -> None:
    """Training stores the positions of the maxima, marked by the activation of the input's producer."""
    frame, step = case.frame, case.step
    x, out = frame.tensor(step.inputs[0]), frame.tensor(step.output)
    activation = shared_activation(frame, step.inputs[0]) or ""
    nonnegative, training = frame.element == 2 and activation in ("relu", "relu6"), frame.program.training
    values = {
        "x": x.address, "out": out.address, "positions": positions_of(frame, step, out) if training else 0,
        **out.pixel_values(frame.batch), "activation": RELU[activation],
    }  # fmt: skip
    _add(case, "forward", x, out, values, (nonnegative,), 4)


def max_backward(case: Case) -> None:
    """One thread per block of stride x stride pixels of dx; the positions contain the producer's mask."""
    frame, step, value = case.frame, case.step, case.step.inputs[0]
    accumulate = case.backward.target(value, reads=False).accumulate
    dy, dx, window = frame.tensor(step.output, True), frame.tensor(value, True), read_window(step.attributes)
    rows, columns = (
        blocks_of(side + pad, stride)
        for side, pad, stride in zip((dx.height, dx.width), window.padding[:2], window.stride, strict=True)
    )
    values = {
        "dy": dy.address, "dx": dx.address, "positions": positions_of(frame, step, dy),
        **replace(dy, height=rows, width=columns).pixel_values(frame.batch), "accumulate": int(accumulate),
    }  # fmt: skip
    _add(case, "backward_input", dx, dy, values, (), 3 if frame.element == 2 else 2)


def _add(
    case: Case, direction: str, x: Tensor, out: Tensor, values: dict[str, int], more: tuple[bool, ...], resident: int
) -> None:
    """Add the launch of either direction; `more`: further arguments of the kernel's factory."""
    frame, step, window = case.frame, case.step, read_window(case.step.attributes)
    pixels = x.height * x.width + out.height * out.width
    stored = out.height * out.width if frame.program.training else 0
    values |= {**x.side_values(out), "ldp": out.padded, "top": window.padding[0], "left": window.padding[1]}
    factory, signature = (make_max_pool, FORWARD) if direction == "forward" else (make_max_pool_gradient, GRADIENT)
    constants: tuple[Any, ...] = (frame.element, (*window.kernel, *window.stride), *more)
    frame.add(make_launch(
        step.node, direction, factory, constants, signature, values, (blocks_of(values["total"], THREADS),),
        moved=frame.batch * out.padded * (frame.element * pixels + stored), resident=resident,
    ))  # fmt: skip


def positions_of(frame: Frame, step: Step, out: Tensor) -> int:
    """Address of the positions of a max pool's maxima, a byte each; every forward candidate writes them in training."""
    return frame.use(f"positions:{step.node}", frame.batch * out.height * out.width * out.padded)
