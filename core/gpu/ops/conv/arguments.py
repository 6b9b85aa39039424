"""Arguments that the convolutions' kernels have in common: operands, windows of x, and what happens to the sums."""

from __future__ import annotations

from typing import Final

from core.gpu.launch import INTEGER, POINTER, Argument, Tensor, divisions, pitches

OPERANDS: Final = (
    Argument("x", POINTER, "activations (N, height, width, channels), or the gradient dy"),
    Argument("weight", POINTER, "packed filters"),
    Argument("bias", POINTER, "float32 (columns,); 0 for none"),
    Argument("out", POINTER, "activations, or the gradient dx"),
    Argument("mask", POINTER, "x's value, where the gradient of its activation is applied; 0 for none"),
)  # fmt: skip

WINDOWS: Final = (
    *divisions(area="`area`", across="`across`"),
    Argument("area", INTEGER, "windows of an image: pixels of out, or of dy"),
    Argument("across", INTEGER, "windows of a row"),
    Argument("height", INTEGER, "rows of x; where it is strided (\"spread\") the stride in the upper 16 bits"),
    Argument("width", INTEGER, "columns of x, likewise"),
    *pitches(pitch="x"),
    Argument("row_pitch", INTEGER, "elements from a row of x to the next"),
    Argument("image_pitch", INTEGER, "elements from an image of x to the next"),
    Argument("stride_y", INTEGER, "rows of x from a window to the next"),
    Argument("stride_x", INTEGER, "columns of x from a window to the next"),
    Argument("top", INTEGER, "padding above"),
    Argument("left", INTEGER, "padding on the left"),
)  # fmt: skip

ENDING: Final = (
    *pitches(ldo="out", ldm="mask"),
    Argument("activation", INTEGER, "of out (`core.gpu.launch.RELU`)"),
    Argument("masking", INTEGER, "activation that `mask` is the output of"),
    Argument("accumulate", INTEGER, "1 adds to out"),
)  # fmt: skip


def window_values(x: Tensor, out: Tensor, stride: tuple[int, int], padding: tuple[int, ...]) -> dict[str, int]:
    """Values of `WINDOWS`: a window of x for each pixel of out."""
    return {
        "by_area": out.height * out.width, "by_across": out.width, "area": out.height * out.width, "across": out.width,
        "height": x.height, "width": x.width, "pitch": x.pitch, "row_pitch": x.row_pitch, "image_pitch": x.image_pitch,
        "stride_y": stride[0], "stride_x": stride[1], "top": padding[0], "left": padding[1],
    }  # fmt: skip
