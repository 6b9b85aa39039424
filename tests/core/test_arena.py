"""Buffers alive at the same time never overlap, whatever their sizes and lifetimes."""

import random

import pytest

from core.arena import LINE, Lifetime, lay_out


@pytest.fixture(params=range(25))
def lives(request):
    """Up to 30 buffers, some empty, each alive for some of 13 steps."""
    draw = random.Random(request.param)
    steps = [sorted((draw.randint(0, 12), draw.randint(0, 12))) for _ in range(draw.randint(0, 30))]
    return [Lifetime(max(0, draw.randint(-500, 5000)), *times) for times in steps]


def test_buffers_alive_together_never_overlap_and_the_block_is_no_larger_than_all_side_by_side(lives):
    arena = lay_out({f"b{i}": life for i, life in enumerate(lives)})
    placed = [(arena.offsets[f"b{i}"], life) for i, life in enumerate(lives)]
    for i, (start, life) in enumerate(placed):
        assert start % LINE == 0
        assert start + life.bytes <= arena.bytes
        for other, its in placed[:i]:
            together = life.first <= its.last and its.first <= life.last
            assert not (together and start < other + its.bytes and other < start + life.bytes)
    rounded = [-(-life.bytes // LINE) * LINE for life in lives]
    needed = [sum(r for r, life in zip(rounded, lives, strict=True) if life.first <= s <= life.last) for s in range(13)]
    assert max(needed, default=0) <= arena.bytes <= sum(rounded)


def test_buffers_that_follow_each_other_share_their_place_the_same_every_time():
    lives = {"a": Lifetime(1000, 0, 1), "b": Lifetime(1000, 1, 2), "c": Lifetime(1000, 2, 3)}
    arena = lay_out(lives)
    assert arena.bytes == 2 * 1024
    assert arena.offsets["a"] == arena.offsets["c"] != arena.offsets["b"]
    lives = {f"b{i}": Lifetime(1000 * (i % 5), i, i + 1) for i in range(9)}
    assert lay_out(lives) == lay_out(dict(reversed(lives.items())))
    assert lay_out(lives).bytes == 7 * 1024, "b3 and b4: in the order of their names they would need 10 KiB"
