"""The optimizer on the flat buffers, and what frames it: the gradient's norm, the packed filters.

Settings that change from step to step lie in the control block on the device (`core.gpu.writers.control`), so that a
captured graph replays with new ones. The reference is `core.optim.optimizer`.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.compilation.cuda import cuda, device_function, types
from core.gpu.compilation.ptx import float_to_bits, load1, load_byte, load_float, pack_bf16, store1, store_float
from core.gpu.kernels.passes.head_fast import block_sum

i32, u32, i64, u64, f32, f64 = (
    types.int32, types.uint32, types.int64, types.uint64, types.float32, types.float64,
)

NORM_BLOCKS: Final = 128

NORM_ARGUMENTS: Final = (*(types.uint64,) * 2, types.int32)  # gradient, sums; floats


def norm(gradient, sums, count):
    """Sum of squares of a block's share of the gradient."""
    scratch = cuda.shared.array(128, dtype=types.float32)
    total = f32(0.0)
    for i in range(i32(cuda.grid(1)), count, i32(cuda.gridsize(1))):
        g = load_float(u64(gradient + u64(i64(i) * 4)))
        total = f32(total + g * g)
    total = block_sum(total, scratch)
    if cuda.threadIdx.x == 0:
        store_float(u64(sums + u64(i64(i32(cuda.blockIdx.x)) * 4)), total)


RESULT_ARGUMENTS: Final = (*(types.uint64,) * 4, types.int32)  # sums, shares and hits, control, result; batch


def result(sums, results, control, out, batch):
    """One block: norm of the mean gradient, loss and hits, for the host and for clipping."""
    scratch = cuda.shared.array(128, dtype=types.float32)
    t, photos = i32(cuda.threadIdx.x), i32(load1(control))
    squares = block_sum(load_float(u64(sums + u64(i64(t) * 4))), scratch)
    loss, hits = f32(0.0), f32(0.0)
    for i in range(t, photos, 128):
        loss = f32(loss + load_float(u64(results + u64(i64(i) * 4))))
        hits = f32(hits + f32(load1(u64(results + u64(i64(batch + i) * 4)))))
    loss, hits = block_sum(loss, scratch), block_sum(hits, scratch)
    if t == 0:
        store_float(out, loss)
        store_float(u64(out + u64(4)), hits)
        root = cuda.libdevice.sqrtf(squares)
        store_float(u64(out + u64(8)), f32(root * load_float(u64(control + u64(32)))))


ARGUMENTS: Final = (
    *(types.uint64,) * 8,  # weights, gradient, first, second, average (0: none), roles, control, result
    types.int32,  # floats
    *(types.float32,) * 8,  # momentum, decay, beta1, 1 - beta1, beta2, 1 - beta2, epsilon, clip norm (0: none)
)


@device_function
def _is_finite(value):
    """By its exponent's bits: kernels are compiled with fast arithmetic, which takes every number for finite."""
    return float_to_bits(value) & u32(0x7F800000) != u32(0x7F800000)


def make_update(rule: str, nesterov: bool) -> Any:
    """The kernel of "sgd", "adam" or "adamw"; a role of 0 leaves the float alone, 2 means it decays.

    Nothing changes where the loss or the gradient's norm is not finite: the host sees both after the step.
    """
    SGD, DECOUPLED = rule == "sgd", rule == "adamw"

    def update(
        weights, gradient, first, second, average, roles, control, result, count,
        momentum, decay, beta1, rest1, beta2, rest2, epsilon, clip,
    ):
        if not _is_finite(load_float(result)) or not _is_finite(load_float(u64(result + u64(8)))):
            return
        rate, root = load_float(u64(control + u64(16))), load_float(u64(control + u64(20)))
        shrink, keep = load_float(u64(control + u64(24))), load_float(u64(control + u64(28)))
        factor = load_float(u64(control + u64(32)))
        if clip > f32(0.0):
            factor = f32(factor * min(f32(1.0), f32(clip / f32(load_float(u64(result + u64(8))) + f32(1e-6)))))
        for i in range(i32(cuda.grid(1)), count, i32(cuda.gridsize(1))):
            at = u64(i64(i) * 4)
            role = load_byte(u64(roles + u64(i64(i))))
            w = load_float(u64(weights + at))
            if role != u32(0):
                g = f32(load_float(u64(gradient + at)) * factor)
                if role == u32(2):
                    if DECOUPLED:
                        w = f32(w * shrink)
                    else:
                        g = f32(g + decay * w)
                m = load_float(u64(first + at))
                if SGD:
                    m = f32(momentum * m + g)
                    moved = f32(g + momentum * m) if nesterov else m
                else:
                    m = f32(beta1 * m + rest1 * g)
                    v = f32(beta2 * load_float(u64(second + at)) + rest2 * g * g)
                    store_float(u64(second + at), v)
                    moved = f32(m / f32(cuda.libdevice.sqrtf(v) * root + epsilon))
                store_float(u64(first + at), m)
                w = f32(w - rate * moved)
                store_float(u64(weights + at), w)
            if average != u64(0):
                a = load_float(u64(average + at))
                store_float(u64(average + at), f32(keep * a + f32(f32(1.0) - keep) * w))

    return update


PACK_ARGUMENTS: Final = (*(types.uint64,) * 3, types.int32)  # weights, places, packed; elements (even)


def make_pack(element: int) -> Any:
    """Copies of the weights in the layouts the kernels read: ``packed[i] = weights[places[i]]``, 0 where -1."""
    HALF = element == 2

    def pack(weights, places, packed, count):
        i = i32(i32(cuda.grid(1)) * 2)
        if i >= count:
            return
        p, q = i32(load1(u64(places + u64(i64(i) * 4)))), i32(load1(u64(places + u64(i64(i) * 4 + 4))))
        a = load_float(u64(weights + u64(i64(p) * 4))) if p >= 0 else f32(0.0)
        b = load_float(u64(weights + u64(i64(q) * 4))) if q >= 0 else f32(0.0)
        if HALF:
            store1(u64(packed + u64(i64(i) * 2)), pack_bf16(a, b))
        else:
            store_float(u64(packed + u64(i64(i) * 4)), a)
            store_float(u64(packed + u64(i64(i) * 4 + 4)), b)

    return pack
