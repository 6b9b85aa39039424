"""Columns of strings in one block."""

import numpy as np

from core.data.string_array import StringArray, encode

WORDS = ["", "tomato/rust", "лист", "葉", "a\udcffb", "tomato/rust", "x" * 1000]


def test_every_string_comes_back_and_rows_in_any_order():
    texts = StringArray.of(WORDS)
    assert list(texts) == WORDS
    assert [texts[i] for i in range(len(WORDS))] == WORDS
    assert (texts[-1], len(texts)) == (WORDS[-1], len(WORDS))
    assert list(texts.take(np.array([3, 1, 1]))) == ["葉", "tomato/rust", "tomato/rust"]


def test_codes_count_distinct_strings_by_first_appearance():
    codes, names = encode(["b", "a", "b", "c", "a"])
    assert codes.tolist() == [0, 1, 0, 2, 1]
    assert names == ["b", "a", "c"]
    assert encode([])[0].tolist() == []


def test_a_column_takes_little_more_than_its_text():
    texts = StringArray.of(f"folder/{i:06d}.jpg" for i in range(10_000))
    assert len(texts._block) + texts._ends.nbytes == 10_000 * (17 + 8)


def test_strings_that_hold_a_text_are_found_whatever_the_case():
    texts = StringArray.of([*WORDS, "Tomato/RUST/1.jpg", "ru", "st", "Лист", "straße", "B\u0065\u0323\u0302nh"])
    assert np.flatnonzero(texts.holding("Rust")).tolist() == [1, 5, 7]
    assert np.flatnonzero(texts.holding("STRASSE")).tolist() == [11]
    assert np.flatnonzero(texts.holding("bệnh")).tolist() == [12], "macOS and zip files take letters apart"
    assert np.flatnonzero(texts.holding("xxx")).tolist() == [6]
    assert StringArray.of([]).holding("a").shape == (0,)
    assert not texts.holding("rust", lambda: True).any(), "given up before it began"


def test_a_text_is_found_where_python_finds_it_also_over_stretches_and_ends(monkeypatch):
    monkeypatch.setattr("core.data.string_array.STRETCH", 7)
    draw = np.random.default_rng(0)
    names = ["".join(draw.choice(["a", "b", "A"], size)) for size in draw.integers(0, 6, 60)]
    names[40] = "abé"
    texts = StringArray.of(names)
    for wanted in ("", "a", "ab", "ba", "aab", "bbbb", "abababab"):
        assert texts.holding(wanted).tolist() == [wanted in name.lower() for name in names], wanted
