"""The weight gradient by boxes of rows, run as plain Python against the reference; and on a GPU of capability 9.0."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from core.gpu import hopper_rows
from core.gpu.compiler import compile_kernel
from core.gpu.kernels import row_gradient_boxes
from core.gpu.kernels.row_gradient_boxes import RowBoxes
from core.gpu.launch import Tensor
from core.gpu.resources import assemble, assembler_log
from tests.core.gpu.test_row_gradient import gradients, problem
from tests.helpers.compare import relative_error
from tests.helpers.emulated_boxes import Boxes
from tests.helpers.emulated_gpu import Memory

SHAPES = (
    (1, 11, 7, 64, RowBoxes(16, 16, 8, 2, 1, 2)),
    (3, 5, 9, 64, RowBoxes(48, 16, 11, 3, 1, 3)),
    (2, 4, 6, 128, RowBoxes(32, 32, 7, 3, 2, 2)),
    (2, 2, 15, 64, RowBoxes(48, 64, 16, 1, 1, 2)),
)
"""Photos, height, width, filters and the block's work."""


def boxes_launch(x, dy, batch, height, width, filters, shape, processors=132):
    """The launch on x and dy at these addresses, as `problem` makes them with 8 channels before, and its splits."""
    source = Tensor(x, height, width, shape.channels, shape.channels, 2)
    gradient = Tensor(dy + 16, height, width, filters, filters + 16, 2)
    return hopper_rows.row_boxes("", batch, source, gradient, shape, processors)


@pytest.mark.parametrize("late", [False, True], ids=["early", "late"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_kernel_run_as_plain_python_gives_the_references_gradients(shape, late, monkeypatch):
    batch, height, width, filters, work = shape
    x, x_bits, dy, dy_bits = problem(batch, height, width, work.channels, filters, 8)
    memory = Memory(1 << 22)
    machine = Boxes(memory, late)
    machine.patch(monkeypatch, row_gradient_boxes)
    at = [memory.reserve(x_bits.nbytes), memory.reserve(dy_bits.nbytes)]
    memory.put(at[0], x_bits)
    memory.put(at[1], dy_bits)
    launch, splits = boxes_launch(*at, batch, height, width, filters, work, 2)
    size = launch.values[-1]
    partial = memory.reserve(4 * size * splits)
    machine.run(replace(launch, values=(*launch.values[:2], partial, *launch.values[3:])))
    got = memory.get(partial, size * splits, np.float32).reshape(splits, size).astype(np.float64).sum(0)
    weight, bias = gradients(x, dy)
    assert relative_error(got, np.concatenate([weight.reshape(-1), bias])) < 1e-6


@pytest.mark.parametrize("work", [RowBoxes(64, 64, 28, 4, 1, 5), RowBoxes(32, 32, 28, 4, 2, 5)], ids=str)
def test_products_overlap_and_sums_stay_in_registers(work):
    launch, _ = boxes_launch(0, 0, 256, 27, 27, 256, work)
    ptx, _ = compile_kernel(launch.recipe, (9, 0))
    assert ".local" not in ptx
    assert ".target sm_90a" in ptx
    assert "Potential Performance Loss" not in assembler_log(ptx, "sm_90a")
    resources = assemble(ptx, (9, 0))
    assert (resources.stack, resources.spills) == (0, 0)
