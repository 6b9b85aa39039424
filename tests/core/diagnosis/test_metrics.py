"""Figures against values worked out by hand."""

import math

import numpy as np
import pytest

from core.diagnosis import metrics


def test_figures_of_five_photos():
    logits = np.log(np.array([[8, 1, 1], [1, 8, 1], [1, 8, 1], [1, 8, 1], [8, 1, 1]]) / 10).astype(np.float32)
    figures = metrics.compute_metrics(logits, np.array([0, 1, 1, 0, 0]), ("a", "b", "never"))
    assert figures.confusion == ((2, 1, 0), (0, 2, 0), (0, 0, 0))
    assert (figures.photos, figures.right, figures.accuracy) == (5, 4, 0.8)
    a, b, never = figures.per_class
    assert (a.precision, a.recall) == (1.0, pytest.approx(2 / 3))
    assert (b.precision, b.recall) == (pytest.approx(2 / 3), 1.0)
    assert (never.photos, never.f1) == (0, 0.0)
    assert figures.macro_f1 == pytest.approx(0.8)
    assert figures.loss == pytest.approx(-(4 * math.log(0.8) + math.log(0.1)) / 5, rel=1e-6)


def test_intervals_of_wilson():
    assert metrics.wilson_interval(0, 0) == (0.0, 1.0)
    assert metrics.wilson_interval(8, 10) == (pytest.approx(0.4901625, abs=1e-6), pytest.approx(0.9433178, abs=1e-6))
    low, high = metrics.wilson_interval(10, 10)
    assert high == pytest.approx(1.0)
    assert low == pytest.approx(0.722467, abs=1e-6)


def test_large_logits_do_not_overflow():
    logits = np.array([[1000.0, 0.0], [0.0, 1000.0]], np.float32)
    assert metrics.cross_entropy(logits, np.array([0, 0])).tolist() == [0.0, 1000.0]
    assert metrics.softmax(logits).tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert metrics.softmax(np.array([[math.log(2), 0.0]]))[0, 0] == pytest.approx(2 / 3)


CLASSES = ("background/none", "bean/healthy", "bean/rust")


def test_photos_of_leaves_are_told_apart_by_place():
    labels = np.array([1, 1, 2, 2, 0, 1])
    right = np.array([True, True, False, True, True, True])
    parts = metrics.subsets_by_setting(right, labels, CLASSES, ["lab", "lab", "field", " field ", "field", ""])
    assert parts == (metrics.Subset("field photos of leaves", 2, 1), metrics.Subset("lab photos of leaves", 2, 2))
    assert (parts[0].accuracy, metrics.Subset("none", 0, 0).accuracy) == (0.5, 0.0)
    assert [part.is_field for part in parts] == [True, False]
    assert metrics.subsets_by_setting(right, labels, CLASSES, [""] * 6) == ()
    (whole,) = metrics.subsets_by_setting(right[:2], labels[:2], CLASSES, ["lab", "lab"])
    assert whole.name == "lab photos", "as in a run, whose photos have no class without a leaf"


def test_the_words_say_what_the_places_mean():
    lab, field = metrics.Subset("lab photos", 100, 99), metrics.Subset("field photos", 50, 30)
    both = metrics.describe_subsets((lab, field))
    assert "lab photos 99.0 % (99 of 100" in both
    assert "field photos 60.0 % (30 of 50, 95 % interval 46.2 to 72.4 %)" in both
    assert "only the accuracy on field photos counts" in both
    assert "is unknown" in metrics.describe_subsets((lab,))
    own = metrics.Subset(metrics.OWN_FIELD, 3, 3)
    assert "All photos were taken in the field" in metrics.describe_subsets((field, own))
    assert metrics.describe_subsets(()) == ""
