"""A photographed digit arrives in MNIST's form, whatever the paper, the pen and the light."""

import numpy as np
import pytest

from core.errors import DataError
from core.laboratory.digit_photos import read_digit
from tests.core.laboratory.digits_on_paper import draw_digits


def test_every_digit_is_white_on_black_and_centred():
    for photo, digit in draw_digits():
        read = read_digit(photo)
        assert (read.shape, read.dtype) == ((28, 28, 1), np.uint8)
        y, x = np.nonzero(read[..., 0] > 60)
        assert 17 <= max(np.ptp(y), np.ptp(x)) + 1 <= 20, digit
        weights = read[..., 0].astype(float)
        centre = [(weights.sum(1 - axis) * np.arange(28)).sum() / weights.sum() for axis in (0, 1)]
        assert np.allclose(centre, 13.5, atol=1.2), (digit, centre)
        assert (read[[0, -1]] == 0).all()


def test_an_empty_sheet_is_told(tmp_path):
    noise = np.random.default_rng(0).normal(200, 3, (400, 300, 3)).clip(0, 255).astype(np.uint8)
    with pytest.raises(DataError, match="No digit"):
        read_digit(noise)
