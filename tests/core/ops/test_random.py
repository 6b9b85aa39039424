"""The counter-based generator: fixed words for kernels to mirror, and masks that look random."""

import numpy as np

from core.ops.contract import Mode
from core.ops.dropout import MASK, bits, mix, scales, stream, threshold


def test_mix_is_the_published_hash_also_of_arrays_and_streams_differ():
    # Values printed by C. Wellons' lowbias32 in C.
    assert [mix(x) for x in (0, 1, 2, 0xFFFFFFFF)] == [0, 0x688990C0, 0xD1132181, 0x6768824A]
    first, second = words = stream(seed=7, step=3, key=1, photo=5)
    alone = [mix((mix(element ^ first) + second) & MASK) for element in range(1000)]
    assert bits(words, 1000).tolist() == alone
    streams = {stream(s, t, k, p) for s in range(6) for t in range(6) for k in range(6) for p in range(6)}
    assert len(streams) == 6**4


def test_a_photos_mask_depends_on_its_place_in_the_step_and_not_on_the_batch_it_is_in():
    attributes = {"rate": 0.5, "key": 0}
    whole = scales(attributes, (6, 5, 5, 8), Mode(True, seed=1, step=2))
    part = scales(attributes, (2, 5, 5, 8), Mode(True, seed=1, step=2, photo0=4))
    assert np.array_equal(whole[4:], part)


def test_the_dropped_share_is_the_rate():
    for rate in (0.0, 0.1, 0.5, 0.9):
        kept = scales({"rate": rate, "key": 0}, (4, 100, 100, 4), Mode(True))
        assert abs((kept == 0).mean() - rate) < 0.005
        assert np.allclose(kept[kept > 0], 1 / (1 - rate))
    assert threshold(0.0) == 0
