"""Thresholds and verdicts: coverage, rejection, and thresholds of labels."""

import json
from dataclasses import replace

import numpy as np
import pytest

from core.data.label_sets import mark_labels
from core.diagnosis import thresholds as rejection
from core.diagnosis.evaluation import measure_coverage
from core.diagnosis.metrics import average_precision, compute_metrics, describe_accuracy, sigmoid, softmax
from core.diagnosis.plant import diagnose_plant, pool_probabilities
from core.diagnosis.thresholds import Thresholds, at_coverage, coverage_curve, describe_coverage, untested_thresholds
from core.diagnosis.verdict import NO_LEAF, NOT_SURE, UNFAMILIAR, DecisionRule, Prediction, Verdict, is_healthy

CONFIDENCE = np.array([0.99, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1])
RIGHT = np.array([1, 1, 1, 1, 0, 1, 1, 0, 0, 0], bool)


def test_points_count_what_is_answered_and_the_slider_takes_the_strictest_that_answers_enough():
    whole, half = coverage_curve(CONFIDENCE, RIGHT, (1.0, 0.5))
    assert (whole.coverage, whole.threshold, whole.accuracy, whole.wrongly_refused) == (1.0, 0.1, 0.6, 0.0)
    assert (half.coverage, half.threshold, half.accuracy) == (0.5, 0.6, 0.8)
    assert half.wrongly_refused == pytest.approx(2 / 6)
    (point,) = coverage_curve(np.array([0.5, 0.5, 0.5, 0.1]), np.array([1, 0, 1, 1], bool), (0.25,))
    assert (point.coverage, point.accuracy) == (0.75, pytest.approx(2 / 3))
    points = coverage_curve(CONFIDENCE, RIGHT, (1.0, 0.8, 0.5))
    assert [at_coverage(points, share).coverage for share in (0.7, 0.5)] == [0.8, 0.5]
    assert at_coverage(points[1:], 1.0).coverage == 0.8, "the most that there is"
    for right, refused in ((CONFIDENCE == 0.1, 1.0), (CONFIDENCE < 0, 0.0)):
        (point,) = coverage_curve(CONFIDENCE, right, (0.5,))
        assert (point.accuracy, point.wrongly_refused) == (0.0, refused)
    points = coverage_curve(np.linspace(0, 1, 333), np.ones(333, bool))
    assert [at_coverage(points, step) for step in rejection.STEPS] == [*points], "each place of the slider is reached"


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


CLASSES = ("apple/scab", "background/none", "tomato/healthy")


@pytest.fixture(scope="module")
def thresholds():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 600)
    logits = rng.normal(0, 1, (600, 3))
    logits[np.arange(600), labels] += 6
    familiar = rng.normal(10, 1, 600)
    return rejection.set_thresholds(softmax(logits), labels, familiar, "energy", CLASSES)


@pytest.mark.parametrize(("probabilities", "coverage", "changes", "word", "reason"), [
    ((0.0, 1.0, 0.0), 1.0, {}, NO_LEAF, "No leaf of a kind"), ((0.2, 0.5, 0.3), 1.0, {"no_leaf": 0.5}, NO_LEAF, ""),
    ((0.2, 0.5, 0.3), 1.0, {"no_leaf": 0.9}, NOT_SURE, "may be no leaf"),
    ((0.001, 0.0, 0.999), 1.0, {}, "tomato/healthy", ""), ((0.02, 0.0, 0.98), 1.0, {}, "tomato/healthy", ""),
    ((0.02, 0.0, 0.98), 0.5, {}, NOT_SURE, ""), ((0.45, 0.0, 0.55), 0.9, {}, NOT_SURE, "tomato/healthy or apple/scab"),
    ((0.0, 0.0, 1.0), 1.0, {"least_familiar": 10.0}, "tomato/healthy", ""),
    ((0.0, 0.0, 1.0), 1.0, {"least_familiar": 11.0}, NOT_SURE, "looks different"),
    ((0.4, 0.0, 0.6), 1.0, {"curve": (rejection.CoveragePoint(1.0, 0.6, 1.0, 0.0),)}, "tomato/healthy", ""),
    ((0.1, 0.3, 0.6), 0.9, {"no_leaf": 0.9}, NOT_SURE, "may be tomato/healthy, but this is not certain"),
])  # fmt: skip
def test_thresholds_and_coverage_decide_the_verdict(thresholds, probabilities, coverage, changes, word, reason):
    assert thresholds.no_leaf_class == 1
    rule = DecisionRule(CLASSES, replace(thresholds, **changes), coverage)
    verdict = rule.decide(Prediction(np.array(probabilities), 10.0))
    assert (verdict.word, verdict.is_class) == (word, word == "tomato/healthy")
    assert reason in verdict.reason


