"""Compares a CPU plan with the reference: each step forward on its own inputs, and the gradient of each parameter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from core.cpu.geometry import View
from core.cpu.lowering import Lowering
from core.cpu.memory import view_at
from core.graph import PHOTO
from core.ops.contract import Array, Arrays, Mode
from core.ops.network import compare, forward, loss_and_gradients
from core.ops.op_table import LOSSES
from core.program import Program, Step, Value

FORWARD_TOLERANCE: Final = 1e-4
"""Largest error of one step against the reference on the same inputs, relative to its largest value."""

GRADIENT_TOLERANCE: Final = 1e-3
"""Larger: the gradient of a layer has the rounding of all layers after it."""


def read_outputs(
    lowering: Lowering, parts: Sequence[tuple[Step, int, int]], run: Callable[[int], None], slots: tuple[int, int, int]
) -> dict[Value, Array]:
    """Run the photo's records, then those of each step (first, last); return the outputs of all but the loss."""
    for index in range(parts[0][1]):
        run(index)
    photo = lowering.program.values[PHOTO]
    found = {photo: read_value(lowering, photo, slots)}
    for step, first, last in parts:
        for index in range(first, last):
            run(index)
        if step.op not in LOSSES:
            found[step.output] = read_value(lowering, step.output, slots)
    return found


def check_outputs(
    program: Program, weights: Arrays, outputs: Mapping[Value, Array], mode: Mode, labels: Array, targets: Array | None
) -> Arrays:
    """Compare the output of each step with the reference on the plan's own inputs. Raises LeafClinicError.

    Returns the reference's gradients, of the plan's outputs: rounding may move the input of a ReLU across zero.
    """
    steps = {step.output: step for step in program.steps}
    exact = {name: array.astype(np.float64) for name, array in weights.items()}

    def use(name: str, wanted: Array) -> Array:
        value = program.values.get(name)  # None: an activation joined the step
        if value is None or value not in outputs:
            return wanted
        compare(outputs[value], wanted, f"{steps[value].node} ({steps[value].op}) forward", FORWARD_TOLERANCE)
        return outputs[value].astype(np.float64)

    photos = outputs[program.values[PHOTO]].astype(np.float64)
    if program.training:
        return loss_and_gradients(program.graph, exact, photos, labels, mode, targets, use).gradients
    forward(program.graph, exact, photos, use=use)
    return {}


def check_gradients(got: Mapping[str, Array], wanted: Mapping[str, Array]) -> None:
    """Compare every wanted gradient, the last layer's first. Raises LeafClinicError."""
    floor = 1e-3 * (max((float(np.abs(g).max()) for g in wanted.values()), default=0.0) or 1.0)  # of one class: all 0
    for name in reversed(list(wanted)):
        if name in got:
            compare(got[name], wanted[name], f"the gradient of {name}", GRADIENT_TOLERANCE, floor)


def read_value(lowering: Lowering, value: Value, slots: tuple[int, int, int]) -> Array:
    """Return a copy of a forward value of every image, ``(N, *shape)``."""
    return np.stack(view_images(lowering.x(value), slots)).reshape(-1, *value.shape)


def view_images(view: View, slots: tuple[int, int, int]) -> list[Array]:
    """The view of each image as an array (height, width, channels). slots: address of the first, stride, and number."""
    (first, stride, count), shape = slots, (view.height, view.width, view.channels)
    starts = (first + slot * stride + view.address.bytes for slot in range(count))
    return [view_at(start, shape, (view.row, view.pixel, 4)) for start in starts]
