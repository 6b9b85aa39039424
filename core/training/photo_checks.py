"""What the photos of a run are checked for against each other, and against whoever teaches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from core.data.dataset import TEST, VALIDATION, Dataset
from core.data.field_photos import FieldPhotos, check_field
from core.data.preparation import PhotoSet
from core.data.split import describe_random_leak
from core.ops.contract import Array
from core.training.teacher import Teacher, order_classes


def classes_check(scanned: Dataset | None, teachers: Sequence[Teacher]) -> Callable[[Sequence[str]], None]:
    """Field photos and teachers must know the classes: told before photos are decoded, which may take an hour."""

    def check(classes: Sequence[str]) -> None:
        if scanned is not None:
            check_field(scanned, classes)
        for teacher in teachers:
            order_classes(teacher, classes)

    return check


def evaluation_contents(photos: PhotoSet, field: FieldPhotos | None) -> tuple[tuple[str, Array], ...]:
    """Kind and content of the photos by which a run is judged."""
    sets = [("validation", photos.contents(VALIDATION)), ("test", photos.contents(TEST))]
    if field is not None:
        sets.append(("field", field.cache.content[field.cache.kept]))
    return tuple((kind, content) for kind, content in sets if len(content))


def spared_leak(photos: PhotoSet) -> tuple[str, ...]:
    """What a careless split would have leaked, where this one leaks nothing."""
    told = "" if photos.leak.leaked else describe_random_leak(photos.random_leak)
    return (told,) if told else ()
