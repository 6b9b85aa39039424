"""Rules for ONNX ops that only move data: most of them fold into the nodes around them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from core.errors import ModelFileError
from core.onnx.importer import NCHW, Attributes, Importer, OnnxValue, describe, to_ints, to_number
from core.ops.contract import volume

MAX_PENDING_PAD: Final = 1 << 12
"""Largest padding, pixels."""


def read_concat(importer: Importer, node: Any, attributes: Attributes) -> OnnxValue:
    """To concat, along the channels."""
    axis, values = attributes.get("axis", 1), [importer.value(name) for name in node.input]
    same = {v.axes for v in values}
    if len(same) != 1 or any(any(v.pad) or v.image for v in values):
        raise ModelFileError(f"{describe(node)} concatenates tensors of different layouts, which is not supported.")
    axes = same.pop()
    if not -len(axes) <= axis < len(axes) or axes[axis] != 1:
        raise ModelFileError(f"{describe(node)} does not concatenate channels, which is not supported.")
    name = importer.add("concat", node, tuple(v.node for v in values))
    return OnnxValue(name, axes)


def read_flatten(importer: Importer, node: Any, attributes: Attributes) -> OnnxValue:
    """To flatten, with the file's order of features remembered."""
    if attributes.get("axis", 1) != 1:
        raise ModelFileError(f"{describe(node)} flattens along another axis than 1, which is not supported.")
    return _to_features(importer, node, 2)


def read_reshape(importer: Importer, node: Any, attributes: Attributes) -> OnnxValue:
    """A flattening written as Reshape."""
    shape = to_ints(importer.constant(node, 1), f"The shape of {describe(node)}")
    features = importer.shape(importer.value(node.input[0]))
    first, second = (*shape, 0, 0)[:2]
    kept = first in (0, -1, importer.batch) and not (0 in shape and attributes.get("allowzero", 0))
    whole = second in (-1, volume(features)) or (second == 0 and len(features) == 1)
    if len(shape) < 2 or any(side != 1 for side in shape[2:]) or not kept or not whole:
        raise ModelFileError(f"{describe(node)} to {shape} is not a flattening, which is all that is supported.")
    return _to_features(importer, node, len(shape))


def read_unsqueeze(importer: Importer, node: Any, attributes: Attributes) -> OnnxValue:
    """(N, C) as (N, C, 1, 1), which is (N, C) here."""
    axes = importer.integers(node, attributes, "axes")
    if axes not in ((2, 3), (-2, -1)) or len(importer.shape(importer.value(node.input[0]))) != 1:
        raise ModelFileError(f"{describe(node)} at {axes} is not features as an image of one pixel, which is all that "
                             "is supported.")
    return _to_features(importer, node, 4)


def _to_features(importer: Importer, node: Any, axes: int) -> OnnxValue:
    x = importer.unpadded(node.input[0], node.op_type)
    shape = importer.shape(x)
    if len(shape) == 1:
        return replace(x, axes=NCHW[:axes])
    if x.axes not in (NCHW, (0, 2, 3, 1)):
        raise ModelFileError(f"A Transpose before {node.op_type} cannot be folded.")
    ordered = x.axes != NCHW or shape[0] * shape[1] == 1
    name = importer.add("flatten", node, (x.node,))
    return OnnxValue(name, NCHW[:axes], image=None if ordered else shape)


def read_transpose(importer: Importer, node: Any, attributes: Attributes) -> OnnxValue:
    """Record the order of axes: the node folds where a later node restores it, or flattens."""
    order = tuple(attributes.get("perm", (3, 2, 1, 0)))
    x = importer.value(node.input[0])
    if sorted(order) != [0, 1, 2, 3] or order[0] != 0 or len(importer.shape(x)) != 3 or any(x.pad):
        raise ModelFileError(f"{describe(node)} by {order} cannot be folded.")
    return replace(x, axes=tuple(x.axes[i] for i in order))


def read_pad(importer: Importer, node: Any, attributes: Attributes) -> OnnxValue:
    """Record the padding, which the next Conv takes over."""
    pads, filler = importer.integers(node, attributes, "pads"), importer.constant(node, 2)
    value = float(attributes.get("value", 0.0)) if filler is None else to_number(filler, "value")
    x = importer.image(node.input[0], "Pad", pad=True)
    plain = attributes.get("mode", b"constant") == b"constant" and value == 0 and importer.constant(node, 3) is None
    if not plain or len(pads) != 8 or any((*pads[:2], *pads[4:6])) or not all(0 <= p < MAX_PENDING_PAD for p in pads):
        raise ModelFileError(f"{describe(node)} is not a border of zeros around an image.")
    frame = (pads[2], pads[3], pads[6], pads[7])
    top, left, bottom, right = (min(a + b, MAX_PENDING_PAD) for a, b in zip(x.pad, frame, strict=True))
    return replace(x, pad=(top, left, bottom, right))
