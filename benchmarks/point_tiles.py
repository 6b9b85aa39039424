"""Which tile a 1x1 convolution takes on a Hopper: every candidate beside the common kernels, each checked first.

    python -m benchmarks.point_tiles [--only forward,gradients,filters] [--batches 256 32 1] [--write]

A candidate's results are held against float64 at the layer's own size, then it is timed by turns with the kernels that
the plan takes without TMA. Arrays of large batches are three sets in turn, so that none is found in the
cache. With --write the best enter the table of tiles (`core/gpu/writers/tiles.json`), which alone decides what a
plan takes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import torch

import core.gpu.writers
from benchmarks.clock import Clock
from benchmarks.point_cases import (
    DIRECTIONS,
    Layer,
    by_common,
    by_tma,
    candidates,
    layers,
    merged,
    partial_size,
    pitches,
    row_of,
)
from core.gpu.compilation.cuda import driver
from core.gpu.driver.device import Device, open_device
from core.gpu.driver.hosted import stream_address
from core.gpu.kernels.parts.tile import Tile
from core.gpu.launch import Launch, blocks_of
from core.gpu.sm90 import pointwise_forward, pointwise_gradients
from core.gpu.sm90.filters import pack_parts

TABLE = Path(core.gpu.writers.__file__).with_name("tiles.json")
COPY_RATE = 4.3e12
"""Bytes a second of a copy on an H200."""
CACHE = 50 << 20
"""Bytes of an H100's second cache."""


class Arrays:
    """Operands of one layer: random bf16 input behind a ReLU, gradient, filters; poisoned results."""

    def __init__(self, layer: Layer, most_splits: int) -> None:
        def draw(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, device="cuda").bfloat16()

        (x_pitch, y_pitch), pixels = pitches(layer), layer.pixels
        self.layer, self.x, self.y = layer, torch.relu(draw(pixels, x_pitch)), draw(pixels, y_pitch)
        self.dx, self.bias = torch.empty_like(self.x), torch.randn(layer.filters, device="cuda")
        self.w = draw(layer.filters, layer.channels) / layer.channels**0.5
        self.packed = torch.zeros(1 << 17, device="cuda", dtype=torch.bfloat16)
        self.partial = torch.empty(most_splits * partial_size(layer), device="cuda")

    def at(self) -> dict[str, int]:
        return {
            "x": self.x.data_ptr(), "y": self.y.data_ptr(), "dx": self.dx.data_ptr(), "bias": self.bias.data_ptr(),
            "weight": self.packed.data_ptr(), "partial": self.partial.data_ptr(),
        }  # fmt: skip

    def pack(self, tile: Tile) -> None:
        """The filters as the kernel by TMA reads them."""
        places = np.arange(self.w.numel()).reshape(self.layer.filters, 1, 1, self.layer.channels)
        if self.layer.direction == "forward":
            found = pack_parts([places], 16 * pointwise_forward.parts_of(tile))
        else:
            columns = blocks_of(self.layer.channels, tile.columns) * tile.columns
            found = pack_parts([places], 16 * pointwise_gradients.parts_of(tile), True, columns)
        index = torch.as_tensor(found.reshape(-1).astype(np.int64), device="cuda")
        self.packed[: len(index)] = torch.where(index < 0, 0, self.w.reshape(-1)[index.clamp(min=0)])


def run(device: Device, launches: Sequence[Launch]) -> None:
    """Queue them on the stream in use."""
    functions, stream = device.load([launch.recipe for launch in launches]), driver.CUstream(stream_address())
    for launch in launches:
        functions[launch.recipe].launch(launch.grid, launch.block, launch.shared, stream, launch.values)


def distance(got: torch.Tensor, wanted: torch.Tensor) -> float:
    """Norm of the difference over the norm of what is wanted; NaN stays."""
    return float((got.double() - wanted).norm() / wanted.norm())


