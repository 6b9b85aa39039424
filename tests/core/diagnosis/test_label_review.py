"""Wrong labels are found by heads that saw neither them nor their group; chosen photos cover what has no label."""

import numpy as np
import pytest

from core.diagnosis import label_review
from core.diagnosis.head_fitting import Samples
from core.diagnosis.label_review import choose_photos, project_features, review_labels
from core.errors import DataError

CLASSES, EACH, FEATURES = 4, 40, 16


@pytest.fixture
def photos():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(CLASSES), EACH)
    centres = 3 * rng.normal(size=(CLASSES, FEATURES))
    return Samples(centres[labels] + rng.normal(size=(len(labels), FEATURES)), labels, np.arange(len(labels)) // 2)


def test_flipped_labels_are_the_suspects_the_true_ones_are_suggested_and_every_fold_is_reported_before(photos):
    flipped, folds = np.array([3, 47, 81, 130]), []
    labels = photos.labels.copy()
    labels[flipped] = (labels[flipped] + 1) % CLASSES
    review = review_labels(Samples(photos.features, labels, photos.groups), CLASSES, lambda *fold: folds.append(fold))
    assert folds == [(fold, label_review.FOLDS) for fold in range(label_review.FOLDS)]
    assert {suspect.row for suspect in review.suspects} == set(flipped)
    for suspect in review.suspects:
        assert (suspect.label, suspect.suggested) == (labels[suspect.row], photos.labels[suspect.row])
        assert suspect.agreeing == 5
        assert suspect.confidence < 0.2 < suspect.probability
    assert review.agreement == 1 - len(flipped) / len(labels)
    assert suspect.describe("abcd").endswith(" % a; 5 of its 5 nearest photos are labelled a")


def test_a_group_with_one_wrong_label_does_not_confirm_itself(photos):
    """Both photos of a leaf have the wrong label; a head or neighbours that see one of them confirm the other."""
    labels = photos.labels.copy()
    labels[10:12] = 2
    copies = photos.features.copy()
    copies[11] = copies[10]
    samples = Samples(label_review.project_features(copies), labels, photos.groups)
    probabilities = label_review.predict_out_of_fold(samples, CLASSES)
    assert (probabilities[10:12].argmax(axis=1) == 0).all()
    assert [s.agreeing for s in review_labels(Samples(copies, labels, photos.groups), CLASSES).suspects] == [5, 5]


def test_classes_with_few_groups_are_not_reviewed_and_too_few_groups_refused(photos):
    rare = np.flatnonzero(photos.labels == 3)[: 2 * (label_review.FEWEST - 1)]
    rows = np.concatenate((np.flatnonzero(photos.labels < 3), rare))
    review = review_labels(photos.take(rows), CLASSES)
    assert review.few == (3,)
    assert not [s for s in review.suspects if 3 in (s.label, s.suggested)]
    with pytest.raises(DataError, match="No class has photos of 5 leaves or more"):
        review_labels(photos.take(np.arange(2)), CLASSES)


def test_photos_of_clouds_without_labels_are_chosen_first_one_of_each(photos):
    """Two classes have labels; the most informative photos are of the other two, and not one and the same."""
    known = np.r_[0:10, EACH : EACH + 10]
    pool = np.setdiff1d(np.arange(len(photos.labels)), known)
    chosen = pool[choose_photos(photos.take(known), photos.features[pool], CLASSES, 10)]
    assert len(set(chosen)) == 10
    shares = np.bincount(photos.labels[chosen], minlength=CLASSES)
    assert shares[2:].sum() >= 7
    assert (shares[2:] > 0).all()
    again = pool[choose_photos(photos.take(known), photos.features[pool], CLASSES, 10)]
    assert np.array_equal(chosen, again)


def test_features_of_different_scales_count_alike():
    features = np.random.default_rng(5).normal(size=(60, 12))
    scaled = features * np.repeat((1.0, 100.0), 6) + 7
    one, other = (project_features(part) @ project_features(part).T for part in (features, scaled))
    assert np.allclose(one, other), "the similarity of photos does not depend on the unit of a feature"
    assert np.isfinite(project_features(np.ones((60, 12)))).all()
