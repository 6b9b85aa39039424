"""Reads a network from an ONNX file, opset 7 or newer. Everything in the file is checked before use."""

from __future__ import annotations

import errno
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from core.errors import ModelFileError
from core.graph import PHOTO, Graph
from core.onnx import layers, reshaping
from core.onnx.importer import NCHW, Importer, OnnxValue, attributes_of, describe, to_array
from core.onnx.metadata import Imported, read_statistics, read_use
from core.ops.builder import MAX_NODES, check, photo_node
from core.ops.contract import Array
from core.program import fold_batch_norm, fold_weights

_WINDOW: Final = ("auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "strides")

RULES: Final[Mapping[str, tuple[layers.Rule, tuple[str, ...]]]] = {
    "Add": (layers.read_add, ()),
    "AveragePool": (layers.read_pool, (*_WINDOW, "count_include_pad")),
    "BatchNormalization": (layers.read_batch_norm, ("epsilon", "momentum", "spatial", "training_mode", "is_test")),
    "Clip": (layers.read_clip, ("min", "max")),
    "Concat": (reshaping.read_concat, ("axis",)),
    "Conv": (layers.read_conv, (*_WINDOW, "group")),
    "Dropout": (layers.read_dropout, ("ratio", "seed", "is_test", "consumed_inputs")),
    "Flatten": (reshaping.read_flatten, ("axis",)),
    "Gemm": (layers.read_gemm, ("alpha", "beta", "transA", "transB")),
    "GlobalAveragePool": (layers.read_average, ()),
    "HardSigmoid": (layers.read_hard_sigmoid, ("alpha", "beta")),
    "HardSwish": (layers.elementwise("hard_swish"), ()),
    "MaxPool": (layers.read_pool, (*_WINDOW, "storage_order")),
    "Mul": (layers.read_multiply, ()),
    "Pad": (reshaping.read_pad, ("mode", "pads", "value")),
    "ReduceMean": (layers.read_average, ("axes", "keepdims", "noop_with_empty_axes")),
    "Relu": (layers.elementwise("relu"), ()),
    "Reshape": (reshaping.read_reshape, ("allowzero",)),
    "Sigmoid": (layers.elementwise("sigmoid"), ()),
    "Softmax": (layers.read_softmax, ("axis",)),
    "Transpose": (reshaping.read_transpose, ("perm",)),
    "Unsqueeze": (reshaping.read_unsqueeze, ("axes",)),
}  # fmt: skip
"""The ops that are supported besides Constant and Identity: the rule that converts each, and its known attributes."""

CONSTANTS: Final = ("value", "value_float", "value_floats", "value_int", "value_ints")
"""Attributes of Constant, of which a node has one."""

OLDEST_OPSET: Final = 7
MAX_BYTES: Final = 1 << 28
"""Largest file that is read, 256 MiB: parsing takes a few times its size."""
IMAGENET: Final = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def read_onnx(
    path: Path, *, mean: tuple[float, ...] = (), std: tuple[float, ...] = (), bgr: bool = False, image_size: int = 0,
    fold: bool = False,
) -> Imported:  # fmt: skip
    """Read the network of an ONNX file up to its logits (a final softmax or sigmoid is dropped).

    mean, std: of photos in 0..1, in RGB order; by default the file's own, or ImageNet's. bgr: the network was trained
    on blue, green, red, so reverse the channels of its first filters. image_size: for files that do not state it.
    fold: fold batch norms into the convolutions before them. Raises ModelFileError with a sentence, whatever the file
    contains.
    """
    try:
        state = path.stat()
        if not stat.S_ISREG(state.st_mode):  # reading a pipe or a device could block
            raise OSError(errno.EINVAL, "not a file")
        if state.st_size > MAX_BYTES:
            raise ModelFileError(f"{path.name} is larger than {MAX_BYTES >> 20} MiB; it is refused.")
        data = path.read_bytes()
    except OSError as error:
        raise ModelFileError(f"{path.name} cannot be read ({error.strerror}).") from error
    try:
        with np.errstate(all="ignore"):  # values that are not finite are rejected at the end
            return _read(data, path.stem, mean, std, bgr, image_size, fold)
    except ModelFileError as error:
        raise ModelFileError(f"{path.name}: {error}") from error
    except (DecodeError, ValueError, TypeError, KeyError, IndexError, OverflowError, UnicodeError) as error:
        raise ModelFileError(f"{path.name} is not a valid ONNX file ({error}).") from error


def _read(
    data: bytes, name: str, mean: tuple[float, ...], std: tuple[float, ...], bgr: bool, image_size: int, fold: bool
) -> Imported:
    model = onnx.ModelProto.FromString(data)
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    importer = Importer(_opset(model), budget=2 * len(data) + (1 << 20))
    _refuse_unknown(model)
    importer.constants |= {tensor.name: to_array(tensor) for tensor in model.graph.initializer}
    statistics = (mean, std) if mean and std else read_statistics(metadata)
    _start(importer, model.graph, statistics or IMAGENET, image_size)
    for node in model.graph.node:
        if not node.output or not node.output[0]:
            raise ModelFileError(f"{describe(node)} has no output.")
        if node.op_type != "Constant" and not node.input:
            raise ModelFileError(f"{describe(node)} has no input.")
        _convert(importer, node)
    graph, last = _finish(importer, model.graph, model.graph.name or name)
    weights = {key: importer.weights[key] for key in graph.parameters()}
    if bgr:
        weights |= _reverse_channels(graph, weights)
    if fold:
        graph, weights = fold_batch_norm(graph), fold_weights(graph, weights)
    for key, array in weights.items():  # damaged or diverged, with which every prediction would be NaN
        if not np.isfinite(array).all():
            raise ModelFileError(f"The weights {key} hold numbers that are not finite. Export the model again.")
    use = read_use(metadata, graph.classes, last == "sigmoid")
    return Imported(graph, weights, preprocessed=statistics is not None, **use)


def _convert(importer: Importer, node: Any) -> None:
    """Add the value that a node of the file computes."""
    output = node.output[0]
    if node.op_type == "Constant":
        attributes = attributes_of(node, CONSTANTS)
        if len(attributes) != 1:
            raise ModelFileError(f"{describe(node)} must have one value.")
        importer.constants[output] = np.asarray(next(iter(attributes.values())))
    elif node.op_type != "Identity":
        rule, known = RULES[node.op_type]
        importer.values[output] = rule(importer, node, attributes_of(node, known))
    elif node.input[0] in importer.constants:
        importer.constants[output] = importer.constants[node.input[0]]
    else:
        importer.values[output] = importer.value(node.input[0])


def _opset(model: Any) -> int:
    versions = [entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")]
    newest = onnx.defs.onnx_opset_version()
    if len(versions) != 1:
        raise ModelFileError("It does not say which version of ONNX it is written in; it may not be an ONNX file.")
    if not OLDEST_OPSET <= versions[0] <= newest:
        raise ModelFileError(f"It is written in opset {versions[0]}; opsets {OLDEST_OPSET} to {newest} are supported.")
    return int(versions[0])


def _refuse_unknown(model: Any) -> None:
    """Reject unknown ops, all in one message."""
    graph = model.graph
    if len(graph.node) > MAX_NODES:
        raise ModelFileError(f"It has {len(graph.node)} nodes; at most {MAX_NODES} are supported.")
    unknown = {n.op_type if n.domain in ("", "ai.onnx") else f"{n.domain}.{n.op_type}" for n in graph.node}
    unknown -= {"Constant", "Identity", *RULES}
    if unknown:
        raise ModelFileError(f"It uses ops that are not supported: {', '.join(sorted(unknown)[:20])}. Only plain "
                             "convolutional networks in floating point are supported.")
    if model.functions or graph.sparse_initializer or graph.quantization_annotation:
        raise ModelFileError("It uses functions, sparse or quantised weights, which are not supported.")


def _start(
    importer: Importer, graph: Any, statistics: tuple[tuple[float, ...], tuple[float, ...]], image_size: int
) -> None:
    inputs = [i for i in graph.input if i.name not in importer.constants]
    if len(inputs) != 1 or not inputs[0].type.HasField("tensor_type"):
        raise ModelFileError(f"It has {len(inputs)} inputs; only networks that take one photo are supported.")
    dims = inputs[0].type.tensor_type.shape.dim
    if len(dims) != 4:
        raise ModelFileError(f"Its input has {len(dims)} axes; a batch of photos has 4.")
    sides = [dim.dim_value if dim.HasField("dim_value") else 0 for dim in dims]
    axes = (0, 2, 3, 1) if sides[3] in (1, 3) and sides[1] not in (1, 3) else NCHW
    importer.batch = sides[0] or 1
    _, channels, height, width = (sides[axes.index(axis)] for axis in NCHW)
    height, width = height or image_size, width or image_size
    if not height or not width:
        raise ModelFileError("It does not state the photo size. Export it again with a fixed height and width.")
    mean, std = statistics
    if channels == 1 and len(mean) == 3:
        mean, std = (sum(mean) / 3,), (sum(std) / 3,)
    importer.nodes[PHOTO] = photo_node((height, width, channels), {"mean": mean, "std": std})
    importer.values[inputs[0].name] = OnnxValue(PHOTO, axes)


def _finish(importer: Importer, graph: Any, name: str) -> tuple[Graph, str]:
    """Return the graph up to its logits: the first output, without a final softmax or sigmoid, and the last op."""
    if not graph.output:
        raise ModelFileError("It has no output.")
    last = importer.value(graph.output[0].name)
    output, op = last.node, importer.nodes[last.node].op
    if op in ("softmax", "sigmoid"):
        output = importer.nodes[output].inputs[0]
    if len(importer.nodes[output].shape) != 1 or last.image is not None:
        shape = importer.nodes[output].shape
        raise ModelFileError(f"Its output has the shape {shape}; only classifiers are supported.")
    return check(importer.graph(name, output)), op


def _reverse_channels(graph: Graph, weights: dict[str, Array]) -> dict[str, Array]:
    """Return the first filters for RGB instead of BGR. Raises ModelFileError if the first op is not a convolution."""
    users = graph.users(PHOTO)
    if any(n.op != "conv2d" or n.attributes["groups"] != 1 or n.parameters[0].shape[-1] != 3 for n in users):
        raise ModelFileError("The order of its colours cannot be changed: its first op is not a convolution.")
    return {f"{n.name}.weight": weights[f"{n.name}.weight"][..., ::-1].copy() for n in users}
