"""Launches of weight gradients: partial results of blocks, then their sum in a fixed order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import final

from core.gpu.launch import Launch, Tensor, blocks_of, make_launch
from core.gpu.ops.conv import packing, weight_gradient
from core.gpu.ops.conv.configurations import MINIMUM
from core.gpu.ops.conv.geometry import reads_image, slices_of, window_of, window_values
from core.gpu.ops.conv.partial_sums import add_sum
from core.gpu.parts.tile import Tile
from core.gpu.select import Case
from core.ops.contract import Array
from core.ops.window import Window


@final
@dataclass(frozen=True, slots=True)
class Reading:
    """How the weight gradient of a layer reads its input.

    `places`: index of each sum in a partial result, from the filters up to 16 bytes and whether there is a bias.
    `x` is the first of `slices` of the groups.
    """

    x: Tensor
    window: Window
    taps: packing.Taps
    places: Callable[[int, bool], Array]
    slices: int = 1


def read_input(case: Case) -> Reading:
    """A convolution reads windows of its input."""
    frame, step = case.frame, case.step
    slices, groups = slices_of(frame, step), int(step.attributes["groups"])  # type: ignore[arg-type]
    x, window = frame.image(step.inputs[0]).first_of(slices), window_of(frame, step)
    shape, taps = frame.layout.offsets[f"{step.node}.weight"][1], packing.taps_of(x, window, reads_image(step))

    def places(filters: int, bias: bool) -> Array:
        return packing.gradient_places(shape, taps, filters, bias, groups, slices)

    return Reading(x, window, taps, places, slices)


def split_pixels(case: Case, read: Callable[[Case], Reading] = read_input) -> None:
    """Each block sums its own range of pixels into a partial result."""
    frame, reading = case.frame, read(case)
    x, window, taps, slices, (tile, blocks) = (
        reading.x, reading.window, reading.taps, reading.slices, case.configuration
    )  # fmt: skip
    dy = frame.image(case.step.output, True).first_of(slices)
    pixels, size = frame.batch * dy.height * dy.width, slices * packing.partial_size(dy.padded, taps)
    across = slices * blocks_of(dy.padded, tile.rows)
    split = split_of(tile, blocks, pixels, across * blocks_of(taps.total, tile.columns), frame.processors)
    splits = blocks_of(pixels, split)

    def make(partial: int) -> Launch:
        values = {
            "x": x.address, "dy": dy.address, "partial": partial, "pixels": pixels, "split": split,
            "filters": dy.padded, "packed": dy.padded, "depth": taps.total, "used": taps.total, "ldy": dy.pitch,
            **window_values(x, dy, window.stride, window.padding), "channels": taps.channels,
            "kernel_width": taps.kernel[1], "size": size,
        }  # fmt: skip
        constants = (
            frame.arithmetic, tile.numbers, window.padding != (0, 0, 0, 0), *((True,) if slices > 1 else ())
        )  # fmt: skip
        return make_launch(
            case.step.node, "backward_weight", "tensor_core",
            ("ops.conv.weight_gradient", "make_weight_gradient", constants), weight_gradient.SIGNATURE, values,
            (across, blocks_of(taps.total, tile.columns), splits), (tile.threads, 1, 1),
            weight_gradient.shared_bytes(tile, x.element),
            slices * x.element * (pixels * dy.padded + frame.batch * x.height * x.width * x.padded) + 4 * splits * size,
            tile.blocks, flops=2 * slices * pixels * dy.padded * taps.total,
        )  # fmt: skip

    add_partials(case, reading, dy, splits, make)


def split_of(tile: Tile, blocks: int, pixels: int, tiles: int, processors: int) -> int:
    """Pixels per part for about `blocks` blocks per multiprocessor; whole stages, and `MINIMUM` pixels or more.

    `tiles`: of the weights.
    """
    splits = max(1, min(blocks * processors // tiles, pixels // MINIMUM))
    return blocks_of(blocks_of(pixels, splits), tile.depth) * tile.depth


def add_partials(
    case: Case, reading: Reading, dy: Tensor, splits: int, make: Callable[[int], Launch], stream: int = 1
) -> None:
    """Add the launch of `splits` partial results, and that of their sum into the first step's gradients.

    `make` returns the launch for the address of the partial results; `stream` 0 where the next step waits for it.
    `dy` is the first of the slices.
    """
    frame, step = case.frame, case.step
    if not frame.trains(step, "weight"):
        return
    size = reading.slices * packing.partial_size(dy.padded, reading.taps)
    frame.add(replace(make(frame.use(f"partial:{step.node}", 4 * size * splits)), stream=stream))
    add_sum(case.backward, step, splits, size, lambda bias: reading.places(dy.padded, bias))
