"""Models as ONNX files, checked with onnxruntime."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from core.data.dataset import clean_name
from core.diagnosis import thresholds
from core.diagnosis.calibration import label_thresholds
from core.diagnosis.features import head_node
from core.diagnosis.model_file import MAX_SIDE, ModelFile, floats
from core.diagnosis.prediction import Predictor
from core.diagnosis.thresholds import untested_thresholds
from core.errors import LeafClinicError, ModelFileError
from core.graph import Graph
from core.onnx import read_onnx, runtime, write_onnx
from core.onnx.metadata import CLASS_TEMPERATURES, LABELS, OFFSET, SQUARE, VIEWS
from core.ops.contract import Array
from core.ops.photo import identity_augmentation, transform
from core.program import fold_batch_norm, fold_weights

TOLERANCE: Final = 1e-4
"""Largest difference from onnxruntime's outputs, relative to the largest output if that is above 1."""
CHECKED: Final = 8
"""Noise photos in the check."""


def read_onnx_model(path: Path) -> ModelFile:
    """An ONNX file as a model without thresholds; classes without names get numbers. Raises ModelFileError."""
    found = read_onnx(path, fold=True)
    height, width, channels = found.graph.photo_shape
    if height != width or channels != 3:
        raise ModelFileError(f"{path} takes photos of shape {found.graph.photo_shape}; diagnosis needs square colour "
                             "photos.")
    if not 1 <= (side := found.square or height) <= MAX_SIDE or found.views not in (1, 2):
        raise ModelFileError(f"{path} states photos of {side} pixels and {found.views} views; 1 to {MAX_SIDE} pixels "
                             "and 1 or 2 views are possible.")
    classes = tuple(map(clean_name, found.classes)) or tuple(f"class {number}" for number in range(found.graph.classes))
    limits = replace(untested_thresholds(len(classes)), labels=found.labels).to_section()
    sections = {thresholds.SECTION: limits} if found.labels else {}
    return ModelFile(found.graph, found.weights, classes, side, found.temperature, sections=sections, name=path.stem,
                     views=found.views, class_temperatures=found.class_temperatures,
                     offset=found.offset, multilabel=bool(found.labels))  # fmt: skip


def metadata_of(model: ModelFile) -> dict[str, str]:
    """Metadata besides preprocessing, class names and temperature: the graph predicts one view, so the number of views
    to average is stored here, and temperatures by class and offset if there are any (docs/training.md)."""
    more = {SQUARE: str(model.source_side), VIEWS: str(model.views)}
    if thresholds.SECTION in model.sections:
        more["thresholds"] = json.dumps(model.sections[thresholds.SECTION], ensure_ascii=False)
    if model.class_temperatures:
        more[CLASS_TEMPERATURES] = json.dumps(model.class_temperatures)
    if model.offset:
        more[OFFSET] = repr(model.offset)
    if model.multilabel:
        more[LABELS] = json.dumps(label_thresholds(model).tolist())
    if model.licence:
        more["licence"] = model.licence
    return more


def to_onnx(model: ModelFile) -> bytes:
    """The model in float32 with batch norm folded; for several labels the classifier includes the temperature."""
    graph, weights = fold_batch_norm(model.graph), fold_weights(model.graph, model.weights)
    if model.multilabel:
        head = head_node(graph)
        weights |= {name: weights[name] / np.float32(model.temperature)
                    for name in (f"{head.name}.{parameter.role}" for parameter in head.parameters)}  # fmt: skip
        model = replace(model, temperature=1.0)
    return write_onnx(graph, weights, model.classes, model.temperature, metadata_of(model))


def check_onnx(data: bytes, model: ModelFile) -> tuple[str, float] | None:
    """onnxruntime's version, and the largest difference of its outputs for noise from ours; None if it is not
    installed. Raises LeafClinicError if they differ by more than TOLERANCE."""
    if (version := runtime.version()) is None:
        return None
    squares = _noise(model.size[0])
    theirs = runtime.compute_output(data, prepare(model.graph, squares))
    with closing(Predictor(replace(model, views=1), batch=CHECKED)) as predictor:
        ours = predictor.probabilities(squares) if model.multilabel else predictor.predict(squares)["logits"]
    difference = float(np.abs(ours - theirs).max())
    if not difference <= TOLERANCE * max(1.0, float(np.abs(ours).max())):
        raise LeafClinicError(f"The outputs of onnxruntime {version} differ by {difference:.2g}; nothing was written. "
                              "This is a bug in LeafClinic. Please report it and attach the model.")
    return version, difference


def _noise(side: int) -> Array:
    """Squares of noise, from dark to bright, so that they activate different features."""
    rng = np.random.default_rng(0)
    bright = np.linspace(40, 255, CHECKED).reshape(-1, 1, 1, 1)
    return (rng.random((CHECKED, side, side, 3)) * bright).astype(np.uint8)


def prepare(graph: Graph, squares: Array) -> Array:
    """The network's input ``(N, size, size, C)``: squares uint8, resized and normalised."""
    size, photo = graph.photo_shape[:2], graph.nodes[0].attributes
    augmentation = identity_augmentation(len(squares), squares.shape[1], size[0])
    return transform(squares, augmentation, (size[0], size[1]), floats(photo["mean"]), floats(photo["std"]))
