"""The order in which steps write a gradient: one write, then additions; the last applies a fused activation's mask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from core.cpu.activation import clip_of, number_of
from core.cpu.geometry import View
from core.cpu.lowering import Lowering, border_records, zero_record
from core.cpu.records import Record
from core.errors import KernelUnavailable
from core.ops.activation import ACTIVATIONS
from core.program import Step, Value


@final
@dataclass(frozen=True, slots=True)
class GradientTarget:
    """Where a step adds the gradient of one input: `clip` and `y` say which mask it must apply."""

    dx: View
    accumulate: bool
    clip: int
    y: View
    before: tuple[Record, ...]


def lone_clip(lowering: Lowering, step: Step) -> int:
    """The clip of the one activation whose output only this step reads, else 0: its mask can be this step's."""
    value, clips = step.inputs[0], set()
    span = range(value.channel, value.channel + lowering.image(value)[2])
    for other in lowering.program.steps:
        if other is not step and any(_overlap(lowering, v, value.buffer, span) for v in other.inputs):
            return 0
        if _overlap(lowering, other.output, value.buffer, span):
            clips.add(clip_of(number_of(other.activation, other.node)))
    return clips.pop() if len(clips) == 1 else 0


def _overlap(lowering: Lowering, value: Value, buffer: str, span: range) -> bool:
    end = value.channel + lowering.image(value)[2]
    return value.buffer == buffer and value.channel < span.stop and span.start < end


@final
class Ledger:
    """State of all gradients while the backward records are written, last step first."""

    def __init__(self, lowering: Lowering, wanted: frozenset[str]) -> None:
        self.lowering, self.wanted = lowering, wanted
        self._bordered: set[str] = set()
        channels = {name: shape[2] for name, shape in lowering.buffers.shapes.items()}
        self._written = {name: np.zeros(count, bool) for name, count in channels.items()}
        self._masked = {name: np.zeros(count, bool) for name, count in channels.items()}
        self._clip = {name: np.zeros(count, int) for name, count in channels.items()}
        self._reads = {name: np.zeros(count, int) for name, count in channels.items()}
        for step in lowering.program.steps:
            own = clip_of(number_of(step.activation, step.node))
            self._clip[step.output.buffer][self._span(step.output)] = own
            for value in step.inputs if step.output.buffer in wanted else ():
                self._reads[value.buffer][self._span(value)] += 1

    def _span(self, value: Value) -> slice:
        return slice(value.channel, value.channel + self.lowering.image(value)[2])

    def give(self, value: Value) -> None:
        """Register that a value's gradient is written outside the records, with a border of zeros."""
        self._bordered.add(value.buffer)
        self._written[value.buffer][self._span(value)] = True

    def target(self, step: Step, value: Value, masks: bool) -> GradientTarget:
        """Where `step` puts the gradient of its input; `masks` says whether its kernel can apply a mask."""
        span, name = self._span(value), value.buffer
        written, clip = self._written[name][span], self._clip[name][span]
        before = self._clean_border(name)
        if written.any() and not written.all():
            before += self._zero_unwritten(step, value)
        accumulate = bool(written.any())
        self._written[name][span] = True
        self._reads[name][span] -= 1
        last = not self._reads[name][span].any()
        fused = int(clip[0]) if masks and last and (clip == clip[0]).all() else 0
        if fused:
            self._masked[name][span] = True
        return GradientTarget(self.lowering.d(value), accumulate, fused, self.lowering.x(value), before)

    def targets(self, step: Step, masks: bool = True) -> list[GradientTarget | None]:
        """`target` of every input of the step, None where its gradient is not needed."""
        return [self.target(step, v, masks) if v.buffer in self.wanted else None for v in step.inputs]

    def _clean_border(self, name: str) -> tuple[Record, ...]:
        """Zeros around a gradient before its first write."""
        if name in self._bordered:
            return ()
        self._bordered.add(name)
        return tuple(border_records(self.lowering, f"d {name}", "backward_input"))

    def _zero_unwritten(self, step: Step, value: Value) -> tuple[Record, ...]:
        span = self._span(value)
        records = []
        for channel in range(span.start, span.stop):
            if not self._written[value.buffer][channel]:
                part = Value(value.buffer, (*self.lowering.image(value)[:2], 1), channel)
                records.append(zero_record(self.lowering, step.node, self.lowering.d(part)))
        return tuple(records)

    def settle(self, step: Step) -> tuple[tuple[Record, ...], int]:
        """Before a step's own backward: zeros where nobody contributed, and the fused activation whose gradient is due.

        Raises KernelUnavailable where that gradient needs what the step does not keep.
        """
        span, name = self._span(step.output), step.output.buffer
        before = self._clean_border(name)
        if not self._written[name][span].all():
            before += self._zero_unwritten(step, step.output)
        self._written[name][span] = True
        if step.activation and ACTIVATIONS[step.activation].needs_input:
            raise KernelUnavailable(f"The gradient of {step.activation} needs its input; {step.node} does not keep it.")
        due = number_of(step.activation, step.node) if not self._masked[name][span].all() else 0
        return before, due
