"""Elementwise kernels on channel slices: sums, products, copies, activations and their gradients, dropout.

    grid: vectors / 256     block: 256 threads, one vector (16 bytes of the channels of a pixel) each

Pitches are arguments, so inputs and output may be channel slices of a concatenation. A gradient is masked by the
activation of the value's producer and added to what is there, where requested. Shared memory: none. Bytes: every input
and the output once: the floor.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.arguments import MASK, MASKING, VECTORS, KernelSignature, arguments, divisions, ints, pitches, pointers
from core.gpu.compilation.cuda import cuda, device_function, f32, i32, i64, u32, u64
from core.gpu.compilation.ptx import load4, load4_ordered, load_float, store4, store_float
from core.gpu.control import make_reader
from core.gpu.frame import Frame
from core.gpu.launch import PLAIN, RELU, THREADS, Launch, Target, Tensor, blocks_of, make_launch
from core.gpu.ops.elementwise.activations import ACTIVATIONS
from core.gpu.parts.vectors import PACK, UNPACK, activate, clear, divide, find_vector, make_deliver
from core.gpu.select import FORWARD, Case
from core.ops.activation import ACTIVATIONS as REFERENCES
from core.ops.dropout import GOLDEN, threshold
from core.program import Step, Value, concat_slices

COMBINE: Final = KernelSignature((
    *pointers(a="activations (pixels, C)", b="activations (pixels, C), or one pixel per image (N, C); 0 for none"),
    MASK,
    *pointers(out="activations (pixels, C)"),
    *VECTORS,
    *divisions(area="the pixels of an image"),
    *pitches(lda="a", ldb="b", ldm="mask", ldo="out"),
    *ints(activation="applied to the sum (`core.gpu.launch.RELU`)"),
    *MASKING,
    *arguments("float32", share="1 / pixels of an image"),
))  # fmt: skip

PER_IMAGE: Final = ("product", "broadcast")
"""Kinds whose b has one pixel per image."""


@device_function
def _add(a, b, activation):
    return activate(f32(a + b), activation)


@device_function
def _multiply(a, b, activation):
    return f32(a * b)


def make_apply(kind: str) -> Any:
    """Device function of elements of a and b, and the number of a fused activation."""
    if kind in ("sum", *PER_IMAGE):
        return _add if kind == "sum" else _multiply
    value, gradient = ACTIVATIONS[kind.removesuffix("_gradient")]
    if kind.endswith("_gradient"):
        return device_function(lambda a, b, activation: gradient(a, b))
    return device_function(lambda a, b, activation: value(a))


def make_combine(element: int, kind: str) -> Any:
    """The kernel of a kind; what it computes is kept where the mask lets the gradient pass.

    "sum": ``activation(a + b)``. "product": a times b, the factor of its image and channel. "broadcast": that factor's
    share for each pixel, without a. "NAME": activation of a. "NAME_gradient": its gradient, from that of its output, a,
    and what it needs to see, b.
    """
    unpack, pack, deliver, VEC = UNPACK[element], PACK[element], make_deliver(element), 16 // element
    apply, PER_PIXEL, BROADCAST = make_apply(kind), kind not in PER_IMAGE, kind == "broadcast"

    def combine(
        a, b, mask, out, total, vectors, by_vectors, by_area, lda, ldb, ldm, ldo, activation, masking, accumulate,
        share,
    ):
        at = i32(cuda.grid(1))
        if at >= total:
            return
        pixel, vector = find_vector(at, vectors, by_vectors)
        row = i64(pixel)
        x = cuda.local.array(VEC, f32)
        y = cuda.local.array(VEC, f32)
        if not BROADCAST:
            unpack(load4_ordered(u64(a + u64((row * lda + vector * VEC) * element))), x)
        if b != u64(0):
            other = row if PER_PIXEL else i64(divide(pixel, by_area))
            unpack(load4_ordered(u64(b + u64((other * ldb + vector * VEC) * element))), y)
        else:
            clear(y)
        for i in range(VEC):
            x[i] = f32(y[i] * share) if BROADCAST else apply(x[i], y[i], activation)
        deliver(pack(x), mask, out, row, vector, ldm, ldo, masking, accumulate)

    return combine


_read_seed, _read_step, _read_first = (make_reader(name) for name in ("seed", "step", "photo0"))


@device_function
def mix(x):
    """`core.ops.dropout.mix`: one word to another."""
    x = u32(x ^ u32(x >> u32(16)))
    x = u32(u64(x) * u64(0x7FEB352D))
    x = u32(x ^ u32(x >> u32(15)))
    x = u32(u64(x) * u64(0x846CA68B))
    return u32(x ^ u32(x >> u32(16)))


@device_function
def image_words(seed, step, key, photo):
    """Both words that the bits of an image's elements are drawn from (`core.ops.dropout`)."""
    first = mix(u32(u32(GOLDEN) + seed))
    first = mix(u32(u32(first + u32(GOLDEN)) + step))
    first = mix(u32(u32(first + u32(GOLDEN)) + key))
    first = mix(u32(u32(first + u32(GOLDEN)) + photo))
    return first, mix(u32(first + u32(GOLDEN)))


