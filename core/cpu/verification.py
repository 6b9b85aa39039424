"""Compares a CPU plan with the reference: each step forward on its own inputs, and the gradient of each parameter."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from core.cpu.geometry import View
from core.cpu.lowering import Lowering
from core.cpu.memory import view_at
from core.ops.contract import Array, Call, Mode
from core.ops.network import compare
from core.ops.op_table import LOSSES, OPS
from core.program import Step, Value

FORWARD_TOLERANCE: Final = 1e-4
"""Largest error of one step against the reference on the same inputs, relative to its largest value."""

GRADIENT_TOLERANCE: Final = 1e-3
"""Larger: the gradient of a layer has the rounding of all layers after it."""


@final
@dataclass(frozen=True, slots=True)
class Slots:
    """Memory of several images: first slot, bytes from slot to slot, and number of slots."""

    address: int
    stride: int
    count: int

    def images(self, view: View) -> Iterator[Array]:
        """Yield the view of each image as an array (height, width, channels)."""
        for slot in range(self.count):
            start = self.address + slot * self.stride + view.address.bytes
            yield view_at(start, (view.height, view.width, view.channels), (view.row, view.pixel, 4))


def check_forward(
    lowering: Lowering, parts: Sequence[tuple[Step, int, int]], run: Callable[[int], None], memory: Slots, mode: Mode
) -> dict[Value, Array]:
    """Run the records of each step (first, last) and return the outputs; raise LeafClinicError at one that differs."""
    found: dict[Value, Array] = {}
    for step, first, last in parts:
        for index in range(first, last):
            run(index)
        if step.op in LOSSES:
            continue
        inputs = [read_value(lowering, v, memory) for v in step.inputs]
        wanted = _reference(lowering, step, inputs, mode)
        found[step.output] = got = read_value(lowering, step.output, memory)
        compare(got, wanted, f"{step.node} ({step.op}) forward", FORWARD_TOLERANCE)
    return found


def check_gradients(got: Mapping[str, Array], wanted: Mapping[str, Array]) -> None:
    """Compare every parameter's gradient, the last layer's first. Raises LeafClinicError."""
    floor = 1e-3 * max((float(np.abs(g).max()) for g in wanted.values()), default=1.0)
    for name in reversed(list(wanted)):
        if name in got:
            compare(got[name], wanted[name], f"the gradient of {name}", GRADIENT_TOLERANCE, floor)


def read_value(lowering: Lowering, value: Value, memory: Slots) -> Array:
    """Return a copy of a forward value of every image, ``(N, *shape)``."""
    return np.stack(list(memory.images(lowering.x(value)))).reshape(memory.count, *value.shape)


def _reference(lowering: Lowering, step: Step, inputs: Sequence[Array], mode: Mode) -> Array:
    parameters = {}
    for parameter in step.parameters:
        first, shape = lowering.layout.offsets[f"{step.node}.{parameter.role}"]
        parameters[parameter.role] = lowering.weights[first : first + parameter.size].reshape(shape)
    out = OPS[step.op].forward(Call(step.attributes, inputs, parameters, mode)).output
    return OPS[step.activation].forward(Call({}, [out])).output if step.activation else out
