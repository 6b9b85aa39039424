"""What lowering a program to records shares: buffers, parameters, constants and the record of one elementwise step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, final

import numpy as np

from core.cpu import elementwise as ew
from core.cpu.convolution import Convolution
from core.cpu.geometry import Buffers, View, window_of
from core.cpu.memory import F32, aligned
from core.cpu.records import NOWHERE, Address, Record, Space
from core.graph import Shape
from core.program import ParameterLayout, Program, Step, Value

MATRIX: Final = "unfolded windows"
"""The array in a image's memory that algorithms with `Writers.scratch` share."""


@final
@dataclass(frozen=True, slots=True)
class Writers:
    """How one algorithm computes the steps of one op: functions that write the records of both directions.

    `backward` also takes the plan's `core.cpu.gradients.Ledger`. `scratch`: bytes that a step (of input and output
    images) needs in a image's memory, shared by all steps.
    """

    forward: Callable[[Lowering, Step], list[Record]]
    backward: Callable[[Lowering, Step, Any], list[Record]]
    scratch: Callable[[Step, Shape, Shape], int] = lambda step, source, target: 0


@final
@dataclass(frozen=True, slots=True)
class Lowering:
    """Everything that the records of a plan point to.

    `writers`: those chosen for each step, by its node; `weights`, `gradient`: flat arrays; `arrays` keeps constants,
    panels and sums alive; `packs` run whenever weights changed; `moments` hands a batch norm's statistics to its
    backward; `together`: dense layers are computed for all images at once.
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
        """The view of a forward value."""
        return self.buffers.view(value.buffer, value)

    def d(self, value: Value) -> View:
        """The view of a value's gradient."""
        return self.buffers.view(f"d {value.buffer}", value)

    def parameter(self, step: Step, role: str) -> Address:
        """Address of a parameter, NOWHERE if the step has none of that role."""
        found = self.layout.offsets.get(f"{step.node}.{role}")
        return Address(Space.SHARED, self.weights.ctypes.data + 4 * found[0]) if found else NOWHERE

    def trains(self, step: Step, role: str) -> bool:
        """True if the step has the parameter and it is trained."""
        known = any(p.role == role and p.trained for p in step.parameters)
        return known and f"{step.node}.{role}" not in self.frozen

    def is_together(self, step: Step) -> bool:
        """True if the step is computed for all images at once."""
        return self.together and step.op == "dense"

    def whole(self, step: Step, role: str) -> Address:
        """The address of a parameter's gradient over all images."""
        return Address(Space.SHARED, self.gradient.ctypes.data + 4 * self.layout.offsets[f"{step.node}.{role}"][0])

    def private(self, step: Step, role: str) -> Address:
        """The address where a thread sums a parameter's gradient."""
        return Address(Space.PRIVATE, 4 * self.layout.offsets[f"{step.node}.{role}"][0])

    def constant(self, values: Sequence[float] | F32) -> Address:
        """Address of constant floats."""
        array = self.memory(len(values))
        array[:] = values
        return Address(Space.SHARED, array.ctypes.data)

    def reserve(self, count: int) -> Address:
        """Address of an array of `memory`."""
        return Address(Space.SHARED, self.memory(count).ctypes.data)

    def memory(self, count: int) -> F32:
        """A shared zeroed array that lives as long as the plan."""
        array = aligned(count)
        self.arrays.append(array)
        return array

    def image(self, value: Value) -> Shape:
        """(height, width, channels) of a value."""
        return self.buffers.image(value)


def convolution_of(step: Step, source: Shape) -> Convolution:
    """The numbers of a conv2d or dense step whose input has the layout `source`."""
    kernel, stride, padding = window_of(step, source)
    if step.op == "dense":
        return Convolution(step.output.shape[0], source[2], kernel, stride, padding, 1)
    return Convolution(step.output.shape[2], source[2], kernel, stride, padding, int(step.attributes["groups"]))  # type: ignore[arg-type]


def map_record(
    layer: str, direction: str, mode: int, out: View, a: View, b: View | None = None, *,
    scale: Address = NOWHERE, shift: int | Address = 0, activation: int = 0, accumulate: bool = False, key: int = 0,
) -> Record:  # fmt: skip
    """One elementwise record; "forward" has a kernel for each mode, other directions one. `a` may be broadcast."""
    other = b or a
    fields: dict[int, int | Address] = {
        ew.MODE: mode, ew.HEIGHT: out.height, ew.WIDTH: out.width, ew.CHANNELS: out.channels,
        ew.OUT: out.address, ew.OUT_ROW: out.row, ew.OUT_PIXEL: out.pixel,
        ew.A: a.address, ew.A_ROW: a.row, ew.A_PIXEL: a.pixel,
        ew.B: other.address, ew.B_ROW: other.row, ew.B_PIXEL: other.pixel,
        ew.SCALE: scale, ew.SHIFT: shift, ew.ACTIVATION: activation, ew.ACCUMULATE: int(accumulate), ew.KEY: key,
    }  # fmt: skip
    kernel = ew.MAPS[mode] if direction == "forward" else ew.run_map_gradient
    return Record(kernel, fields, out.height, layer, direction, "fused")


def border_records(lowering: Lowering, name: str, direction: str) -> list[Record]:
    """Zero the border of an array whose memory others used before: all above, between the rows, all below."""
    top, left, bottom, right = lowering.buffers.borders[name]
    view = lowering.buffers.whole(name)
    pieces = [(view.at(-top, -left), 1, 0, top * view.row), (view.at(view.height, -left), 1, 0, bottom * view.row)]
    pieces += [(view.at(0, -left), view.height, view.row, left * view.pixel)]
    pieces += [(view.at(0, view.width), view.height, view.row, right * view.pixel)]
    records = []
    for start, rows, row, size in pieces:
        if size:
            fields: dict[int, int | Address] = {ew.OUT: start, ew.OUT_ROW: row, ew.OUT_PIXEL: size}
            records.append(Record(ew.run_border, fields, rows, name.removeprefix("d "), direction, "border"))
    return records


def zero_record(lowering: Lowering, layer: str, out: View) -> Record:
    """Fill a view with zeros."""
    zeros = lowering.constant(np.zeros(out.channels, np.float32))
    nothing = View(zeros, out.height, out.width, out.channels, 0, 0)
    return map_record(layer, "backward_input", ew.COPY, out, nothing)
