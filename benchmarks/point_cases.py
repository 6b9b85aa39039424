"""The 1x1 convolutions of SqueezeNet as matrix products, and the tiles that the kernels with TMA could take.

What `point_tiles` measures, without a GPU: the layers of every batch, the candidates that fit into shared memory and
registers, their launches and those of the common kernels, and how the best enter the table of tiles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np

from core.gpu.kernels.parts.tile import Tile
from core.gpu.launch import Launch, Tensor, blocks_of
from core.gpu.ops.conv import backward_weight, packing, products
from core.gpu.ops.conv.products import Ending
from core.gpu.sm90 import pointwise, pointwise_forward, pointwise_gradients, pointwise_weight_gradient
from core.gpu.writers import tiles
from core.models.architectures import build
from core.ops.window import POINT

DIRECTIONS = {"forward": pointwise_forward, "gradients": pointwise_gradients, "filters": pointwise_weight_gradient}
"""What is measured, and the module of its kernel; in the table the names begin with "boxes_"."""

SHARED, REGISTERS = 228 << 10, 65536
"""Bytes and registers of a multiprocessor of compute capability 9.0; a block takes 1 KiB beside its own."""

BESIDE_SUMS = 32
"""Registers that a thread needs beside its sums."""

MOST_STAGES = 24


@dataclass(frozen=True)
class Layer:
    """One convolution of one batch: its pixels, channels and filters up to multiples of 8; `masking` of the input."""

    direction: str
    pixels: int
    channels: int
    filters: int
    masking: str = "relu"

    @property
    def shape(self) -> tuple[int, int, int]:
        """Rows, columns and depth in the table: the depth is what a kernel keeps whole."""
        wide = self.channels if self.direction == "gradients" else self.filters
        return self.pixels, wide, self.filters if self.direction == "gradients" else self.channels


def layers(batch: int) -> list[Layer]:
    """Of both networks at 224 pixels, each once: all forward, both gradients of a squeeze, the filters of an expand."""
    found: dict[tuple[str, int, int, int], Layer] = {}
    for name in ("squeezenet1_0", "squeezenet1_1"):
        graph = build(name, 10, 224)
        for node in graph.nodes:
            if node.op != "conv2d" or tuple(node.attributes["kernel"]) != (1, 1):
                continue
            before = graph.node(node.inputs[0])
            height, width, channels = before.shape
            masking = "" if before.op == "max_pool" else "relu"
            padded, filters = blocks_of(channels, 8) * 8, blocks_of(node.attributes["filters"], 16) * 16
            for direction in ("forward", "gradients" if filters < padded else "filters"):
                at = direction, batch * height * width, padded, filters
                found.setdefault(at, Layer(*at, masking))
    return list(found.values())


def candidates(layer: Layer) -> list[Tile]:
    """Warpgroups and columns of a block, blocks on a multiprocessor; as many stages as there is room for."""
    (_, wide, deep), module, found = layer.shape, DIRECTIONS[layer.direction], []
    forward = layer.direction == "forward"
    sums = {"forward": 0, "gradients": 32 + deep // 2, "filters": 4 + deep // 2}[layer.direction]
    for groups, blocks in product((1, 2, 3, 4), repeat=2):
        split = [c for c in {wide, 128, 64} if wide % c == 0 and c <= 256] if forward else [64 * groups]
        for columns in sorted(split):
            tile = Tile(64 * groups if forward else 64, columns, 2 * deep, 2, 4 * groups, 1, blocks)
            registers = module.threads_of(tile) * blocks * ((columns // 2 if forward else sums) + BESIDE_SUMS)
            room = SHARED // blocks - 1024
            fits = [s for s in range(2, MOST_STAGES + 1) if module.shared_bytes(replace(tile, stages=s)) <= room]
            if fits and registers <= REGISTERS and columns < wide + 64:
                found.append(replace(tile, stages=max(fits)))
    return found


def pitches(layer: Layer) -> tuple[int, int]:
    """Channels from one pixel to the next, of the input and of the output, which may be half of a concatenation."""
    return layer.channels, layer.filters * (1 if layer.filters < layer.channels else 2)


def _tensors(layer: Layer, at: Mapping[str, int]) -> tuple[Tensor, Tensor, Tensor]:
    x_pitch, y_pitch = pitches(layer)
    x, dx = (Tensor(at[n], 1, layer.pixels, layer.channels, x_pitch, 2) for n in ("x", "dx"))
    return x, dx, Tensor(at["y"], 1, layer.pixels, layer.filters, y_pitch, 2)


def partial_size(layer: Layer) -> int:
    """Floats of one partial weight and bias gradient."""
    return layer.filters * layer.channels + layer.filters


def by_tma(layer: Layer, tile: Tile, at: Mapping[str, int], processors: int) -> tuple[Launch, int]:
    """The launch by TMA on arrays at these addresses, and how many partial results it writes."""
    x, dx, y = _tensors(layer, at)
    if layer.direction == "forward":
        return pointwise.forward_launch("", 1, x, y, at["weight"], at["bias"], "relu", tile, processors), 0
    size, partial = partial_size(layer), at["partial"]
    if layer.direction == "gradients":
        launch = pointwise.gradients_launch(
            "", 1, x, y, dx, at["weight"], partial, layer.masking, size, tile, processors
        )
    else:
        launch = pointwise.weight_gradient_launch("", 1, x, y, partial, size, tile, processors)
    return launch, launch.grid[0]


def by_common(layer: Layer, at: Mapping[str, int], processors: int) -> list[Launch]:
    """What the plan launches without TMA, with the tiles of the table."""
    x, dx, y = _tensors(layer, at)
    taps = packing.taps_of(x, POINT, False)
    frame: Any = SimpleNamespace(arithmetic="bf16", batch=1, processors=processors)
    if layer.direction == "forward":
        return [products.forward(frame, "", x, y, POINT, taps, at["weight"], Ending(at["bias"], "relu"))]
    case: Any = SimpleNamespace(frame=frame, step=SimpleNamespace(node=""))
    tile, splits = tiles.backward_weight("bf16", layer.pixels, y.padded, taps.total, processors)
    split = blocks_of(blocks_of(layer.pixels, splits), tile.depth) * tile.depth
    reading = backward_weight.Reading(x, POINT, taps, lambda filters, bias: np.empty(0, np.int32))
    weights = backward_weight.partial_launch(case, reading, y, at["partial"], tile, split)
    if layer.direction == "filters":
        return [weights]
    ending = Ending(mask=x if layer.masking else None, masking=layer.masking)
    return [products.backward_input(frame, "", y, dx, POINT, at["weight"], ending), weights]


def row_of(layer: Layer, tile: Tile, microseconds: float) -> dict[str, Any]:
    """A row of the table of tiles."""
    rows, columns, depth = layer.shape
    return {
        "arithmetic": "bf16", "direction": f"boxes_{layer.direction}", "rows": rows, "columns": columns, "depth": depth,
        "splits": 1, "tile": list(tile.numbers), "microseconds": round(microseconds, 1),
    }  # fmt: skip


def merged(
    table: Sequence[dict[str, Any]], measured: Sequence[tuple[Layer, dict[str, Any], float]]
) -> list[dict[str, Any]]:
    """The table with these rows; each comes with what the common kernels took in the same run, in microseconds.

    `core.gpu.writers.tiles` compares rows that were measured in different runs. Where that would decide otherwise
    than this run, the common kernels' rows are scaled to what this run measured.
    """
    found = {_key(row): dict(row) for row in table}
    for layer, row, common in measured:
        found[_key(row)] = row
        rows, filters, channels = layer.pixels, layer.filters, layer.channels
        others = {
            "forward": [("forward", rows, filters, channels)],
            "gradients": [("backward_input", rows, channels, filters), ("backward_weight", rows, filters, channels)],
            "filters": [("backward_weight", rows, filters, channels)],
        }[layer.direction]
        known = [found.get(("bf16", *other)) for other in others]
        told = [other["microseconds"] for other in known if other is not None]
        if len(told) == len(others) and (row["microseconds"] < sum(told)) != (row["microseconds"] < common):
            for other in known:
                if other is not None:
                    other["microseconds"] = round(other["microseconds"] * common / sum(told), 1)
    return sorted(found.values(), key=_key)


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["arithmetic"], row["direction"], row["rows"], row["columns"], row["depth"]
