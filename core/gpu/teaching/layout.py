"""Between a plan's pixels, padded or part of a concatenation, and the plain arrays of teaching kernels."""

from __future__ import annotations

from core.gpu.compilation.arrays import Batch, Int, Vector, float32
from core.gpu.compilation.cuda import cuda
from core.gpu.launch import RELU, Tensor
from core.gpu.parts.vectors import activate, passes
from core.gpu.teaching.kernel import DeviceArray, Notes, kernel, over


@kernel
def gather(padded: Vector, plain: Batch, image: Int, row: Int, pixel: Int) -> None:
    """`image`, `row` and `pixel`: floats from one to the next in `padded`."""
    i = cuda.grid(1)
    if i < plain.size:
        c, column = i % plain.shape[3], i // plain.shape[3] % plain.shape[2]
        pixels = i // (plain.shape[3] * plain.shape[2])
        y, n = pixels % plain.shape[1], pixels // plain.shape[1]
        plain[n, y, column, c] = padded[n * image + y * row + column * pixel + c]


@kernel
def spread(
    plain: Batch, padded: Vector, output: Vector, image: Int, row: Int, pixel: Int, channels: Int, activation: Int,
    masking: Int, accumulate: Int,
) -> None:  # fmt: skip
    """``padded = activation(plain)``; of a gradient what passes the activation `masking` with this output, or a sum.

    `channels` of `padded`, those that `plain` lacks are zero.
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


def is_plain(t: Tensor) -> bool:
    """Whether pixels are without gaps."""
    return t.pitch == t.channels and t.row_pitch == t.width * t.pitch and t.image_pitch == t.height * t.row_pitch


def pitches(t: Tensor) -> tuple[int, int, int]:
    """Floats from an image to the next, from a row, from a pixel."""
    return t.image_pitch, t.row_pitch, t.pitch


def read(notes: Notes, t: Tensor, name: str, shape: tuple[int, ...], buffer: str) -> DeviceArray:
    """The activation tensor as a plain array: where it is, or a copy called `name`."""
    if is_plain(t):
        return DeviceArray(notes, t.address, shape, buffer=buffer)
    plain = notes.scratch(name, (shape[0], t.height, t.width, t.channels))
    source = DeviceArray(notes, t.address, (shape[0] * t.image_pitch,), buffer=buffer)
    gather[over(plain.size)](source, plain, *pitches(t))
    return plain.reshape(*shape)


def write(
    plain: DeviceArray, t: Tensor, buffer: str, mask: Tensor | None, activation: str, masking: str, accumulate: bool,
    mask_buffer: str = "",
) -> None:  # fmt: skip
    """Note the launch that ends a step: `plain` into the activation tensor, which is at the same place in `mask`."""
    notes, images = plain.notes, plain.shape[0]
    pixels = plain.reshape(images, t.height, t.width, t.channels)
    size = (images * t.image_pitch,)
    target = DeviceArray(notes, t.address, size, buffer=buffer)
    output = DeviceArray(notes, mask.address, size, buffer=mask_buffer) if mask else target
    spread[over(images * t.height * t.width * t.padded)](
        pixels, target, output, *pitches(t), t.padded, RELU[activation], RELU[masking] if mask else 0, int(accumulate)
    )
