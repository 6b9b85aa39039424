"""Forward records of every op."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from core.cpu import batch_norm as bn
from core.cpu import depthwise, loss, packing, photo, pooling
from core.cpu import elementwise as ew
from core.cpu.activation import number_of
from core.cpu.convolution import forward_packs, forward_records
from core.cpu.cutting import panel_floats
from core.cpu.dense import for_all_photos
from core.cpu.geometry import View
from core.cpu.gradients import lone_clip
from core.cpu.lowering import Lowering, convolution_of, map_record
from core.cpu.records import NOWHERE, Address, Record
from core.graph import PHOTO
from core.ops.activation import ACTIVATIONS
from core.ops.avg_pool import divisors
from core.ops.op_table import LOSSES
from core.ops.random import threshold
from core.ops.window import Window, read_window
from core.program import Step, Value


def photo_record(lowering: Lowering) -> Record:
    """The transform of uint8 photos into the network's input; the plan sets the kernel that a batch needs."""
    node = lowering.program.graph.nodes[0]
    out = lowering.x(lowering.program.values[PHOTO])
    mean, std = (np.asarray(node.attributes[k], np.float64) for k in ("mean", "std"))
    normal = np.zeros(6, np.float32)
    normal[: len(mean)], normal[3 : 3 + len(std)] = mean, 1 / std
    fields: dict[int, int | Address] = {
        photo.OUT: out.address, photo.OUT_ROW: out.row, photo.HEIGHT: out.height, photo.WIDTH: out.width,
        photo.CHANNELS: out.channels, photo.NORMAL: lowering.constant(normal),
    }  # fmt: skip
    return Record(photo.run_plain_photo, fields, out.height, PHOTO, "forward", "fused")


def _convolve(lowering: Lowering, step: Step) -> list[Record]:
    x, y = lowering.x(step.inputs[0]), lowering.x(step.output)
    c = convolution_of(step, lowering.image(step.inputs[0]))
    depth = c.kernel[0] * c.kernel[1] * c.depth
    panel = lowering.reserve(panel_floats(c.width, c.groups, depth, y.width))
    lowering.packs.extend(forward_packs(c, y.width, lowering.parameter(step, "weight"), panel, step.node))
    activation = number_of(step.activation, step.node)
    records = forward_records(c, x, y, panel, lowering.parameter(step, "bias"), activation, step.node)
    if lowering.is_together(step):
        return [for_all_photos(record, lowering.buffers.slot_bytes, lowering.batch) for record in records]
    return records


def pack_depthwise(lowering: Lowering, step: Step) -> Address:
    """The step's filter as (kh, kw, C), packed whenever the weights changed."""
    kh, kw = read_window(step.attributes).kernel
    channels, taps = step.output.shape[2], kh * kw
    panel = lowering.reserve(channels * taps)
    fields: dict[int, int | Address] = {
        packing.SOURCE: lowering.parameter(step, "weight"), packing.PANEL: panel, packing.WIDE: channels,
        packing.VALID: channels, packing.BLOCKS: 1, packing.PART: channels * taps * 4, packing.T1: 1, packing.T2: 1,
        packing.DEPTH: taps, packing.S_N: taps * 4, packing.S_K: 4,
    }  # fmt: skip
    lowering.packs.append(Record(packing.run_pack, fields, 1, step.node, "update", "pack"))
    return panel


def _depthwise(lowering: Lowering, step: Step) -> list[Record]:
    x, y, taps = lowering.x(step.inputs[0]), lowering.x(step.output), pack_depthwise(lowering, step)
    activation, window = number_of(step.activation, step.node), read_window(step.attributes)
    return depthwise.forward_records(window, x, y, taps, lowering.parameter(step, "bias"), activation, step.node)


def pool_fields(step: Step, x: View, y: View) -> dict[int, int | Address]:
    """Fields that both directions of a pooling share."""
    whole = step.op == "global_avg_pool"
    window = Window((x.height, x.width), (1, 1), (0, 0, 0, 0)) if whole else read_window(step.attributes)
    (kh, kw), (sh, sw), (top, left, _, _) = window.kernel, window.stride, window.padding
    return {
        pooling.X: x.address, pooling.X_ROW: x.row, pooling.X_PIXEL: x.pixel, pooling.HEIGHT: x.height,
        pooling.WIDTH: x.width, pooling.CHANNELS: x.channels, pooling.Y: y.address, pooling.Y_ROW: y.row,
        pooling.Y_PIXEL: y.pixel, pooling.ROWS: y.height, pooling.COLUMNS: y.width, pooling.KERNEL_Y: kh,
        pooling.KERNEL_X: kw, pooling.STRIDE_Y: sh, pooling.STRIDE_X: sw, pooling.TOP: top, pooling.LEFT: left,
    }  # fmt: skip


def pool_shares(lowering: Lowering, step: Step) -> Address:
    """1 / window size of every window of an average pooling."""
    height, width, _ = lowering.image(step.inputs[0])
    if step.op == "global_avg_pool":
        return lowering.constant([1 / (height * width)])
    return lowering.constant((1 / divisors(step.attributes, height, width)).astype(np.float32).ravel())


def _max_pool(lowering: Lowering, step: Step) -> list[Record]:
    x, y = lowering.x(step.inputs[0]), lowering.x(step.output)
    fields = pool_fields(step, x, y)
    if lowering.program.training:
        fields[pooling.AUX] = lowering.buffers.address(f"w {step.node}")
        fields[pooling.CLOSED] = lone_clip(lowering, step)
    return [Record(pooling.run_max_pool, fields, y.height, step.node, "forward", "fused")]


