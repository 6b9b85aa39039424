"""A model as an ONNX file for other programs, in float32 or in eight bits, held against onnxruntime."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, final

import numpy as np

from core.data.augment import evaluation_rows
from core.diagnosis import verdict
from core.diagnosis.completion import Labelled, some_per_class
from core.diagnosis.model_file import ModelFile
from core.diagnosis.prediction import Predictor
from core.errors import LeafClinicError
from core.graph import PHOTO, Graph
from core.onnx import Quantised, write_onnx
from core.onnx.quantisation import Range, quantise, simulate, stored_tensors, without_dropout
from core.ops.contract import Array, volume
from core.ops.photo import transform
from core.program import fold_batch_norm, fold_weights

TOLERANCE: Final = 1e-4
"""Largest difference of logits to onnxruntime's, of the largest logit where that is above 1."""
CHECKED: Final = 8
"""Photos of noise that the check looks at."""
CALIBRATION: Final = 256
"""Training photos whose ranges are measured, as many of each class as there are."""
CHUNK: Final = 16
MOST_VALUES: Final = 1 << 27
"""Values of all tensors of a chunk that are held at once while ranges are measured (512 MB)."""
THRESHOLDS: Final = "thresholds"
SQUARE: Final = "square"
LICENCE: Final = "licence"

ReportProgress = Callable[[int, int], None]


@final
@dataclass(frozen=True, slots=True)
class Check:
    """What onnxruntime said: its version, and the largest difference of a logit."""

    version: str
    difference: float


@final
@dataclass(frozen=True, slots=True)
class Loss:
    """Share of validation photos right in float32 and in eight bits, and how many answers changed."""

    photos: int
    float32: float
    int8: float
    changed: int


def for_inference(model: ModelFile) -> ModelFile:
    """The same answers with batch norm folded and dropout left out."""
    graph = without_dropout(fold_batch_norm(model.graph))
    return replace(model, graph=graph, weights=fold_weights(model.graph, model.weights))


def metadata_of(model: ModelFile) -> dict[str, str]:
    """What a file carries besides preprocessing, class names and temperature."""
    more = {SQUARE: str(model.source_side)}
    if verdict.SECTION in model.sections:
        more[THRESHOLDS] = json.dumps(model.sections[verdict.SECTION], ensure_ascii=False)
    if model.licence:
        more[LICENCE] = model.licence
    return more


def to_onnx(model: ModelFile) -> bytes:
    """The model in float32, batch norm folded."""
    graph, weights = fold_batch_norm(model.graph), fold_weights(model.graph, model.weights)
    return write_onnx(graph, weights, model.classes, model.temperature, metadata_of(model))


def run_onnx(data: bytes, inputs: Array) -> tuple[str, Array] | None:
    """onnxruntime's version and logits of normalised photos ``(N, H, W, C)``, None where it is not installed."""
    try:
        import onnxruntime  # optional: only for the check
    except ImportError:
        return None
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    logits = session.run(None, {PHOTO: np.ascontiguousarray(inputs.transpose(0, 3, 1, 2))})[0]
    return str(onnxruntime.__version__), np.asarray(logits)


def check_onnx(data: bytes, model: ModelFile) -> Check | None:
    """Hold a float32 file against our own logits on photos of noise; None where onnxruntime is not installed.

    Raises LeafClinicError where they differ by more than `TOLERANCE`.
    """
    squares = _noise(CHECKED, model.size[0])
    answer = run_onnx(data, prepare(model.graph, squares))
    if answer is None:
        return None
    predictor = Predictor(model, batch=CHECKED)
    try:
        ours = predictor.predict(squares)["logits"]
    finally:
        predictor.close()
    version, theirs = answer
    difference = float(np.abs(ours - theirs).max())
    if not difference <= TOLERANCE * max(1.0, float(np.abs(ours).max())):
        raise LeafClinicError(f"onnxruntime {version} answers differently by {difference:.2g}; nothing was written. "
                              "This is a fault of the program: please report it with the model.")
    return Check(version, difference)


def _noise(count: int, side: int) -> Array:
    """Squares of noise, from dark to bright: every one excites other features."""
    rng = np.random.default_rng(0)
    bright = np.linspace(40, 255, count).reshape(-1, 1, 1, 1)
    return (rng.random((count, side, side, 3)) * bright).astype(np.uint8)


