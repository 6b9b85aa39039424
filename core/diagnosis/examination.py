"""Everything about one photo: which disease, how sure, where, how much of the leaf, or why there is no answer.

Photos that show several leaves get a diagnosis for each leaf (`core.diagnosis.leaves`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, final

import numpy as np

from core.data.photo import MARGINS, SQUARE, PhotoError, square
from core.data.photo_reader import read_photo
from core.diagnosis.calibration import state_probabilities
from core.diagnosis.class_map import class_map, enlarge
from core.diagnosis.familiarity import familiarity, read_statistics
from core.diagnosis.features import feature_node, pool
from core.diagnosis.leaf_detector import LeafDetector
from core.diagnosis.leaves import choose_leaves, diagnose_leaves
from core.diagnosis.model_file import ModelFile
from core.diagnosis.photo_faults import photo_faults
from core.diagnosis.prediction import ClassProbability, Diagnosis, LeafDiagnosis, Predictor, list_top
from core.diagnosis.segmentation import leaf_box, segment, segment_leaves
from core.diagnosis.severity import Severity
from core.diagnosis.verdict import COVERAGE, NO_LEAF, SECTION, Thresholds, Verdict, decide_verdict
from core.ops.contract import Array

CROP_BELOW: Final = 0.55
"""The photo is cut to the leaf where the leaf's square has at most this part of the photo's side: training photos
show leaves larger than that."""
LARGE: Final = 2048
"""Photos of twice this shorter side or more are scaled to it while they are decoded."""
SEVERAL: Final = 640
"""The same where each of several leaves is diagnosed, and in the window, where decoding must be fast."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Examination:
    """What was found on one photo.

    top: likeliest classes with calibrated probabilities, and probabilities ``(classes,)`` of all; photo: the square
    that was looked at, uint8 RGB ``(side, side, 3)``; box: y0, x0, y1, x1 of it in the whole centred square, as
    shares 0..1; heats: where each of `top` is seen, 0..1 ``(side, side)``, none where the network has no feature map;
    severity: masks and percentage; regions: how many leaves there seem to be in the photo; faults: what is wrong with
    the photo itself, as sentences; leaves: diagnoses of its leaves where these were asked for and there are several,
    the worst first. Verdict, probabilities and familiarity are then the first leaf's; maps and severity are empty.
    """

    verdict: Verdict
    top: tuple[ClassProbability, ...]
    probabilities: Array
    photo: Array
    box: tuple[float, float, float, float]
    severity: Severity
    heats: tuple[Array, ...]
    familiarity: float
    milliseconds: float
    regions: int = 1
    faults: tuple[str, ...] = ()
    leaves: tuple[LeafDiagnosis, ...] = ()

    @property
    def heat(self) -> Array | None:
        """Where the likeliest class is seen, or None."""
        return self.heats[0] if self.heats else None

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences about what makes the answer doubtful."""
        notes = list(self.faults)
        if self.regions > 1 and not self.leaves:
            notes.append(f"This photo seems to show {self.regions} leaves; the diagnosis is about the outlined one.")
        return tuple(notes)


@final
class Examiner:
    """A model loaded for examinations, one photo at a time. Close it to give the memory back."""

    def __init__(self, model: ModelFile, *, device: str = "cpu", threads: int = 0) -> None:
        self.model = model
        self.map_node = feature_node(model.graph)
        self.predictor = Predictor(
            model, device=device, threads=threads, outputs=(self.map_node,) if self.map_node else ()
        )
        self.thresholds = Thresholds.from_section(model.sections.get(SECTION, {}), len(model.classes))
        self.statistics = read_statistics(model.extra)
        self._open_detector = partial(LeafDetector, device=device, threads=threads)
        self._detector: LeafDetector | None = None

    def examine(
        self, rgb: Array, *, crop: bool = True, leaves: bool = False, coverage: float = COVERAGE
    ) -> Examination:
        """Examine a uint8 RGB photo of any size.

        `crop`: cut to a small leaf first; `leaves`: diagnose each leaf where there are several; `coverage`: the slider,
        0..1.
        """
        begin = time.perf_counter()
        if leaves and len(each := self._diagnose_leaves(rgb, coverage)) > 1:
            return self._join(rgb, each, begin)
        photo, severity, box, regions = self._frame(rgb, crop)
        outputs = self.predictor.predict(photo[None])
        logits = outputs["logits"]
        probabilities = state_probabilities(self.model, logits)[0]
        top = list_top(probabilities, self.thresholds, self.model.classes)
        features = outputs[self.map_node] if self.map_node else None
        familiar = self._familiarity(logits, features)
        verdict = decide_verdict(probabilities, familiar, self.thresholds, self.model.classes, coverage)
        heats = self._maps(features, top, photo.shape[0])
        if verdict.word == NO_LEAF:  # nothing to measure, and nothing for the evidence to lie beside
            severity, regions = Severity(*np.zeros((2, *photo.shape[:2]), np.bool_)), 0
        milliseconds = 1000 * (time.perf_counter() - begin)
        return Examination(
            verdict, top, probabilities, photo, box, severity, heats, familiar, milliseconds,
            regions, photo_faults(rgb),
        )  # fmt: skip

    def diagnose(self, paths: Iterable[str], *, crop: bool = True, coverage: float = COVERAGE) -> Iterator[Diagnosis]:
        """One examination per photo file, in words and numbers; a photo that cannot be read says why."""
        for path in paths:
            yield self.examine_file(path, crop=crop, coverage=coverage)[0]

    def examine_file(
        self, path: str, *, crop: bool = True, leaves: bool = False, coverage: float = COVERAGE
    ) -> tuple[Diagnosis, Examination | None]:
        """The same for one file, with all that was found; None where it cannot be read."""
        begin = time.perf_counter()
        try:
            side, part = (SEVERAL, MARGINS) if leaves else (LARGE, SQUARE)
            rgb = read_photo(path, side, 2 * side, part)
            found = self.examine(rgb, crop=crop, leaves=leaves, coverage=coverage)
        except PhotoError as error:
            return Diagnosis(path, error=str(error)), None
        severity = found.severity
        measured = found.verdict.is_disease and severity.leaf.any()
        milliseconds = 1000 * (time.perf_counter() - begin)
        return Diagnosis(
            path, found.verdict.word, found.top, milliseconds, reason=found.verdict.reason,
            diseased=severity.percent if measured else None,
            grade=severity.grade if measured else None,
            notes=found.warnings, leaves=found.leaves,
        ), found

    def close(self) -> None:
        self.predictor.close()
        if self._detector is not None:
            self._detector.close()

    def _diagnose_leaves(self, rgb: Array, coverage: float) -> list[LeafDiagnosis]:
        """The diagnosis of each leaf of a whole photo, the worst first; none where there is one leaf at most."""
        self._detector = self._detector or self._open_detector()
        found = choose_leaves(self._detector.find(rgb))
        return diagnose_leaves(self.predictor, self.thresholds, rgb, found, coverage) if len(found) > 1 else []

    def _join(self, rgb: Array, leaves: Sequence[LeafDiagnosis], begin: float) -> Examination:
        """The examination of a photo with several leaves; its verdict is the worst finding."""
        photo, worst = square(rgb, self.model.source_side), leaves[0]
        nothing = np.zeros(photo.shape[:2], np.bool_)
        return Examination(
            worst.verdict, worst.top, worst.prediction.probabilities, photo, (0.0, 0.0, 1.0, 1.0),
            Severity(nothing, nothing), (), worst.prediction.familiar,
            1000 * (time.perf_counter() - begin), len(leaves), photo_faults(rgb), tuple(leaves),
        )  # fmt: skip

    def _frame(self, rgb: Array, crop: bool) -> tuple[Array, Severity, tuple[float, float, float, float], int]:
        """The square to look at, its masks, where it is in the whole square, and how many leaves that shows."""
        side = self.model.source_side
        photo = square(rgb, side)
        severity, regions = segment_leaves(photo)
        y0, x0, y1, x1 = leaf_box(severity.leaf)
        if not crop or y1 - y0 > CROP_BELOW * side or not severity.leaf.any():
            return photo, severity, (0.0, 0.0, 1.0, 1.0), regions
        box = (y0 / side, x0 / side, y1 / side, x1 / side)
        short = min(rgb.shape[:2])
        whole = square(rgb, short)
        a, b, c, d = (round(v * short) for v in box)
        part = square(whole[a:c, b:d], side)
        return part, segment(part), box, regions

    def _maps(self, features: Array | None, top: Sequence[ClassProbability], side: int) -> tuple[Array, ...]:
        """The maps of the classes `top`."""
        if features is None:
            return ()
        classes = [self.model.classes.index(guess.label) for guess in top]
        raw = [class_map(self.model.graph, self.model.weights, features[0], index) for index in classes]
        return tuple(enlarge(heat, side) for heat in raw)

    def _familiarity(self, logits: Array, features: Array | None) -> float:
        if self.thresholds is None:
            return 0.0
        pooled = None if features is None else pool(features)
        score = self.thresholds.score
        return float(familiarity(score, logits, pooled, self.statistics, self.model.temperature)[0])
