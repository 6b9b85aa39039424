"""Products by their definition: plain loops over pixels, filters and taps, with bounds checked at every tap.

A dense layer is a convolution whose window is its whole input; a depthwise convolution has a group for every channel.
"""

from __future__ import annotations

from math import prod

from core.cpu.activation import activate, number_of
from core.cpu.geometry import View, window_of
from core.cpu.gradients import Ledger
from core.cpu.lowering import Lowering, zero_record
from core.cpu.memory import floats, words
from core.cpu.records import NULL, Fields, Record
from core.program import Step

# Record. X is the input and Y the output, in backward their gradients; their ROW and PIXEL are pitches in bytes.
X, X_ROW, X_PIXEL, HEIGHT, WIDTH = range(1, 6)
Y, Y_ROW, Y_PIXEL, ROWS, COLUMNS, FILTERS = range(6, 12)
KERNEL_Y, KERNEL_X, STRIDE_Y, STRIDE_X, TOP, LEFT, GROUPS, DEPTH = range(12, 20)
"""The window; groups, and input channels of one group."""
WEIGHT, BIAS = 20, 21
"""Filters OHWI and biases, or the sums of their gradients; 0 for none."""
GROUP_STEP, FILTER_STEP, TAP_STEP = 22, 23, 24
"""Strides of the filters' gradient in bytes: of groups, of filters in a group, and of floats in a filter."""
ACTIVATION = 25


