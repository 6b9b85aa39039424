"""Gradients with several readers: the first step writes, others add, the last applies a fused activation's mask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from core.cpu import elementwise as ew
from core.cpu import microkernel as mk
from core.cpu.activation import clip_of, number_of
from core.cpu.geometry import Span, View
from core.cpu.lowering import Lowering, border_records, map_record, zero_record
from core.cpu.records import Record
from core.errors import KernelUnavailable
from core.ops.activation import ACTIVATIONS
from core.program import Step, Value


@dataclass(frozen=True, slots=True)
class GradientTarget:
    """Where a step puts or adds an input's gradient, the mask of `clip` and value `y`, and records to run before."""

    dx: View
    accumulate: bool
    clip: int
    y: View
    before: tuple[Record, ...]

    @property
    def flags(self) -> int:
        return mk.MASK_FLAGS[self.clip] | (mk.ACCUMULATE if self.accumulate else 0)


def fill_unreached(
    lowering: Lowering, step: Step, target: GradientTarget, spans: Sequence[tuple[Span, Span]], stride: tuple[int, int]
) -> list[Record]:
    """List records for the phases of an input gradient that no tap reaches: zeros, or the mask of its value."""
    records = []
    for sy, sx in spans:
        if sy.taps * sx.taps:
            continue
        dx, y = (
            View(v.at(sy.first, sx.first), sy.count, sx.count, v.channels, v.row * stride[0], v.pixel * stride[1])
            for v in (target.dx, target.y)
        )
        if not target.accumulate:
            records.append(zero_record(lowering, step.node, dx))
        elif target.clip:
            records.append(map_record(step.node, "backward_input", ew.COPY, dx, dx, y, activation=target.clip))
    return records


def lone_clip(lowering: Lowering, step: Step) -> int:
    """Return the clip of the activation whose output only this step reads, so that it can apply the mask; else 0."""
    value, clips = step.inputs[0], set()
    span = range(value.channel, value.channel + lowering.buffers.image(value)[2])
    for other in lowering.program.steps:
        if other is not step and any(_overlap(lowering, v, value.buffer, span) for v in other.inputs):
            return 0
        if _overlap(lowering, other.output, value.buffer, span):
            clips.add(clip_of(number_of(other.activation, other.node)))
    return clips.pop() if len(clips) == 1 else 0


def _overlap(lowering: Lowering, value: Value, buffer: str, span: range) -> bool:
    end = value.channel + lowering.buffers.image(value)[2]
    return value.buffer == buffer and value.channel < span.stop and span.start < end


class Ledger:
    """State of all gradients while the backward records are listed, last step first."""

    def __init__(self, lowering: Lowering, wanted: frozenset[str]) -> None:
        self.lowering, self.wanted = lowering, wanted
        self._bordered: set[str] = set()
        channels = {name: shape[2] for name, shape in lowering.buffers.shapes.items()}
        self._written, self._masked, self._clip, self._reads = (
            {name: np.zeros(count, kind) for name, count in channels.items()} for kind in (bool, bool, int, int)
        )
        for step in lowering.program.steps:
            own = clip_of(number_of(step.activation, step.node))
            self._clip[step.output.buffer][self._span(step.output)] = own
            for value in step.inputs if step.output.buffer in wanted else ():
                self._reads[value.buffer][self._span(value)] += 1

    def _span(self, value: Value) -> slice:
        return slice(value.channel, value.channel + self.lowering.buffers.image(value)[2])

    def give(self, value: Value) -> None:
        """Register that the caller writes a value's gradient, with a border of zeros."""
        self._bordered.add(value.buffer)
        self._written[value.buffer][self._span(value)] = True

    def _target(self, step: Step, value: Value, masks: bool) -> GradientTarget:
        """Return where `step` puts the gradient of an input; `masks`: whether its kernel can apply a mask."""
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
        """Return `_target` of every input of the step, None where its gradient is not needed."""
        return [self._target(step, v, masks) if v.buffer in self.wanted else None for v in step.inputs]

    def _clean_border(self, name: str) -> tuple[Record, ...]:
        """List the records that zero the border of a gradient before its first write."""
        if name in self._bordered:
            return ()
        self._bordered.add(name)
        return tuple(border_records(self.lowering, f"d {name}", "backward_input"))

    def _zero_unwritten(self, step: Step, value: Value) -> tuple[Record, ...]:
        span, shape = self._span(value), (*self.lowering.buffers.image(value)[:2], 1)
        parts = (Value(value.buffer, shape, channel) for channel in range(span.start, span.stop))
        unwritten = [part for part in parts if not self._written[value.buffer][part.channel]]
        return tuple(zero_record(self.lowering, step.node, self.lowering.d(part)) for part in unwritten)

    def settle(self, step: Step) -> tuple[tuple[Record, ...], int]:
        """Return the records that zero unwritten channels before a step's backward, and the activation still to apply.

        Raises KernelUnavailable if the gradient of the activation needs its input, which a fused step does not keep.
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
