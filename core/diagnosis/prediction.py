"""Runs a model on a device and turns its outputs into predictions and diagnoses of photos."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from core.data.map_ahead import map_ahead
from core.data.photo import PhotoError
from core.data.photo_reader import READERS, read_photo
from core.device import PhotoBatch, Plan
from core.diagnosis.boxes import Box
from core.diagnosis.calibration import state_probabilities
from core.diagnosis.context_features import read_context
from core.diagnosis.familiarity import read_familiarity
from core.diagnosis.features import find_nodes
from core.diagnosis.known_crop import find_crop
from core.diagnosis.model_file import ModelFile, read_model
from core.diagnosis.severity import grade
from core.diagnosis.thresholds import COVERAGE
from core.diagnosis.verdict import ClassProbability, DecisionRule, Prediction, Verdict
from core.errors import ModelFileError
from core.ops.contract import Array
from core.plan import compile_plan
from core.program import fold_batch_norm, fold_weights


@dataclass(frozen=True, slots=True, eq=False)
class LeafDiagnosis:
    """The diagnosis of one of several leaves of a photo. lesions: percent of the leaf's area, None without a mask."""

    box: Box
    verdict: Verdict
    top: tuple[ClassProbability, ...]
    prediction: Prediction
    lesions: float | None = None

    @property
    def diseased(self) -> float | None:
        """Diseased percent of the leaf's area, where the verdict is a disease."""
        return self.lesions if self.verdict.is_disease else None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The diagnosis of one photo: the verdict and the most likely classes, or why it could not be read.

    milliseconds: for reading, decoding and the photo's share of its batch; reason: why the verdict is not a class;
    prediction: what the verdict follows from. Only an examination sets the rest: diseased: percent of the leaf's area;
    notes: reasons for doubt; leaves: where there are several, in the order of `count_findings`.
    """

    path: str
    verdict: str = ""
    top: tuple[ClassProbability, ...] = ()
    milliseconds: float = 0.0
    error: str = ""
    reason: str = ""
    prediction: Prediction | None = None
    diseased: float | None = None
    notes: tuple[str, ...] = ()
    leaves: tuple[LeafDiagnosis, ...] = ()

    @property
    def grade(self) -> int | None:
        return None if self.diseased is None else grade(self.diseased)


class Predictor:
    """A model loaded on a device. `batch` is the largest batch; `close` frees the memory. coverage, known_crop: of the
    `DecisionRule`; predictions for a known crop are among its classes only. Threads that share it wait for each other.

    All predictions of a model are made here, so that they average the views that the model needs.
    """

    def __init__(
        self, model: ModelFile, *, device: str = "cpu", batch: int = 1, threads: int = 0, outputs: Sequence[str] = (),
        coverage: float = COVERAGE, known_crop: str = "",
    ) -> None:  # fmt: skip
        self.model, self.batch = model, batch
        self._decoders, self._turn = threads or READERS.most, threading.Lock()
        self.rule = DecisionRule(model.classes, model.thresholds, coverage, find_crop(model.classes, known_crop))
        self.nodes, self._familiarity = find_nodes(model.graph), read_familiarity(model)
        outputs = tuple(dict.fromkeys((*outputs, *self._familiarity.needed(self.nodes))))
        self.plan: Plan = compile_plan(
            fold_batch_norm(model.graph), device=device, batch=batch * model.views, threads=threads, outputs=outputs
        )
        self.plan.load(fold_weights(model.graph, model.weights))
        self.predict(np.zeros((1, *model.size, 3), np.uint8))  # what is compiled or captured once, before a photo comes

    def predict(self, photos: Array, views: int = 0) -> dict[str, Array]:
        """Compute the outputs by name for photos uint8 ``(N, side, side, 3)``, such as "logits" ``(N, classes)``.

        The temperature is not applied. Any side works; `model.source_side` is that of training. Outputs are the mean
        over the views, by default the model's. Raises ModelFileError where one is not finite.
        """
        views = views or self.model.views
        batch = self.batch * self.model.views // views
        parts = [self._predict(photos[first : first + batch], views) for first in range(0, max(len(photos), 1), batch)]
        return parts[0] if len(parts) == 1 else {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}

    def probabilities(self, photos: Array) -> Array:
        """Calibrated probabilities, float64 ``(N, classes)``."""
        return state_probabilities(self.model, self.predict(photos)["logits"])

    def diagnose(self, paths: Iterable[str]) -> Iterator[Diagnosis]:
        """Yield one diagnosis per photo file, in order; `error` is set for a photo that cannot be read."""
        ahead = max(self.batch, self._decoders)
        with closing(map_ahead(self._read, paths, self._decoders, ahead)) as read:
            while chunk := list(itertools.islice(read, self.batch)):
                yield from self._diagnose(chunk)

    def close(self) -> None:
        self.plan.close()

    def _predict(self, photos: Array, views: int) -> dict[str, Array]:
        shown = np.ascontiguousarray(make_views(photos, views))
        with self._turn:  # a plan has memory for one batch
            outputs = self.plan.predict(PhotoBatch.plain(shown, self.model.size[0]))
        averaged = {name: average_views(output, views) for name, output in outputs.items()}
        if not all(np.isfinite(output).all() for output in averaged.values()):
            raise ModelFileError("The model's outputs are not finite numbers, so its file is damaged or its training "
                                 "diverged. Use another model.")  # fmt: skip
        return averaged

    def _read(self, path: str) -> tuple[Diagnosis, Array | None]:
        """A photo with its path and time, or with its error."""
        begin = time.perf_counter()
        try:
            photo = read_photo(path, self.model.source_side)
        except PhotoError as error:
            return Diagnosis(path, error=str(error)), None
        return Diagnosis(path, milliseconds=1000 * (time.perf_counter() - begin)), photo

    def _diagnose(self, read: Sequence[tuple[Diagnosis, Array | None]]) -> Iterator[Diagnosis]:
        photos = [photo for _, photo in read if photo is not None]
        begin = time.perf_counter()
        predictions = iter(self.predict_calibrated(np.stack(photos)) if photos else ())
        share = 1000 * (time.perf_counter() - begin) / max(len(photos), 1)
        for item, photo in read:
            if photo is None:
                yield item
                continue
            prediction = next(predictions)
            verdict, top = self.rule.decide(prediction), self.rule.list_top(prediction)
            yield replace(item, verdict=verdict.word, top=top, milliseconds=item.milliseconds + share,
                          reason=verdict.reason, prediction=prediction)  # fmt: skip

    def predict_calibrated(self, photos: Array, cut: bool = False) -> list[Prediction]:
        """Predictions for photos uint8 ``(N, side, side, 3)``. cut: they are leaves cut from photos of several. One
        view is enough for these: on composed photos the mirror image improved nothing."""
        seen = self.nodes.summarize(self.predict(photos, 1 if cut else 0))
        stated = state_probabilities(self.model, seen.logits)
        known, familiar = self.rule.restrict(stated, self._familiarity.measure(seen, cut))
        return list(map(Prediction, known, familiar.tolist()))


def make_views(photos: Array, views: int) -> Array:
    """Photos ``(N, height, width, 3)``, each followed by its mirror image where there are two views."""
    if views == 1:
        return photos
    return np.stack((photos, photos[:, :, ::-1]), axis=1).reshape(-1, *photos.shape[1:])


def average_views(outputs: Array, views: int) -> Array:
    """Outputs ``(N * views, ...)`` for what `make_views` gave, averaged: ``(N, ...)``.

    Maps ``(N * views, height, width, channels)`` of mirror images are mirrored back first. A leaf has no left and
    right, so both views show the same; their mean errs less than either, and takes back what strides shift.
    """
    if views == 1:
        return outputs
    mirrored = outputs[1::2, :, ::-1] if outputs.ndim == 4 else outputs[1::2]
    with np.errstate(over="ignore"):  # of a damaged model, whose outputs are then refused
        return np.asarray((outputs[0::2] + mirrored) / 2)


def read_network(path: Path) -> ModelFile:
    """A model file, a run folder, or an ONNX file, which has no thresholds. Raises ModelFileError."""
    if path.suffix.lower() != ".onnx":
        return read_model(path)
    from core.diagnosis.onnx_model import read_onnx_model  # imports onnx

    return read_onnx_model(path)


def load_engine() -> None:
    """Import the CPU engine, and load the kernels of every prediction if they are compiled."""
    import core.cpu.plan  # noqa: F401 - imports Numba
    from core.cpu.precompilation import OF_EVERY_PREDICTION, are_compiled, compile_kernel

    if are_compiled(OF_EVERY_PREDICTION):
        for name in OF_EVERY_PREDICTION:
            compile_kernel(name)


def compile_ahead(model: ModelFile, report: Callable[[int, int], None]) -> None:
    """Compile the CPU kernels of this model and of segmentation; `report(done, total)` unless all are cached."""
    from core.cpu.precompilation import are_compiled, compile_kernels, prediction_kernels  # imports Numba

    graphs = fold_batch_norm(model.graph), read_context()[0]
    names = tuple(dict.fromkeys(name for graph in graphs for name in prediction_kernels(graph)))
    compile_kernels(names, (lambda done, total: None) if are_compiled(names) else report)
