"""Arrays of an ONNX file. Sizes are checked against the bytes in the file."""

from __future__ import annotations

from math import prod
from typing import Any, Final

import numpy as np
import onnx
from onnx import numpy_helper

from core.errors import ModelFileError
from core.ops.contract import Array

READ: Final = {
    onnx.TensorProto.FLOAT: 4,
    onnx.TensorProto.FLOAT16: 2,
    onnx.TensorProto.DOUBLE: 8,
    onnx.TensorProto.INT32: 4,
    onnx.TensorProto.INT64: 8,
}
"""Kinds of numbers that are read, and their bytes."""

MAX_DIMENSIONS: Final = 8


def to_array(tensor: Any) -> Array:
    """A TensorProto as an array of its own kind. Raises ModelFileError."""
    name = tensor.name or "a constant"
    if tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.external_data:
        raise ModelFileError(f"The values of {name} are in another file, which is not supported.")
    if tensor.data_type not in READ:
        raise ModelFileError(f"The values of {name} are of type {tensor.data_type}, which is not supported.")
    dims = list(tensor.dims)
    if len(dims) > MAX_DIMENSIONS or any(d < 0 for d in dims):
        raise ModelFileError(f"{name} has the invalid shape {dims[:MAX_DIMENSIONS]}.")
    if prod(dims) != _count(tensor):
        raise ModelFileError(f"{name} states {prod(dims)} values and has {_count(tensor)}.")
    try:
        return np.asarray(numpy_helper.to_array(tensor))
    except (TypeError, ValueError) as error:
        raise ModelFileError(f"The values of {name} cannot be read ({error}).") from error


def _count(tensor: Any) -> int:
    """Numbers that are really in the file."""
    if tensor.HasField("raw_data"):
        return len(tensor.raw_data) // READ[tensor.data_type]
    kinds = {
        onnx.TensorProto.FLOAT: tensor.float_data,
        onnx.TensorProto.DOUBLE: tensor.double_data,
        onnx.TensorProto.INT64: tensor.int64_data,
    }
    return len(kinds.get(tensor.data_type, tensor.int32_data))


def to_ints(array: Array | None, name: str) -> tuple[int, ...]:
    """A list of whole numbers, such as a shape or pads. Raises ModelFileError."""
    if array is None or array.ndim > 1 or array.size > MAX_DIMENSIONS or array.dtype.kind != "i":
        raise ModelFileError(f"{name} must be a constant list of a few whole numbers.")
    return tuple(int(v) for v in array.ravel())


def to_number(array: Array | None, name: str) -> float:
    """One number. Raises ModelFileError."""
    if array is None or array.size != 1:
        raise ModelFileError(f"{name} must be one constant number.")
    return float(array.ravel()[0])
