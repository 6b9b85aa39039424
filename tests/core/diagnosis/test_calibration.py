import numpy as np
import pytest

from core.diagnosis.calibration import fit_temperature, measure_reliability
from core.diagnosis.metrics import cross_entropy, softmax


def drawn(temperature, photos=20000, classes=6, seed=0):
    """Logits whose labels are drawn from softmax(logits / temperature)."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 3, (photos, classes))
    p = np.exp(logits / temperature)
    p /= p.sum(1, keepdims=True)
    labels = (p.cumsum(1) > rng.random((photos, 1))).argmax(1)
    return logits, labels


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.5])
def test_the_temperature_that_drew_the_labels_is_found(temperature):
    logits, labels = drawn(temperature)
    assert fit_temperature(logits, labels) == pytest.approx(temperature, rel=0.04)


def test_no_neighbouring_temperature_has_a_smaller_loss():
    logits, labels = drawn(1.7, photos=500)
    best = fit_temperature(logits, labels)
    loss = {t: cross_entropy(logits / t, labels).mean() for t in (best / 1.01, best, best * 1.01)}
    assert min(loss, key=loss.get) == best


def test_without_photos_the_temperature_is_one():
    assert fit_temperature(np.empty((0, 3)), np.empty(0, np.int64)) == 1.0


def test_scaling_takes_the_calibration_error_away():
    logits, labels = drawn(2.5)
    before = measure_reliability(softmax(logits), labels)
    after = measure_reliability(softmax(logits, fit_temperature(logits, labels)), labels)
    assert before.error > 0.1
    assert before.error_equal_count > 0.1
    assert after.error < 0.015
    assert after.error_equal_count < 0.02


def test_the_error_of_a_hand_made_case():
    # stated 0.8 of which half are right, twice: |0.8 - 0.5|; both kinds of bin agree
    got = measure_reliability(np.array([[0.8, 0.2]] * 4), np.array([0, 0, 1, 1]))
    assert got.error == pytest.approx(0.3)
    assert [(b.photos, round(b.stated, 6), b.right) for b in got.bins] == [(4, 0.8, 0.5)]


@pytest.mark.parametrize("seed", range(10))
def test_every_photo_is_in_one_bin_and_the_error_is_a_share(seed):
    rng = np.random.default_rng(seed)
    photos, classes = max(1, rng.integers(-5, 61)), rng.integers(2, 6)
    got = measure_reliability(softmax(rng.normal(0, 5, (photos, classes))), rng.integers(0, classes, photos))
    assert sum(b.photos for b in got.bins) == photos
    assert 0 <= got.error <= 1
    assert 0 <= got.error_equal_count <= 1
