"""Convolutions by unfolding: windows copied side by side as rows of a matrix, then one plain product.

The product is the tiles' 1x1 convolution over an image of as many channels as a window has numbers. What it costs is
the matrix: one of the largest layer's size, for every image that is computed at a time.
"""

from __future__ import annotations

from dataclasses import replace

from core.cpu import convolution as conv
from core.cpu.geometry import View, window_of
from core.cpu.gradients import GradientTarget, Ledger
from core.cpu.lowering import MATRIX, Lowering, zero_record
from core.cpu.memory import floats, words
from core.cpu.records import Fields, Record
from core.graph import Shape
from core.program import Step

# Record. X is the input or its gradient; the matrix is at MATRIX_AT, contiguous.
X, X_ROW, X_PIXEL, HEIGHT, WIDTH, CHANNELS = range(1, 7)
MATRIX_AT, ROWS, COLUMNS, KERNEL_Y, KERNEL_X, STRIDE_Y, STRIDE_X, TOP, LEFT = range(7, 16)


def run_unfold(record: int, context: int, image: int, low: int, high: int) -> None:
    """Copy windows, with zeros of the border, into rows of the matrix. Tasks are rows of windows."""
    w = words(record)
    channels = w[CHANNELS]
    place = w[MATRIX_AT] + low * w[COLUMNS] * w[KERNEL_Y] * w[KERNEL_X] * channels * 4
    for oy in range(low, high):
        for ox in range(w[COLUMNS]):
            for i in range(w[KERNEL_Y]):
                for j in range(w[KERNEL_X]):
                    y, x = oy * w[STRIDE_Y] + i - w[TOP], ox * w[STRIDE_X] + j - w[LEFT]
                    out = floats(place, channels)
                    place += channels * 4
                    seen = floats(w[X] + y * w[X_ROW] + x * w[X_PIXEL], channels)
                    for c in range(channels):
                        out[c] = seen[c]


def run_fold(record: int, context: int, image: int, low: int, high: int) -> None:
    """The adjoint of `run_unfold` (col2im): add each row of the matrix to its window. One task."""
    w = words(record)
    channels, place = w[CHANNELS], w[MATRIX_AT]
    for oy in range(w[ROWS]):
        for ox in range(w[COLUMNS]):
            for i in range(w[KERNEL_Y]):
                for j in range(w[KERNEL_X]):
                    y, x = oy * w[STRIDE_Y] + i - w[TOP], ox * w[STRIDE_X] + j - w[LEFT]
                    part = floats(place, channels)
                    place += channels * 4
                    if 0 <= y < w[HEIGHT] and 0 <= x < w[WIDTH]:
                        dx = floats(w[X] + y * w[X_ROW] + x * w[X_PIXEL], channels)
                        for c in range(channels):
                            dx[c] += part[c]


def matrix_bytes(step: Step, source: Shape, target: Shape) -> int:
    (kh, kw), _, _ = window_of(step, source)
    return 4 * target[0] * target[1] * kh * kw * source[2]


def write_forward(lowering: Lowering, step: Step) -> list[Record]:
    y = lowering.x(step.output)
    unfold, matrix, product = _unfold(lowering, step, y)
    return _named([unfold, *conv.forward_records(lowering, step, product, matrix, y)])


def write_backward(lowering: Lowering, step: Step, ledger: Ledger) -> list[Record]:
    """List the records that unfold the input again for the filters' gradient, and fold the gradient of the matrix."""
    dy, records = lowering.d(step.output), list[Record]()
    unfold, matrix, product = _unfold(lowering, step, dy)
    if lowering.trains(step, "weight"):
        records += [replace(unfold, direction="backward_weight")]
        records += conv.weight_gradient(lowering, step, product, matrix, dy)
    if lowering.trains(step, "bias"):
        records += conv.bias_gradient(lowering, step, dy)
    target = ledger.targets(step, masks=False)[0]
    if target is None:
        return _named(records)
    of_matrix = GradientTarget(matrix, accumulate=False, clip=0, y=matrix, before=())
    products = conv.input_gradient(lowering, step, product, dy, of_matrix)
    fields = {**unfold.fields, **target.dx.place(X)}
    fold = replace(unfold, kernel=run_fold, tasks=1, direction="backward_input", fields=fields)
    zero = [] if target.accumulate else [zero_record(lowering, step.node, target.dx)]
    return [*_named(records), *target.before, *zero, *_named([*products, fold])]


def _unfold(lowering: Lowering, step: Step, y: View) -> tuple[Record, View, conv.Convolution]:
    """Return the record that fills the matrix, the matrix as an image, and the 1x1 convolution that remains."""
    x, c = lowering.x(step.inputs[0]), conv.convolution_of(lowering, step)
    (kh, kw), (sh, sw), (top, left, _, _) = c.kernel, c.stride, c.padding
    depth, at = kh * kw * c.channels, lowering.buffers.whole(MATRIX).address
    fields: Fields = {
        **x.place(X), **x.size(HEIGHT), MATRIX_AT: at, ROWS: y.height, COLUMNS: y.width, KERNEL_Y: kh, KERNEL_X: kw,
        STRIDE_Y: sh, STRIDE_X: sw, TOP: top, LEFT: left,
    }  # fmt: skip
    matrix = View(at, y.height, y.width, depth, y.width * depth * 4, depth * 4)
    product = conv.Convolution(c.filters, depth, (1, 1), (1, 1), (0, 0, 0, 0), 1)
    return Record(run_unfold, fields, y.height, step.node, "forward", "im2col"), matrix, product


def _named(records: list[Record]) -> list[Record]:
    return [replace(record, name="im2col") for record in records]
