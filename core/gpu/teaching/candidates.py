"""Teaching kernels as candidates: a launcher that computes one step on plain float32 arrays, and what is around it.

A launcher is `launch(problem, arrays)`. It finds the arrays of its step by role: `x` (`x2`, `x3` ...), `out`, `dy`,
parameters by role, and what it is to write: `dx` (`dx2` ...), `dweight`, `dbias`. Activation, mask and sums of
gradients are launches after it, where there are any; so are copies of activation tensors that are not plain arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias, final

import numpy as np

from core.gpu import control
from core.gpu.frame import Frame
from core.gpu.launch import Tensor
from core.gpu.select import FORWARD, Candidate, Case
from core.gpu.teaching.kernel import DeviceArray, Notes, flat, over
from core.gpu.teaching.layout import add, is_plain, read, write
from core.graph import PHOTO
from core.ops.registry import KernelCase
from core.ops.window import read_window
from core.program import Value

FLOAT32: Final = frozenset(("float32", "fma"))
LOSS: Final = "softmax_cross_entropy"
Launcher: TypeAlias = "Callable[[KernelCase, StepArrays], None]"


def teach(
    name: str, op: str, direction: str, launch: Launcher, idea: str,
    refuses: Callable[[KernelCase], str] = lambda problem: "", level: str = "",
) -> Candidate:  # fmt: skip
    """The candidate of a launcher; its implementation level is its name, unless `level` says otherwise."""
    return Candidate(
        name, (op,), direction, partial(_write, name, launch), idea, level or name, 0.02,
        lambda case: refuses(problem_of(case)), arithmetics=FLOAT32,
    )  # fmt: skip


def problem_of(case: Case) -> KernelCase:
    """What a launcher is told of its step."""
    step = case.step
    shapes = tuple(value.shape for value in step.inputs)
    return KernelCase(step.op, step.attributes, shapes, step.output.shape, case.frame.batch)


def geometry(problem: KernelCase) -> tuple[tuple[int, int], tuple[int, int]]:
    """(stride, padding at the top and left), as the kernels take them."""
    window = read_window(problem.attributes)
    return window.stride, (window.padding[0], window.padding[1])


def groups(problem: KernelCase) -> int:
    return int(str(problem.attributes.get("groups", 1)))


def numbered(name: str, k: int) -> str:
    """Role of the k-th input: x, x2, x3 ..."""
    return name if k == 0 else f"{name}{k + 1}"


def _write(name: str, launch: Launcher, case: Case) -> None:
    arrays = StepArrays(case, name)
    launch(problem_of(case), arrays)
    arrays.finish()


@final
class StepArrays:
    """The arrays of one step by role, made when a launcher asks for them."""

    def __init__(self, case: Case, name: str) -> None:
        self.case, self.frame, self.step = case, case.frame, case.step
        self.notes = Notes(case.frame, case.step.node, case.direction, name)
        self.training = case.frame.program.training
        self._made: dict[str, DeviceArray] = {}
        self._endings: list[Callable[[], None]] = []
        self._inputs = {numbered("x", k): value for k, value in enumerate(case.step.inputs)}
        self._parameters = {p.role: p for p in case.step.parameters}

    def __getitem__(self, role: str) -> DeviceArray:
        if role not in self._made:
            self._made[role] = self._make(role)
        return self._made[role]

    def __contains__(self, role: str) -> bool:
        """Whether the step has such a parameter, or such a gradient is wanted."""
        if role in self._parameters:
            return True
        return role[1:] in self._parameters and self.frame.trains(self.step, role[1:])

    def scratch(self, name: str, shape: tuple[int, ...]) -> DeviceArray:
        """An array for this launcher alone."""
        return self.notes.scratch(name, shape)

    def zeros(self, size: int) -> DeviceArray:
        """As the bias of a layer that has none."""
        return self.notes.constant(f"zeros {size}", np.zeros(size))

    def settings(self, field: str) -> DeviceArray:
        """One integer of the control block, in memory: it changes from step to step."""
        return DeviceArray(self.notes, self.frame.places.control + control.offset(field), (1,))

    @property
    def labels(self) -> DeviceArray:
        at = control.places(self.frame.batch)[0]
        return DeviceArray(self.notes, self.frame.places.control + at, (self.frame.batch,))

    @property
    def targets(self) -> DeviceArray:
        """Targets of a taught network, (images, classes)."""
        at = control.places(self.frame.batch)[3]
        shape = (self.frame.batch, self.step.inputs[0].shape[-1])
        return DeviceArray(self.notes, self.frame.places.control + at, shape)

    def finish(self) -> None:
        """Note what follows the launcher's own launches."""
        for ending in self._endings:
            ending()

    def _make(self, role: str) -> DeviceArray:
        step, frame = self.step, self.frame
        if role in self._parameters:
            return DeviceArray(self.notes, frame.weight(f"{step.node}.{role}"), self._parameters[role].shape)
        if role in self._inputs:
            return self._read(self._inputs[role], False)
        if role == "dy" or (role == "out" and self.case.direction != FORWARD):
            return self._read(step.output, role == "dy")
        if role == "out":
            return self._output()
        if role[1:] in self._parameters:
            return self._weight_gradient(role[1:])
        return self._input_gradient(self._inputs[role[1:]], role)

    def _read(self, value: Value, gradient: bool) -> DeviceArray:
        tensor, buffer = image_of(self.frame, value, gradient)
        shape = (self.frame.batch, *value.shape)
        return read(self.notes, tensor, f"plain {buffer} {value.channel}", shape, buffer)

    def _output(self) -> DeviceArray:
        step, frame = self.step, self.frame
        if step.op == LOSS:
            return DeviceArray(self.notes, frame.places.results, (frame.batch, 1))
        tensor, buffer = image_of(frame, step.output, False)
        return self._written("out", step.output, tensor, buffer, None, step.activation, "", False)

    def _input_gradient(self, value: Value, role: str) -> DeviceArray:
        if not self.frame.wants(value):
            return self.scratch(role, (self.frame.batch, *value.shape))
        mask, masking, accumulate = self.case.backward.target(value)
        tensor, buffer = image_of(self.frame, value, True)
        return self._written(role, value, tensor, buffer, mask, "", masking, accumulate)

    def _written(
        self, role: str, value: Value, tensor: Tensor, buffer: str, mask: Tensor | None, activation: str, masking: str,
        accumulate: bool,
    ) -> DeviceArray:  # fmt: skip
        """Where a launcher writes a value: to its place if nothing is left to do, else to scratch memory."""
        shape = (self.frame.batch, *value.shape)
        if is_plain(tensor) and not (mask or activation or accumulate):
            return DeviceArray(self.notes, tensor.address, shape, buffer=buffer)
        plain = self.scratch(role, shape)
        self._endings.append(
            lambda: write(plain, tensor, buffer, mask, activation, masking, accumulate, value.buffer)
        )  # fmt: skip
        return plain

    def _weight_gradient(self, role: str) -> DeviceArray:
        shape = self._parameters[role].shape
        if not self.frame.trains(self.step, role):
            return self.scratch(f"d{role}", shape)
        address = self.frame.gradient_of(f"{self.step.node}.{role}")
        if not self.case.backward.accumulate:
            return DeviceArray(self.notes, address, shape)
        part = self.scratch(f"d{role}", shape)
        total = DeviceArray(self.notes, address, (part.size,))
        self._endings.append(lambda: add[over(part.size)](flat(part), total))
        return part


def image_of(frame: Frame, value: Value, gradient: bool) -> tuple[Tensor, str]:
    """A value's activation tensor and the name of its buffer; of the network's input without its border."""
    t = frame.image(value, gradient)
    if value.buffer != PHOTO:
        return t, f"d:{value.buffer}" if gradient else value.buffer
    (top, left, _, _), (height, width, channels) = frame.border, frame.program.buffers[PHOTO]
    inside = t.address + t.element * (top * t.row_pitch + left * t.pitch)
    return Tensor(inside, height, width, channels, t.pitch, t.element, t.row_pitch, t.photo_pitch), PHOTO
