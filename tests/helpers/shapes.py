"""The shared list of odd cases, and the float64 answer to each: every kernel is held against these.

Names in `given`: ``x`` (further inputs ``x2``, ``x3`` ...), ``labels``, ``dy`` (gradient of the output, after
the activation), and the parameters by role (``weight``, ``bias``, ``running_mean`` ...). Names in
`wanted`: ``out``, ``dx`` (``dx2`` ...), ``dweight``, ``dbias``, and new running statistics by role.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from core.graph import LABEL, PHOTO, Node
from core.ops.activation import ACTIVATIONS
from core.ops.builder import make_node
from core.ops.contract import Array, Mode
from core.ops.network import compute_case
from core.ops.op_table import LOSSES, OPS
from core.ops.registry import KernelCase, numbered
from tests.helpers.noise import integers, noise

MODE = Mode(training=True, seed=7, step=3, photo0=2)
"""What all cases run with, unless a test asks for inference."""

KINK = 1e-3
"""Where an output lies this close to a bend of its activation, ``dy`` is 0: rounding must not decide."""


WIDE = {"relu6", "hard_sigmoid", "hard_swish", "silu"}
"""Activations that are seen from one end to the other by inputs of a larger variance."""

BENDS = {"relu": (0.0,), "relu6": (0.0, 6.0), "hard_sigmoid": (-3.0, 3.0), "hard_swish": (-3.0, 3.0)}
"""Where the derivatives of activations jump."""


@dataclass(frozen=True)
class Problem:
    """Float32 arrays a kernel is given, and the float64 arrays it should produce."""

    case: KernelCase
    given: Mapping[str, Array]
    wanted: Mapping[str, Array]


def case(op, *inputs, batch=2, activation="", precision="float32", **attributes):
    node = _node(op, inputs, attributes)
    return KernelCase(op, node.attributes, tuple(inputs), node.shape, batch, activation, precision)


def cases(op):
    assert op in _CASES, f"tests/helpers/shapes.py needs cases of {op}"
    return _CASES[op]


def label(case):
    defaults = OPS[case.op].defaults
    chosen = [f"{k}={v}" for k, v in case.attributes.items() if v != defaults[k]]
    inputs = "+".join("x".join(map(str, s)) for s in case.inputs)
    return f"{case.batch}x{inputs} {' '.join([*chosen, case.activation])}".strip().replace(", ", ",")


def solve(case, seed=0, mode=MODE):
    """Random arrays for a case, and the reference's answer in float64."""
    given = arrays(case, seed)
    if case.activation:
        before = compute(replace(case, activation=""), given, np.float64, mode)["out"]
        given["dy"] = smooth_gradient(case, before, given["dy"])
    return Problem(case, given, compute(case, given, np.float64, mode))


def compute(case, given, dtype, mode=MODE):
    """Forward and backward of the reference in one dtype: names as in `Problem.wanted`."""
    own = {k: v if k == "labels" else v.astype(dtype) for k, v in given.items()}
    return compute_case(case, own, mode)


def smooth_gradient(case, before, dy):
    """`dy`, but 0 where the value before the activation lies on a bend of it."""
    bends = BENDS.get(case.activation, ())
    away = [np.abs(before - bend) > KINK * np.abs(before).max() for bend in bends]
    return np.where(np.all(away, axis=0), dy, 0).astype(dy.dtype) if bends else dy


def arrays(case, seed=0):
    """Float32 inputs, parameters and ``dy`` of a case: evenly spread, of variance 1 (parameters 1 / fan-in)."""
    name = f"{case.op} {label(case)} {seed}"

    def draw(what, shape, spread=1.0):
        return noise(f"{name} {what}", shape) * (spread * 3**0.5)

    given = {}
    for i, shape in enumerate(case.inputs):
        x = draw(f"x{i}", (case.batch, *shape), 5.0 if {case.op, case.activation} & WIDE else 1.0)
        # Pools see equal values side by side, as after a ReLU: the tie must go to the first.
        given[numbered("x", i)] = np.maximum(x, -0.5) if case.op == "max_pool" else x
    for p in _node(case.op, case.inputs, case.attributes).parameters:
        drawn = draw(p.role, p.shape, max(p.fan_in, 1) ** -0.5)
        given[p.role] = 1 + drawn / 2 if p.role == "running_var" else drawn
    out = (case.batch, *case.output)
    given["dy"] = np.ones(out) if case.op in LOSSES else draw("dy", out)
    made = {k: np.ascontiguousarray(v, np.float32) for k, v in given.items()}
    if case.op in LOSSES:
        made["labels"] = integers(f"{name} labels", case.batch, -1, case.inputs[0][0])
        made["labels"][0] = case.inputs[0][0] - 1
    if case.attributes.get("targets"):
        drawn = np.exp(2 * noise(f"{name} targets", (case.batch, *case.inputs[0])))
        made["targets"] = (drawn / drawn.sum(-1, keepdims=True)).astype(np.float32)
    if case.op == "sigmoid_cross_entropy":
        made["targets"] = np.clip(2 * noise(f"{name} labels of photos", made["x"].shape), 0, 1).astype(np.float32)
    return made


