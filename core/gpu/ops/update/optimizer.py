"""Kernels after the gradient, and their launches: its norm, the step's result, the optimizer, and the packed filters.

    norm    128 blocks of 128 threads, grid-stride            -> 128 sums of squares
    result  one block adds them, the losses and the hits      -> loss, hits, norm
    update  one thread per element, grid-stride               -> weights, moments, running average
    pack    one thread per two elements                       -> the layouts that the kernels read

All work on flat float32 buffers and are bound by memory: SGD with momentum reads 13 bytes per weight and writes 8, Adam
reads 17 and writes 12. Shared memory: 128 floats of a block sum. Sums are made in a fixed order.
Scalars that change from step to step are in the control block (`core.gpu.control`), so that a captured graph replays
with new ones. Reference: `core.optim.optimizer`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from core.gpu.arguments import CONTROL, KernelSignature, arguments, ints, pointers
from core.gpu.compilation.cuda import cuda, device_function, f32, i32, i64, u32, u64
from core.gpu.compilation.ptx import float_to_bits, load1, load_byte, load_float, pack_bf16, store1, store_float
from core.gpu.control import make_reader, read_photos
from core.gpu.frame import Frame
from core.gpu.launch import THREADS, Launch, blocks_of, make_launch
from core.gpu.parts.block import block_sum
from core.optim.optimizer import Optimizer
from core.program import DECAYS, IDLE

NORM_BLOCKS: Final = 128
"""Partial sums of the squared norm, one per thread of `result`."""
REPORT_BYTES: Final = 16
"""Of one step's result in the memory of the host."""

_read_rate, _read_root, _read_shrink, _read_average, _read_factor, _read_slot = (
    make_reader(name) for name in ("rate", "root", "shrink", "average", "factor", "slot")
)

NORM: Final = KernelSignature((
    *pointers(gradient="float32 (count,)", sums="float32 (NORM_BLOCKS,), one sum of squares per block"),
    *ints(count="elements of the gradient"),
))  # fmt: skip


def norm(gradient, sums, count):
    """Sum of squares of a block's share of the gradient."""
    scratch = cuda.shared.array(128, f32)
    total = f32(0.0)
    for i in range(i32(cuda.grid(1)), count, i32(cuda.gridsize(1))):
        g = load_float(u64(gradient + u64(i64(i) * 4)))
        total = f32(total + g * g)
    total = block_sum(total, scratch)
    if cuda.threadIdx.x == 0:
        store_float(u64(sums + u64(i64(i32(cuda.blockIdx.x)) * 4)), total)


RESULT: Final = KernelSignature((
    *pointers(sums="float32 (NORM_BLOCKS,), partial sums of squares",
              results="float32 (batch,) loss and int32 (batch,) hit of each image"),
    CONTROL,
    *pointers(out="float32 (3,): loss, hits, norm of the gradient", report="the same of two steps, on the host"),
    *ints(batch="images of the plan's batch"),
))  # fmt: skip


def make_result(scores: bool) -> Any:
    """The kernel of one block: norm of the mean gradient, for the host and for clipping; with `scores` loss and hits.

    Without them `out` has its loss and hits, which were averaged over ranks together with the gradient.
    """

    def result(sums, results, control, out, report, batch):
        scratch = cuda.shared.array(128, f32)
        t, photos = i32(cuda.threadIdx.x), read_photos(control)
        squares = block_sum(load_float(u64(sums + u64(i64(t) * 4))), scratch)
        if scores:
            loss, hits = f32(0.0), f32(0.0)
            for i in range(t, photos, 128):
                loss = f32(loss + load_float(u64(results + u64(i64(i) * 4))))
                hits = f32(hits + f32(load1(u64(results + u64(i64(batch + i) * 4)))))
            loss, hits = block_sum(loss, scratch), block_sum(hits, scratch)
        else:
            loss, hits = load_float(out), load_float(u64(out + u64(4)))
        if t == 0:
            root = f32(cuda.libdevice.sqrtf(squares) * _read_factor(control))
            for target in (out, u64(report + u64(i64(_read_slot(control)) * REPORT_BYTES))):
                store_float(target, loss)
                store_float(u64(target + u64(4)), hits)
                store_float(u64(target + u64(8)), root)

    return result


