import numpy as np
import pytest

from core.diagnosis.evaluation import measure_coverage
from core.diagnosis.thresholds import at_coverage, coverage_curve
from core.diagnosis.verdict import NO_LEAF, NOT_SURE

CONFIDENCE = np.array([0.99, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1])
RIGHT = np.array([1, 1, 1, 1, 0, 1, 1, 0, 0, 0], bool)


def test_points_count_what_is_answered_right_and_held_back():
    whole, half = coverage_curve(CONFIDENCE, RIGHT, (1.0, 0.5))
    assert (whole.coverage, whole.threshold, whole.accuracy, whole.wrongly_refused) == (1.0, 0.1, 0.6, 0.0)
    assert (half.coverage, half.threshold, half.accuracy) == (0.5, 0.6, 0.8)
    assert half.wrongly_refused == pytest.approx(2 / 6)


def test_equal_confidences_are_answered_together():
    (point,) = coverage_curve(np.array([0.5, 0.5, 0.5, 0.1]), np.array([1, 0, 1, 1], bool), (0.25,))
    assert (point.coverage, point.accuracy) == (0.75, pytest.approx(2 / 3))


def test_the_slider_takes_the_strictest_point_that_still_answers_enough():
    points = coverage_curve(CONFIDENCE, RIGHT, (1.0, 0.8, 0.5))
    assert (at_coverage(points, 0.7).coverage, at_coverage(points, 0.5).coverage) == (0.8, 0.5)
    assert at_coverage(points, 1.0).coverage == 1.0


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
