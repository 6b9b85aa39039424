"""Masks that a person corrects: painting, percentage, keeping."""

import numpy as np
import pytest

from app.mask import BACKGROUND, DISEASED, LEAF, Mask, mask_path, read_mask, write_mask


@pytest.fixture
def half():
    labels = np.zeros((100, 100), np.uint8)
    labels[:, :50] = LEAF
    return Mask(labels)


def test_painted_disease_is_a_share_of_the_leaf_also_beside_it_and_can_be_taken_away(half):
    painted = half.paint(0.5, 0.25, 0.1, DISEASED)
    assert painted.severity.percent == pytest.approx(100 * np.pi * 10**2 / 5000, rel=0.06)
    assert half.severity.percent == 0
    assert (painted.corrected, half.corrected) == (True, False)
    beside = half.paint(0.5, 0.8, 0.1, DISEASED)
    assert beside.severity.leaf.sum() > half.severity.leaf.sum()
    assert np.array_equal(beside.paint(0.5, 0.8, 0.12, BACKGROUND).labels, half.labels)
    assert half.paint(0.5, 0.25, 0.1, BACKGROUND).severity.leaf.sum() < half.severity.leaf.sum()


def test_a_brush_on_a_cut_out_leaf_lands_where_the_hand_is():
    mask = Mask(np.full((100, 100), LEAF, np.uint8), (0.5, 0.5, 1.0, 1.0))
    rows, columns = np.nonzero(mask.paint(0.75, 0.6, 0.05, DISEASED).labels == DISEASED)
    assert (rows.mean(), columns.mean()) == (pytest.approx(50, abs=1), pytest.approx(20, abs=1))
    assert np.ptp(rows) + 1 == pytest.approx(20, abs=2)
    assert not (mask.paint(0.1, 0.1, 0.05, DISEASED).labels == DISEASED).any()


def test_a_correction_is_kept_and_a_spoilt_file_is_none(half, tmp_path):
    path = mask_path(tmp_path, "ab" * 32)
    assert read_mask(path) is None
    painted = half.paint(0.5, 0.25, 0.1, DISEASED)
    write_mask(path, painted, "ab" * 32)
    back = read_mask(path)
    assert (np.array_equal(back.labels, painted.labels), back.corrected) == (True, True)
    path.write_bytes(path.read_bytes()[:-5])
    assert read_mask(path) is None
