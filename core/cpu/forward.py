"""Forward records of every op."""

from __future__ import annotations

from typing import Any

import numpy as np

from core.cpu import batch_norm as bn
from core.cpu import elementwise as ew
from core.cpu import loss, photo, pooling
from core.cpu.activation import number_of
from core.cpu.geometry import View
from core.cpu.gradients import lone_clip
from core.cpu.lowering import Lowering, map_record
from core.cpu.records import NULL, Address, Fields, Record
from core.graph import PHOTO
from core.ops.dropout import threshold
from core.ops.pooling import divisors
from core.ops.window import Window, read_window
from core.program import Step, concat_slices


def photo_record(lowering: Lowering) -> Record:
    """Return the record that transforms uint8 photos into the input image; the plan sets the kernel for each batch."""
    node = lowering.program.graph.nodes[0]
    out = lowering.x(lowering.program.values[PHOTO])
    mean, std = (np.asarray(node.attributes[k], np.float64) for k in ("mean", "std"))
    normal = np.zeros(6, np.float32)
    normal[: len(mean)], normal[3 : 3 + len(std)] = mean, 1 / std
    fields: Fields = {
        photo.OUT: out.address, photo.OUT_ROW: out.row, photo.HEIGHT: out.height, photo.WIDTH: out.width,
        photo.CHANNELS: out.channels, photo.NORMAL: lowering.constant(normal),
    }  # fmt: skip
    return Record(photo.run_plain_photo, fields, out.height, PHOTO, "forward", "fused")


def pool_fields(step: Step, x: View, y: View) -> Fields:
    whole = step.op == "global_avg_pool"
    window = Window((x.height, x.width), (1, 1), (0, 0, 0, 0)) if whole else read_window(step.attributes)
    (kh, kw), (sh, sw), (top, left, _, _) = window.kernel, window.stride, window.padding
    return {
        **x.place(pooling.X), **x.size(pooling.HEIGHT), **y.place(pooling.Y), pooling.ROWS: y.height,
        pooling.COLUMNS: y.width, pooling.KERNEL_Y: kh, pooling.KERNEL_X: kw, pooling.STRIDE_Y: sh,
        pooling.STRIDE_X: sw, pooling.TOP: top, pooling.LEFT: left,
    }  # fmt: skip


def pool_shares(lowering: Lowering, step: Step) -> Address:
    """Return 1 / window size of every window of an average pooling."""
    height, width, _ = lowering.buffers.image(step.inputs[0])
    if step.op == "global_avg_pool":
        return lowering.constant([1 / (height * width)])
    return lowering.constant((1 / divisors(step.attributes, height, width)).astype(np.float32).ravel())


def write_max_pool(lowering: Lowering, step: Step) -> list[Record]:
    x, y = lowering.x(step.inputs[0]), lowering.x(step.output)
    fields = pool_fields(step, x, y)
    if lowering.program.training:
        fields[pooling.AUX] = lowering.buffers.whole(f"w {step.node}").address
        fields[pooling.CLOSED] = lone_clip(lowering, step)
    return [Record(pooling.run_max_pool, fields, y.height, step.node, "forward", "fused")]


def write_avg_pool(lowering: Lowering, step: Step) -> list[Record]:
    x, y = lowering.x(step.inputs[0]), lowering.x(step.output)
    fields = pool_fields(step, x, y) | {pooling.AUX: pool_shares(lowering, step)}
    return [Record(pooling.run_avg_pool, fields, y.height, step.node, "forward", "fused")]


def _map(lowering: Lowering, step: Step, mode: int, activation: str = "", **more: Any) -> list[Record]:
    """List the elementwise record of a step with one or two inputs."""
    inputs = [lowering.x(value) for value in step.inputs]
    number = number_of(activation, step.node)
    return [map_record(step.node, "forward", mode, lowering.x(step.output), *inputs, activation=number, **more)]


def write_activation(lowering: Lowering, step: Step) -> list[Record]:
    return _map(lowering, step, ew.COPY, step.op)


