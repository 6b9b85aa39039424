"""The state of the backward traversal."""

from __future__ import annotations

import numpy as np

from core.errors import KernelUnavailable
from core.gpu.frame import Frame
from core.gpu.launch import Target
from core.program import Step, Value


class Backward:
    """Which channels of each gradient are written, and which gradients still lack their mask."""

    def __init__(self, frame: Frame, accumulate: bool) -> None:
        self.frame, self.accumulate = frame, accumulate
        channels = {name: shape[-1] for name, shape in frame.program.buffers.items()}
        self._written = {name: np.zeros(count, bool) for name, count in channels.items()}
        self._unmasked: set[str] = set()

    def reached(self, step: Step) -> bool:
        return bool(self._written[step.output.buffer][self._span(step.output)].all())

    def _span(self, value: Value) -> slice:
        if self.frame.is_flattened(value):
            return slice(None)
        return slice(value.channel, value.channel + value.shape[-1])

    def target(self, value: Value, reads: bool = True) -> Target:
        """How a contribution to a value's gradient is written; the mask of a flattened image is one pixel.

        Without a mask if the kernel does not read it (`reads`): the value's memory may be reused then.
        """
        written = self._written[value.buffer][self._span(value)]
        accumulate = bool(written.any())
        if accumulate and not written.all():
            raise KernelUnavailable(f"The GPU cannot add gradients of overlapping parts of {value.buffer}.")
        written[:] = True
        activation = shared_activation(self.frame, value)
        if activation is None:
            self._unmasked.add(value.buffer)
            return Target(accumulate=accumulate)
        if not (activation and reads):
            return Target(None, activation, accumulate)
        mask = self.frame.flat(value)[0] if self.frame.is_flattened(value) else self.frame.tensor(value)
        return Target(mask, activation, accumulate)

    def claim(self, value: Value) -> None:
        """Note that a kernel writes the whole gradient of a value, masked."""
        self._written[value.buffer][self._span(value)] = True

    def lacks_mask(self, step: Step) -> bool:
        """Whether the mask of a step's activation is not applied to its gradient yet."""
        return step.output.buffer in self._unmasked and bool(step.activation)


def shared_activation(frame: Frame, value: Value) -> str | None:
    """The fused activation of all steps that write a value's channels; None if they differ."""
    activations = set()
    end = value.channel + (1 << 30 if frame.is_flattened(value) else value.shape[-1])
    for step in frame.program.steps:
        out = step.output
        if out.buffer == value.buffer and out.channel < end and value.channel < out.channel + out.shape[-1]:
            activations.add(step.activation)
    return activations.pop() if len(activations) == 1 else None if activations else ""