def _node(op, inputs, attributes):
    known = {PHOTO: Node(PHOTO, "photo", (), (1, 1, 1))}
    known |= {f"x{i}": Node(f"x{i}", "photo", (), tuple(s)) for i, s in enumerate(inputs)}
    extra = (LABEL,) if op in LOSSES else ()
    names = (*(f"x{i}" for i in range(len(inputs))), *extra)
    return make_node(op, "node", names, MappingProxyType(dict(attributes)), known)


def _conv2d(inputs, filters, kernel, **more):
    return case("conv2d", inputs, filters=filters, kernel=kernel, **more)


def _spatial(op, **fixed):
    """Windows that pools and depthwise convolutions share."""
    return (case(op, (7, 11, 5), kernel=(3, 3), stride=(2, 2), **fixed),
            case(op, (8, 8, 16), kernel=(3, 3), stride=(1, 1), padding=(1, 1, 1, 1), **fixed),
            case(op, (13, 13, 17), kernel=(3, 3), stride=(2, 2), padding=(0, 0, 1, 1), batch=3, **fixed),
            case(op, (9, 10, 3), kernel=(2, 5), stride=(3, 1), padding=(1, 2, 0, 4), **fixed),
            case(op, (10, 7, 4), kernel=(1, 2), stride=(3, 4), **fixed),
            case(op, (1, 1, 1), kernel=(1, 1), stride=(1, 1), batch=1, **fixed),
            case(op, (1, 1, 3), kernel=(3, 3), stride=(2, 2), padding=(1, 1, 1, 1), batch=1, **fixed),
            case(op, (5, 6, 33), kernel=(5, 6), stride=(1, 1), batch=1, **fixed))  # fmt: skip


def _pools(op):
    ceil = (case(op, (14, 14, 6), kernel=(3, 3), stride=(2, 2), ceil_mode=True),
            case(op, (13, 12, 8), kernel=(3, 3), stride=(2, 2), ceil_mode=True, batch=1),
            case(op, (5, 7, 2), kernel=(2, 2), stride=(3, 3), padding=(1, 1, 1, 1), ceil_mode=True),
            case(op, (11, 10, 7), kernel=(5, 4), stride=(4, 3), padding=(2, 1, 0, 3), ceil_mode=True, batch=3))
    return (*_spatial(op), *ceil)


def _elementwise(op, **fixed):
    shapes = (((5, 7, 3), 2), ((1, 1, 1), 1), ((13, 13, 32), 3), ((11,), 4))
    return tuple(case(op, shape, batch=batch, **fixed) for shape, batch in shapes)


