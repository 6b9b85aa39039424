"""Examines one photo: diagnosis, probabilities and diseased area; of several leaves, each of them. Class maps."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from core.data.health import photo_faults
from core.data.photo import MARGINS, SQUARE, PhotoError, halve, place_in_square, square
from core.data.photo_reader import read_photo
from core.diagnosis.boxes import WHOLE, Box
from core.diagnosis.class_map import ClassMapper
from core.diagnosis.features import feature_node
from core.diagnosis.leaf_detector import MARGIN, LeafDetector, choose_leaves, cut_square
from core.diagnosis.model_file import ModelFile
from core.diagnosis.prediction import Diagnosis, LeafDiagnosis, Predictor
from core.diagnosis.segmentation import leaf_box, segment, segment_leaves
from core.diagnosis.severity import Severity
from core.diagnosis.thresholds import COVERAGE
from core.diagnosis.verdict import NO_LEAF, ClassProbability, Prediction, Verdict, count_findings
from core.errors import InputError
from core.ops.contract import Array

CROP_BELOW: Final = 0.55
"""Largest square around a leaf, as a share of the photo's side, that is cut out: in training, leaves are larger."""
LARGE: Final = 2048
"""Shorter side, in pixels, to which larger photos are scaled while they are decoded."""
SEVERAL: Final = 640
"""The same for photos of several leaves, and in the window, where decoding must be fast."""


