"""Launches of weight gradients: partial results of blocks, then their sum in a fixed order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from core.gpu.launch import Launch, Tensor, blocks_of, make_launch
from core.gpu.ops.conv import weight_gradient
from core.gpu.ops.conv.configurations import MINIMUM
from core.gpu.ops.conv.geometry import window_values
from core.gpu.ops.conv.operands import Operands, operands_of, partial_size
from core.gpu.ops.conv.partial_sums import add_sum
from core.gpu.parts.tile import Tile
from core.gpu.select import Case


def split_pixels(case: Case) -> None:
    """Each block sums its own range of pixels into a partial result."""
    frame, of = case.frame, operands_of(case.frame, case.step)
    x, window, taps, slices, (tile, blocks) = of.x, of.window, of.taps, of.slices, case.configuration
    dy = frame.image(case.step.output, True).first_of(slices)
    pixels, size = frame.batch * dy.height * dy.width, slices * partial_size(dy.padded, taps)
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
            case.step.node, "backward_weight", "tensor_core", weight_gradient.make_weight_gradient, constants,
            weight_gradient.SIGNATURE, values, (across, blocks_of(taps.total, tile.columns), splits),
            (tile.threads,), weight_gradient.shared_bytes(tile, x.element),
            slices * x.element * (pixels * dy.padded + frame.batch * x.height * x.width * x.padded) + 4 * splits * size,
            tile.blocks, flops=2 * slices * pixels * dy.padded * taps.total,
        )  # fmt: skip

    add_partials(case, of, dy, splits, make)


def split_of(tile: Tile, blocks: int, pixels: int, tiles: int, processors: int) -> int:
    """Pixels per part for about `blocks` blocks per multiprocessor; whole stages, and `MINIMUM` pixels or more.

    `tiles`: of the weights.
    """
    splits = max(1, min(blocks * processors // tiles, pixels // MINIMUM))
    return blocks_of(blocks_of(pixels, splits), tile.depth) * tile.depth


def add_partials(
    case: Case, of: Operands, dy: Tensor, splits: int, make: Callable[[int], Launch], stream: int = 1
) -> None:
    """Add the launch of `splits` partial results, and that of their sum into the first step's gradients.

    `make` returns the launch for the address of the partial results; `stream` 0 where the next step waits for it.
    `dy` is the first of the slices.
    """
    frame, step = case.frame, case.step
    if not frame.trains(step, "weight"):
        return
    size = of.slices * partial_size(dy.padded, of.taps)
    frame.add(replace(make(frame.use(f"partial:{step.node}", 4 * size * splits)), stream=stream))
    add_sum(case.backward, step, splits, size, lambda bias: of.gradient_positions(frame.element, bias))
