"""Figures against values worked out by hand."""

import math

import numpy as np
import pytest

from core.diagnosis.metrics import (
    OWN_FIELD,
    Subset,
    compute_metrics,
    cross_entropy,
    describe_subsets,
    softmax,
    subsets_by_setting,
    wilson_interval,
)


def test_figures_of_five_photos():
    logits = np.log(np.array([[8, 1, 1], [1, 8, 1], [1, 8, 1], [1, 8, 1], [8, 1, 1]]) / 10).astype(np.float32)
    figures = compute_metrics(logits, np.array([0, 1, 1, 0, 0]), ("a", "b", "never"))
    assert figures.confusion == ((2, 1, 0), (0, 2, 0), (0, 0, 0))
    assert (figures.photos, figures.right, figures.accuracy) == (5, 4, 0.8)
    a, b, never = figures.per_class
    assert (a.precision, a.recall) == (1.0, pytest.approx(2 / 3))
    assert (b.precision, b.recall) == (pytest.approx(2 / 3), 1.0)
    assert (never.photos, never.f1) == (0, 0.0)
    assert figures.macro_f1 == pytest.approx(0.8)
    assert figures.loss == pytest.approx(-(4 * math.log(0.8) + math.log(0.1)) / 5, rel=1e-6)


def test_intervals_of_wilson():
    assert wilson_interval(0, 0) == (0.0, 1.0)
    assert wilson_interval(8, 10) == (pytest.approx(0.4901625, abs=1e-6), pytest.approx(0.9433178, abs=1e-6))
    low, high = wilson_interval(10, 10)
    assert high == pytest.approx(1.0)
    assert low == pytest.approx(0.722467, abs=1e-6)


def test_large_logits_do_not_overflow():
    logits = np.array([[1000.0, 0.0], [0.0, 1000.0]], np.float32)
    assert cross_entropy(logits, np.array([0, 0])).tolist() == [0.0, 1000.0]
    assert softmax(logits).tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert softmax(np.array([[math.log(2), 0.0]]))[0, 0] == pytest.approx(2 / 3)


CLASSES = ("background/none", "bean/healthy", "bean/rust")


def test_photos_of_leaves_are_told_apart_by_place():
    labels = np.array([1, 1, 2, 2, 0, 1])
    right = np.array([True, True, False, True, True, True])
    parts = subsets_by_setting(right, labels, CLASSES, ["lab", "lab", "field", " field ", "field", ""])
    assert parts == (Subset("field photos of leaves", 2, 1), Subset("lab photos of leaves", 2, 2))
    assert (parts[0].accuracy, Subset("none", 0, 0).accuracy) == (0.5, 0.0)
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
