"""The arrays of one step for teaching kernels, plain and float32, by role.

Roles are `x` (`x2`, `x3` ...), `out`, `dy`, parameters by role, and the results `dx` (`dx2` ...), `dweight`, `dbias`.
Activation tensors that are padded or part of a concatenation are copied. Activation, mask and the accumulation of
gradients are launches after those of the step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod
from typing import Any

import numpy as np

from core.gpu import control
from core.gpu.compilation.arrays import Batch, Int, Vector, float32
from core.gpu.compilation.compiler import Recipe
from core.gpu.compilation.cuda import cuda
from core.gpu.launch import PLAIN, RELU, Launch, Target, three
from core.gpu.parts.vectors import activate, passes
from core.gpu.select import FORWARD, Case
from core.gpu.teaching.kernel import DeviceArray, Where, flat, kernel, over
from core.graph import PHOTO
from core.ops.op_table import LOSSES
from core.ops.registry import numbered
from core.program import Value


@kernel
def gather(padded: Vector, plain: Batch, image: Int, row: Int, pixel: Int) -> None:
    """Copy `padded` to `plain`; `image`, `row` and `pixel` are the pitches of `padded` in floats."""
    i = cuda.grid(1)
    if i < plain.size:
        c, column = i % plain.shape[3], i // plain.shape[3] % plain.shape[2]
        pixels = i // (plain.shape[3] * plain.shape[2])
        y, n = pixels % plain.shape[1], pixels // plain.shape[1]
        plain[n, y, column, c] = padded[n * image + y * row + column * pixel + c]


@kernel
def scatter(
    plain: Batch, padded: Vector, output: Vector, image: Int, row: Int, pixel: Int, channels: Int, activation: Int,
    masking: Int, accumulate: Int,
) -> None:  # fmt: skip
    """``padded = activation(plain)``, masked by the activation `masking` of `output`, or added to `padded`.

    `padded` has `channels`; those that `plain` lacks become zero.
    """
    i = cuda.grid(1)
    height, width = plain.shape[1], plain.shape[2]
    if i >= plain.shape[0] * height * width * channels:
        return
    c, column, pixels = i % channels, i // channels % width, i // (channels * width)
    y, n = pixels % height, pixels // height
    to = n * image + y * row + column * pixel + c
    value = float32(0)
    if c < plain.shape[3]:
        value = activate(plain[n, y, column, c], activation)
        if masking and not passes(output[to], masking):
            value = float32(0)
        if accumulate:
            value += padded[to]
    padded[to] = value


@kernel
def add(x: Vector, total: Vector) -> None:
    """``total += x``: gradients of weights over the parts of a step."""
    i = cuda.grid(1)
    if i < x.size:
        total[i] += x[i]


class StepArrays:
    """The arrays of one step by role, made when a launcher asks for them, and the launches that it adds."""

    def __init__(self, case: Case) -> None:
        self.case, self.frame, self.step = case, case.frame, case.step
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
        """Whether the step has this parameter, or needs this gradient."""
        if role in self._parameters:
            return True
        return role[1:] in self._parameters and self.frame.trains(self.step, role[1:])

    def scratch(self, name: str, shape: tuple[int, ...]) -> DeviceArray:
        """An array of the arena for the launches added here."""
        name = f"{self.step.node} {self.case.direction} {name}"
        return DeviceArray(self, self.frame.use(name, 4 * prod(shape)), shape, name)

    def constant(self, name: str, values: Any) -> DeviceArray:
        """A float32 vector among the plan's constants."""
        values = np.ascontiguousarray(values, np.float32)
        return DeviceArray(self, self.frame.table(name, lambda: values.view(np.int32)), values.shape)

    def add(self, recipe: Recipe, where: Where, values: tuple[Any, ...], arrays: Iterable[DeviceArray]) -> None:
        """Add a launch of any kernel; `arrays` are those that it reads and writes."""
        for array in arrays:
            if array.buffer:
                self.frame.use(array.buffer, 0)
        (grid, block, shared), node = where, self.step.node
        self.frame.add(Launch(node, self.case.direction, recipe, three(grid), three(block), shared, values))

    def zeros(self, size: int) -> DeviceArray:
        """Zeros, the bias of a layer that has none."""
        return self.constant(f"zeros {size}", np.zeros(size))

    def finish(self) -> None:
        """Add the launches that follow the launcher's own."""
        for ending in self._endings:
            ending()

    def _of_loss(self, role: str) -> DeviceArray:
        """Labels; class weights, by default 1; targets, with no rows if there are none."""
        frame, classes = self.frame, self.step.inputs[0].shape[-1]
        offsets = control.find_offsets(frame.batch)
        if role == "labels":
            return DeviceArray(self, frame.block("control") + offsets.labels, (frame.batch,))
        if role == "targets" and self.step.attributes["targets"]:
            return DeviceArray(self, frame.block("control") + offsets.targets, (frame.batch, classes))
        weights = self.constant("class weights", self.step.attributes["class_weights"] or (1.0,) * classes)
        return weights.reshape(0, classes) if role == "targets" else weights

    def _make(self, role: str) -> DeviceArray:
        step, frame = self.step, self.frame
        if role in ("labels", "targets", "class_weights"):
            return self._of_loss(role)
        if hasattr(control.Settings, role):  # an integer that changes from step to step
            return DeviceArray(self, frame.block("control") + control.offset(role), (1,))
        if role == "bias" and role not in self._parameters:
            return self.zeros(self._parameters["weight"].shape[0])
        if role in self._parameters:
            return DeviceArray(self, frame.weight(f"{step.node}.{role}"), self._parameters[role].shape)
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
        """The activation tensor as a plain array: itself, or a copy."""
        frame, t, buffer = self.frame, self.frame.tensor(value, gradient), name_of(value, gradient)
        shape, height, width, first = (frame.batch, *value.shape), t.height, t.width, t.address
        if value.buffer == PHOTO:  # without its border
            height, width, _ = frame.program.buffers[PHOTO]
            first += t.element * (frame.border[0] * t.row_pitch + frame.border[1] * t.pitch)
        if t.pitch == t.channels:
            return DeviceArray(self, first, shape, buffer)
        plain = self.scratch(f"plain {buffer} {value.channel}", (frame.batch, height, width, t.channels))
        source = DeviceArray(self, first, (frame.batch * t.image_pitch,), buffer)
        gather[over(plain.size)](source, plain, t.image_pitch, t.row_pitch, t.pitch)
        return plain.reshape(*shape)

    def _output(self) -> DeviceArray:
        step, frame = self.step, self.frame
        if step.op in LOSSES:
            return DeviceArray(self, frame.block("results"), (frame.batch, 1))
        return self._written("out", step.output, step.activation, PLAIN)

    def _input_gradient(self, value: Value, role: str) -> DeviceArray:
        if not self.frame.wants(value):
            return self.scratch(role, (self.frame.batch, *value.shape))
        return self._written(role, value, "", self.case.backward.target(value))

    def _written(self, role: str, value: Value, activation: str, to: Target) -> DeviceArray:
        """The array for a value, "out", or its gradient: the value's own if nothing follows, else scratch memory."""
        shape, gradient = (self.frame.batch, *value.shape), role != "out"
        t, buffer = self.frame.tensor(value, gradient), name_of(value, gradient)
        if t.pitch == t.channels and not activation and to == PLAIN:
            return DeviceArray(self, t.address, shape, buffer)
        plain, size, mask = self.scratch(role, shape), (shape[0] * t.image_pitch,), to.mask
        target = DeviceArray(self, t.address, size, buffer)
        output = DeviceArray(self, mask.address, size, value.buffer) if mask else target
        pixels = plain.reshape(shape[0], t.height, t.width, t.channels)
        self._endings.append(lambda: scatter[over(shape[0] * t.height * t.width * t.padded)](
            pixels, target, output, t.image_pitch, t.row_pitch, t.pitch, t.padded, RELU[activation],
            to.values["masking"], to.values["accumulate"],
        ))  # fmt: skip
        return plain

    def _weight_gradient(self, role: str) -> DeviceArray:
        shape = self._parameters[role].shape
        if not self.frame.trains(self.step, role):
            return self.scratch(f"d{role}", shape)
        address = self.frame.gradient_of(f"{self.step.node}.{role}")
        if not self.case.backward.accumulate:
            return DeviceArray(self, address, shape)
        own = self.scratch(f"d{role}", shape)
        total = DeviceArray(self, address, (own.size,))
        self._endings.append(lambda: add[over(own.size)](flat(own), total))
        return own


def name_of(value: Value, gradient: bool) -> str:
    """Name of the array of a value, or of its gradient."""
    return f"d:{value.buffer}" if gradient else value.buffer
