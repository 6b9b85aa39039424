"""The frame of a plan: its launches, and the address and lifetime of every array that they use.

A program is lowered to launches twice: the first traversal finds which arrays each launch uses and how large they are,
then the arena is laid out and allocated, and the second traversal writes the launches with real addresses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

import numpy as np

from core.arena import Lifetime
from core.errors import KernelUnavailable
from core.gpu.compilation.generations import AMPERE
from core.gpu.hardware import Hardware
from core.gpu.launch import Launch, Tensor, intervals_of
from core.gpu.parts.tile import ELEMENT
from core.gpu.tuning import EMPTY, Table
from core.graph import PHOTO
from core.ops.contract import Array, volume
from core.ops.window import read_window
from core.program import Program, Step, Value, lay_out_parameters, wanted_buffers

ARITHMETIC: Final = {"mixed": "bf16", "tf32": "tf32", "float32": "float32"}
"""Arithmetic of the matrix kernels by the plan's precision."""

SLACK: Final = 256
"""Bytes after an array that the last 16-byte loads of a row may touch."""


class JoinedArrays:
    """int32 arrays by name that become one, each at a multiple of 64 elements; gaps have the value `gap`."""

    def __init__(self, gap: int) -> None:
        self._gap, self._arrays, self.size = gap, dict[str, tuple[int, Array]](), 0

    def add(self, name: str, make: Callable[[], Array]) -> int:
        """The first element of an array, which is made if the name is new."""
        if name not in self._arrays:
            array = np.ascontiguousarray(make(), np.int32).reshape(-1)
            self._arrays[name] = self.size, array
            self.size += -(-array.size // 64) * 64
        return self._arrays[name][0]

    def whole(self) -> Array:
        joined = np.full(self.size, self._gap, np.int32)
        for start, array in self._arrays.values():
            joined[start : start + array.size] = array
        return joined


class Frame:
    """What the lowering of one program reads, and the launches that it writes."""

    def __init__(
        self, program: Program, batch: int, precision: str, hardware: Hardware, frozen: frozenset[str] = frozenset(),
        kept: frozenset[str] = frozenset(), algorithm: str = "auto", tuning: Table = EMPTY, stores_all: bool = False,
        ranks: int = 1,
    ) -> None:  # fmt: skip
        self.program, self.batch, self.hardware, self.frozen = program, batch, hardware, frozen
        self.layout = lay_out_parameters(program.graph)
        self.processors, self.shared = hardware.processors, hardware.shared
        self.stores_all, self.kept, self.ranks = stores_all, kept, ranks
        """Whether values and gradients that no kernel of the step reads are stored too; buffers that are read after the
        step; ranks over whose photos batch norm computes its statistics."""
        self.tuning, self.algorithm = tuning, algorithm
        """Measured costs, and the highest implementation level that a step may use (`core.gpu.select.LEVELS`)."""
        self.partials: dict[str, int] = {}
        """Partial sums that a launch wrote, by the name of their array."""
        self._comparing = False
        """Whether addresses are asked for without the arrays counting as used."""
        old = hardware.capability < AMPERE
        if old and precision != "float32":
            raise KernelUnavailable(
                f"A GPU older than Ampere computes in float32 only, not in {precision}: use --precision float32."
            )
        self.arithmetic = "fma" if old else ARITHMETIC[precision]
        self.element = ELEMENT[self.arithmetic]
        self.vector = 16 // self.element
        self._blocks: Mapping[str, int] = {}
        self._arrays: Mapping[str, int] = {}
        """Addresses of the plan's blocks (`core.gpu.sizes.block_sizes`), and of the arena's arrays."""
        self.launches: list[Launch] = []
        self._joins = 0
        self.border, self.photo_pixel = _photo_layout(program, self.element)
        self.wanted = wanted_buffers(program, self.trains)
        """Buffers whose gradient some trained parameter needs."""
        self.array_sizes: dict[str, int] = {}
        """Bytes of every array of the arena used since the last restart."""
        self._uses: dict[str, list[int]] = {}
        self.packs, self.tables = JoinedArrays(-1), JoinedArrays(0)
        """Indices of the elements of packed weights in the flat weights, and constant tables of kernels."""
        self._packed: dict[str, tuple[str, int]] = {}
        """Block and offset of weights in a kernel's order."""

    def restart(self, blocks: Mapping[str, int], arrays: Mapping[str, int]) -> None:
        """Begin again, with addresses of blocks and of the arena's arrays by name; others are at 0."""
        self._blocks, self._arrays = blocks, arrays
        self.launches = []
        self._joins, self.array_sizes, self._uses, self.partials = 0, {}, {}, {}

    def block(self, name: str) -> int:
        """Address of a block of the plan, 0 during the first traversal."""
        return self._blocks.get(name, 0)

    def add(self, launch: Launch) -> None:
        if self._joins == 1 and launch.stream == 0:
            launch = replace(launch, join=True)
        self._joins -= launch.stream == 0
        self.launches.append(launch)

    def join_after_next(self) -> None:
        """The stream-0 launch after the next one waits for stream 1."""
        self._joins = 2

    def use(self, name: str, size: int) -> int:
        """Address of an array of `size` bytes in the arena; it lives from the first launch that uses it to the last."""
        if self._comparing:
            return 0
        self.array_sizes[name] = max(size + SLACK, self.array_sizes.get(name, 0))
        self._uses.setdefault(name, []).append(len(self.launches))
        return self._arrays.get(name, 0)

    @contextmanager
    def comparing(self) -> Iterator[None]:
        """Inside, arrays do not count as used: what a candidate asks for before it is chosen."""
        self._comparing = True
        try:
            yield
        finally:
            self._comparing = False

    def lifetimes(self) -> dict[str, Lifetime]:
        """The lifetime of every array used so far; those in `kept`, or all if `stores_all`, live to the end.

        An array used on stream 1 lives to the end of the next interval (`core.gpu.launch.intervals_of`).
        """
        end, intervals = len(self.launches), intervals_of(self.launches)
        last_of = {interval: i for i, interval in enumerate(intervals)}
        lifetimes = {}
        for name, size in self.array_sizes.items():
            uses = self._uses[name]
            beside = [use for use in uses if use < end and self.launches[use].stream]
            last = max([uses[-1], *(last_of.get(intervals[use] + 1, end) for use in beside)])
            first = 0 if name == PHOTO else uses[0]
            keeps = self.stores_all or name in self.kept or name == PHOTO
            lifetimes[name] = Lifetime(size, first, end if keeps else last)
        return lifetimes

    def packed(self, name: str, make: Callable[[], Array]) -> int:
        """Address of weights in a kernel's order; `make` gives the index of each element in the flat weights, or -1.

        It is that of a packed copy, except for float32 weights that have this order already.
        """
        if name not in self._packed:
            indices = make().reshape(-1)
            in_order = self.element == 4 and np.array_equal(indices, np.arange(indices.size) + indices[0])
            first = indices[0] if in_order else self.packs.add(name, lambda: indices)
            self._packed[name] = "weights" if in_order else "packed", int(first) * self.element
        block, offset = self._packed[name]
        return self.block(block) + offset

    def table(self, name: str, make: Callable[[], Array]) -> int:
        """Address of a constant int32 table."""
        return self.block("tables") + 4 * self.tables.add(name, make)

    def tensor(self, value: Value, gradient: bool = False) -> Tensor:
        """A value, or its gradient, as pixels of channels; a flat value is one pixel, a matrix a row of them."""
        shape = self.program.buffers[value.buffer]
        if value.buffer == PHOTO:
            return self._photo()
        if value.channel % self.vector:
            raise KernelUnavailable(
                f"On the GPU the parts of a concatenation start at multiples of {self.vector} channels, "
                f"not at {value.channel} ({value.buffer})."
            )
        height, width, channels = (1, 1, *shape)[-3:]
        pitch = -(-channels // self.vector) * self.vector
        name = f"d:{value.buffer}" if gradient else value.buffer
        address = self.use(name, self.batch * height * width * pitch * self.element)
        mine = channels if self.is_flattened(value) else value.shape[-1]
        return Tensor(address + value.channel * self.element, height, width, mine, pitch, self.element)

    def is_flattened(self, value: Value) -> bool:
        """Whether the value is an image that is read as a vector."""
        return len(value.shape) != len(self.program.buffers[value.buffer])

    def shaped(self, value: Value, gradient: bool = False) -> Tensor:
        """Like `tensor`, but a flattened image is one pixel of all its features. Raises KernelUnavailable where padding
        is between them."""
        if not self.is_flattened(value):
            return self.tensor(value, gradient)
        whole, indices = self.flat(value, gradient)
        if indices.size != whole.channels:
            raise KernelUnavailable(f"The GPU reads a flattened image only if its channels are a multiple of "
                                    f"{self.vector} ({value.buffer}).")  # fmt: skip
        return whole

    def flat(self, value: Value, gradient: bool = False) -> tuple[Tensor, Array]:
        """A value as one pixel of all its buffer's elements, and the index of each of its features in that pixel."""
        x = self.tensor(value, gradient)
        whole = Tensor(x.address, 1, 1, x.image_pitch, x.image_pitch, self.element)
        if value.buffer == PHOTO:
            h, w, c = self.program.buffers[PHOTO]
            start = self.border[0] * x.row_pitch + self.border[1] * x.pitch
        else:
            h, w, c, start = x.height, x.width, x.channels, 0
        if value.channel:
            raise KernelUnavailable("A dense layer cannot read a part of a concatenation on the GPU.")
        i, j, k = np.meshgrid(np.arange(h), np.arange(w), np.arange(c), indexing="ij")
        return whole, (start + i * x.row_pitch + j * x.pitch + k).reshape(-1)

    def _photo(self) -> Tensor:
        """The photo with its border of zeros; convolutions of it need no padding."""
        height, width, channels = self.program.buffers[PHOTO]
        top, left, bottom, right = self.border
        tall, wide = height + top + bottom, width + left + right
        wide += wide % 2  # rows of pairs of pixels: 16 bytes in bf16
        size = self.batch * tall * wide * self.photo_pixel * self.element
        address = self.use(PHOTO, size)
        return Tensor(address, tall, wide, channels, self.photo_pixel, self.element)

    def weight(self, name: str) -> int:
        """Address of a parameter: the block of its name, or its place in the flat weights."""
        return self._blocks.get(name, self.block("weights") + 4 * self.layout.offsets[name][0])

    def gradient_of(self, name: str) -> int:
        """Address of a trained parameter's gradient: the block ``d:`` and its name, or its place in the flat one."""
        return self._blocks.get(f"d:{name}", self.block("gradient") + 4 * self.layout.offsets[name][0])

    def indices(self, name: str) -> Array:
        """Indices of a parameter's elements in the flat weights, in its shape."""
        start, shape = self.layout.offsets[name]
        return (start + np.arange(volume(shape), dtype=np.int32)).reshape(shape)

    def filters(self, step: Step, slices: int = 1) -> Array:
        """Indices of a convolution's filters, OHWI over the input channels of a slice, -1 for channels of other groups.

        `slices`: of the groups, each computed as an ordinary convolution (`core.gpu.ops.conv.geometry.slices_of`).
        """
        own, groups = self.indices(f"{step.node}.weight"), int(step.attributes["groups"])  # type: ignore[arg-type]
        filters, channels = len(own) // groups, own.shape[3]
        dense = np.full((*own.shape[:3], groups // slices * channels), -1, np.int32)
        for g in range(groups):
            mine, first = slice(g * filters, (g + 1) * filters), g % (groups // slices) * channels
            dense[mine, ..., first : first + channels] = own[mine]
        return dense

    def following(self, step: Step) -> Step | None:
        steps = self.program.steps
        at = steps.index(step) + 1
        return steps[at] if at < len(steps) else None

    def only_reader(self, value: Value) -> Step | None:
        """The only step that reads a value's buffer, whichever channels of it."""
        return only(s for s in self.program.steps if any(v.buffer == value.buffer for v in s.inputs))

    def is_read_once(self, step: Step, following: Step) -> bool:
        """Whether a step's output need not be in memory if the next step, its only reader, is in the same launch."""
        value, reads = step.output, [v for v in following.inputs if v.buffer == step.output.buffer]
        inspected = self.stores_all or value.buffer in self.kept or value == self.program.output
        is_buffer = self.program.buffers[value.buffer] == value.shape
        return self.only_reader(value) is following and reads == [value] and is_buffer and not inspected

    def wants(self, value: Value) -> bool:
        """Whether some trained parameter needs the gradient of a value."""
        return value.buffer in self.wanted and value.buffer != PHOTO

    def trains_any(self, step: Step) -> bool:
        """Whether a parameter of the step is trained."""
        return any(self.trains(step, parameter.role) for parameter in step.parameters)

    def trains(self, step: Step, role: str) -> bool:
        wanted = any(p.role == role and p.trained for p in step.parameters)
        return wanted and f"{step.node}.{role}" not in self.frozen


def only(steps: Iterable[Step]) -> Step | None:
    """The step, if there is exactly one."""
    several = list(steps)
    return several[0] if len(several) == 1 else None


def has_bias(step: Step) -> bool:
    return any(p.role == "bias" for p in step.parameters)


def bias_of(frame: Frame, step: Step) -> int:
    """Address of a step's bias, 0 if it has none."""
    return frame.weight(f"{step.node}.bias") if has_bias(step) else 0


def _photo_layout(program: Program, element: int) -> tuple[tuple[int, int, int, int], int]:
    """Largest padding of a convolution of the photo, by side; elements per pixel: 4, or 8 if a bf16 window may start at
    an odd pixel, or 1 for a grey photo that only dense layers read."""
    readers = [s for s in program.steps if any(value.buffer == PHOTO for value in s.inputs)]
    height, width, channels = program.buffers.get(PHOTO, (0, 0, 0))
    if channels == 1 and all(s.op == "dense" for s in readers) and height * width * element % 16 == 0 == width % 2:
        return (0, 0, 0, 0), 1
    windows = [read_window(s.attributes) for s in readers if s.op == "conv2d"]
    paddings = [w.padding for w in windows] or [(0, 0, 0, 0)]
    top, left, bottom, right = (max(sides) for sides in zip(*paddings, strict=True))
    odd = any(w.stride[1] % 2 or (left - w.padding[1]) % 2 for w in windows)
    return (top, left, bottom, right), 8 if odd and element == 2 else 4
