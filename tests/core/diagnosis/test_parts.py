"""Lab and field side by side: the lab figure never stands alone where there is one of the field."""

import numpy as np

from core.diagnosis.parts import OWN_FIELD, Part, describe_places, part_by_setting

CLASSES = ("background/none", "bean/healthy", "bean/rust")


def test_photos_of_leaves_are_told_apart_by_place():
    labels = np.array([1, 1, 2, 2, 0, 1])
    right = np.array([True, True, False, True, True, True])
    parts = part_by_setting(right, labels, CLASSES, ["lab", "lab", "field", " field ", "field", ""])
    assert parts == (Part("field photos of leaves", 2, 1), Part("lab photos of leaves", 2, 2))
    assert [part.is_field for part in parts] == [True, False]
    assert part_by_setting(right, labels, CLASSES, [""] * 6) == ()


def test_the_words_say_what_the_places_mean():
    lab, field = Part("lab photos", 100, 99), Part("field photos", 50, 30)
    both = describe_places((lab, field))
    assert "lab photos 99.0 % (99 of 100" in both
    assert "field photos 60.0 % (30 of 50, 95 % interval 46.2 to 72.4 %)" in both
    assert "only the field figure counts" in both
    assert "is not known" in describe_places((lab,))
    assert "All were taken in the field" in describe_places((field, Part(OWN_FIELD, 3, 3)))
    assert describe_places(()) == ""
