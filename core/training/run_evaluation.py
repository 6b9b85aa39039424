"""Evaluates the final model of a run on unseen photos, by setting, with caveats."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Final

from core.data.dataset import TEST, VALIDATION
from core.data.loader import Loader
from core.diagnosis import background_dependence, model_file
from core.diagnosis.background_dependence import BackgroundDependence, Baseline, describe_border
from core.diagnosis.calibration import calibrate_logits, describe_error
from core.diagnosis.evaluation import Evaluation, evaluate_rows
from core.diagnosis.metrics import Subset, describe_accuracy, describe_groups, describe_subsets
from core.diagnosis.model_file import CALIBRATION, ModelFile
from core.ops.contract import Array
from core.training.commands import Commands
from core.training.events import Progress, RunEvaluated
from core.training.setup import Setup

TEST_NOTE: Final = "On photos that this run used neither for training nor for choosing the epoch."
VALIDATION_NOTE: Final = (
    "There is no test split. The epoch was chosen on these photos, so this accuracy is slightly too high."
)
GUESS_NOTE: Final = (
    "The network is not clearly better than always predicting the most common class ({percent:.1f} %). Add photos. If "
    "it was trained from scratch, start again from a pretrained model (--from leaves --preset transfer)."
)
UNSEEN: Final = "photos unseen in training"
"""Name of the subset of photos that neither the run nor the pretrained model was trained on."""


@dataclass(frozen=True, slots=True)
class RunEvaluation:
    """The evaluation of a run's final model, and the tests that only a training does.

    split: "test", or "validation" without a test split; result: on the photos of that split and on the user's own field
    photos; baseline: border baseline; reading: background tests. None if not measured.
    """

    split: str
    result: Evaluation
    baseline: Baseline | None = None
    reading: BackgroundDependence | None = None

    @property
    def guessing(self) -> float | None:
        """The share of the most common class or label set, if the network is not clearly better."""
        figures = self.result.figures
        most = max(map(sum, figures.confusion), default=0)  # not counted of several labels
        share = self.baseline.commonest if self.baseline else most / max(figures.photos, 1)
        return share if share and figures.interval[0] <= share else None

    def cautions(self) -> tuple[str, ...]:
        """Sentences on what the accuracy does not show."""
        guess, unseen = "" if self.guessing is None else GUESS_NOTE.format(percent=100 * self.guessing), ""
        if self.result.unseen is not None:
            unseen = f"Without known data leakage: {Subset.whole(UNSEEN, self.result.unseen).describe()}."
        return tuple(filter(None, (unseen, guess, VALIDATION_NOTE if self.split == "validation" else "")))

    def doubts(self) -> tuple[str, ...]:
        """Sentences on the dependence on border and background."""
        reached = Subset.whole(self.split, self.result.figures)
        if self.reading is not None:
            return self.reading.sentences(reached)
        if self.baseline is None:
            return ()
        few = self.result.calibration_error is None
        missing = ("There were too few validation photos to test changed backgrounds." if few else
                   "Changed backgrounds were not tested: no leaf was found in the validation photos.")  # fmt: skip
        return (*describe_border(self.baseline.border, self.baseline.commonest, reached), missing)

    def words(self) -> tuple[str, ...]:
        error = self.result.calibration_error
        stated = "" if error is None else describe_error(error, self.result.chance_error)
        return tuple(filter(None, (*self.verdict(), *self.cautions(), *self.doubts(), stated)))

    def verdict(self) -> tuple[str, ...]:
        """The accuracy, with the accuracy by setting, as sentences."""
        result = self.result
        groups = map(describe_groups, (result.figures, result.field))
        accuracy, parts = describe_accuracy(result.figures, self.split), describe_subsets(result.parts)
        return tuple(filter(None, (accuracy, parts, *groups)))

    def to_event(self) -> RunEvaluated:
        whole = Subset.whole(self.split, self.result.figures)
        return RunEvaluated(
            split=self.split,
            parts=tuple((p.name, p.photos, p.right) for p in (whole, *self.result.parts)),
            **{name: getattr(self.baseline, name, None) for name in ("border", "commonest")},
            **{name: getattr(self.reading, name, None) for name in ("plain", "blurred", "swapped")},
            words=self.words(),
        )

    def write_into(self, model: ModelFile) -> ModelFile:
        """The model with these metrics, for its card."""
        result, figures, on = self.result, self.result.figures, self.split
        reached = {f"{on}_photos": float(figures.photos), f"{on}_accuracy": figures.accuracy,
                   f"{on}_macro_f1": figures.macro_f1, f"{on}_loss": figures.loss}  # fmt: skip
        if result.field is not None:
            reached |= {"field_photos": float(result.field.photos), "field_accuracy": result.field.accuracy}
        if self.baseline is not None:
            reached["border_accuracy"] = self.baseline.border
        unseen = () if result.unseen is None else (Subset.whole(UNSEEN, result.unseen),)
        section = {
            "note": " ".join(filter(None, (TEST_NOTE if on == "test" else VALIDATION_NOTE, describe_groups(figures)))),
            "parts": [part.to_row() for part in (Subset.whole("all", figures), *unseen, *result.parts)],
            "macro_f1": figures.macro_f1,
            **({"average_precision": figures.several.average_precision} if figures.several else {}),
            "classes": [
                {"name": c.label, "photos": c.photos, "right": c.recall, "interval": list(c.recall_interval),
                 "predicted": c.predicted, "precision": c.precision, "f1": c.f1}
                for c in figures.occurring
            ],
        }  # fmt: skip
        sections = {**model.sections, model_file.TEST: section}
        return replace(model, figures={**model.figures, **reached}, sections=sections)


def evaluate_run(setup: Setup, model: ModelFile, baseline: Baseline | None) -> Generator[Progress, None, RunEvaluation]:
    """Evaluate a completed model on the test split (else on validation) and on the user's own field photos."""
    loader, split = (setup.validation, "validation") if setup.test is None else (setup.test, "test")
    logits = yield from _predict(setup, split, model, loader)
    field, calibration = None, model.sections.get(CALIBRATION, {})
    if setup.field is not None and setup.field_photos is not None:
        field_logits = yield from _predict(setup, "field", model, setup.field)
        field = evaluate_rows(field_logits, setup.field_photos, setup.field_photos.cache.kept, model).figures
    photos, rows = setup.photos, evaluated_rows(setup)
    new = setup.learned.unseen(photos.cache.content, photos.groups, rows)
    result = replace(
        evaluate_rows(logits, photos, rows, model, new), name=f"{split} photos", field=field,
        calibration_error=calibration.get("error"), chance_error=calibration.get("chance", 0.0),
    )
    reading = BackgroundDependence.from_section(model.sections.get(background_dependence.SECTION))
    return RunEvaluation(split, result, baseline, reading)


def evaluated_rows(setup: Setup) -> Array:
    return setup.photos.rows(VALIDATION if setup.test is None else TEST)


def _predict(setup: Setup, stage: str, model: ModelFile, loader: Loader) -> Generator[Progress, None, Array]:
    """Calibrated logits ``(N, classes)``."""
    never = Commands()  # stopping now would only lose the report
    logits = yield from setup.validator.predict(stage, model.weights, loader, never)
    assert logits is not None
    return calibrate_logits(model, logits)

