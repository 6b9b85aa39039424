import numpy as np
import pytest

from core.diagnosis.familiarity import (
    SCORES,
    FeatureStatistics,
    auroc,
    coordinates,
    familiarity,
    fit_statistics,
)


@pytest.fixture(scope="module")
def learned():
    """Three classes as clouds in 12 dimensions, one direction of which is noisy and tells nothing."""
    rng = np.random.default_rng(0)
    centres = rng.normal(0, 4, (3, 12))
    labels = np.repeat(np.arange(3), 200)
    features = centres[labels] + rng.normal(0, 1, (600, 12)) * np.array([30.0] + [1.0] * 11)
    return features, labels, centres, fit_statistics(features, labels, 3, 8)


def test_whitened_coordinates_have_unit_spread_within_classes(learned):
    features, labels, _, statistics = learned
    z = coordinates(features, statistics)
    within = np.std(z - statistics.means[labels], axis=0)
    assert z.shape == (600, 8)
    assert np.all((within > 0.6) & (within < 1.05))


@pytest.mark.parametrize(("scale", "kept"), [(1.0, np.float16), (1e-7, np.float32), (1e9, np.float32)])
def test_a_file_holds_the_statistics_as_they_are_used_in_half_precision_where_that_can_be(learned, scale, kept):
    features, labels, _, _ = learned
    statistics = fit_statistics(features * scale, labels, 3, 8)
    arrays = statistics.to_arrays()
    assert arrays["features.whiten"].dtype == kept
    back = FeatureStatistics.from_arrays(arrays)
    logits = np.zeros((600, 3))
    want, got = (familiarity("relative", logits, features * scale, s) for s in (statistics, back))
    assert got == pytest.approx(want, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("score", ["mahalanobis", "relative"])
def test_photos_far_from_every_class_are_unfamiliar(learned, score):
    features, _, centres, statistics = learned
    rng = np.random.default_rng(1)
    strange = -2 * centres.mean(0) + rng.normal(0, 4, (200, 12))
    logits = np.zeros((600, 3))
    known = familiarity(score, logits, features, statistics)
    unknown = familiarity(score, logits[:200], strange, statistics)
    assert auroc(known, unknown) > 0.9


def test_scores_of_logits_by_hand():
    z = np.log(np.array([[0.7, 0.2, 0.1]]))
    assert familiarity("probability", z, None, None)[0] == pytest.approx(0.7)
    assert familiarity("max_logit", z, None, None)[0] == pytest.approx(np.log(0.7))
    assert familiarity("energy", z + 3, None, None)[0] == pytest.approx(3.0)


def test_scores_say_what_they_lack():
    with pytest.raises(ValueError, match="needs features"):
        familiarity("relative", np.zeros((1, 3)), None, None)
    assert "relative" in SCORES


def test_auroc_counts_ties_as_half():
    assert auroc(np.array([2.0, 3.0]), np.array([0.0, 1.0])) == 1.0
    assert auroc(np.array([1.0, 1.0]), np.array([1.0, 1.0])) == 0.5
    assert auroc(np.array([1.0, 2.0]), np.array([1.0, 3.0])) == pytest.approx(0.375)


def test_statistics_go_to_arrays_and_back_and_crafted_ones_are_refused(learned):
    features, _, _, statistics = learned
    arrays = statistics.to_arrays()
    back = FeatureStatistics.from_arrays(arrays)
    assert back is not None
    assert np.allclose(coordinates(features, back), coordinates(features, statistics), atol=1e-3)
    assert FeatureStatistics.from_arrays({}) is None
    assert FeatureStatistics.from_arrays({**arrays, "features.means": np.zeros((3, 5), np.float32)}) is None
