"""Lab and field side by side: the lab figure never stands alone where there is one of the field."""

import numpy as np

from core.diagnosis.subsets import OWN_FIELD, Subset, describe_subsets, subsets_by_setting

CLASSES = ("background/none", "bean/healthy", "bean/rust")


def test_photos_of_leaves_are_told_apart_by_place():
    labels = np.array([1, 1, 2, 2, 0, 1])
    right = np.array([True, True, False, True, True, True])
    parts = subsets_by_setting(right, labels, CLASSES, ["lab", "lab", "field", " field ", "field", ""])
    assert parts == (Subset("field photos of leaves", 2, 1), Subset("lab photos of leaves", 2, 2))
    assert [part.is_field for part in parts] == [True, False]
    assert subsets_by_setting(right, labels, CLASSES, [""] * 6) == ()


def test_the_words_say_what_the_places_mean():
    lab, field = Subset("lab photos", 100, 99), Subset("field photos", 50, 30)
    both = describe_subsets((lab, field))
    assert "lab photos 99.0 % (99 of 100" in both
    assert "field photos 60.0 % (30 of 50, 95 % interval 46.2 to 72.4 %)" in both
    assert "only the accuracy on field photos counts" in both
    assert "is unknown" in describe_subsets((lab,))
    assert "All photos were taken in the field" in describe_subsets((field, Subset(OWN_FIELD, 3, 3)))
    assert describe_subsets(()) == ""
