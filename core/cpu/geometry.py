"""Layout of the buffers of an image: channels last, with a zero border as wide as any window reaches.

With the border a window needs no bounds check, and a row of its taps is contiguous.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from core.arena import Lifetime, lay_out
from core.cpu.memory import LINE, SLACK
from core.cpu.records import Address, Fields, Space
from core.graph import Shape
from core.ops.activation import ACTIVATIONS
from core.ops.contract import Cost, volume
from core.ops.window import read_window
from core.program import Program, Step, Value

Border: TypeAlias = tuple[int, int, int, int]
"""Pixels (top, left, bottom, right)."""


@dataclass(frozen=True, slots=True)
class View:
    """Channels of a buffer: address of pixel (0, 0), size, and bytes from row to row and pixel to pixel."""

    address: Address
    height: int
    width: int
    channels: int
    row: int
    pixel: int

    def at(self, y: int, x: int) -> Address:
        """Return the address of a pixel, which may be in the border."""
        return self.address + (y * self.row + x * self.pixel)

    def place(self, field: int) -> Fields:
        """Return the fields of a record from `field` on for its address, row and pixel."""
        return {field: self.address, field + 1: self.row, field + 2: self.pixel}

    def size(self, field: int) -> Fields:
        """Return the fields of a record from `field` on for its height, width and channels."""
        return {field: self.height, field + 1: self.width, field + 2: self.channels}


@dataclass(frozen=True, slots=True)
class Span:
    """One phase of the input gradient of a strided convolution along one axis.

    Taps ``tap, tap + stride, ...`` (`taps` of them) reach input pixels ``first + stride t``, ``t < count``; read
    backwards these meet output pixels ``lowest + t``, ``lowest + t + 1``, ...
    """

    first: int
    count: int
    tap: int
    taps: int
    lowest: int


def phases(
    size: tuple[int, int], kernel: tuple[int, int], stride: tuple[int, int], padding: Border
) -> list[tuple[Span, Span]]:
    """Return the plain convolutions that the input gradient of a strided one is made of: (rows, columns) of each."""
    rows, columns = (list(_axis_phases(size[i], kernel[i], stride[i], padding[i])) for i in (0, 1))
    return [(sy, sx) for sy in rows for sx in columns]


def _axis_phases(size: int, kernel: int, stride: int, before: int) -> Iterator[Span]:
    for tap in range(stride):
        first = (tap - before) % stride
        count, taps = len(range(first, size, stride)), len(range(tap, kernel, stride))
        if count:
            yield Span(first, count, tap, taps, (first + before - tap) // stride - (taps - 1))


def window_of(step: Step, source: Shape) -> tuple[tuple[int, int], tuple[int, int], Border]:
    """Return (kernel, stride, padding) of a step; a dense layer is one window over its whole input `source`."""
    if step.op == "dense":
        return (source[0], source[1]), (1, 1), (0, 0, 0, 0)
    window = read_window(step.attributes)
    return window.kernel, window.stride, window.padding


def input_border(step: Step, source: Shape, target: Shape) -> Border:
    """Return how far the windows of a convolution reach over the edges of its input."""
    (kh, kw), (sh, sw), (top, left, _, _) = window_of(step, source)
    bottom = (target[0] - 1) * sh + kh - top - source[0]
    right = (target[1] - 1) * sw + kw - left - source[1]
    return top, left, max(bottom, 0), max(right, 0)


def gradient_border(step: Step, source: Shape, target: Shape) -> Border:
    """Return how far the input gradient of a convolution reaches over the edges of its output gradient."""
    if step.op == "dense":
        return 0, 0, 0, 0  # its window covers the input: nothing slides
    kernel, stride, padding = window_of(step, source)
    reach = []
    for axis in (0, 1):
        spans = [s for s in _axis_phases(source[axis], kernel[axis], stride[axis], padding[axis]) if s.taps]
        before = max((-s.lowest for s in spans), default=0)
        after = max((s.lowest + s.taps + s.count - 1 - target[axis] for s in spans), default=0)
        reach.append((max(before, 0), max(after, 0)))
    return reach[0][0], reach[1][0], reach[0][1], reach[1][1]


class Buffers:
    """Layout of all buffers of a program and their offsets in one image's memory."""

    def __init__(self, program: Program) -> None:
        self.shapes = _image_shapes(program)
        self.bytes = 0
        self.borders: dict[str, Border] = {}
        self._lives: dict[str, Lifetime] = {}
        self._views: dict[str, View] = {}

    def image(self, value: Value) -> Shape:
        height, width, _ = self.shapes[value.buffer]
        return height, width, volume(value.shape) // (height * width)

    def want(self, name: str, buffer: str, border: Border, first: int, last: int) -> None:
        """Request an array of a buffer's size, alive from time `first` to `last`."""
        height, width, channels = self.shapes[buffer]
        top, left, bottom, right = border
        pixel, row = channels * 4, (left + width + right) * channels * 4
        self._lives[name] = Lifetime((top + height + bottom) * row, first, last)
        self.borders[name] = border
        self._views[name] = View(Address(Space.SLOT, top * row + left * pixel), height, width, channels, row, pixel)

    def want_bytes(self, name: str, size: int, first: int, last: int) -> None:
        self._lives[name] = Lifetime(size, first, last)
        self._views[name] = View(Address(Space.SLOT, 0), 1, 1, 1, size, size)

    def settle(self) -> None:
        """Assign an address to every requested array. Arrays that are never alive together share memory."""
        arena = lay_out(self._lives)
        self.bytes = arena.bytes
        for name, offset in arena.offsets.items():
            view = self._views[name]
            self._views[name] = replace(view, address=view.address + offset)

    def whole(self, name: str) -> View:
        return self._views[name]

    def view(self, name: str, value: Value) -> View:
        whole = self._views[name]
        _, _, channels = self.image(value)
        return View(whole.address + value.channel * 4, whole.height, whole.width, channels, whole.row, whole.pixel)

    @property
    def slot_bytes(self) -> int:
        """Bytes of one image, slack included: an odd number of cache lines, so that images do not share cache sets."""
        lines = -(-(self.bytes + SLACK) // LINE)
        return (lines | 1) * LINE


def _image_shapes(program: Program) -> Mapping[str, Shape]:
    """Return (height, width, channels) by buffer; flat buffers are one pixel unless they follow a flattened image."""
    shapes: dict[str, Shape] = {}
    for name, shape in program.buffers.items():
        shapes[name] = shape if len(shape) == 3 else (1, 1, volume(shape))
    for step in program.steps:
        if _inherits_image(step):
            height, width, _ = shapes[step.inputs[0].buffer]
            shapes[step.output.buffer] = (height, width, volume(step.output.shape) // (height * width))
    return shapes


def _inherits_image(step: Step) -> bool:
    """Return whether the output of a step has the height and width of its input, also where both are flat."""
    return step.op in (*ACTIVATIONS, "dropout") and step.output.buffer == step.node


def insert_flatten(program: Program) -> Program:
    """Insert a step "flatten", which copies, before each step that cannot read its flattened input in place.

    Buffers have borders, so that flatten is not always free. A dense layer reads an image as one window, and
    elementwise steps keep its height and width.
    """
    buffers = dict(program.buffers)
    image = {name for name, shape in buffers.items() if len(shape) == 3 and volume(shape[:2]) > 1}
    steps: list[Step] = []
    copies: dict[Value, Value] = {}

    def flatten(value: Value) -> Value:
        if len(value.shape) != 1 or value.buffer not in image:
            return value
        if value not in copies:
            name = f"{value.buffer}:{value.channel} flat"
            buffers[name], copies[value] = value.shape, Value(name, value.shape)
            cost = Cost(0, 8 * volume(value.shape))
            steps.append(Step(name, "flatten", {}, (value,), copies[value], "", (), cost))
        return copies[value]

    for step in program.steps:
        inherits = _inherits_image(step) and step.inputs[0].buffer in image
        if inherits:
            image.add(step.output.buffer)
        keeps = inherits or step.op == "dense"
        steps.append(step if keeps else replace(step, inputs=tuple(flatten(value) for value in step.inputs)))
    return replace(program, steps=tuple(steps), buffers=buffers)
