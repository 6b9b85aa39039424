"""Near-copies are looked for once, and again when a photo changes."""

import numpy as np
import pytest

from core.data import near_duplicate_cache
from core.data.cache import open_cache
from core.data.folder import open_folder
from core.data.near_duplicate_cache import find_near_duplicates
from core.data.near_duplicates import Pair
from tests.helpers.photo_files import leaf_folder


@pytest.fixture
def copies(tmp_path):
    root = leaf_folder(tmp_path / "photos", each=4)
    (root / "rust" / "again.png").write_bytes((root / "healthy" / "002.png").read_bytes())
    (root / "healthy" / "000.png").write_bytes(b"broken, so that rows and kept rows differ")

    def look():
        dataset = open_folder(root)
        return dataset, find_near_duplicates(open_cache(dataset, 32, folder=str(tmp_path / "store")))

    return root, look


def test_pairs_are_rows_of_the_dataset(copies):
    dataset, pairs = copies[1]()
    paths = list(dataset.paths)
    assert pairs == [Pair(paths.index("healthy/002.png"), paths.index("rust/again.png"), 1.0)]


def test_they_are_looked_for_once(copies, monkeypatch):
    _, first = copies[1]()
    monkeypatch.setattr(near_duplicate_cache, "find_pairs", lambda *a: pytest.fail("looked for again"))
    assert copies[1]()[1] == first


def test_they_are_looked_for_again_when_a_photo_changes(copies):
    root, look = copies
    look()
    (root / "rust" / "again.png").unlink()
    assert look()[1] == []
    (root / "rust" / "more.png").write_bytes((root / "rust" / "001.png").read_bytes())
    assert len(look()[1]) == 1


@pytest.mark.parametrize("harm", [b"", b"garbage", None])
def test_a_harmed_file_is_written_anew(copies, tmp_path, harm):
    _, first = copies[1]()
    (file,) = (tmp_path / "store").rglob("*.copies")
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]) if harm is None else harm)
    assert copies[1]()[1] == first
    assert file.read_bytes() == whole


def test_no_pairs_are_known_as_well_as_some(tmp_path, monkeypatch):
    dataset = open_folder(leaf_folder(tmp_path / "photos", each=3))
    cache = open_cache(dataset, 32, folder=str(tmp_path / "store"))
    assert find_near_duplicates(cache) == []
    monkeypatch.setattr(near_duplicate_cache, "hash_photos", lambda *a: pytest.fail("looked for again"))
    assert find_near_duplicates(cache) == []
    assert np.array_equal(cache.kept, np.arange(6))
