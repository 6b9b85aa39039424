"""Several labels in one class name: how names are read and joined, and what a network is trained with."""

import numpy as np
import pytest

from core.data.label_sets import join_labels, read_label_sets, split_name, target_table


@pytest.mark.parametrize(("name", "labels", "joined"), [
    ("apple/scab+black_rot", ("apple/scab", "apple/black_rot"), "apple/scab+black_rot"),
    ("scab; rust ;mildew", ("scab", "rust", "mildew"), "scab+rust+mildew"),
    ("apple/scab;apple/rust", ("apple/scab", "apple/rust"), "apple/scab+rust"),
    ("apple/scab+pear/rust", ("apple/scab", "pear/rust"), "apple/scab+pear/rust"), ("healthy", ("healthy",), "healthy"),
])  # fmt: skip
def test_a_name_is_split_into_its_labels_and_joined_again(name, labels, joined):
    assert split_name(name) == labels
    assert join_labels(labels) == joined
    assert split_name(joined) == labels


def test_the_data_say_whether_photos_have_several_labels_in_any_order():
    sets = read_label_sets(("a/rust", "a/scab", "a/scab+rust"), "auto")
    assert sets.labels == ("a/rust", "a/scab")
    assert sets.members.tolist() == [[True, False], [False, True], [True, True]]
    assert read_label_sets(("N+P", "potassium"), "auto") is None  # the name of one class
    assert read_label_sets(("N+P", "potassium"), "multi").labels == ("N", "P", "potassium")
    assert read_label_sets(("scab", "scab+rust"), "single") is None
    assert read_label_sets(("rust+scab", "scab", "scab+rust"), "multi").merge_equal(np.arange(3)).tolist() == [0, 1, 0]


def test_targets_are_smoothed_label_by_label():
    sets = read_label_sets(("rust", "scab+rust"), "multi")
    np.testing.assert_allclose(target_table(2, 0.2, sets), [[0.9, 0.1], [0.9, 0.9]])
    np.testing.assert_allclose(target_table(2, 0.2), [[0.9, 0.1], [0.1, 0.9]])
