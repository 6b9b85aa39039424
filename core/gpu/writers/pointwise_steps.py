"""Launches of 1x1 convolutions between a wide and a narrow photo, fused with the batch norms beside them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np

from core.gpu.frame import Frame
from core.gpu.gradients import Backward
from core.gpu.kernels.convolution import pointwise_narrow, pointwise_wide
from core.gpu.kernels.convolution.pointwise_tiles import MAX_FILTERS, Shape, shape_to_narrow, shape_to_wide
from core.gpu.launch import RELU, Launch, Tensor, blocks_of, simple_launch
from core.gpu.ops.conv import packing
from core.gpu.ops.conv.partial_sums import sum_launch
from core.gpu.writers.norm_pairs import norm_before, norm_behind
from core.gpu.writers.norm_steps import saved_of
from core.ops.contract import Array
from core.program import Step

RESIDENT: Final = {
    "expand": {32: 4, 96: 4, 144: 2, 192: 3},
    "project": {32: 6, 96: 3, 144: 1, 192: 2},
    "expand_backward": {32: 3, 96: 2, 144: 1, 192: 2},
    "project_backward": {32: 4, 96: 2, 144: 1, 192: 2},
}
"""Blocks a multiprocessor by wide channels, as many as the registers allow."""


def expand(frame: Frame, step: Step) -> None:
    """From few channels to many, with the sums of the batch norm behind."""
    x, out = frame.image(step.inputs[0]), frame.image(step.output)
    shape = shape_to_wide(out.padded, x.padded)
    assert shape is not None
    blocks = _blocks(frame, x, shape, "expand")
    norm = norm_behind(frame, step)
    assert norm is not None
    values = (
        x.address, _packed(frame, step, x, False), out.address, 0, 0, 0, _sums(frame, f"sums:{norm.node}", blocks, out),
        frame.places.control, *_pixels(frame, x), packing.padded_depth(x.padded, 2), x.pitch, out.pitch, 0,
    )
    recipe = (out.padded, x.padded, False, -1)
    shared = pointwise_wide.shared_bytes(out.padded, x.padded, False)
    frame.add(
        _launch(
            "expand", step, "forward", "convolution.pointwise_wide", "make_wide", recipe, pointwise_wide.ARGUMENTS,
            shape, blocks, values, shared, _work(frame, x, out, 1, 1),
        )
    )


def project(frame: Frame, step: Step) -> None:
    """From many channels, as they were before their batch norm, to few; with the sums of the batch norm behind."""
    before, behind = norm_before(frame, step), norm_behind(frame, step)
    assert before is not None
    assert behind is not None
    x, out = frame.image(before.inputs[0]), frame.image(step.output)
    shape = shape_to_narrow(x.padded, out.padded)
    assert shape is not None
    blocks = _blocks(frame, x, shape, "project")
    values = (
        x.address, saved_of(frame, before), _packed(frame, step, x, False), out.address,
        _sums(frame, f"sums:{behind.node}", blocks, out), frame.places.control, *_pixels(frame, x),
        packing.padded_depth(x.padded, 2), x.pitch, out.pitch,
    )
    recipe = (x.padded, out.padded, RELU[before.activation])
    shared = pointwise_narrow.forward_shared(x.padded, out.padded)
    frame.add(
        _launch(
            "project", step, "forward", "convolution.pointwise_narrow", "make_projection", recipe,
            pointwise_narrow.FORWARD_ARGUMENTS, shape, blocks, values, shared, _work(frame, out, x, 1, 1),
        )
    )


def expand_backward(walk: Backward, step: Step) -> None:
    """Both gradients from that of the batch norm behind."""
    frame, norm = walk.frame, norm_behind(walk.frame, step)
    assert norm is not None
    _, _, add = walk.target(step.inputs[0])
    x, source = frame.image(step.output), frame.image(step.inputs[0])
    g, out = frame.image(norm.output, True), frame.image(step.inputs[0], True)
    shape = shape_to_narrow(x.padded, source.padded)
    assert shape is not None
    blocks, size = _blocks(frame, x, shape, "expand_backward"), x.padded * source.padded
    values = (
        x.address, g.address, saved_of(frame, norm), _packed(frame, step, source, True), source.address, out.address,
        frame.use(f"partial:{step.node}", 4 * size * blocks), frame.places.control, *_pixels(frame, x),
        packing.padded_depth(x.padded, 2), x.pitch, g.pitch, source.pitch, out.pitch, int(add),
    )
    shared = pointwise_narrow.gradient_shared(x.padded, source.padded)
    frame.add(
        _launch(
            "expand_backward", step, "backward_input", "convolution.pointwise_narrow", "make_expansion_gradient",
            (x.padded, source.padded), pointwise_narrow.GRADIENT_ARGUMENTS, shape, blocks, values, shared,
            _work(frame, source, x, 2 + add, 2),
        )
    )
    filters, _, _, depth = frame.layout.offsets[f"{step.node}.weight"][1]
    places = np.arange(filters)[:, None] * source.padded + np.arange(depth)
    _reduce(walk, step, blocks, size, places)


def project_backward(walk: Backward, step: Step) -> None:
    """Both gradients, that of the input masked by its activation and with the sums of its batch norm."""
    frame, norm = walk.frame, norm_before(walk.frame, step)
    assert norm is not None
    walk.claim(step.inputs[0])
    x, source = frame.image(norm.inputs[0]), frame.image(step.output, True)
    out = frame.image(norm.output, True)
    shape = shape_to_wide(x.padded, source.padded)
    assert shape is not None
    blocks, size = _blocks(frame, x, shape, "project_backward"), x.padded * source.padded
    values = (
        source.address, _packed(frame, step, source, True), out.address, x.address, saved_of(frame, norm),
        frame.use(f"partial:{step.node}", 4 * size * blocks), _sums(frame, f"dsums:{norm.node}", blocks, x),
        frame.places.control, *_pixels(frame, x), packing.padded_depth(source.padded, 2), source.pitch, out.pitch,
        x.pitch,
    )
    recipe = (x.padded, source.padded, True, RELU[norm.activation])
    shared = pointwise_wide.shared_bytes(x.padded, source.padded, True)
    frame.add(
        _launch(
            "project_backward", step, "backward_input", "convolution.pointwise_wide", "make_wide", recipe,
            pointwise_wide.ARGUMENTS, shape, blocks, values, shared, _work(frame, source, x, 1, 2),
        )
    )
    filters, _, _, depth = frame.layout.offsets[f"{step.node}.weight"][1]
    places = np.arange(depth)[None, :] * source.padded + np.arange(filters)[:, None]
    _reduce(walk, step, blocks, size, places)


def _pixels(frame: Frame, x: Tensor) -> tuple[int, int]:
    """Pixels in all, and of a photo."""
    return frame.batch * x.height * x.width, x.height * x.width


def _blocks(frame: Frame, x: Tensor, shape: Shape, kind: str) -> int:
    """As many as run at once; each walks over its share of the tiles."""
    return min(_resident(kind, shape) * frame.processors, blocks_of(_pixels(frame, x)[0], shape.pixels))


def _resident(kind: str, shape: Shape) -> int:
    """Blocks a multiprocessor; those with the most filter gradients are alone."""
    alone = kind.endswith("backward") and shape.wide * shape.narrow == MAX_FILTERS
    return 1 if alone else RESIDENT[kind][shape.wide]


def _packed(frame: Frame, step: Step, read: Tensor, backward: bool) -> int:
    """Address of the packed filters; forward their rows are the output's channels, backward the input's."""
    indices = frame.indices(f"{step.node}.weight")

    def make() -> Array:
        if backward:
            return packing.pack_backward([indices], frame.element)
        return packing.pack_forward(indices, packing.Taps((1, 1), read.padded), frame.element)

    return frame.packed(f"backward:{step.node}" if backward else f"{step.node}.weight", make)


def _sums(frame: Frame, name: str, blocks: int, x: Tensor) -> int:
    """Address of so many partial sums of two kinds."""
    frame.partials[name] = blocks
    return frame.use(name, 8 * blocks * x.padded)


def _work(frame: Frame, narrow: Tensor, wide: Tensor, narrow_times: int, products: int) -> tuple[int, int]:
    """(bytes, FLOPs): the wide side is touched `products` times."""
    pixels = _pixels(frame, wide)[0]
    moved = 2 * pixels * (narrow.padded * narrow_times + wide.padded * products)
    return moved, 2 * products * pixels * narrow.padded * wide.padded


def _launch(
    kind: str, step: Step, direction: str, module: str, factory: str, recipe: tuple[Any, ...],
    signature: tuple[object, ...], shape: Shape, blocks: int, values: tuple[object, ...], shared: int,
    work: tuple[int, int],
) -> Launch:  # fmt: skip
    launch = simple_launch(
        step.node, direction, "tensor_core", module, factory, recipe, signature, (blocks, 1, 1),
        (shape.threads, 1, 1), values, shared, moved=work[0], blocks=_resident(kind, shape),
    )
    return replace(launch, flops=work[1])


def _reduce(walk: Backward, step: Step, blocks: int, size: int, places: Array) -> None:
    """Add the blocks' filter gradients."""
    frame, name = walk.frame, f"{step.node}.weight"
    table = frame.table(f"gradient:{step.node}", lambda: places)
    frame.add(
        sum_launch(
            step.node, frame.use(f"partial:{step.node}", 4 * size * blocks), table, frame.gradient_of(name), 0, blocks,
            size, places.size, places.size, walk.accumulate,
        )
    )
