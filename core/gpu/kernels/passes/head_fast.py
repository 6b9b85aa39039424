"""The network's end in one kernel: global average, softmax, cross entropy, and the gradient back to every pixel.

One block a photo. Source of the loss: `core.ops.softmax_cross_entropy`.
A loss that is taught has a kernel of its own; the other's reads no targets.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.compilation.cuda import cuda, device_function, types
from core.gpu.compilation.ptx import load1, load4, load_float, store1, store4, store_float
from core.gpu.kernels.parts.lanes import PACK, UNPACK, make_deliver, passes

i32, u32, i64, u64, f32 = types.int32, types.uint32, types.int64, types.uint64, types.float32

THREADS: Final = 128

ARGUMENTS: Final = (
    *(types.uint64,) * 4,  # x, logits, dx (0: forward only), labels
    *(types.uint64,) * 3,  # class weights (0: all 1), targets (if taught), shares and hits
    types.uint64,  # control block
    *(types.int32,) * 6,  # pixels a photo, classes, pixel pitch of x, of dx; photos of the batch; mask activation
    types.float32,  # label smoothing
)


@device_function
def block_sum(value, scratch):
    """Sum over the block, in a fixed order, for every thread."""
    t = i32(cuda.threadIdx.x)
    cuda.syncthreads()
    scratch[t] = value
    cuda.syncthreads()
    step = i32(64)
    while step > 0:
        if t < step:
            scratch[t] = f32(scratch[t] + scratch[i32(t + step)])
        cuda.syncthreads()
        step = i32(step // 2)
    return scratch[0]


@device_function
def block_max(value, scratch):
    """Largest value of the block."""
    t = i32(cuda.threadIdx.x)
    cuda.syncthreads()
    scratch[t] = value
    cuda.syncthreads()
    step = i32(64)
    while step > 0:
        if t < step:
            scratch[t] = max(scratch[t], scratch[i32(t + step)])
        cuda.syncthreads()
        step = i32(step // 2)
    return scratch[0]


def shared_bytes(classes: int, element: int) -> int:
    """The scores, and partial sums of them over groups of pixels."""
    lanes = -(-classes // (16 // element))
    return 4 * (classes + max(1, THREADS // lanes) * lanes * (16 // element))


def make_mean(element: int) -> Any:
    """Device function: mean of each class over a photo's pixels into `scores`, behind which partial sums have room."""
    unpack, VEC = UNPACK[element], 16 // element

    @device_function
    def mean(base, scores, logits, hw, classes, ldx):
        t, lanes = i32(cuda.threadIdx.x), i32((classes + VEC - 1) // VEC)
        wide = i32(min(lanes, 128))
        groups, group = i32(128 // wide), i32(t // wide)
        value = cuda.local.array(VEC, dtype=types.float32)
        sums = cuda.local.array(VEC, dtype=types.float32)
        for part in range(i32(t % wide), lanes if group < groups else 0, wide):
            for i in range(VEC):
                sums[i] = f32(0.0)
            for p in range(group, hw, groups):
                unpack(load4(u64(base + u64((i64(p) * ldx + part * VEC) * element))), value)
                for i in range(VEC):
                    sums[i] = f32(sums[i] + value[i])
            for i in range(VEC):
                scores[i32(classes + (group * lanes + part) * VEC + i)] = sums[i]
        cuda.syncthreads()
        for c in range(t, classes, 128):
            total = f32(0.0)
            for g in range(groups):
                total = f32(total + scores[i32(classes + g * lanes * VEC + c)])
            scores[c] = f32(total / f32(hw))
            store_float(u64(logits + u64(i64(c) * 4)), scores[c])
        cuda.syncthreads()

    return mean


@device_function
def _weight_of(c, weights):
    return load_float(u64(weights + u64(i64(c) * 4))) if weights != u64(0) else f32(1.0)


@device_function
def _known_weight(labels, weights, photos, scratch):
    """Sum of the class weights of all photos that have a label."""
    known = f32(0.0)
    for i in range(i32(cuda.threadIdx.x), photos, 128):
        other = i32(load1(u64(labels + u64(i64(i) * 4))))
        if other >= 0:
            known = f32(known + _weight_of(other, weights))
    return block_sum(known, scratch)


@device_function
def _measure(scores, classes, scratch):
    """The largest score, log of the sum of ``exp(score - largest)``, and the first class that has the largest."""
    t, top, total, first = i32(cuda.threadIdx.x), f32(-3.0e38), f32(0.0), f32(classes)
    for c in range(t, classes, 128):
        top = max(top, scores[c])
    top = block_max(top, scratch)
    for c in range(t, classes, 128):
        total = f32(total + cuda.libdevice.expf(f32(scores[c] - top)))
        if scores[c] == top:
            first = min(first, f32(c))
    total = block_sum(total, scratch)
    return top, cuda.libdevice.logf(total), f32(-block_max(f32(-first), scratch))


@device_function
def _target(c, label, classes, smoothing, weights, targets):
    """What the loss wants of a class, times the class's weight."""
    target = f32(smoothing / f32(classes))
    if c == label:
        target = f32(target + f32(f32(1.0) - smoothing))
    return f32(target * _weight_of(c, weights))


@device_function
def _taught_target(c, label, classes, smoothing, weights, targets):
    """The same of a photo's own targets."""
    return f32(load_float(u64(targets + u64(i64(c) * 4))) * _weight_of(c, weights))


def make_head(element: int, taught: bool = False) -> Any:
    """The kernel; dynamic shared memory as `shared_bytes` says. `taught`: photos have targets."""
    wanted = _taught_target if taught else _target
    unpack, pack, VEC, mean = UNPACK[element], PACK[element], 16 // element, make_mean(element)

    def head(
        x, logits, dx, labels, weights, targets, results, control, hw, classes, ldx, ldd, batch, activation, smoothing,
    ):
        scores = cuda.shared.array(0, dtype=types.float32)
        scratch = cuda.shared.array(128, dtype=types.float32)
        t, n = i32(cuda.threadIdx.x), i32(cuda.blockIdx.x)
        photos = i32(load1(control))
        base = u64(x + u64(i64(n) * hw * ldx * element))
        mean(base, scores, u64(logits + u64(i64(n) * classes * 4)), hw, classes, ldx)
        if labels == u64(0):
            return
        known = _known_weight(labels, weights, photos, scratch)
        mine = u64(targets + u64(i64(n) * classes * 4))
        label = i32(load1(u64(labels + u64(i64(n) * 4)))) if n < photos else i32(-1)
        inverse = f32(load_float(u64(control + u64(36))) / known) if label >= 0 and known > f32(0.0) else f32(0.0)
        top, log_total, first = _measure(scores, classes, scratch)
        share, mass = f32(0.0), f32(0.0)
        for c in range(t, classes, 128):
            target = f32(wanted(c, label, classes, smoothing, weights, mine) * inverse)
            if inverse > f32(0.0):
                share = f32(share - target * f32(scores[c] - top - log_total))
            mass = f32(mass + target)
        share, mass = block_sum(share, scratch), block_sum(mass, scratch)
        if t == 0:
            store_float(u64(results + u64(i64(n) * 4)), share)
            store1(u64(results + u64(i64(batch + n) * 4)), u32(1) if label >= 0 and i32(first) == label else u32(0))
        if dx == u64(0):
            return
        for c in range(t, classes, 128):
            target = f32(wanted(c, label, classes, smoothing, weights, mine) * inverse)
            p = cuda.libdevice.expf(f32(scores[c] - top - log_total))
            scores[c] = f32(f32(p * mass - target) / f32(hw)) if inverse > f32(0.0) else f32(0.0)
        cuda.syncthreads()
        value, lanes = cuda.local.array(VEC, dtype=types.float32), i32((classes + VEC - 1) // VEC)
        for i in range(t, hw * lanes, 128):
            p, part = i32(i // lanes), i32(i % lanes)
            unpack(load4(u64(base + u64((i64(p) * ldx + part * VEC) * element))), value)
            for j in range(VEC):
                c = i32(part * VEC + j)
                value[j] = scores[c] if c < classes and passes(value[j], activation) else f32(0.0)
            v = pack(value)
            row = i64(i64(n) * hw + p)
            store4(u64(dx + u64((row * ldd + part * VEC) * element)), v[0], v[1], v[2], v[3])

    return head


POOL_ARGUMENTS: Final = (
    *(types.uint64,) * 3,  # x, out; mask of x (gradient)
    *(types.int32,) * 7,  # pixels a photo, lanes a pixel, pitch of x, of out, of the mask; masking, accumulate
    types.float32,  # factor
)


def make_average(element: int) -> Any:
    """Mean over the pixels of a photo: a block of 32 x 8 a photo and 32 lanes, pixels shared out to the 8.

    Each asks for four pixels before it adds the first: one at a time leaves 40 % of the memory's speed unused.
    """
    unpack, pack, VEC = UNPACK[element], PACK[element], 16 // element
    WIDE = 32 * VEC

    @device_function
    def add_pixel(bits, value, total, real):
        unpack(bits, value)
        for i in range(VEC):
            total[i] = f32(total[i] + (value[i] if real else f32(0.0)))

    def average(x, out, mask, hw, lanes, ldx, ldo, ldm, masking, accumulate, factor):
        sums = cuda.shared.array((8, WIDE), dtype=types.float32)
        tx, ty = i32(cuda.threadIdx.x), i32(cuda.threadIdx.y)
        n, part = i32(cuda.blockIdx.y), i32(i32(cuda.blockIdx.x) * 32 + tx)
        total = cuda.local.array(VEC, dtype=types.float32)
        value = cuda.local.array(VEC, dtype=types.float32)
        for i in range(VEC):
            total[i] = f32(0.0)
        first, step = u64(x + u64((i64(n) * hw * ldx + part * VEC) * element)), i64(i64(ldx) * 8 * element)
        p = ty
        while part < lanes and p < hw:
            at = u64(first + u64(i64(p) * ldx * element))
            a = load4(at)
            b = load4(u64(at + u64(step)) if p + 8 < hw else at)
            c = load4(u64(at + u64(step * 2)) if p + 16 < hw else at)
            d = load4(u64(at + u64(step * 3)) if p + 24 < hw else at)
            add_pixel(a, value, total, True)
            add_pixel(b, value, total, p + 8 < hw)
            add_pixel(c, value, total, p + 16 < hw)
            add_pixel(d, value, total, p + 24 < hw)
            p = i32(p + 32)
        for i in range(VEC):
            sums[ty, i32(tx * VEC + i)] = total[i]
        cuda.syncthreads()
        if ty == 0 and part < lanes:
            for i in range(VEC):
                for other in range(1, 8):
                    total[i] = f32(total[i] + sums[other, i32(tx * VEC + i)])
                total[i] = f32(total[i] * factor)
            v = pack(total)
            store4(u64(out + u64((i64(n) * ldo + part * VEC) * element)), v[0], v[1], v[2], v[3])

    return average


def make_average_gradient(element: int) -> Any:
    """A photo's gradient spread evenly over its pixels: a block a photo, masked by x's producer."""
    unpack, pack, deliver, VEC = UNPACK[element], PACK[element], make_deliver(element), 16 // element

    def average_gradient(x, out, mask, hw, lanes, ldx, ldo, ldm, masking, accumulate, factor):
        t, n = i32(cuda.threadIdx.x), i32(cuda.blockIdx.x)
        value = cuda.local.array(VEC, dtype=types.float32)
        for i in range(t, hw * lanes, 128):
            p, part = i32(i // lanes), i32(i % lanes)
            unpack(load4(u64(x + u64((i64(n) * ldx + part * VEC) * element))), value)
            for j in range(VEC):
                value[j] = f32(value[j] * factor)
            deliver(pack(value), mask, out, i64(i64(n) * hw + p), part, ldm, ldo, masking, accumulate)

    return average_gradient