def _avg_pool(lowering: Lowering, step: Step) -> list[Record]:
    x, y = lowering.x(step.inputs[0]), lowering.x(step.output)
    fields = pool_fields(step, x, y) | {pooling.AUX: pool_shares(lowering, step)}
    return [Record(pooling.run_avg_pool, fields, y.height, step.node, "forward", "fused")]


def _activation(lowering: Lowering, step: Step) -> list[Record]:
    y, x = lowering.x(step.output), lowering.x(step.inputs[0])
    return [map_record(step.node, "forward", ew.COPY, y, x, activation=number_of(step.op, step.node))]


def _add(lowering: Lowering, step: Step) -> list[Record]:
    a, b = (lowering.x(v) for v in step.inputs)
    activation = number_of(step.activation, step.node)
    return [map_record(step.node, "forward", ew.ADD, lowering.x(step.output), a, b, activation=activation)]


def everywhere(factor: View, image: View) -> View:
    """A view of one pixel seen at every pixel of an image."""
    return View(factor.address, image.height, image.width, image.channels, 0, 0)


def _multiply(lowering: Lowering, step: Step) -> list[Record]:
    y, (x, factor) = lowering.x(step.output), (lowering.x(v) for v in step.inputs)
    return [map_record(step.node, "forward", ew.MULTIPLY, y, x, everywhere(factor, y))]


def _concat(lowering: Lowering, step: Step) -> list[Record]:
    records, channel = [], step.output.channel
    for value in step.inputs:
        part = Value(step.output.buffer, value.shape, channel)
        records.append(map_record(step.node, "forward", ew.COPY, lowering.x(part), lowering.x(value)))
        channel += value.shape[-1]
    return records


def _flatten(lowering: Lowering, step: Step) -> list[Record]:
    x, y = lowering.x(step.inputs[0]), lowering.x(step.output)
    return [map_record(step.node, "forward", ew.COPY, as_image(y, x), x)]


def as_image(flat: View, image: View) -> View:
    """A flat view seen with the height and width of an image."""
    pixel = image.channels * 4
    return View(flat.address, image.height, image.width, image.channels, image.width * pixel, pixel)


def dropout_settings(step: Step) -> tuple[float, int, int]:
    """(scale, threshold, key) of a dropout."""
    rate = float(step.attributes["rate"])  # type: ignore[arg-type]
    return 1 / (1 - rate), threshold(rate), int(step.attributes["key"])  # type: ignore[arg-type]


def _dropout(lowering: Lowering, step: Step) -> list[Record]:
    scale, limit, key = dropout_settings(step)
    y, x = lowering.x(step.output), lowering.x(step.inputs[0])
    return [map_record(step.node, "forward", ew.DROPOUT, y, x, scale=lowering.constant([scale]), shift=limit, key=key)]


def _softmax(lowering: Lowering, step: Step) -> list[Record]:
    x, y = lowering.x(step.inputs[0]), lowering.x(step.output)
    records = []
    for row in range(x.height):
        for column in range(x.width):
            fields: dict[int, int | Address] = {loss.X: x.at(row, column), loss.Y: y.at(row, column)}
            fields[loss.CHANNELS] = x.channels
            records.append(Record(loss.run_softmax, fields, 1, step.node, "forward", "fused"))
    return records


def _cross_entropy(lowering: Lowering, step: Step) -> list[Record]:
    return []  # one record does forward and backward: core.cpu.backward


def _batch_norm(lowering: Lowering, step: Step) -> list[Record]:
    x, y = lowering.x(step.inputs[0]), lowering.x(step.output)
    channels = x.channels
    saved = lowering.reserve(4 * channels)
    settings = lowering.constant([float(step.attributes[k]) for k in ("epsilon", "momentum")])  # type: ignore[arg-type]
    fields: dict[int, int | Address] = {
        bn.X: x.address, bn.X_ROW: x.row, bn.X_PIXEL: x.pixel, bn.HEIGHT: x.height, bn.WIDTH: x.width,
        bn.CHANNELS: channels, bn.SAVED: saved, bn.SETTINGS: settings,
    }  # fmt: skip
    roles = ("weight", "bias", "running_mean", "running_var")
    for name, role in zip((bn.WEIGHT, bn.BIAS, bn.MEAN, bn.VARIANCE), roles, strict=True):
        fields[name] = lowering.parameter(step, role)
    blocks = -(-channels // bn.BLOCK)
    scaled = map_record(
        step.node, "forward", ew.AFFINE, y, x, scale=saved + 8 * channels, shift=saved + 12 * channels,
        activation=number_of(step.activation, step.node),
    )  # fmt: skip
    if not lowering.program.training or step.attributes["frozen"]:
        lowering.packs.append(Record(bn.run_fix, fields, blocks, step.node, "update", "fused"))
        lowering.moments[step.node] = (saved, NOWHERE)
        return [scaled]
    sums = lowering.reserve(lowering.batch * 4 * channels)
    lowering.moments[step.node] = (saved, sums)
    fields[bn.SUMS] = sums
    return [
        Record(bn.run_statistics, fields, 1, step.node, "forward", "fused"),
        Record(bn.run_merge, fields, blocks, step.node, "forward", "fused", once=True),
        scaled,
    ]


FORWARD: Final[Mapping[str, Callable[[Lowering, Step], list[Record]]]] = {
    "conv2d": _convolve,
    "dense": _convolve,
    "depthwise_conv2d": _depthwise,
    "max_pool": _max_pool,
    "avg_pool": _avg_pool,
    "global_avg_pool": _avg_pool,
    **dict.fromkeys(ACTIVATIONS, _activation),
    "softmax": _softmax,
    **dict.fromkeys(LOSSES, _cross_entropy),
    "concat": _concat,
    "add": _add,
    "multiply": _multiply,
    "batch_norm": _batch_norm,
    "dropout": _dropout,
    "flatten": _flatten,
}
