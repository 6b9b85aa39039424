"""Kernels behind the gradient: its norm, the step's result, the optimizer, and the packed filters.

    norm    128 blocks of 128 threads, grid-stride            -> 128 sums of squares
    result  one block adds them, the losses and the hits      -> loss, hits, norm
    update  a thread an element, grid-stride                  -> weights, moments, running average
    pack    a thread two elements                             -> the layouts that the kernels read

All work on flat float32 buffers and are bound by memory: SGD with momentum reads 13 bytes a weight and writes 8, Adam
reads 17 and writes 12. Shared memory: 128 floats of a block sum. Sums are made in a fixed order.
Scalars that change from step to step are in the control block (`core.gpu.control`), so that a captured graph replays
with new ones. Reference: `core.optim.optimizer`.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.compilation.cuda import cuda, device_function, types
from core.gpu.compilation.ptx import float_to_bits, load1, load_byte, load_float, pack_bf16, store1, store_float
from core.gpu.control import make_reader, read_photos
from core.gpu.launch import INTEGER, POINTER, Argument, KernelSignature
from core.gpu.parts.block import block_sum

i32, u32, i64, u64, f32 = types.int32, types.uint32, types.int64, types.uint64, types.float32

NORM_BLOCKS: Final = 128
"""Partial sums of the squared norm; `result` adds them with one thread each."""

_CONTROL: Final = Argument("control", POINTER, "control block of the step (`core.gpu.control`)")
_read_rate, _read_root, _read_shrink, _read_average, _read_factor = (
    make_reader(name) for name in ("rate", "root", "shrink", "average", "factor")
)

NORM: Final = KernelSignature((
    Argument("gradient", POINTER, "float32 (count,)"),
    Argument("sums", POINTER, "float32 (NORM_BLOCKS,), one sum of squares a block"),
    Argument("count", INTEGER, "elements of the gradient"),
))  # fmt: skip


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


RESULT: Final = KernelSignature((
    Argument("sums", POINTER, "float32 (NORM_BLOCKS,), partial sums of squares"),
    Argument("results", POINTER, "float32 (batch,) loss and int32 (batch,) hit of each image"),
    _CONTROL,
    Argument("out", POINTER, "float32 (3,): loss, hits, norm of the gradient"),
    Argument("batch", INTEGER, "images of the plan's batch"),
))  # fmt: skip


def result(sums, results, control, out, batch):
    """One block: norm of the mean gradient, loss and hits, for the host and for clipping."""
    scratch = cuda.shared.array(128, dtype=types.float32)
    t, photos = i32(cuda.threadIdx.x), read_photos(control)
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
        store_float(u64(out + u64(8)), f32(root * _read_factor(control)))


NORM_RESULT: Final = KernelSignature((
    Argument("sums", POINTER, "float32 (NORM_BLOCKS,), partial sums of squares"),
    _CONTROL,
    Argument("out", POINTER, "float32 (3,): only the last, the norm of the gradient, is written"),
))  # fmt: skip


def norm_result(sums, control, out):
    """One block: the norm of a gradient that was averaged over ranks; loss and hits were averaged with it."""
    scratch = cuda.shared.array(128, dtype=types.float32)
    t = i32(cuda.threadIdx.x)
    squares = block_sum(load_float(u64(sums + u64(i64(t) * 4))), scratch)
    if t == 0:
        store_float(u64(out + u64(8)), f32(cuda.libdevice.sqrtf(squares) * _read_factor(control)))


UPDATE: Final = KernelSignature((
    Argument("weights", POINTER, "float32 (count,)"),
    Argument("gradient", POINTER, "float32 (count,), sums over the parts of the step"),
    Argument("first", POINTER, "float32 (count,): momentum, or Adam's first moment"),
    Argument("second", POINTER, "float32 (count,): Adam's second moment; 0 for SGD"),
    Argument("average", POINTER, "float32 (count,): running average of the weights; 0 for none"),
    Argument("roles", POINTER, "uint8 (count,): 0 stays as it is, 1 learns, 2 decays too"),
    _CONTROL,
    Argument("result", POINTER, "what `result` wrote"),
    Argument("count", INTEGER, "weights"),
    Argument("momentum", "float32", "of SGD"),
    Argument("decay", "float32", "weight decay that is added to the gradient"),
    Argument("beta1", "float32", "decay of the first moment"),
    Argument("rest1", "float32", "1 - beta1"),
    Argument("beta2", "float32", "decay of the second moment"),
    Argument("rest2", "float32", "1 - beta2"),
    Argument("epsilon", "float32", "of Adam"),
    Argument("clip", "float32", "largest norm of the gradient; 0 for any"),
))  # fmt: skip


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
            return  # the host sees both and raises
        rate, root = _read_rate(control), _read_root(control)
        shrink, keep = _read_shrink(control), _read_average(control)
        factor = _read_factor(control)
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


PACK: Final = KernelSignature((
    Argument("weights", POINTER, "float32, the flat weights"),
    Argument("places", POINTER, "int32 (count,): index into the weights, or -1 for zero"),
    Argument("packed", POINTER, "(count,) in the plan's element type"),
    Argument("count", INTEGER, "elements, an even number"),
))  # fmt: skip


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
