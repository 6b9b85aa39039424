"""Thresholds, metrics and verdicts of photos with several labels, against their definitions."""

from dataclasses import replace

import numpy as np
import pytest

from core.data.label_sets import read_label_sets
from core.diagnosis.metrics import average_precision, compute_metrics, describe_accuracy, sigmoid
from core.diagnosis.plant import pool_probabilities
from core.diagnosis.thresholds import Thresholds, best_threshold, set_label_thresholds, untested_thresholds
from core.diagnosis.verdict import NO_LEAF, NOT_SURE, UNFAMILIAR, decide_verdict, is_healthy, rank_classes

CLASSES = ("a/rust", "a/scab", "background/none")


def draw(seed, count=60):
    rng = np.random.default_rng(seed)
    truth = rng.random(count) < 0.3
    return np.round(np.clip(0.3 * truth + rng.random(count) * 0.7, 0, 1), 1), truth  # many equal probabilities


def f1_at(stated, truth, threshold):
    found = stated >= threshold
    return 2 * (found & truth).sum() / (found.sum() + truth.sum())


@pytest.mark.parametrize("seed", range(5))
def test_no_threshold_has_a_higher_f1(seed):
    stated, truth = draw(seed)
    best = f1_at(stated, truth, best_threshold(stated, truth))
    assert best == max(f1_at(stated, truth, at) for at in np.arange(0, 1.01, 0.01))
    assert best_threshold(stated, truth & False) == 0.5


@pytest.mark.parametrize("seed", range(5))
def test_average_precision_is_the_sum_over_the_thresholds(seed):
    stated, truth = draw(seed)
    points = [((stated >= at) & truth, stated >= at) for at in sorted(set(stated), reverse=True)]
    recalls = [0.0, *(found.sum() / truth.sum() for found, _ in points)]
    steps = [(now - before) * found.sum() / said.sum()
             for now, before, (found, said) in zip(recalls[1:], recalls, points, strict=False)]
    assert average_precision(stated, truth) == pytest.approx(sum(steps))


def test_metrics_count_label_by_label_and_photo_by_photo():
    sets = read_label_sets(("a/rust", "a/scab", "a/scab+rust"), "multi")
    logits = np.array([[3, -3], [3, 3], [3, 3], [-3, -3]], np.float64)  # right, a label too many, right, none found
    figures = compute_metrics(logits, np.array([0, 0, 2, 1]), sets.labels, sets)
    assert (figures.photos, figures.right, figures.confusion) == (4, 2, ())
    assert [(c.photos, c.recall, c.precision) for c in figures.per_class] == [(3, 1.0, 1.0), (2, 0.5, 0.5)]
    assert figures.macro_f1 == pytest.approx(0.75)
    assert describe_accuracy(figures, "test").startswith("All labels right on 50.0 %: 2 of 4 test photos")
    assert sigmoid(np.array([-1e4, 0.0, 1e4])).tolist() == [0.0, 0.5, 1.0]


def test_the_verdict_is_all_labels_above_their_thresholds():
    thresholds = replace(untested_thresholds(3), far=-1.0, no_leaf_class=2, no_leaf=0.9, labels=(0.2, 0.6, 0.9))
    assert Thresholds.from_section(thresholds.to_section(), 3) == thresholds
    assert Thresholds.from_section(thresholds.to_section(), 4) is None

    def decide(*probabilities, familiar=0.0):
        return decide_verdict(np.array(probabilities), familiar, thresholds, CLASSES)

    assert decide(0.3, 0.7, 0.1).word == "a/rust+scab"
    assert decide(0.3, 0.5, 0.1).word == "a/rust"
    assert decide(0.1, 0.5, 0.1).word == NOT_SURE
    assert decide(0.3, 0.7, 0.95).word == NO_LEAF
    assert decide(0.3, 0.7, 0.1, familiar=-2.0).reason == UNFAMILIAR
    assert rank_classes(np.array([0.3, 0.5, 0.1]), thresholds, 2).tolist() == [0, 1], "first the labels of the photo"
    assert not is_healthy("a/healthy+scab")


def test_thresholds_state_what_they_reach_on_validation_photos():
    truth = np.array([[1, 0], [1, 1], [0, 1], [0, 1]], bool)
    stated = np.array([[0.9, 0.1], [0.8, 0.7], [0.3, 0.6], [0.2, 0.3]])
    found = set_label_thresholds(stated, truth, np.zeros(4), "energy", ("rust", "scab"))
    assert found.labels == (pytest.approx(0.55), pytest.approx(0.2))
    assert (found.curve[0].coverage, found.curve[0].accuracy) == (1.0, 1.0)


def test_photos_of_a_plant_are_pooled_label_by_label():
    pooled = pool_probabilities(np.array([[0.9, 0.2, 0.5], [0.8, 0.1, 0.5]]), multilabel=True)
    assert pooled[0] > 0.9
    assert pooled[1] < 0.1
    assert pooled[2] == pytest.approx(0.5)