def prepare(graph: Graph, squares: Array) -> Array:
    """Normalised photos ``(N, size, size, C)`` of squares uint8, as they enter the network."""
    size, photo = graph.photo_shape[:2], graph.nodes[0].attributes
    rows = evaluation_rows(len(squares), squares.shape[1], size[0])
    return transform(squares, rows, (size[0], size[1]), _floats(photo["mean"]), _floats(photo["std"]))


def quantise_model(
    model: ModelFile, train: Labelled, *, seed: int = 0, threads: int = 0, report: ReportProgress | None = None
) -> Quantised:
    """The model in eight bits, with ranges measured on training photos."""
    model = for_inference(model)
    each = -(-CALIBRATION // len(model.classes))
    few = train.take(some_per_class(train.labels, each, seed))
    ranges = measure_ranges(model, few.photos, threads, report)
    return quantise(model.graph, model.weights, ranges)


def measure_ranges(
    model: ModelFile, photos: Array, threads: int = 0, report: ReportProgress | None = None
) -> dict[str, Range]:
    """Least and largest value of every stored tensor: the mean over photos of each photo's extremes, so that one
    odd photo does not coarsen all others."""
    names = [name for name in stored_tensors(model.graph) if name != PHOTO]
    values = sum(volume(model.graph.node(name).shape) for name in names)
    chunk = max(1, min(CHUNK, MOST_VALUES // values))
    low, high = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0.0)
    predictor = Predictor(replace(model, sections={}), batch=chunk, threads=threads, outputs=names)
    try:
        for first in range(0, len(photos), chunk):
            outputs = predictor.predict(np.asarray(photos[first : first + chunk]))
            for name in names:
                flat = outputs[name].reshape(len(outputs[name]), -1)
                low[name] += float(flat.min(axis=1).sum())
                high[name] += float(flat.max(axis=1).sum())
            if report is not None:
                report(min(first + chunk, len(photos)), len(photos))
    finally:
        predictor.close()
    return {name: (low[name] / len(photos), high[name] / len(photos)) for name in names}


def measure_loss(
    quantised: Quantised, model: ModelFile, validation: Labelled, *, threads: int = 0,
    report: ReportProgress | None = None,
) -> Loss:  # fmt: skip
    """Both forms on the validation photos. Eight bits are simulated by the references, so that the figure does not
    depend on the runtime or processor of this machine."""
    predictor = Predictor(model, batch=CHUNK, threads=threads)
    right = np.zeros(2, np.int64)
    changed, total = 0, len(validation.labels)
    try:
        for first in range(0, total, CHUNK):
            part = slice(first, first + CHUNK)
            squares = np.asarray(validation.photos[part])
            exact = predictor.predict(squares)["logits"].argmax(axis=1)
            coarse = simulate(quantised, prepare(quantised.graph, squares)).argmax(axis=1)
            right += (exact == validation.labels[part]).sum(), (coarse == validation.labels[part]).sum()
            changed += int((exact != coarse).sum())
            if report is not None:
                report(min(first + CHUNK, total), total)
    finally:
        predictor.close()
    return Loss(total, float(right[0] / total), float(right[1] / total), changed)


def agreement(data: bytes, quantised: Quantised, squares: Array) -> tuple[str, int] | None:
    """onnxruntime's version, and on how many squares its top answer is the simulation's; None: not installed."""
    inputs = prepare(quantised.graph, squares)
    answer = run_onnx(data, inputs)
    if answer is None:
        return None
    return answer[0], int((answer[1].argmax(axis=1) == simulate(quantised, inputs).argmax(axis=1)).sum())


def loss_metadata(loss: Loss) -> Mapping[str, str]:
    """The measured loss, for the file itself."""
    figures: dict[str, Any] = {"validation_photos": loss.photos, "float32_accuracy": loss.float32,
                               "int8_accuracy": loss.int8, "changed_answers": loss.changed}
    return {"int8": json.dumps(figures)}


def _floats(value: Any) -> tuple[float, ...]:
    return tuple(float(v) for v in value)