def test_thresholds_go_through_json_and_crafted_ones_are_refused(thresholds):
    section = json.loads(json.dumps(thresholds.to_section()))
    assert Thresholds.from_section(section, 3) == thresholds
    assert Thresholds.from_section({}, 3) is None
    assert Thresholds.from_section({**section, "no_leaf_class": -1}, 3) is not None, "a network without such a class"
    for outside in (-2, 3):
        assert Thresholds.from_section({**section, "no_leaf_class": outside}, 3) is None
    for wrong in ("x", "nan"):
        assert Thresholds.from_section({**section, "curve": [[wrong, 1, 1, 1]]}, 3) is None
    assert Thresholds.from_section({**section, "far": "nan"}, 3) is None


def test_the_thresholds_are_quantiles_of_validation_photos_with_and_without_a_leaf():
    rng, labels = np.random.default_rng(0), np.arange(210) % 3
    probabilities, familiar = softmax(rng.normal(0, 1, (210, 3)) + 2 * np.eye(3)[labels]), rng.normal(0, 1, 210)
    curve = coverage_curve(probabilities.max(axis=1), probabilities.argmax(axis=1) == labels)
    bare, least = probabilities[labels == 0, 0], np.sort(familiar[labels != 0])[4]  # rejects 4 of 140, 2.9 %
    found = rejection.set_thresholds(probabilities, labels, familiar, "energy", ("No_leaf", "a", "b"))
    assert found == Thresholds("energy", least, 0, pytest.approx(np.quantile(bare, 0.01)), curve)
    for classes, second, wanted in (("abc", 2, (-1, 1.0)), (CLASSES, 2, (1, 0.9)), (CLASSES, 1, (1, 0.02))):
        few = rejection.set_thresholds(np.eye(3)[[0, 0]], np.array([0, second]), np.zeros(2), "energy", classes)
        assert (few.no_leaf_class, few.no_leaf) == wanted, "without the class, its photos, or a right prediction of it"
    bare = rejection.set_thresholds(np.eye(3)[[1, 1]], np.ones(2, int), np.ones(2), "energy", CLASSES)
    assert Thresholds.from_section(bare.to_section(), 3) == bare, "of validation photos without any leaf"


def test_without_thresholds_a_class_must_be_likelier_than_all_others():
    rule = DecisionRule(CLASSES, None)
    cases = (0.6, 0.3, 0.1), (0.4, 0.25, 0.35), (0.1, 0.9, 0.0), (0.4, 0.6, 0.0)
    found = [rule.decide(Prediction(np.array(probabilities), 0.0)) for probabilities in cases]
    assert [verdict.word for verdict in found] == ["apple/scab", NOT_SURE, NO_LEAF, NOT_SURE]
    assert "apple/scab or tomato/healthy" in found[1].reason


@pytest.mark.parametrize(("label", "expected"), [
    ("tomato/healthy", True), ("Tomato___healthy", True), ("Pepper,_bell___healthy", True), ("Tomato_healthy", True),
    ("Healthy leaves", True), ("lá khoẻ", True), ("cà chua/la\u0301 kho\u0309e mạnh", True), ("unhealthy", False),
    ("not_healthy", False), ("lá không khỏe", False), ("tomato/late_blight", False),
])  # fmt: skip
def test_folders_of_healthy_leaves_are_known_by_their_names(label, expected):
    assert (is_healthy(label), Verdict(label).is_disease) == (expected, not expected)


def test_a_share_below_the_curve_is_told():
    curve = coverage_curve(np.linspace(0.1, 1, 10), np.ones(10, bool))
    thresholds = Thresholds("energy", 0.0, -1, 1.0, curve)
    assert describe_coverage(thresholds, 0.5) == ""
    assert "50 % of the validation photos; it is used instead of 30 %." in describe_coverage(thresholds, 0.3)
    assert "has no confidence thresholds" in describe_coverage(None, 0.9)
    assert "a threshold for each label" in describe_coverage(bare := untested_thresholds(1), 0.9)
    assert bare == Thresholds("energy", -1e300, -1, 1.0, (rejection.CoveragePoint(1.0, 0.0, 0.0, 0.0),), (0.5,))


LABELS = ("a/rust", "a/scab", "background/none")


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
    best = f1_at(stated, truth, rejection.best_threshold(stated, truth))
    assert best == max(f1_at(stated, truth, at) for at in np.arange(0, 1.01, 0.01))
    assert rejection.best_threshold(stated, truth & False) == 0.5
    assert rejection.best_threshold(np.array([0.7, 0.9, 0.8]), np.array([True, True, False])) == pytest.approx(0.35)


@pytest.mark.parametrize("seed", range(5))
def test_average_precision_is_the_sum_over_the_thresholds(seed):
    stated, truth = draw(seed)
    points = [((stated >= at) & truth, stated >= at) for at in sorted(set(stated), reverse=True)]
    recalls = [0.0, *(found.sum() / truth.sum() for found, _ in points)]
    steps = [(now - before) * found.sum() / said.sum()
             for now, before, (found, said) in zip(recalls[1:], recalls, points, strict=False)]
    assert average_precision(stated, truth) == pytest.approx(sum(steps))


