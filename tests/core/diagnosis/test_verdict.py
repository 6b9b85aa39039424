import json
from dataclasses import replace

import numpy as np
import pytest

from core.diagnosis.metrics import softmax
from core.diagnosis.thresholds import Thresholds, coverage_curve, describe_slider, set_thresholds
from core.diagnosis.verdict import NO_LEAF, NOT_SURE, Verdict, decide_verdict, is_healthy

CLASSES = ("apple/scab", "background/none", "tomato/healthy")


@pytest.fixture(scope="module")
def thresholds():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 600)
    logits = rng.normal(0, 1, (600, 3))
    logits[np.arange(600), labels] += 6
    familiar = rng.normal(10, 1, 600)
    return set_thresholds(softmax(logits), labels, familiar, "energy", CLASSES)


@pytest.mark.parametrize(("probabilities", "coverage", "changes", "word", "reason"), [
    ((0.0, 1.0, 0.0), 1.0, {}, NO_LEAF, ""), ((0.2, 0.5, 0.3), 1.0, {"no_leaf": 0.9}, NOT_SURE, "may be no leaf"),
    ((0.001, 0.0, 0.999), 1.0, {}, "tomato/healthy", ""), ((0.02, 0.0, 0.98), 1.0, {}, "tomato/healthy", ""),
    ((0.02, 0.0, 0.98), 0.5, {}, NOT_SURE, ""), ((0.0, 0.0, 1.0), 1.0, {"far": 11.0}, NOT_SURE, "looks different"),
    ((0.45, 0.0, 0.55), 0.9, {}, NOT_SURE, "tomato/healthy or apple/scab"),
])  # fmt: skip
def test_thresholds_and_coverage_decide_the_verdict(thresholds, probabilities, coverage, changes, word, reason):
    assert thresholds.no_leaf_class == 1
    verdict = decide_verdict(np.array(probabilities), 10.0, replace(thresholds, **changes), CLASSES, coverage=coverage)
    assert (verdict.word, verdict.is_class) == (word, word == "tomato/healthy")
    assert reason in verdict.reason


def test_only_a_disease_has_a_diseased_area():
    words = ("bean/rust", "tomato/healthy", "healthy", NO_LEAF, NOT_SURE)
    assert [Verdict(word).is_disease for word in words] == [True, False, False, False, False]


def test_thresholds_go_through_json_and_crafted_ones_are_refused(thresholds):
    section = json.loads(json.dumps(thresholds.to_section()))
    assert Thresholds.from_section(section, 3) == thresholds
    assert Thresholds.from_section({}, 3) is None
    assert Thresholds.from_section({**section, "no_leaf_class": -1}, 3) is not None, "a network without such a class"
    for outside in (-2, 3):
        assert Thresholds.from_section({**section, "no_leaf_class": outside}, 3) is None
    assert Thresholds.from_section({**section, "curve": [["x", 1, 1, 1]]}, 3) is None
    assert Thresholds.from_section({**section, "far": "nan"}, 3) is None


def test_without_thresholds_a_class_must_be_likelier_than_all_others():
    assert decide_verdict(np.array([0.6, 0.3, 0.1]), 0.0, None, CLASSES).word == "apple/scab"
    doubtful = decide_verdict(np.array([0.4, 0.25, 0.35]), 0.0, None, CLASSES)
    assert (doubtful.word, "apple/scab or tomato/healthy" in doubtful.reason) == (NOT_SURE, True)


@pytest.mark.parametrize(("label", "expected"), [
    ("tomato/healthy", True), ("Tomato___healthy", True), ("Pepper,_bell___healthy", True), ("Tomato_healthy", True),
    ("Healthy leaves", True), ("lá khoẻ", True), ("cà chua/la\u0301 kho\u0309e mạnh", True), ("unhealthy", False),
    ("not_healthy", False), ("lá không khỏe", False), ("tomato/late_blight", False),
])  # fmt: skip
def test_folders_of_healthy_leaves_are_known_by_their_names(label, expected):
    assert is_healthy(label) is expected


def test_a_share_below_the_curve_is_told():
    curve = coverage_curve(np.linspace(0.1, 1, 10), np.ones(10, bool))
    section = Thresholds("energy", 0.0, -1, 1.0, curve).to_section()
    assert describe_slider(section, 3, 0.5) == ""
    assert "50 % of the validation photos; it is used instead of 30 %." in describe_slider(section, 3, 0.3)
    assert "has no confidence thresholds" in describe_slider({}, 3, 0.9)