@device_function
def element_bits(element, words):
    return mix(u32(mix(u32(element ^ words[0])) + words[1]))


DROPOUT: Final = KernelSignature((
    *pointers(a="activations (pixels, C), or their gradient"),
    MASK,
    *pointers(out="activations (pixels, C)", control="control block of the step (`core.gpu.control`)"),
    *VECTORS,
    *ints(channels="C"),
    *divisions(area="`area`"),
    *ints(area="pixels of an image"),
    *pitches(lda="a", ldm="mask", ldo="out"), *MASKING,
    *arguments("uint32", key="of the layer, so that two layers draw different bits",
               threshold="a draw below it makes a zero"),
    *arguments("float32", scale="1 / (1 - rate)"),
))  # fmt: skip


def make_dropout(element: int) -> Any:
    """``out = a`` where the counter's bits reach the threshold, scaled, else 0: forward and gradient alike."""
    unpack, pack, deliver, VEC = UNPACK[element], PACK[element], make_deliver(element), 16 // element

    def dropout(
        a, mask, out, control, total, vectors, by_vectors, channels, by_area, area, lda, ldm, ldo, masking, accumulate,
        key, threshold, scale,
    ):
        at = i32(cuda.grid(1))
        if at >= total:
            return
        pixel, vector = find_vector(at, vectors, by_vectors)
        row = i64(pixel)
        n = divide(pixel, by_area)
        place = u32(u32(pixel - n * u32(area)) * u32(channels) + u32(vector * VEC))
        photo = u32(u32(_read_first(control)) + n)
        words = image_words(_read_seed(control), u32(_read_step(control)), key, photo)
        x = cuda.local.array(VEC, f32)
        unpack(load4_ordered(u64(a + u64((row * lda + vector * VEC) * element))), x)
        for i in range(VEC):
            x[i] = f32(x[i] * scale) if element_bits(u32(place + u32(i)), words) >= threshold else f32(0.0)
        deliver(pack(x), mask, out, row, vector, ldm, ldo, masking, accumulate)

    return dropout


LAYOUT: Final = KernelSignature((
    *pointers(source="array to read", target="array to write; the padded one has the vectors"),
    *VECTORS,
    *ints(channels="channels of the plain array"),
))  # fmt: skip


def make_layout(element: int, pads: bool) -> Any:
    """Copies between plain float32 arrays ``(pixels, channels)`` and a plan's layout: padded to 16 bytes, perhaps bf16.

    One thread per vector: from the plain to the padded array, or back; extra channels become zero.
    """
    pack, unpack, VEC = PACK[element], UNPACK[element], 16 // element

    def layout(source, target, total, vectors, by_vectors, channels):
        at = i32(cuda.grid(1))
        if at >= total:
            return
        pixel, vector = find_vector(at, vectors, by_vectors)
        first = i32(vector * VEC)
        values = cuda.local.array(VEC, f32)
        if pads:
            for i in range(VEC):
                values[i] = f32(0.0)
                if first + i < channels:
                    values[i] = load_float(u64(source + u64((i64(pixel) * channels + first + i) * 4)))
            v = pack(values)
            store4(u64(target + u64(i64(at) * 16)), v[0], v[1], v[2], v[3])
        else:
            unpack(load4(u64(source + u64(i64(at) * 16))), values)
            for i in range(VEC):
                if first + i < channels:
                    store_float(u64(target + u64((i64(pixel) * channels + first + i) * 4)), values[i])

    return layout


