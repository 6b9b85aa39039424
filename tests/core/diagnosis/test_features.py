"""Pooled features of the last map, and how familiar a photo is by them."""

import numpy as np
import pytest

from benchmarks.intervals import auroc
from core.diagnosis.features import PrincipalSubspace, familiarity, feature_node, fit_subspace, pool, read_statistics
from core.models import build


@pytest.fixture(scope="module")
def learned():
    """Logits and features of three classes in 40 dimensions that vary in 5 of them, and the fitted subspace."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(3), 200)
    directions = np.linalg.qr(rng.normal(size=(40, 5)))[0]
    features = (np.eye(3)[labels] @ rng.normal(0, 4, (3, 5)) + rng.normal(0, 1, (600, 5))) @ directions.T + 2
    features += rng.normal(0, 0.05, features.shape)
    logits = 5 * np.eye(3)[labels] + rng.normal(0, 1, (600, 3))
    return logits, features, fit_subspace(logits, features, 5)


def test_a_photo_off_the_subspace_is_unfamiliar_and_the_scale_is_that_of_the_largest_logits(learned):
    logits, features, space = learned
    strange = features + np.random.default_rng(1).normal(0, 1, features.shape)
    known, unknown = (familiarity("vim", logits, x, space) for x in (features, strange))
    assert auroc(known, unknown) > 0.99
    assert auroc(familiarity("energy", logits, features, space), familiarity("energy", logits, strange, space)) == 0.5
    known, unknown = (familiarity("vim", z, features, space) for z in (logits, logits / 10))
    assert auroc(known, unknown) > 0.9
    logits, features, space = learned
    assert space.scale * space.residual(features).mean() == pytest.approx(logits.max(axis=1).mean(), rel=1e-6)


@pytest.mark.parametrize(("photos", "kept"), [(2, 1), (30, 3), (600, 39)])
def test_few_photos_span_a_small_subspace(learned, photos, kept):
    logits, features, _ = learned
    assert fit_subspace(logits[:photos], features[:photos]).basis.shape == (40, kept)


def test_the_subspace_goes_to_arrays_and_back_and_crafted_ones_are_refused(learned):
    logits, features, space = learned
    arrays = space.to_arrays()
    back = read_statistics(arrays)
    assert isinstance(back, PrincipalSubspace)
    want, got = (familiarity("vim", logits, features, s) for s in (space, back))
    assert got == pytest.approx(want, rel=1e-4, abs=1e-4)
    assert read_statistics({}) is None
    assert read_statistics({**arrays, "features.basis": np.zeros((3, 5), np.float32)}) is None
    assert read_statistics({**arrays, "features.scale": np.array([np.nan], np.float32)}) is None
    assert read_statistics({"features.center": arrays["features.center"]}) is None


def test_energy_auroc_with_ties_and_pooling_by_hand_and_a_network_without_a_map():
    z = np.log(np.array([[0.7, 0.2, 0.1]]))
    assert familiarity("energy", z + 3, None, None)[0] == pytest.approx(3.0)
    assert familiarity("energy", z + 3, None, None, temperature=0.5)[0] == pytest.approx(6 + np.log(0.54))
    assert auroc(np.array([2.0, 3.0]), np.array([0.0, 1.0])) == 1.0
    assert auroc(np.array([1.0, 1.0]), np.array([1.0, 1.0])) == 0.5
    assert auroc(np.array([1.0, 2.0]), np.array([1.0, 3.0])) == pytest.approx(0.375)
    assert feature_node(build("mlp", 3, 16)) is None
    assert pool(np.arange(8.0).reshape(1, 2, 2, 2)).tolist() == [[3.0, 4.0]]