def check(device: Device, a: Arrays, tile: Tile) -> None:
    """Raises AssertionError where the results of a tile are wrong."""
    layer, n = a.layer, a.layer.filters
    x, y, w = a.x.double(), a.y[:, :n].double(), a.w.double()
    if layer.direction != "filters":
        a.pack(tile)
    for written in (a.dx, a.partial, *([a.y] if layer.direction == "forward" else [])):
        written.fill_(float("nan"))
    launch, splits = by_tma(layer, tile, a.at(), device.processors)
    torch.cuda.synchronize()
    run(device, [launch])
    torch.cuda.synchronize()
    if layer.direction == "forward":
        wanted = torch.relu(x @ w.T + a.bias.double())
        assert distance(a.y[:, :n], wanted) < 4e-3, (layer, tile)
        a.y.normal_()
        return
    total = a.partial[: splits * partial_size(layer)].reshape(splits, -1).double().sum(0)
    assert distance(total, torch.cat([(y.T @ x).reshape(-1), y.sum(0)])) < 1e-4, (layer, tile)
    if layer.direction == "gradients":
        assert distance(a.dx, y @ w * ((x > 0) if layer.masking else 1)) < 4e-3, (layer, tile)


def measure(clock: Clock, device: Device, layer: Layer) -> tuple[dict[Tile, float], float]:
    """Microseconds of every candidate, and of the common kernels."""
    tiles, bytes_moved = candidates(layer), 2 * layer.pixels * (layer.channels + layer.filters)
    sets = [Arrays(layer, 8 * device.processors) for _ in range(3 if bytes_moved > CACHE // 4 else 1)]
    device.load([by_tma(layer, tile, sets[0].at(), device.processors)[0].recipe for tile in tiles])
    for tile in tiles:
        check(device, sets[0], tile)

    def in_turn(make: Callable[[dict[str, int]], list[Launch]]) -> Callable[[], None]:
        every = cycle([make(a.at()) for a in sets])
        return lambda: run(device, next(every))

    ways = {str(tile.numbers): in_turn(partial(_alone, layer, tile, device.processors)) for tile in tiles}
    ways["common"] = in_turn(partial(_common, layer, device.processors))
    taken = {way: 1e3 * ms for way, ms in clock.by_turns(ways, 12).items()}
    return {tile: taken[str(tile.numbers)] for tile in tiles}, taken["common"]


def _alone(layer: Layer, tile: Tile, processors: int, at: dict[str, int]) -> list[Launch]:
    return [by_tma(layer, tile, at, processors)[0]]


def _common(layer: Layer, processors: int, at: dict[str, int]) -> list[Launch]:
    return by_common(layer, at, processors)


def floor(layer: Layer) -> float:
    """Microseconds that the layer's bytes need."""
    moved = layer.channels * (2 if layer.direction == "gradients" else 1) + layer.filters
    return 1e6 * 2 * layer.pixels * moved / COPY_RATE


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(DIRECTIONS), help="which of forward, gradients and filters")
    parser.add_argument("--batches", type=int, nargs="+", default=(256, 32, 1), metavar="N")
    parser.add_argument("--write", action="store_true", help="put the best into the table of tiles")
    options = parser.parse_args()
    torch.zeros(1, device="cuda")
    clock, device, found = Clock(), open_device(), list[tuple[Layer, dict[str, Any], float]]()
    for layer in (layer for batch in options.batches for layer in layers(batch)):
        if layer.direction in options.only.split(","):
            times, common = measure(clock, device, layer)
            best = min(times, key=times.__getitem__)
            found.append((layer, row_of(layer, best, times[best]), common))
            print(f"{layer.direction} {layer.pixels} pixels {layer.channels} -> {layer.filters}: common {common:.1f}, "
                  f"floor {floor(layer):.1f}, boxes {', '.join(f'{t.numbers} {us:.1f}' for t, us in times.items())}",
                  flush=True)
    if options.write:
        rows = merged(json.loads(TABLE.read_text("utf-8")), found)
        TABLE.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n", "utf-8")


if __name__ == "__main__":
    main()
