"""Knowledge distillation: teachers predict each batch, and the student is trained on their probabilities.

The teachers get the same augmented photos as the student (Beyer et al., "Knowledge distillation: a good teacher is
patient and consistent", 2022). A target is ``(1 - share) * label + share * mean of the teachers' probabilities``;
labels are smoothed or mixed as without teachers, probabilities are those of logits over the temperature.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from core.config import RunConfig
from core.data.label_sets import LabelSets, target_table
from core.device import PhotoBatch, Plan
from core.diagnosis.metrics import sigmoid, softmax
from core.diagnosis.model_file import ModelFile, read_model, with_photo_side
from core.diagnosis.model_identity import find_model, model_name
from core.diagnosis.training_photos import describe_overlap, measure_overlap
from core.errors import ModelFileError
from core.graph import Graph
from core.ops.contract import Array
from core.plan import compile_plan
from core.program import fold_batch_norm, fold_weights
from core.training.step import pair_with_next, split_batch


@dataclass(frozen=True, slots=True, eq=False)
class Teacher:
    """A teacher. graph: for photos of the size in training; digest: SHA-256 of the model file."""

    path: Path
    model: ModelFile
    graph: Graph
    digest: str

    @property
    def name(self) -> str:
        return model_name(self.path)


def read_teachers(config: RunConfig) -> tuple[Teacher, ...]:
    """Read the files in `config.teacher`. Raises ModelFileError if one is not a model or does not take these photos."""
    return tuple(_read(find_model(Path(name).absolute()), config.image_size) for name in config.teacher)


def _read(path: Path, side: int) -> Teacher:
    model = read_model(path)
    if model.graph.photo_shape[2] != 3:
        raise ModelFileError(f"{path} takes grey photos; a teacher must take colour photos.")
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Teacher(path, model, with_photo_side(model.graph, side), digest)


def describe_teachers(
    teachers: Sequence[Teacher], share: float, fingerprint: str, evaluated: Sequence[tuple[str, Array]]
) -> tuple[str, ...]:
    """Sentences about the teachers, and whether the metrics are too optimistic because of them.

    fingerprint: of the photos and their split; evaluated: kind and content of the photos on which the run is evaluated,
    compared with the training photos of the teachers.
    """
    if not teachers:
        return ()
    notes = [f"Teachers: {_listed(teachers)}. Their predictions have weight {100 * share:.0f} % in the training "
            "targets; the labels have the rest."]  # fmt: skip
    others = []
    for teacher in teachers:
        learned = teacher.model.learned
        overlap = measure_overlap(learned, evaluated)
        if any(part.learned for part in overlap or ()):
            notes += describe_overlap(teacher.name, learned, overlap)
        elif teacher.model.data_hash != fingerprint and not (learned and learned.whole):
            others.append(teacher)
    if others:
        notes.append(f"{_listed(others)} was trained on other photos or another split. If it was trained on validation "
                    "or test photos of this run, the measured accuracy is too high.")  # fmt: skip
    return tuple(notes)


def _listed(teachers: Sequence[Teacher]) -> str:
    return ", ".join(teacher.name for teacher in teachers)


def order_classes(teacher: Teacher, classes: Sequence[str]) -> Array:
    """Index of each class among the teacher's, by name. Raises ModelFileError if one is missing."""
    known = teacher.model.classes
    unknown = [name for name in classes if name not in known]
    if unknown:
        raise ModelFileError(
            f"{teacher.path} cannot be a teacher for these photos: it does not know the "
            f"{'class' if len(unknown) == 1 else 'classes'} {', '.join(unknown)}. It knows {', '.join(known)}."
        )
    return np.array([known.index(name) for name in classes])


class Teachers:
    """The teachers of a run on its device, each with an inference plan in the run's precision and the student's batch.

    Raises ModelFileError if one lacks a class, and the errors of `compile_plan`.
    """

    def __init__(
        self, read: Sequence[Teacher], config: RunConfig, classes: Sequence[str], device: str, batch: int,
        sets: LabelSets | None = None,
    ) -> None:  # fmt: skip
        self._read, self._share = tuple(read), config.teacher_share
        self._targets = target_table(len(classes), config.label_smoothing, sets)
        self._orders = [order_classes(teacher, classes) for teacher in read]
        self._state = softmax if sets is None else sigmoid
        self.plans: list[Plan] = []
        for teacher in read:
            plan = compile_plan(
                fold_batch_norm(teacher.graph), device=device, batch=batch, precision=config.precision,
                algorithm=config.algorithm, threads=config.threads, verify=config.verify,
            )
            plan.load(fold_weights(teacher.graph, teacher.model.weights))
            self.plans.append(plan)

    @property
    def digests(self) -> tuple[str, ...]:
        return tuple(teacher.digest for teacher in self._read)

    @property
    def names(self) -> str:
        return _listed(self._read)

    def borrow_photos(self, student: Plan) -> None:
        for plan in self.plans:
            plan.borrow_photos(student)

    def add_targets(self, batch: PhotoBatch, following: PhotoBatch | None = None) -> PhotoBatch:
        """The batch with targets; `following` is the next one, which may be prefetched."""
        share = self._share
        labels = batch.targets if batch.targets is not None else self._targets[batch.labels]
        targets = (1 - share) * labels
        for teacher, plan, order in zip(self._read, self.plans, self._orders, strict=True):
            logits = self._predict(plan, batch, following)[:, order]
            targets += share / len(self.plans) * self._state(logits / teacher.model.temperature)
        return replace(batch, targets=targets.astype(np.float32))

    def _predict(self, plan: Plan, batch: PhotoBatch, following: PhotoBatch | None) -> Array:
        parts = split_batch(batch, plan.batch)
        upcoming = None if following is None else split_batch(following, plan.batch)[0]
        logits = []
        for part, after in pair_with_next(parts):
            plan.announce(upcoming if after is None else after)
            logits.append(plan.predict(replace(part, targets=None))["logits"])
        return np.concatenate(logits)

    def close(self) -> None:
        for plan in self.plans:
            plan.close()
