"""The slider's effect: what is answered, what of it is right, what is wrongly are rejected."""

import numpy as np

from core.diagnosis.coverage_result import measure_coverage
from core.diagnosis.verdict import NO_LEAF, NOT_SURE


def test_refusals_and_photos_without_a_leaf_are_counted():
    classes = ("background/none", "a", "b")
    words = ["a", NOT_SURE, NO_LEAF, NO_LEAF, "b", NOT_SURE]
    labels = np.array([1, 1, 0, 1, 1, 2])
    right = np.array([True, True, True, True, False, False])
    found = measure_coverage(words, labels, right, classes, 0.9)
    assert (found.photos, found.answered, found.right) == (6, 4, 2)
    assert found.wrongly_refused == 0.5  # "a" not sure, and "a" taken for no leaf, of four that were right
    said = found.describe()
    assert "4 of 6 photos are diagnosed (66.7 %)" in said
    assert "50.0 % of these diagnoses are correct" in said
    assert "50.0 % of the correct predictions are rejected" in said