@dataclass(frozen=True, slots=True, eq=False)
class Examination:
    """The examination of one photo.

    top: the most probable classes; photo: the examined square, uint8 RGB ``(side, side, 3)``; box: y0, x0, y1, x1 of
    it as shares of the whole centred square; regions: estimated number of leaves; faults: of the photo itself, as
    sentences; leaves: diagnoses of several leaves, in the order of `count_findings`. With `leaves`, verdict and
    prediction are the first leaf's, masks are of all leaves, and lesion_leaf, uint8 ``(side, side)``, has for each
    lesion the number of its leaf, from 1, whatever its verdict.
    """

    verdict: Verdict
    top: tuple[ClassProbability, ...]
    prediction: Prediction
    photo: Array
    box: Box
    severity: Severity
    regions: int = 1
    faults: tuple[str, ...] = ()
    leaves: tuple[LeafDiagnosis, ...] = ()
    lesion_leaf: Array | None = None

    @property
    def diseased(self) -> float | None:
        """Diseased percent of the leaf's area, if the verdict is a disease and there is a leaf."""
        return self.severity.percent if self.verdict.is_disease and self.severity.leaf.any() else None

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences with reasons for doubt."""
        notes = list(self.faults)
        if self.regions > 1 and not self.leaves:
            notes.append(f"This photo seems to show {self.regions} leaves; the diagnosis is about the outlined one.")
        return tuple(notes)


class Examiner:
    """A model loaded for examinations, one photo at a time; arguments as of `Predictor`. `close` frees the memory."""

    def __init__(
        self, model: ModelFile, *, device: str = "cpu", threads: int = 0, coverage: float = COVERAGE,
        known_crop: str = "",
    ) -> None:  # fmt: skip
        self.model = model
        self.map_node = feature_node(model.graph)
        self.predictor = Predictor(
            model, device=device, threads=threads, outputs=(self.map_node,) if self.map_node else (),
            coverage=coverage, known_crop=known_crop,
        )  # fmt: skip
        self._open_detector = partial(LeafDetector, device=device, threads=threads)
        self._open_mapper = partial(ClassMapper, model, device=device, threads=threads)
        self._detector: LeafDetector | None = None
        self._mapper: ClassMapper | None = None

    def examine(self, rgb: Array, *, crop: bool = True, leaves: bool = False) -> Examination:
        """Examine a uint8 RGB photo of any size. crop: crop to a small leaf first; leaves: diagnose each of several."""
        if rgb.ndim != 3 or rgb.shape[2] != 3 or not rgb.size or rgb.dtype != np.uint8:
            raise InputError(f"A photo is (height, width, 3) of uint8 in RGB, not {rgb.shape} of {rgb.dtype}.")
        found = (self._examine_leaves(rgb) if leaves else None) or self._examine_photo(rgb, crop)
        return replace(found, faults=photo_faults(rgb))

    def examine_file(
        self, path: str, *, crop: bool = True, leaves: bool = False
    ) -> tuple[Diagnosis, Examination | None]:
        """The diagnosis of one file, and its examination, None if it cannot be read."""
        begin = time.perf_counter()
        try:
            side, part = (SEVERAL, MARGINS) if leaves else (LARGE, SQUARE)
            rgb = read_photo(path, side, 2 * side, part)
            found = self.examine(rgb, crop=crop, leaves=leaves)
        except PhotoError as error:
            return Diagnosis(path, error=str(error)), None
        return Diagnosis(
            path, found.verdict.word, found.top, 1000 * (time.perf_counter() - begin), reason=found.verdict.reason,
            prediction=found.prediction, diseased=found.diseased, notes=found.warnings, leaves=found.leaves,
        ), found

    def map_class(self, rgb: Array, label: str, side: int, box: Box = WHOLE, leaves: Sequence[Box] = ()) -> Array:
        """The class activation map of `label` in the centred square of a uint8 RGB photo, float32 ``(side, side)``.

        box: of the examination; leaves: boxes of its leaves, where there are several. The maximum is 1 unless all
        is 0; outside of the boxes it is 0. Raises InputError where the network has no feature map.
        """
        self._mapper = mapper = self._mapper or self._open_mapper()
        index, whole = self.model.classes.index(label), np.zeros((side, side), np.float32)
        for one, margin in [(leaf, MARGIN) for leaf in leaves] or [(box, 0.0)]:
            photo, place = cut_square(rgb, one, mapper.side, margin)
            own = mapper.map_class(photo, partial(self._compute_features, photo), index)
            whole = np.maximum(whole, place_in_square(own, place, side))
        return whole / max(float(whole.max()), 1e-12)

    def close(self) -> None:
        for loaded in (self.predictor, self._detector, self._mapper):
            if loaded is not None:
                loaded.close()

    def _compute_features(self, photo: Array) -> Array:
        return np.asarray(self.predictor.predict(square(photo, self.model.source_side)[None])[self.map_node or ""][0])

    def _examine_photo(self, rgb: Array, crop: bool) -> Examination:
        photo, severity, box, regions = self._frame(rgb, crop)
        (prediction,) = self.predictor.predict_calibrated(photo[None])
        return self._examine_square(photo, severity, box, regions, prediction)

    def _examine_leaves(self, rgb: Array) -> Examination | None:
        """The photo's diagnosis (`count_findings`) with masks of all leaves; None if fewer than two are found."""
        self._detector = self._detector or self._open_detector()
        found, side = choose_leaves(self._detector.find(rgb), rgb.shape), self.model.source_side
        if len(found) < 2:
            return None
        photos, boxes = zip(*(cut_square(rgb, leaf.box, side) for leaf in found), strict=True)
        with ThreadPoolExecutor(2) as pool:  # segmentation uses one core, the network not always all
            masks = pool.map(segment, photos)
            predictions = self.predictor.predict_calibrated(np.stack(photos), cut=True)
        examined = [(leaf.box, self._examine_square(photo, mask, box, 1, prediction)) for
                    leaf, photo, mask, box, prediction in zip(found, photos, masks, boxes, predictions, strict=True)]
        examined = [(box, one) for box, one in examined if one.verdict.word != NO_LEAF]
        return _join(square(halve(rgb, side), side), examined) if len(examined) > 1 else None

    def _examine_square(
        self, photo: Array, severity: Severity, box: Box, regions: int, prediction: Prediction
    ) -> Examination:
        rule = self.predictor.rule
        verdict = rule.decide(prediction)
        if verdict.word == NO_LEAF:  # there is no leaf to measure or to compare the class map with
            severity, regions = Severity(*np.zeros((2, *photo.shape[:2]), np.bool_)), 0
        return Examination(verdict, rule.list_top(prediction), prediction, photo, box, severity, regions)

    def _frame(self, rgb: Array, crop: bool) -> tuple[Array, Severity, Box, int]:
        """The square to examine, its masks, its box in the whole square, and the number of leaves there."""
        side = self.model.source_side
        photo = square(rgb, side)
        severity, regions = segment_leaves(photo)
        y0, x0, y1, x1 = leaf_box(severity.leaf)
        if not crop or y1 - y0 > CROP_BELOW * side or not severity.leaf.any():
            return photo, severity, WHOLE, regions
        box = (y0 / side, x0 / side, y1 / side, x1 / side)
        part, _ = cut_square(rgb, box, side, 0.0)
        return part, segment(part), box, regions


def _join(photo: Array, leaves: Sequence[tuple[Box, Examination]]) -> Examination:
    ranks = [word for word, _ in count_findings([one.verdict.word for _, one in leaves])]
    leaves = sorted(leaves, key=lambda pair: (ranks.index(pair[1].verdict.word), -pair[1].top[0].probability))
    diagnoses = tuple(LeafDiagnosis(box, one.verdict, one.top, one.prediction,
                                    one.severity.percent if one.severity.leaf.any() else None)
                      for box, one in leaves)  # fmt: skip
    found, side = [one for _, one in leaves], len(photo)
    shape, numbers = np.zeros((side, side), np.bool_), np.zeros((side, side), np.uint8)
    for number, one in sorted(enumerate(found, 1), key=lambda pair: pair[1].verdict.is_disease):  # over the others
        shape |= place_in_square(one.severity.leaf, one.box, side) > 0.5
        numbers[place_in_square(one.severity.lesions, one.box, side) > 0.5] = number
    lesions = np.array([False, *(one.verdict.is_disease for one in found)])[numbers]
    return replace(found[0], photo=photo, box=WHOLE, severity=Severity(shape, lesions), regions=len(found),
                   leaves=diagnoses, lesion_leaf=numbers)  # fmt: skip
