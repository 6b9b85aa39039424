"""Figures against values worked out by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest

from core.diagnosis import metrics
from core.diagnosis.evaluation import Evaluation
from core.evaluate import compare_text, describe_text
from core.percent import percent


def test_figures_of_five_photos():
    logits = np.log(np.array([[8, 1, 1], [1, 8, 1], [1, 8, 1], [1, 8, 1], [8, 1, 1]]) / 10).astype(np.float32)
    labels = np.array([0, 1, 1, 0, 0])
    figures = metrics.compute_metrics(logits, labels, ("a", "b", "never"))
    assert figures.confusion == ((2, 1, 0), (0, 2, 0), (0, 0, 0))
    assert (figures.photos, figures.right, figures.accuracy) == (5, 4, 0.8)
    a, b, never = figures.per_class
    assert (a.precision, a.recall) == (1.0, pytest.approx(2 / 3))
    assert (b.precision, b.recall) == (pytest.approx(2 / 3), 1.0)
    assert (never.photos, never.f1) == (0, 0.0)
    assert figures.macro_f1 == pytest.approx(0.8)
    assert figures.loss == pytest.approx(-(4 * math.log(0.8) + math.log(0.1)) / 5, rel=1e-6)
    assert metrics.find_correct(logits, labels, 0.5).tolist() == [True, True, True, False, True]
    one = metrics.compute_metrics(logits, np.zeros(5, int), ("a", "b", "never"))
    assert "\nb           0      0.0 %       –  0.000" in describe_text(Evaluation(one), ""), "its F1 is in the mean"
    one = metrics.compute_metrics(logits, np.full(5, 2), ("a", "b", "never"))
    assert "\nnever       5          –   0.0 %  0.000" in describe_text(Evaluation(one), ""), "of no prediction"
    two = metrics.compute_metrics(np.array([[2, -1], [1, 1]]), np.eye(2, dtype=bool), "ab")
    assert compare_text("xy", [Evaluation(two)] * 2, "").startswith("All labels right on photos, mean and standard "
        "deviation over 2 models: 50.0 ± 0.0 %, mean F1 0.833 ± 0.000, mean average precision 1.000")  # fmt: skip
    none = metrics.compute_metrics(logits[:0], np.zeros(0, int), ("a", "b", "never"))
    assert (none.accuracy, none.macro_f1, none.loss, none.interval) == (0.0, 0.0, 0.0, (0.0, 1.0))


def test_intervals_of_wilson():
    assert metrics.wilson_interval(0, 0) == (0.0, 1.0)
    assert metrics.wilson_interval(8, 10) == (pytest.approx(0.4901625, abs=1e-6), pytest.approx(0.9433178, abs=1e-6))
    low, high = metrics.wilson_interval(10, 10)
    assert high == pytest.approx(1.0)
    assert low == pytest.approx(0.722467, abs=1e-6)
    assert {(metrics.wilson_interval(0, n)[0], metrics.wilson_interval(n, n)[1]) for n in range(1, 99)} == {(0.0, 1.0)}
    for first, second, published in ((0.9, 0.3, (0.1705, 0.8090)), (1.0, 0.0, (0.6075, 1.0))):  # Newcombe, table II
        assert metrics.difference_interval(first, second, 10) == pytest.approx(published, abs=1e-4)
    assert metrics.Subset("all", 3000, 2999).describe() == "all 99.9 % (2999 of 3000, 95 % interval 99.8 to 100.0 %)"
    assert (percent(2999 / 3000), percent(1.0), percent(0.996, 0)) == ("99.9\u00a0%", "100.0\u00a0%", "99\u00a0%")


@pytest.mark.parametrize(("sizes", "correlation"), [
    *(([size] * 40, of) for size, of in ((1, 0), (3, 0), (3, 0.3), (3, 0.7), (6, 0), (6, 0.3), (6, 0.7))),
    ([60, 5, 5, 5, 5], 0.3), ([30, *[1] * 30], 0.3),
])  # fmt: skip
@pytest.mark.parametrize("share", [0.8, 0.95])
def test_the_interval_contains_the_true_share_of_correlated_photos_95_times_in_100(share, sizes, correlation):
    rng, count, rounds = np.random.default_rng(0), len(sizes), 1000
    shares = np.full((rounds, count), share)
    if correlation:  # beta-binomial
        a = (1 - correlation) / correlation
        shares = rng.beta(a * share, a * (1 - share), (rounds, count))
    right = rng.random((rounds, sum(sizes))) < shares.repeat(sizes, axis=1)
    bounds = [metrics.Subset.count("", row, np.arange(count).repeat(sizes)).interval for row in right]
    independent = [metrics.wilson_interval(int(row.sum()), len(row)) for row in right]
    covered, alone = (np.mean([low <= share <= high for low, high in found]) for found in (bounds, independent))
    assert bounds == independent if max(sizes) == 1 else covered > 0.93
    assert alone < 0.9 or not correlation, "as if photos were independent"


def test_the_interval_of_macro_f1_is_that_of_groups_drawn_again():
    rng, groups = np.random.default_rng(0), np.arange(30).repeat(4)
    truth = rng.integers(0, 3, 30).repeat(4)
    logits = np.eye(4)[np.where(rng.random(30).repeat(4) < 0.7, truth, 0)]

    def draw():
        rows = np.concatenate([np.flatnonzero(groups == group) for group in rng.integers(0, 30, 30)])
        return metrics.compute_metrics(logits[rows], truth[rows], "abcd").macro_f1

    wanted = tuple(np.quantile([draw() for _ in range(500)], (0.025, 0.975)))
    assert metrics.compute_metrics(logits, truth, "abcd", groups=groups).f1_interval == pytest.approx(wanted, abs=0.03)
    cases = ((truth, 1), (truth, 9), (truth, 10), (np.full(120, 3), 120))
    few = [metrics.compute_metrics(logits, known, "abcd", groups=np.arange(120) % count) for known, count in cases]
    assert [one.f1_interval is None for one in few] == [True, True, False, True], "where all samples are the same"


def test_groups_widen_every_interval_and_groups_of_one_change_nothing():
    rng, groups = np.random.default_rng(0), np.arange(30).repeat(4)
    labels = rng.integers(0, 2, 30).repeat(4)
    logits = np.eye(2)[labels ^ (rng.random(30) < 0.2).repeat(4)].astype(np.float32)
    for known in (labels, np.array([[True, False], [True, True]])[labels]):
        plain = metrics.compute_metrics(logits, known, ("a", "b"))
        alone = metrics.compute_metrics(logits, known, ("a", "b"), groups=np.arange(120))
        assert replace(alone, f1_interval=None) == plain
        found = metrics.compute_metrics(logits, known, ("a", "b"), groups=groups)
        assert (found.right, found.confusion, found.groups) == (plain.right, plain.confusion, 30)
        assert found.effect == pytest.approx(4.0), "photos of a group are all right or all wrong"
        assert found.interval == pytest.approx(metrics.wilson_interval(found.right // 4, 30))
        for one, other in zip(found.per_class, plain.per_class, strict=True):
            for wide, narrow in ((one.recall_interval, other.recall_interval),
                                 (one.precision_interval, other.precision_interval)):
                assert wide[0] < narrow[0] <= narrow[1] <= wide[1]
        assert metrics.describe_groups(found).endswith("120 photos (groups: 30) count as 30.")
        assert metrics.describe_groups(plain) == ""
    assert metrics.design_effect(np.arange(9) < 5, np.zeros(9)) == 9, "one group shows nothing about others"
    assert metrics.design_effect(np.arange(4) != 1, np.array([0, 0, 1, 2])) == pytest.approx(17 / 13)
    assert metrics.design_effect(np.arange(4) % 2 > 0, np.array([0, 0, 1, 1])) == 1
    (own, _), (other, _) = (replace(plain, class_effects=effects).per_class for effects in (((1.0, 4.0),) * 2, ()))
    assert own.precision_interval == other.precision_interval
    assert own.recall_interval[0] < other.recall_interval[0]
    assert metrics.compute_metrics(np.ones((1, 1)), np.zeros((1, 1), bool), ("a",)).score == 0.0, "no photo has a label"
    only = np.arange(3)[:, None] == 0
    assert metrics.interval_of_f1(only, only, np.arange(3)) == (0.0, 1.0), "some samples have no label at all"


def test_large_logits_do_not_overflow():
    logits = np.array([[1000.0, 0.0], [0.0, -1000.0]], np.float32)
    assert metrics.cross_entropy(logits, np.array([0, 1])).tolist() == [0.0, 1000.0]
    assert metrics.softmax(logits).tolist() == [[1.0, 0.0], [1.0, 0.0]]
    assert metrics.binary_cross_entropy(logits, logits < 0)[:1] == pytest.approx((1000 + math.log(2)) / 2)
    assert metrics.softmax(np.array([[math.log(2), 0.0]]))[0, 0] == pytest.approx(2 / 3)


CLASSES = ("background/none", "bean/healthy", "bean/rust")
ALONE = np.arange(6)


def test_photos_of_leaves_are_told_apart_by_place_and_the_words_say_what_that_means():
    labels = np.array([1, 1, 2, 2, 0, 1])
    right = np.array([True, True, False, True, True, True])
    parts = metrics.subsets_by_setting(right, labels, CLASSES, ["lab", "lab", "field", " field ", "field", ""], ALONE)
    assert parts == (metrics.Subset("field photos of leaves", 2, 1), metrics.Subset("lab photos of leaves", 2, 2))
    assert (parts[0].accuracy, metrics.Subset("none", 0, 0).accuracy) == (0.5, 0.0)
    assert [part.is_field for part in parts] == [True, False]
    assert metrics.subsets_by_setting(right, labels, CLASSES, [""] * 6, ALONE) == ()
    (whole,) = metrics.subsets_by_setting(right[:2], labels[:2], CLASSES, ["lab", "lab"], ALONE[:2])
    assert whole.name == "lab photos", "as in a run, whose photos have no class without a leaf"
    lab, field = metrics.Subset("lab photos", 100, 99), metrics.Subset("field photos", 50, 30)
    both = metrics.describe_subsets((lab, field))
    assert "lab photos 99.0 % (99 of 100" in both
    assert "field photos 60.0 % (30 of 50, 95 % interval 46.2 to 72.4 %)" in both
    assert "only the accuracy on field photos counts" in both
    assert "is unknown" in metrics.describe_subsets((lab,))
    own = metrics.Subset(metrics.OWN_FIELD, 3, 3)
    assert "All photos were taken in the field" in metrics.describe_subsets((field, own))
    assert metrics.describe_subsets(()) == ""
