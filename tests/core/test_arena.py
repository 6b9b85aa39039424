"""Buffers alive at the same time never overlap, whatever their sizes and lifetimes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from core.arena import LINE, Lifetime, lay_out

STEPS = st.integers(0, 12)
LIVES = st.builds(
    lambda size, a, b: Lifetime(size, min(a, b), max(a, b)), st.integers(0, 5000), STEPS, STEPS
)


@given(st.lists(LIVES, max_size=30))
def test_buffers_alive_together_never_overlap(lives):
    arena = lay_out({f"b{i}": life for i, life in enumerate(lives)})
    placed = [(arena.offsets[f"b{i}"], life) for i, life in enumerate(lives)]
    for i, (start, life) in enumerate(placed):
        assert start % LINE == 0
        assert start + life.bytes <= arena.bytes
        for other, its in placed[:i]:
            together = life.first <= its.last and its.first <= life.last
            assert not (together and start < other + its.bytes and other < start + life.bytes)


@given(st.lists(LIVES, max_size=30))
def test_the_block_is_no_larger_than_all_buffers_side_by_side(lives):
    rounded = [-(-life.bytes // LINE) * LINE for life in lives]
    needed = [sum(r for r, life in zip(rounded, lives, strict=True) if life.first <= s <= life.last) for s in range(13)]
    assert max(needed, default=0) <= lay_out(dict(enumerate(lives))).bytes <= sum(rounded)


def test_buffers_that_follow_each_other_share_their_place():
    lives = {"a": Lifetime(1000, 0, 1), "b": Lifetime(1000, 1, 2), "c": Lifetime(1000, 2, 3)}
    arena = lay_out(lives)
    assert arena.bytes == 2 * 1024
    assert arena.offsets["a"] == arena.offsets["c"] != arena.offsets["b"]


def test_the_layout_is_the_same_every_time():
    lives = {f"b{i}": Lifetime(100 * (i % 3), i, i + 2) for i in range(9)}
    assert lay_out(lives) == lay_out(dict(reversed(lives.items())))
