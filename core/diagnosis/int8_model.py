"""8-bit models: activation ranges from training photos, and the loss of accuracy on validation photos."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from core.data.dataset import ReportProgress, ignore
from core.diagnosis.completion import LabelledPhotos, sample_per_class
from core.diagnosis.model_file import ModelFile
from core.diagnosis.onnx_model import prepare
from core.diagnosis.prediction import Predictor, average_views, make_views
from core.graph import PHOTO
from core.onnx import Quantised, runtime
from core.onnx.quantisation import Range, quantise, simulate, stored_tensors, without_dropout
from core.ops.contract import Array, volume
from core.program import fold_batch_norm, fold_weights

CALIBRATION: Final = 256
"""Training photos that ranges are measured on, evenly from all classes."""
CHUNK: Final = 16
MOST_VALUES: Final = 1 << 27
"""Largest number of values of all tensors of a chunk (512 MB)."""


@dataclass(frozen=True, slots=True)
class QuantisationLoss:
    """Shares of validation photos predicted correctly in float32 and 8 bits; changed: number of changed predictions."""

    photos: int
    float32: float
    int8: float
    changed: int


def quantise_model(
    model: ModelFile, train: LabelledPhotos, *, seed: int = 0, threads: int = 0, report: ReportProgress = ignore
) -> Quantised:
    graph = without_dropout(fold_batch_norm(model.graph))
    model = replace(model, graph=graph, weights=fold_weights(model.graph, model.weights))
    each = -(-CALIBRATION // len(model.classes))
    few = train.take(sample_per_class(train.labels, each, seed))
    ranges = measure_ranges(model, few.photos, threads, report)
    return quantise(model.graph, model.weights, ranges)


def measure_ranges(
    model: ModelFile, photos: Array, threads: int = 0, report: ReportProgress = ignore
) -> dict[str, Range]:
    """Minimum and maximum of every stored tensor over all views of all photos.

    Clipping costs more accuracy than coarse steps: for the first shipped model the mean divergence (KL) from float32
    was 0.00025 with these extremes, 0.00108 with means over photos, 0.0047 with 99.95 % quantiles.
    """
    names = [name for name in stored_tensors(model.graph) if name != PHOTO]
    values = sum(volume(model.graph.node(name).shape) for name in names)
    chunk = max(1, min(CHUNK, MOST_VALUES // (values * model.views)))
    low, high = dict.fromkeys(names, np.inf), dict.fromkeys(names, -np.inf)
    one_view = replace(model, sections={}, views=1)
    with closing(Predictor(one_view, batch=chunk, threads=threads, outputs=names)) as predictor:
        for first in range(0, len(photos), chunk):
            outputs = predictor.predict(make_views(np.asarray(photos[first : first + chunk]), model.views))
            for name in names:
                low[name] = min(low[name], float(outputs[name].min()))
                high[name] = max(high[name], float(outputs[name].max()))
            report(min(first + chunk, len(photos)), len(photos))
    return {name: (low[name], high[name]) for name in names}


def measure_quantisation_loss(
    quantised: Quantised, model: ModelFile, validation: LabelledPhotos, *, threads: int = 0,
    report: ReportProgress = ignore,
) -> QuantisationLoss:  # fmt: skip
    """Compare both on all views of the validation photos; the reference ops simulate 8 bits on any processor."""
    right = np.zeros(2, np.int64)
    changed, total = 0, len(validation.labels)
    with closing(Predictor(model, batch=CHUNK, threads=threads)) as predictor:
        for first in range(0, total, CHUNK):
            part = slice(first, first + CHUNK)
            squares = np.asarray(validation.photos[part])
            exact = predictor.predict(squares)["logits"].argmax(axis=1)
            shown = prepare(quantised.graph, make_views(squares, model.views))
            coarse = average_views(simulate(quantised, shown), model.views).argmax(axis=1)
            right += (exact == validation.labels[part]).sum(), (coarse == validation.labels[part]).sum()
            changed += int((exact != coarse).sum())
            report(min(first + CHUNK, total), total)
    return QuantisationLoss(total, float(right[0] / total), float(right[1] / total), changed)


def agreement(data: bytes, quantised: Quantised, squares: Array) -> tuple[str, int] | None:
    """onnxruntime's version, and on how many squares it predicts as the simulation; None if it is not installed."""
    if (version := runtime.version()) is None:
        return None
    inputs = prepare(quantised.graph, squares)
    theirs = runtime.compute_output(data, inputs)
    return version, int((theirs.argmax(axis=1) == simulate(quantised, inputs).argmax(axis=1)).sum())
