"""Checks of the photos of a run against each other and against the teachers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from core.data.dataset import TEST, VALIDATION, Dataset
from core.data.field_photos import FieldPhotos, check_field
from core.data.preparation import PhotoSet
from core.data.split import describe_random_leak
from core.errors import ModelFileError
from core.ops.contract import Array
from core.training.teacher import Teacher, order_classes


def classes_check(scanned: Dataset | None, teachers: Sequence[Teacher]) -> Callable[[Sequence[str], bool], None]:
    """A check that field photos and teachers have the classes; run before photos are decoded, which may take long."""

    def check(classes: Sequence[str], multi: bool) -> None:
        if scanned is not None:
            check_field(scanned, classes, multi)
        for teacher in teachers:
            order_classes(teacher, classes)
            if teacher.model.multilabel != multi:
                raise ModelFileError(f"{teacher.path} cannot be a teacher for these photos: only one of them has "
                                     "several labels per photo.")

    return check


def evaluation_contents(photos: PhotoSet, field: FieldPhotos | None) -> tuple[tuple[str, Array], ...]:
    """Kind and content of the photos on which a run is validated and evaluated."""
    sets = [("validation", photos.contents(VALIDATION)), ("test", photos.contents(TEST))]
    if field is not None:
        sets.append(("field", field.cache.content[field.cache.kept]))
    return tuple((kind, content) for kind, content in sets if len(content))


def describe_prevented_leakage(photos: PhotoSet) -> tuple[str, ...]:
    """A sentence on the leakage of a random split, if this split has none."""
    leakage = "" if photos.leak.leaked else describe_random_leak(photos.random_leak)
    return (leakage,) if leakage else ()
