"""The end of a network in one kernel: global average, softmax, cross entropy, and the gradient of every pixel.

    grid: images     block: 128 threads

    1  mean      groups of threads share the pixels; a thread has one vector (16 bytes) of classes
    2  softmax   a thread has every 128th class: largest score, sum of exponentials, loss and hit by block sums
    3  gradient  a thread has every 128th vector of the image

    shared memory, float32: scores (classes) | partial sums (groups, classes) | scratch of the block sums (128)

Bytes: the activations once, and once more for the mask of the gradient, which is written once: the floor. With soft
targets or several labels per photo (a sigmoid per label) it is another kernel. Source: `core.ops.loss`.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from core.gpu.arguments import CONTROL, KernelSignature, arguments, ints, pointers
from core.gpu.compilation.cuda import cuda, device_function, f32, i32, i64, u32, u64
from core.gpu.compilation.ptx import load1, load4, load_float, store1, store4, store_float
from core.gpu.control import find_offsets, make_reader, read_photos
from core.gpu.frame import Frame
from core.gpu.gradients import Backward
from core.gpu.launch import RELU, Launch, Tensor, make_launch
from core.gpu.parts.block import block_max, block_sum
from core.gpu.parts.vectors import PACK, UNPACK, clear, passes
from core.gpu.select import FAST, FORWARD, Case
from core.ops.op_table import LOSSES
from core.program import Step, Value

THREADS: Final = 128

_read_share: Final = make_reader("share")

HEAD: Final = KernelSignature((
    *pointers(x="activations (batch, hw, classes) whose mean is the logits", logits="float32 (batch, classes)",
              dx="gradient of x; 0 for none", labels="int32 (batch,), below 0 for none; 0 for the logits alone",
              weights="float32 (classes,): class weights; 0 for all 1",
              targets="float32 (batch, classes), of a teacher; 0 for none",
              results="float32 (batch,) loss and int32 (batch,) hit of each image"),
    CONTROL,
    *ints(hw="pixels of an image", classes="classes", ldx="elements from a pixel of x to the next",
          ldd="elements from a pixel of dx to the next", batch="images of the plan's batch",
          activation="activation that x is the output of (`core.gpu.launch.RELU`)"),
    *arguments("float32", smoothing="label smoothing"),
))  # fmt: skip


def shared_bytes(classes: int, element: int) -> int:
    """The scores, and partial sums of them over groups of pixels."""
    vectors = -(-classes // (16 // element))
    return 4 * (classes + max(1, THREADS // vectors) * vectors * (16 // element))


def make_mean(element: int) -> Any:
    """Device function: mean of each class over a photo's pixels into `scores`, which partial sums follow."""
    unpack, VEC = UNPACK[element], 16 // element

    @device_function
    def mean(base, scores, logits, hw, classes, ldx):
        t, vectors = i32(cuda.threadIdx.x), i32((classes + VEC - 1) // VEC)
        wide = i32(min(vectors, 128))
        groups, group = i32(128 // wide), i32(t // wide)
        value = cuda.local.array(VEC, f32)
        sums = cuda.local.array(VEC, f32)
        for vector in range(i32(t % wide), vectors if group < groups else 0, wide):
            clear(sums)
            for p in range(group, hw, groups):
                unpack(load4(u64(base + u64((i64(p) * ldx + vector * VEC) * element))), value)
                for i in range(VEC):
                    sums[i] = f32(sums[i] + value[i])
            for i in range(VEC):
                scores[i32(classes + (group * vectors + vector) * VEC + i)] = sums[i]
        cuda.syncthreads()  # the partial sums of all groups are there
        for c in range(t, classes, 128):
            total = f32(0.0)
            for g in range(groups):
                total = f32(total + scores[i32(classes + g * vectors * VEC + c)])
            scores[c] = f32(total / f32(hw))
            store_float(u64(logits + u64(i64(c) * 4)), scores[c])
        cuda.syncthreads()  # the scores are there

    return mean


def make_broadcast(element: int) -> Any:
    """Device function: the gradient of every class in `scores`, as the gradient of each pixel of the photo."""
    unpack, pack, VEC = UNPACK[element], PACK[element], 16 // element

    @device_function
    def broadcast(scores, base, dx, hw, classes, ldx, ldd, activation):
        cuda.syncthreads()  # the gradients of all classes are there
        value, vectors = cuda.local.array(VEC, f32), i32((classes + VEC - 1) // VEC)
        for i in range(i32(cuda.threadIdx.x), hw * vectors, 128):
            p, vector = i32(i // vectors), i32(i % vectors)
            unpack(load4(u64(base + u64((i64(p) * ldx + vector * VEC) * element))), value)
            for j in range(VEC):
                c = i32(vector * VEC + j)
                value[j] = scores[c] if c < classes and passes(value[j], activation) else f32(0.0)
            v = pack(value)
            row = i64(i64(cuda.blockIdx.x) * hw + p)
            store4(u64(dx + u64((row * ldd + vector * VEC) * element)), v[0], v[1], v[2], v[3])

    return broadcast


@device_function
def _weight_of(c, weights):
    return load_float(u64(weights + u64(i64(c) * 4))) if weights != u64(0) else f32(1.0)


@device_function
def known_weight(labels, weights, photos, scratch):
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
    """The smoothed target of a class, times its weight."""
    target = f32(smoothing / f32(classes))
    if c == label:
        target = f32(target + f32(f32(1.0) - smoothing))
    return f32(target * _weight_of(c, weights))


@device_function
def _given_target(c, label, classes, smoothing, weights, targets):
    """The same for a photo's own targets."""
    return f32(load_float(u64(targets + u64(i64(c) * 4))) * _weight_of(c, weights))


def make_head(element: int, kind: str = "") -> Any:
    """The kernel; dynamic shared memory as `shared_bytes` says.

    `kind`: "targets" where photos have targets, "labels" for several labels per photo, each with a sigmoid; the
    exponential of ``-|score|`` cannot overflow.
    """
    wanted, LABELS = _given_target if kind == "targets" else _target, kind == "labels"
    mean, broadcast = make_mean(element), make_broadcast(element)

    def head(
        x, logits, dx, labels, weights, targets, results, control, hw, classes, ldx, ldd, batch, activation, smoothing,
    ):
        scores = cuda.shared.array(0, f32)
        scratch = cuda.shared.array(128, f32)
        t, n = i32(cuda.threadIdx.x), i32(cuda.blockIdx.x)
        photos = read_photos(control)
        base = u64(x + u64(i64(n) * hw * ldx * element))
        mean(base, scores, u64(logits + u64(i64(n) * classes * 4)), hw, classes, ldx)
        if labels == u64(0):
            return  # a prediction
        known = known_weight(labels, weights, photos, scratch)
        mine = u64(targets + u64(i64(n) * classes * 4))
        label = i32(load1(u64(labels + u64(i64(n) * 4)))) if n < photos else i32(-1)
        loss, wrong, mass = f32(0.0), f32(0.0), f32(0.0)
        if LABELS:
            scale = f32(_read_share(control) / f32(known * f32(classes))) if label >= 0 else f32(0.0)
            for c in range(t, classes, 128):
                z, q = scores[c], load_float(u64(mine + u64(i64(c) * 4)))
                small = cuda.libdevice.expf(f32(-abs(z)))
                p = f32((f32(1.0) if z >= f32(0.0) else small) / f32(f32(1.0) + small))
                if label >= 0:
                    rest = f32(max(z, f32(0.0)) - q * z + cuda.libdevice.logf(f32(f32(1.0) + small)))
                    loss, wrong = f32(loss + scale * rest), f32(wrong + f32((z > f32(0.0)) != (q > f32(0.5))))
                scores[c] = f32(scale * f32(p - q) / f32(hw)) if label >= 0 else f32(0.0)
            loss, wrong = block_sum(loss, scratch), block_sum(wrong, scratch)
            hit = label >= 0 and wrong == f32(0.0)
        else:
            inverse = f32(_read_share(control) / known) if label >= 0 and known > f32(0.0) else f32(0.0)
            top, log_total, first = _measure(scores, classes, scratch)
            for c in range(t, classes, 128):
                target = f32(wanted(c, label, classes, smoothing, weights, mine) * inverse)
                if inverse > f32(0.0):
                    loss = f32(loss - target * f32(scores[c] - top - log_total))
                mass = f32(mass + target)
            loss, mass = block_sum(loss, scratch), block_sum(mass, scratch)
            hit = label >= 0 and i32(first) == label
        if t == 0:
            store_float(u64(results + u64(i64(n) * 4)), loss)
            store1(u64(results + u64(i64(batch + n) * 4)), u32(1) if hit else u32(0))
        if dx == u64(0):
            return
        if not LABELS:
            for c in range(t, classes, 128):  # the scores become the gradient of the mean, for each pixel
                target = f32(wanted(c, label, classes, smoothing, weights, mine) * inverse)
                p = cuda.libdevice.expf(f32(scores[c] - top - log_total))
                scores[c] = f32(f32(p * mass - target) / f32(hw)) if inverse > f32(0.0) else f32(0.0)
        broadcast(scores, base, dx, hw, classes, ldx, ldd, activation)

    return head


def _is_average(frame: Frame, step: Step) -> bool:
    """Whether the step is a global average that makes the logits, in the head except for teaching."""
    return step.op == "global_avg_pool" and step.output == frame.program.output and frame.algorithm in FAST


def _source(frame: Frame) -> Value:
    """The input of the head: that of the global average, or the logits."""
    return next((s.inputs[0] for s in frame.program.steps if _is_average(frame, s)), frame.program.output)


def is_computed_with_loss(frame: Frame, step: Step) -> bool:
    """Whether the head computes the step."""
    return step.op in LOSSES or _is_average(frame, step)


def write_loss(backward: Backward) -> None:
    """Write the loss, and the gradient of the head's input."""
    frame, output = backward.frame, backward.frame.program.output
    value, gradient, masking = _source(backward.frame), None, ""
    if value != output:
        backward.claim(output)
    if frame.wants(value):
        _, masking, _ = backward.target(value)
        gradient = frame.shaped(value, True)
    frame.add(head_launch(frame, gradient, masking))


def head_launch(frame: Frame, gradient: Tensor | None, masking: str) -> Launch:
    """Logits in float32, and for training the loss, the hits and the gradient of the head's input."""
    program, x, control = frame.program, frame.shaped(_source(frame)), frame.block("control")
    classes, has_targets = program.output.shape[-1], program.target_size > 0
    offsets = find_offsets(frame.batch)
    weights, smoothing = 0, 0.0
    if program.training:
        attributes = program.steps[-1].attributes
        smoothing = float(attributes.get("label_smoothing", 0.0))  # type: ignore[arg-type]
        if attributes.get("class_weights"):
            table = np.asarray(attributes["class_weights"], np.float32).view(np.int32)
            weights = frame.table("class weights", lambda: table)
    values = {
        "x": x.address, "logits": frame.block("logits"), "dx": gradient.address if gradient else 0,
        "labels": control + offsets.labels if program.training else 0, "weights": weights,
        "targets": control + offsets.targets if has_targets else 0, "results": frame.block("results"),
        "control": control,
        "hw": x.height * x.width, "classes": classes, "ldx": x.pitch, "ldd": gradient.pitch if gradient else 0,
        "batch": frame.batch, "activation": RELU[masking], "smoothing": smoothing,
    }  # fmt: skip
    kind = "labels" if program.training and program.steps[-1].op == LOSSES[1] else "targets" if has_targets else ""
    constants = (frame.element, *((kind,) if kind else ()))
    return make_launch(
        "loss" if program.training else "logits", "forward", make_head, constants, HEAD, values,
        (frame.batch,), (THREADS,), shared_bytes(classes, frame.element),
    )  # fmt: skip


def write(case: Case) -> None:
    """The loss, and for its gradient that too."""
    gradient = None if case.direction == FORWARD else case.frame.tensor(case.step.inputs[0], True)
    case.frame.add(head_launch(case.frame, gradient, ""))