UPDATE: Final = KernelSignature((
    *pointers(weights="float32 (count,)", gradient="float32 (count,), sums over the parts of the step",
              first="float32 (count,): momentum, or Adam's first moment",
              second="float32 (count,): Adam's second moment; 0 for SGD",
              average="float32 (count,): running average of the weights; 0 for none",
              roles="uint8 (count,), of `core.program.list_roles`"),
    CONTROL,
    *pointers(result="what `result` wrote"),
    *ints(count="weights"),
    *arguments("float32", momentum="of SGD", decay="weight decay that is added to the gradient",
               beta1="decay of the first moment", rest1="1 - beta1", beta2="decay of the second moment",
               rest2="1 - beta2", epsilon="of Adam", clip="largest norm of the gradient; 0 for any"),
))  # fmt: skip


@device_function
def _is_finite(value):
    """By its exponent's bits: kernels are compiled with fast arithmetic, which takes every number for finite."""
    return float_to_bits(value) & u32(0x7F800000) != u32(0x7F800000)


def make_update(rule: str, nesterov: bool) -> Any:
    """The kernel of "sgd", "adam" or "adamw".

    Nothing changes where the loss or the gradient's norm is not finite: the host sees both after the step.
    """
    SGD, DECOUPLED = {"sgd": (True, False), "adam": (False, False), "adamw": (False, True)}[rule]

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
            if role != u32(IDLE):
                g = f32(load_float(u64(gradient + at)) * factor)
                if role == u32(DECAYS):
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
    *pointers(weights="float32, the flat weights", indices="int32 (count,): index into the weights, or -1 for zero",
              packed="(count,) in the plan's element type"),
    *ints(count="elements, an even number"),
))  # fmt: skip


def make_pack(element: int) -> Any:
    """Copies of the weights in the layouts the kernels read: ``packed[i] = weights[indices[i]]``, 0 where -1."""
    HALF = element == 2

    def pack(weights, indices, packed, count):
        i = i32(i32(cuda.grid(1)) * 2)
        if i >= count:
            return
        p, q = i32(load1(u64(indices + u64(i64(i) * 4)))), i32(load1(u64(indices + u64(i64(i) * 4 + 4))))
        a = load_float(u64(weights + u64(i64(p) * 4))) if p >= 0 else f32(0.0)
        b = load_float(u64(weights + u64(i64(q) * 4))) if q >= 0 else f32(0.0)
        if HALF:
            store1(u64(packed + u64(i64(i) * 2)), pack_bf16(a, b))
        else:
            store_float(u64(packed + u64(i64(i) * 4)), a)
            store_float(u64(packed + u64(i64(i) * 4 + 4)), b)

    return pack


def norm_launch(at: Mapping[str, int], count: int) -> Launch:
    """Partial sums of the norm of the gradient, of `count` elements; `at` has the addresses of the plan's blocks."""
    values = {"gradient": at["gradient"], "sums": at["sums"], "count": count}
    return _launch(norm, (), NORM, values, (NORM_BLOCKS,), (NORM_BLOCKS,), join=True)


def result_launch(at: Mapping[str, int], batch: int, scores: bool = True) -> Launch:
    """Loss, hits and the gradient's norm for the host; without `scores` only the norm is computed."""
    values = {
        "sums": at["sums"], "results": at["results"], "control": at["control"], "out": at["totals"],
        "report": at["report"], "batch": batch,
    }  # fmt: skip
    return _launch(make_result, (scores,), RESULT, values, (1,), (NORM_BLOCKS,))


def update_launch(at: Mapping[str, int], count: int, processors: int, rule: Optimizer) -> Launch:
    """The optimizer's step over `count` weights."""
    values = {
        "weights": at["weights"], "gradient": at["gradient"], "first": at["first"], "second": at.get("second", 0),
        "average": at.get("average", 0), "roles": at["roles"], "control": at["control"], "result": at["totals"],
        "count": count, "momentum": rule.momentum, "decay": rule.weight_decay, "beta1": rule.beta1,
        "rest1": 1 - rule.beta1, "beta2": rule.beta2, "rest2": 1 - rule.beta2, "epsilon": rule.epsilon,
        "clip": rule.clip_norm,
    }  # fmt: skip
    grid = (min(blocks_of(count, THREADS), 8 * processors),)
    return _launch(make_update, (rule.name, rule.nesterov), UPDATE, values, grid)


def pack_launch(frame: Frame) -> Launch:
    at, count = frame.block, frame.packs.size
    values = {"weights": at("weights"), "indices": at("pack_indices"), "packed": at("packed"), "count": count}
    return _launch(make_pack, (frame.element,), PACK, values, (blocks_of(max(count, 2), 2 * THREADS),))


_launch: Final = partial(make_launch, "all", "update")