def combine_launch(
    frame: Frame, layer: str, direction: str, kind: str, a: Tensor, b: Tensor | None, out: Tensor,
    activation: str = "", target: Target = PLAIN,
) -> Launch:  # fmt: skip
    vectors, area = a.vectors, a.height * a.width
    total = frame.batch * area * vectors
    values = {
        "a": a.address, "b": b.address if b else 0, "out": out.address, "total": total, "vectors": vectors,
        "by_vectors": vectors, "by_area": area, "lda": a.pitch, "ldb": b.pitch if b else 0, "ldo": out.pitch,
        "activation": RELU[activation], **target.values, "share": 1 / area,
    }  # fmt: skip
    read = (kind != "broadcast") + (b is not None and kind not in PER_IMAGE)
    return make_launch(
        layer, direction, make_combine, (frame.element, kind), COMBINE, values, (blocks_of(total, THREADS),),
        moved=total * 16 * (read + target.passes),
    )  # fmt: skip


def refuse_padded(case: Case) -> str:
    """A flattened image is one vector only if there is no padding between its pixels."""
    frame, buffers = case.frame, case.frame.program.buffers
    flattened = (value.buffer for value in case.step.inputs if frame.is_flattened(value))
    padded = next((name for name in flattened if buffers[name][-1] % frame.vector), "")
    return f"It needs a multiple of {frame.vector} channels in the flattened image {padded}." if padded else ""


def forward(case: Case) -> None:
    """A sum, a product, or an activation that is an op of its own."""
    frame, step = case.frame, case.step
    kind = step.op if step.op in ACTIVATIONS else {"add": "sum", "multiply": "product"}[step.op]
    a = frame.shaped(step.inputs[0])
    b = frame.shaped(step.inputs[1]) if len(step.inputs) > 1 else None
    frame.add(combine_launch(frame, step.node, "forward", kind, a, b, frame.shaped(step.output), step.activation))


def backward(case: Case) -> None:
    """The gradient of each input that needs one; for a concatenation from its own channels of the output's."""
    step = case.step
    slices = concat_slices(step) if step.op == "concat" else [(value, step.output) for value in step.inputs]
    for value, source in slices:
        if case.frame.wants(value):
            case.frame.add(_input_gradient(case, value, source))


def concat_forward(case: Case) -> None:
    frame, step = case.frame, case.step
    for value, out in concat_slices(step):
        frame.add(combine_launch(frame, step.node, "forward", "sum", frame.shaped(value), None, frame.shaped(out)))


def _input_gradient(case: Case, value: Value, source: Value) -> Launch:
    frame, step = case.frame, case.step
    target = case.backward.target(value)
    dy, dx = frame.shaped(source, True), frame.shaped(value, True)
    kind, seen = "sum", None
    if step.op not in ("add", "concat"):
        kind = f"{step.op}_gradient"
        seen = frame.shaped(value if REFERENCES[step.op].needs_input else step.output)
    return combine_launch(frame, step.node, "backward_input", kind, dy, seen, dx, "", target)


def apply_mask(frame: Frame, step: Step) -> None:
    """Apply the gradient of a step's own activation to the gradient of its output, in place."""
    dy, y = frame.shaped(step.output, True), frame.shaped(step.output)
    frame.add(combine_launch(frame, step.node, "backward_input", "sum", dy, None, dy, "", Target(y, step.activation)))


def dropout(case: Case) -> None:
    """Dropout or its gradient, which draws the same bits."""
    frame, step, value = case.frame, case.step, case.step.inputs[0]
    if case.direction == FORWARD:
        a, out, target = frame.shaped(value), frame.shaped(step.output), PLAIN
    else:
        a, out, target = frame.shaped(step.output, True), frame.shaped(value, True), case.backward.target(value)
    vectors, area = a.vectors, a.height * a.width
    total, rate = frame.batch * area * vectors, float(step.attributes["rate"])  # type: ignore[arg-type]
    values = {
        "a": a.address, "out": out.address, "control": frame.block("control"), "total": total, "vectors": vectors,
        "channels": a.channels, "by_vectors": vectors, "by_area": area, "area": area, "lda": a.pitch, "ldo": out.pitch,
        **target.values, "key": step.attributes["key"], "threshold": threshold(rate), "scale": 1 / (1 - rate),
    }  # fmt: skip
    frame.add(make_launch(
        step.node, case.direction, make_dropout, (frame.element,), DROPOUT, values,
        (blocks_of(total, THREADS),), moved=total * 16 * (1 + target.passes),
    ))  # fmt: skip