def run_forward(record: int, context: int, image: int, low: int, high: int) -> None:
    """Convolve an image (HEIGHT, WIDTH, GROUPS x DEPTH) to (ROWS, COLUMNS, FILTERS). Tasks are output rows."""
    w = words(record)
    depth, per_group = w[DEPTH], w[FILTERS] // w[GROUPS]
    filter_size = w[KERNEL_Y] * w[KERNEL_X] * depth
    for oy in range(low, high):
        for ox in range(w[COLUMNS]):
            out = floats(w[Y] + oy * w[Y_ROW] + ox * w[Y_PIXEL], w[FILTERS])
            for o in range(w[FILTERS]):
                weight = floats(w[WEIGHT] + o * filter_size * 4, filter_size)
                out[o] = floats(w[BIAS] + o * 4, 1)[0] if w[BIAS] else 0
                for i in range(w[KERNEL_Y]):
                    for j in range(w[KERNEL_X]):
                        y, x = oy * w[STRIDE_Y] + i - w[TOP], ox * w[STRIDE_X] + j - w[LEFT]
                        if 0 <= y < w[HEIGHT] and 0 <= x < w[WIDTH]:
                            seen = floats(w[X] + y * w[X_ROW] + x * w[X_PIXEL] + o // per_group * depth * 4, depth)
                            for c in range(depth):
                                out[o] += seen[c] * weight[(i * w[KERNEL_X] + j) * depth + c]
            activate(w[ACTIVATION], w[Y] + oy * w[Y_ROW] + ox * w[Y_PIXEL], w[Y_PIXEL], 1, w[FILTERS])


def run_input_gradient(record: int, context: int, image: int, low: int, high: int) -> None:
    """Add to the gradient. One task."""
    w = words(record)
    depth, per_group = w[DEPTH], w[FILTERS] // w[GROUPS]
    filter_size = w[KERNEL_Y] * w[KERNEL_X] * depth
    for oy in range(w[ROWS]):
        for ox in range(w[COLUMNS]):
            dy = floats(w[Y] + oy * w[Y_ROW] + ox * w[Y_PIXEL], w[FILTERS])
            for o in range(w[FILTERS]):
                weight = floats(w[WEIGHT] + o * filter_size * 4, filter_size)
                for i in range(w[KERNEL_Y]):
                    for j in range(w[KERNEL_X]):
                        y, x = oy * w[STRIDE_Y] + i - w[TOP], ox * w[STRIDE_X] + j - w[LEFT]
                        if 0 <= y < w[HEIGHT] and 0 <= x < w[WIDTH]:
                            dx = floats(w[X] + y * w[X_ROW] + x * w[X_PIXEL] + o // per_group * depth * 4, depth)
                            for c in range(depth):
                                dx[c] += dy[o] * weight[(i * w[KERNEL_X] + j) * depth + c]


def run_weight_gradient(record: int, context: int, image: int, low: int, high: int) -> None:
    """Add to the gradient. One task."""
    w = words(record)
    depth, per_group = w[DEPTH], w[FILTERS] // w[GROUPS]
    for oy in range(w[ROWS]):
        for ox in range(w[COLUMNS]):
            dy = floats(w[Y] + oy * w[Y_ROW] + ox * w[Y_PIXEL], w[FILTERS])
            for o in range(w[FILTERS] if w[WEIGHT] else 0):
                start = w[WEIGHT] + o // per_group * w[GROUP_STEP] + o % per_group * w[FILTER_STEP]
                for i in range(w[KERNEL_Y]):
                    for j in range(w[KERNEL_X]):
                        y, x = oy * w[STRIDE_Y] + i - w[TOP], ox * w[STRIDE_X] + j - w[LEFT]
                        if 0 <= y < w[HEIGHT] and 0 <= x < w[WIDTH]:
                            seen = floats(w[X] + y * w[X_ROW] + x * w[X_PIXEL] + o // per_group * depth * 4, depth)
                            for c in range(depth):
                                tap = (i * w[KERNEL_X] + j) * depth + c
                                floats(start + tap * w[TAP_STEP], 1)[0] += dy[o] * seen[c]
            for o in range(w[FILTERS] if w[BIAS] else 0):
                floats(w[BIAS] + o * 4, 1)[0] += dy[o]


def write_forward(lowering: Lowering, step: Step) -> list[Record]:
    x, y = lowering.x(step.inputs[0]), lowering.x(step.output)
    fields = _fields(lowering, step, x, y) | {
        WEIGHT: lowering.parameter(step, "weight"), BIAS: lowering.parameter(step, "bias"),
        ACTIVATION: number_of(step.activation, step.node),
    }  # fmt: skip
    return [Record(run_forward, fields, y.height, step.node, "forward", "naive")]


def write_backward(lowering: Lowering, step: Step, ledger: Ledger) -> list[Record]:
    x, dy, records = lowering.x(step.inputs[0]), lowering.d(step.output), list[Record]()
    trained = {role: lowering.private(step, role) for role in ("weight", "bias") if lowering.trains(step, role)}
    if trained:
        fields = _fields(lowering, step, x, dy) | _gradient_steps(step)
        fields |= {WEIGHT: trained.get("weight", NULL), BIAS: trained.get("bias", NULL)}
        records.append(Record(run_weight_gradient, fields, 1, step.node, "backward_weight", "naive"))
    target = ledger.targets(step, masks=False)[0]
    if target is None:
        return records
    fields = _fields(lowering, step, target.dx, dy) | {WEIGHT: lowering.parameter(step, "weight")}
    records += [*target.before, *([] if target.accumulate else [zero_record(lowering, step.node, target.dx)])]
    return [*records, Record(run_input_gradient, fields, 1, step.node, "backward_input", "naive")]


def _fields(lowering: Lowering, step: Step, x: View, y: View) -> Fields:
    (kh, kw), (sh, sw), (top, left, _, _) = window_of(step, lowering.buffers.image(step.inputs[0]))
    groups = count_groups(step)
    return {
        **x.place(X), HEIGHT: x.height, WIDTH: x.width, **y.place(Y), **y.size(ROWS),
        KERNEL_Y: kh, KERNEL_X: kw, STRIDE_Y: sh, STRIDE_X: sw, TOP: top, LEFT: left, GROUPS: groups,
        DEPTH: x.channels // groups,
    }  # fmt: skip


def count_groups(step: Step) -> int:
    if step.op == "depthwise_conv2d":
        return step.output.shape[-1]
    return int(step.attributes.get("groups", 1))  # type: ignore[arg-type]


def _gradient_steps(step: Step) -> Fields:
    """Return the strides of a thread's filter gradient: (group, tap, filter), if depthwise (tap, filter)."""
    shape = next(p.shape for p in step.parameters if p.role == "weight")
    if step.op == "depthwise_conv2d":
        return {GROUP_STEP: 4, FILTER_STEP: 0, TAP_STEP: 4 * shape[0]}
    width, taps = shape[0] // count_groups(step), prod(shape[1:])
    return {GROUP_STEP: 4 * taps * width, FILTER_STEP: 4, TAP_STEP: 4 * width}
