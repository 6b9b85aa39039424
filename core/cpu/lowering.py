"""The state of lowering a program to records, and the records of elementwise steps, borders and zeros."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from core.cpu import elementwise as ew
from core.cpu.geometry import Buffers, View
from core.cpu.memory import F32, aligned
from core.cpu.records import NULL, Address, Fields, Record, Space, address_of
from core.graph import Shape
from core.program import ParameterLayout, Program, Step, Value

MATRIX: Final = "unfolded windows"
"""Name of the array in an image's memory that algorithms with `Writers.scratch` share."""


@dataclass(frozen=True, slots=True)
class Writers:
    """The functions of one algorithm that list the records of a step, forward and backward.

    `backward` also takes the plan's `core.cpu.gradients.Ledger`. `scratch`: bytes of an image's memory that a step
    needs, given the shapes of its input and output; all steps share them.
    """

    forward: Callable[[Lowering, Step], list[Record]]
    backward: Callable[[Lowering, Step, Any], list[Record]]
    scratch: Callable[[Step, Shape, Shape], int] = lambda step, source, target: 0


@dataclass(frozen=True, slots=True)
class Lowering:
    """Everything that the records of a plan point to.

    writers: chosen for each step, by its node. weights, gradient: flat arrays. arrays: constants, panels and sums,
    kept alive. packs: records that run after weights changed. moments: statistics of each batch norm, for its
    backward. together: whether dense layers are computed for all images at once. `x` and `d` return the view of a
    value and of its gradient.
    """

    program: Program
    layout: ParameterLayout
    batch: int
    frozen: frozenset[str]
    buffers: Buffers
    writers: Mapping[str, Writers]
    weights: F32
    gradient: F32
    arrays: list[F32] = field(default_factory=list)
    packs: list[Record] = field(default_factory=list)
    moments: dict[str, tuple[Address, Address]] = field(default_factory=dict)
    together: bool = False

    def x(self, value: Value) -> View:
        return self.buffers.view(value.buffer, value)

    def d(self, value: Value) -> View:
        return self.buffers.view(f"d {value.buffer}", value)

    def parameter(self, step: Step, role: str) -> Address:
        offset = self.layout.offsets.get(f"{step.node}.{role}")
        return address_of(self.weights, offset[0]) if offset else NULL

    def trains(self, step: Step, role: str) -> bool:
        known = any(p.role == role and p.trained for p in step.parameters)
        return known and f"{step.node}.{role}" not in self.frozen

    def is_together(self, step: Step) -> bool:
        """Return whether the step is computed for all images at once."""
        return self.together and step.op == "dense"

    def whole(self, step: Step, role: str) -> Address:
        """Return the address of a parameter's gradient over all images."""
        return address_of(self.gradient, self.layout.offsets[f"{step.node}.{role}"][0])

    def private(self, step: Step, role: str) -> Address:
        """Return the address where a thread sums a parameter's gradient."""
        return Address(Space.PRIVATE, 4 * self.layout.offsets[f"{step.node}.{role}"][0])

    def constant(self, values: Sequence[float] | F32) -> Address:
        array = self.memory(len(values))
        array[:] = values
        return address_of(array)

    def reserve(self, count: int) -> Address:
        return address_of(self.memory(count))

    def memory(self, count: int) -> F32:
        """Return a new zeroed array, shared by all threads, that lives as long as the plan."""
        array = aligned(count)
        self.arrays.append(array)
        return array


def map_record(
    layer: str, direction: str, mode: int, out: View, a: View, b: View | None = None, *,
    scale: Address = NULL, shift: int | Address = 0, activation: int = 0, accumulate: bool = False, key: int = 0,
) -> Record:  # fmt: skip
    """Return an elementwise record; forward has a kernel for each mode, backward one. `a` may be broadcast."""
    fields: Fields = {
        ew.MODE: mode, **out.size(ew.HEIGHT), **out.place(ew.OUT), **a.place(ew.A), **(b or a).place(ew.B),
        ew.SCALE: scale, ew.SHIFT: shift, ew.ACTIVATION: activation, ew.ACCUMULATE: int(accumulate), ew.KEY: key,
    }  # fmt: skip
    kernel = ew.MAPS[mode] if direction == "forward" else ew.run_map_gradient
    return Record(kernel, fields, out.height, layer, direction, "fused")


def border_records(lowering: Lowering, name: str, direction: str) -> list[Record]:
    """List the records that zero the border of an array: above, below, left and right."""
    (top, left, bottom, right), view = lowering.buffers.borders[name], lowering.buffers.whole(name)
    sides = (
        (view.at(-top, -left), 1, 0, top * view.row),
        (view.at(view.height, -left), 1, 0, bottom * view.row),
        (view.at(0, -left), view.height, view.row, left * view.pixel),
        (view.at(0, view.width), view.height, view.row, right * view.pixel),
    )
    return [
        Record(ew.run_border, {ew.OUT: start, ew.OUT_ROW: row, ew.OUT_PIXEL: size}, rows, name.removeprefix("d "),
               direction, "border")
        for start, rows, row, size in sides if size
    ]  # fmt: skip


def zero_record(lowering: Lowering, layer: str, out: View) -> Record:
    zeros = lowering.constant(np.zeros(out.channels, np.float32))
    nothing = View(zeros, out.height, out.width, out.channels, 0, 0)
    return map_record(layer, "backward_input", ew.COPY, out, nothing)
