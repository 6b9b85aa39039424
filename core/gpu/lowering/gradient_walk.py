"""What the reverse walk knows: which channels of which gradient are written, and which still lack their mask."""

from __future__ import annotations

from typing import final

import numpy as np

from core.errors import KernelUnavailable
from core.gpu.lowering.frame import Frame
from core.gpu.lowering.launch import Tensor
from core.gpu.lowering.plain_launches import combine_launch
from core.graph import PHOTO
from core.program import Step, Value


@final
class Backward:
    """The walk's state: which channels of which gradient are written, and which still lack their mask."""

    def __init__(self, frame: Frame, accumulate: bool) -> None:
        self.frame, self.accumulate, self.wanted = frame, accumulate, frame.wanted
        channels = {name: shape[-1] for name, shape in frame.program.buffers.items()}
        self._written = {name: np.zeros(count, bool) for name, count in channels.items()}
        self._unmasked: set[str] = set()

    def reached(self, step: Step) -> bool:
        return bool(self._written[step.output.buffer][self._span(step.output)].all())

    def wants(self, value: Value) -> bool:
        return value.buffer in self.wanted and value.buffer != PHOTO

    def _span(self, value: Value) -> slice:
        if len(value.shape) != len(self.frame.program.buffers[value.buffer]):
            return slice(None)
        return slice(value.channel, value.channel + value.shape[-1])

    def target(self, value: Value, reads: bool = True) -> tuple[Tensor | None, str, bool]:
        """(mask, its activation, whether to add) for a contribution to a value's gradient.

        No mask where the kernel does not read it (`reads`): the value's memory is free then.
        """
        part = self._written[value.buffer][self._span(value)]
        accumulate = bool(part.any())
        if accumulate and not part.all():
            raise KernelUnavailable(f"The GPU cannot add gradients of overlapping parts of {value.buffer}.")
        part[:] = True
        activation = shared_activation(self.frame, value)
        if activation is None:
            self._unmasked.add(value.buffer)
            return None, "", accumulate
        return (self.frame.image(value) if activation and reads else None), activation, accumulate

    def claim(self, value: Value) -> None:
        """Note that a kernel writes the whole gradient of a value, mask and all."""
        self._written[value.buffer][self._span(value)] = True

    def settle(self, step: Step) -> None:
        """Before a step's own backward: apply the mask that could not be applied before."""
        if step.output.buffer in self._unmasked and step.activation:
            dy, y = self.frame.image(step.output, True), self.frame.image(step.output)
            self.frame.add(
                combine_launch(self.frame, step.node, "backward_input", "sum", dy, None, dy, "", y, step.activation)
            )


def shared_activation(frame: Frame, value: Value) -> str | None:
    """The fused activation of all the steps that write a value's channels; None where they differ."""
    found = set()
    end = value.channel + (value.shape[-1] if len(value.shape) == len(frame.program.buffers[value.buffer]) else 1 << 30)
    for step in frame.program.steps:
        out = step.output
        if out.buffer == value.buffer and out.channel < end and value.channel < out.channel + out.shape[-1]:
            found.add(step.activation)
    return found.pop() if len(found) == 1 else "" if not found else None