_CASES = {
    "conv2d": (
        _conv2d((19, 23, 3), 16, (7, 7), stride=(2, 2), activation="relu"),
        _conv2d((31, 29, 3), 24, (3, 3), stride=(2, 2), activation="relu", batch=3),
        _conv2d((13, 13, 16), 8, (1, 1), activation="relu"),
        _conv2d((14, 14, 16), 32, (3, 3), padding=(1, 1, 1, 1), activation="relu"),
        _conv2d((14, 14, 16), 32, (3, 3), padding=(1, 1, 1, 1)), _conv2d((7, 5, 13), 11, (1, 1)),
        _conv2d((7, 5, 13), 11, (3, 3), padding=(1, 1, 1, 1), activation="relu6"),
        _conv2d((1, 1, 5), 7, (1, 1), batch=1), _conv2d((1, 1, 3), 4, (3, 3), padding=(1, 1, 1, 1), batch=1),
        _conv2d((11, 13, 1), 1, (5, 5), batch=1),
        _conv2d((28, 28, 1), 8, (5, 5), padding=(4, 4, 4, 4), activation="relu"),
        _conv2d((28, 28, 8), 8, (5, 5), padding=(2, 2, 2, 2), batch=1), _conv2d((9, 11, 6), 10, (1, 1), stride=(2, 2)),
        _conv2d((10, 11, 4), 5, (2, 2), stride=(3, 5)), _conv2d((8, 8, 3), 4, (3, 3), stride=(4, 4), batch=5),
        _conv2d((13, 12, 3), 8, (3, 3), stride=(2, 2), padding=(0, 0, 1, 1), activation="relu6"),
        _conv2d((6, 9, 5), 3, (4, 3), padding=(3, 0, 1, 2)), _conv2d((9, 8, 4), 6, (1, 7), padding=(0, 3, 0, 3)),
        _conv2d((9, 8, 4), 6, (7, 1), padding=(3, 0, 3, 0)), _conv2d((6, 7, 3), 5, (6, 7), batch=3),
        _conv2d((9, 9, 8), 12, (3, 3), padding=(1, 1, 1, 1), groups=4, activation="relu"),
        _conv2d((8, 7, 6), 6, (3, 3), groups=6, stride=(2, 1)), _conv2d((8, 8, 10), 4, (1, 1), groups=2, bias=False),
        _conv2d((7, 9, 48), 80, (3, 2), padding=(1, 0, 1, 1), stride=(2, 1), groups=2, activation="relu"),
        _conv2d((6, 5, 64), 64, (3, 3), padding=(1, 1, 1, 1), groups=16, bias=False),
        _conv2d((7, 7, 65), 130, (1, 1), bias=False),
        _conv2d((6, 6, 64), 48, (3, 3), padding=(1, 1, 1, 1), bias=False, activation="relu"),
        # The last layer of the first SqueezeNet (Caffe): windows that see padding only, and so give the bias.
        _conv2d((13, 13, 24), 10, (1, 1), padding=(1, 1, 1, 1), activation="relu"),
        _conv2d((5, 4, 3), 7, (2, 2), stride=(2, 1), padding=(3, 2, 2, 4), batch=1),
    ),
    "depthwise_conv2d": (
        *_spatial("depthwise_conv2d"),
        case("depthwise_conv2d", (12, 12, 32), kernel=(3, 3), padding=(1, 1, 1, 1), bias=False, activation="relu6"),
        case("depthwise_conv2d", (14, 15, 24), kernel=(3, 3), stride=(2, 2), padding=(0, 0, 1, 1), activation="relu6"),
        case("depthwise_conv2d", (9, 9, 7), kernel=(5, 5), padding=(4, 4, 4, 4), activation="relu", batch=1),
    ),
    "max_pool": _pools("max_pool"),
    "avg_pool": (
        *_pools("avg_pool"),
        case("avg_pool", (9, 8, 5), kernel=(3, 3), stride=(2, 2), padding=(1, 1, 1, 1), count_include_pad=False),
        case("avg_pool", (5, 7, 2), kernel=(2, 3), stride=(3, 2), padding=(1, 2, 1, 0), ceil_mode=True,
             count_include_pad=False),
    ),
    "global_avg_pool": tuple(
        case("global_avg_pool", shape, batch=batch)
        for shape, batch in (((13, 13, 10), 2), ((1, 1, 3), 1), ((7, 11, 37), 3), ((5, 1, 1), 1))
    ),
    "dense": (
        case("dense", (37,), units=10), case("dense", (128,), units=64, activation="relu", batch=5),
        case("dense", (1,), units=1, batch=1), case("dense", (500,), units=10, bias=False, batch=33),
        case("dense", (3,), units=131, batch=1, activation="relu6"),
    ),
    **{op: _elementwise(op) for op in ACTIVATIONS},
    "softmax": (*_elementwise("softmax"), case("softmax", (1000,), batch=3)),
    "softmax_cross_entropy": (
        case("softmax_cross_entropy", (10,), batch=8), case("softmax_cross_entropy", (1,), batch=1),
        case("softmax_cross_entropy", (1000,), batch=2, label_smoothing=0.1),
        case("softmax_cross_entropy", (3,), batch=33, class_weights=(1.0, 0.25, 3.0)),
        case("softmax_cross_entropy", (5,), batch=7, label_smoothing=0.2, class_weights=(1.0, 2.0, 0.0, 0.5, 4.0)),
        case("softmax_cross_entropy", (7,), batch=5, targets=True),
        case("softmax_cross_entropy", (1,), batch=1, targets=True),
        case("softmax_cross_entropy", (131,), batch=3, targets=True),
        case("softmax_cross_entropy", (3,), batch=33, targets=True, class_weights=(1.0, 0.25, 3.0)),
    ),
    "sigmoid_cross_entropy": (
        case("sigmoid_cross_entropy", (6,), batch=9), case("sigmoid_cross_entropy", (1,), batch=1),
        case("sigmoid_cross_entropy", (131,), batch=3),
    ),
    "concat": (
        case("concat", (5, 7, 3), (5, 7, 4)), case("concat", (1, 1, 1), (1, 1, 1), (1, 1, 1), batch=1),
        case("concat", (13, 13, 16), (13, 13, 48), batch=3), case("concat", (6,), (5,)),
    ),
    "add": (
        case("add", (5, 7, 3), (5, 7, 3)), case("add", (1, 1, 1), (1, 1, 1), batch=1),
        case("add", (8, 8, 24), (8, 8, 24), batch=3, activation="relu6"), case("add", (11,), (11,)),
    ),
    "multiply": (
        case("multiply", (5, 7, 3), (3,)), case("multiply", (1, 1, 1), (1,), batch=1),
        case("multiply", (13, 13, 72), (72,), batch=3),
    ),
    "batch_norm": (
        case("batch_norm", (7, 5, 13), batch=3), case("batch_norm", (13, 13, 32), batch=4, activation="relu"),
        case("batch_norm", (8, 8, 6), activation="relu6", epsilon=1e-3, momentum=0.01),
        case("batch_norm", (5, 5, 1), batch=1), case("batch_norm", (6, 7, 9), frozen=True, activation="relu"),
        case("batch_norm", (11,), batch=16),
    ),
    "dropout": (
        *_elementwise("dropout"), case("dropout", (13, 13, 64), rate=0.2, key=3), case("dropout", (100,), rate=0.0),
        case("dropout", (33,), rate=0.9, batch=1, key=1),
    ),
    "flatten": (case("flatten", (5, 7, 3)), case("flatten", (1, 1, 1), batch=1), case("flatten", (11,))),
}  # fmt: skip