def write_add(lowering: Lowering, step: Step) -> list[Record]:
    return _map(lowering, step, ew.ADD, step.activation)


def at_every_pixel(factor: View, image: View) -> View:
    """Return a view of one pixel broadcast to every pixel of an image."""
    return View(factor.address, image.height, image.width, image.channels, 0, 0)


def write_multiply(lowering: Lowering, step: Step) -> list[Record]:
    y, (x, factor) = lowering.x(step.output), (lowering.x(v) for v in step.inputs)
    return [map_record(step.node, "forward", ew.MULTIPLY, y, x, at_every_pixel(factor, y))]


def write_concat(lowering: Lowering, step: Step) -> list[Record]:
    return [
        map_record(step.node, "forward", ew.COPY, lowering.x(own), lowering.x(value))
        for value, own in concat_slices(step)
    ]


def as_image(flat: View, image: View) -> View:
    """Return a flat view with the height and width of an image."""
    pixel = image.channels * 4
    return View(flat.address, image.height, image.width, image.channels, image.width * pixel, pixel)


def write_flatten(lowering: Lowering, step: Step) -> list[Record]:
    x, y = lowering.x(step.inputs[0]), lowering.x(step.output)
    return [map_record(step.node, "forward", ew.COPY, as_image(y, x), x)]


def dropout_options(lowering: Lowering, step: Step) -> dict[str, Any]:
    """Return the scale, threshold and key of a dropout, for `map_record`."""
    rate = float(step.attributes["rate"])  # type: ignore[arg-type]
    return {"scale": lowering.constant([1 / (1 - rate)]), "shift": threshold(rate), "key": step.attributes["key"]}


def write_dropout(lowering: Lowering, step: Step) -> list[Record]:
    return _map(lowering, step, ew.DROPOUT, **dropout_options(lowering, step))


def write_softmax(lowering: Lowering, step: Step) -> list[Record]:
    x, y = lowering.x(step.inputs[0]), lowering.x(step.output)
    pixels = [(row, column) for row in range(x.height) for column in range(x.width)]
    fields: list[Fields] = [{loss.X: x.at(*p), loss.Y: y.at(*p), loss.CHANNELS: x.channels} for p in pixels]
    return [Record(loss.run_softmax, each, 1, step.node, "forward", "fused") for each in fields]


def write_loss(lowering: Lowering, step: Step) -> list[Record]:
    return []  # one record does forward and backward: core.cpu.backward


def write_batch_norm(lowering: Lowering, step: Step) -> list[Record]:
    x = lowering.x(step.inputs[0])
    channels = x.channels
    saved = lowering.reserve(4 * channels)
    settings = lowering.constant([float(step.attributes[k]) for k in ("epsilon", "momentum")])  # type: ignore[arg-type]
    fields: Fields = {
        **x.place(bn.X), **x.size(bn.HEIGHT), bn.SAVED: saved, bn.SETTINGS: settings,
        bn.WEIGHT: lowering.parameter(step, "weight"), bn.BIAS: lowering.parameter(step, "bias"),
        bn.MEAN: lowering.parameter(step, "running_mean"), bn.VARIANCE: lowering.parameter(step, "running_var"),
    }  # fmt: skip
    blocks = -(-channels // bn.BLOCK)
    scale, shift = saved + 8 * channels, saved + 12 * channels
    scaled = _map(lowering, step, ew.AFFINE, step.activation, scale=scale, shift=shift)
    if not lowering.program.training or step.attributes["frozen"]:
        lowering.packs.append(Record(bn.run_fix, fields, blocks, step.node, "update", "fused"))
        lowering.moments[step.node] = (saved, NULL)
        return scaled
    sums = lowering.reserve(lowering.batch * 4 * channels)
    lowering.moments[step.node] = (saved, sums)
    fields[bn.SUMS] = sums
    return [
        Record(bn.run_statistics, fields, 1, step.node, "forward", "fused"),
        Record(bn.run_merge, fields, blocks, step.node, "forward", "fused", once=True),
        *scaled,
    ]
