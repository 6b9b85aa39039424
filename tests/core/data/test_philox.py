"""The counting generator against the published answers."""

import numpy as np
import pytest

from core.data.philox import philox, uniforms


@pytest.mark.parametrize(("counter", "key", "answer"), [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
])  # fmt: skip
def test_known_answers_of_the_authors(counter, key, answer):
    assert philox(np.array([counter], np.uint64), key)[0].tolist() == list(answer)


def test_draws_are_even_in_0_to_1_and_independent():
    numbers = np.arange(50)
    all_rows = uniforms(10, numbers, numbers % 3, 7, (1, 2))
    some = np.array([40, 3])
    assert np.array_equal(uniforms(10, some, some % 3, 7, (1, 2)), all_rows[some])
    draws = uniforms(8, np.arange(4000), np.zeros(4000), 0, (3, 4))
    assert draws.min() >= 0
    assert draws.max() < 1
    assert abs(draws.mean() - 0.5) < 0.005
    assert np.abs(np.histogram(draws, 10, (0, 1))[0] / draws.size - 0.1).max() < 0.005
    assert np.abs(np.corrcoef(draws.T) - np.eye(8)).max() < 0.06