def test_metrics_count_label_by_label_and_photo_by_photo():
    labels = mark_labels(("a/rust", "a/rust", "a/scab+rust", "a/scab"), ("a/rust", "a/scab"))
    logits = np.array([[3, -3], [3, 3], [3, 3], [-3, -3]], np.float64)  # right, a label too many, right, none found
    figures = compute_metrics(logits, labels, ("a/rust", "a/scab"))
    assert (figures.photos, figures.right, figures.confusion) == (4, 2, ())
    assert [(c.photos, c.recall, c.precision) for c in figures.per_class] == [(3, 1.0, 1.0), (2, 0.5, 0.5)]
    assert figures.macro_f1 == pytest.approx(0.75)
    assert describe_accuracy(figures, "test").startswith("All labels right on 50.0 %: 2 of 4 test photos")
    assert sigmoid(np.array([-1e4, 0.0, 1e4])).tolist() == [0.0, 0.5, 1.0]


def test_the_verdict_is_all_labels_above_their_thresholds():
    thresholds = Thresholds("energy", -1.0, 2, 0.9, untested_thresholds(3).curve, labels=(0.2, 0.6, 0.9))
    rule = DecisionRule(LABELS, thresholds)
    assert Thresholds.from_section(thresholds.to_section(), 3) == thresholds
    assert Thresholds.from_section(thresholds.to_section(), 4) is None

    def top(rule, *probabilities):
        return [rule.classes.index(guess.label) for guess in rule.list_top(Prediction(np.array(probabilities), 0.0))]

    def decide(*probabilities, familiar=0.0):
        return rule.decide(Prediction(np.array(probabilities), familiar))

    assert decide(0.3, 0.7, 0.1).word == "a/rust+scab"
    assert decide(0.3, 0.5, 0.1).word == "a/rust"
    assert decide(0.1, 0.5, 0.1).word == NOT_SURE
    assert decide(0.3, 0.7, 0.95).word == NO_LEAF
    assert decide(0.3, 0.7, 0.1, familiar=-2.0).reason == UNFAMILIAR
    assert top(rule, 0.3, 0.5, 0.1) == [0, 1, 2], "first the labels of the photo"
    assert [top(DecisionRule(LABELS, None), *given) for given in ((0.0, 1.0), (0.0, 0.0))] == [[1], [0]]
    assert not is_healthy("a/healthy+scab")


def test_thresholds_state_what_they_reach_on_validation_photos():
    truth = np.array([[1, 0], [1, 1], [0, 1], [0, 1]], bool)
    stated = np.array([[0.9, 0.1], [0.8, 0.7], [0.3, 0.6], [0.2, 0.3]])
    familiar, classes = np.array([-9.0, -9, 1, 1]), ("background/none", "scab")
    bare = rejection.set_thresholds(stated, truth, familiar, "energy", classes)
    assert (bare.no_leaf_class, bare.least_familiar) == (0, 1.0), "photos without a leaf do not decide it"
    assert (bare.no_leaf, bare.curve) == (pytest.approx(0.55), (rejection.CoveragePoint(0.5, 0.0, 1.0, 0.5),))
    for own, name, point, wanted in ((True, "none", (1.0, 0.0, 1.0, 0.0), (0, pytest.approx(0.4))),
                                     (False, "a", (0.0, 0.0, 0.0, 1.0), (-1, 1.0))):  # fmt: skip
        alone = np.full((1, 1), own)
        one = rejection.set_thresholds(0.8 * alone, alone, np.zeros(1), "energy", (name,))
        assert (one.curve, one.no_leaf_class, one.no_leaf) == ((rejection.CoveragePoint(*point),), *wanted)
    found = rejection.set_thresholds(stated, truth, np.zeros(4), "energy", ("rust", "scab"))
    assert found.labels == (pytest.approx(0.55), pytest.approx(0.2))
    assert (found.curve[0].coverage, found.curve[0].accuracy) == (1.0, 1.0)
    said = [rejection.describe_label_thresholds(one, ("rust", "scab")) for one in (found, untested_thresholds(2))]
    assert ["exactly the right labels" in text for text in said] == [True, False], "nothing was measured"
    assert "their threshold: rust 55\xa0%, scab 20\xa0%. 100.0\xa0% of" in said[0]


def test_photos_of_a_plant_are_pooled_label_by_label():
    pooled = pool_probabilities(np.array([[0.9, 0.2, 0.5], [0.8, 0.1, 0.5]]), multilabel=True)
    assert pooled[0] > 0.9
    assert pooled[1] < 0.1
    assert pooled[2] == pytest.approx(0.5)
    thresholds = Thresholds("energy", 0.0, -1, 1.0, untested_thresholds(2).curve, labels=(0.5, 0.5))
    rule = DecisionRule(LABELS[:2], thresholds, 1.0)
    plant = diagnose_plant("plant", [Prediction(np.array([0.9, 0.8]), 1.0)] * 2, rule)
    assert plant.verdict.word == "a/rust+scab"
