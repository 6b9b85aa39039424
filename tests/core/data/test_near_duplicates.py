"""Near-duplicates: found however they were rotated, mirrored, compressed or lit, and searched for once."""

import cv2
import numpy as np
import pytest

from core.data import near_duplicates
from core.data.cache import open_cache
from core.data.folder import open_folder
from core.data.leaf_drawing import CONDITIONS, draw_leaf
from core.data.near_duplicates import Pair, find_near_duplicates, find_pairs, hash_photos, join_pairs
from tests.helpers.photo_files import jpeg, leaf_folder

SIDE = 96
COUNT = 24


@pytest.fixture(scope="module")
def photos():
    return np.stack([draw_leaf(CONDITIONS[i % 4], 5, i, side=SIDE).rgb for i in range(COUNT)])


def compressed(rgb):
    return cv2.imdecode(np.frombuffer(jpeg(rgb, 50), np.uint8), cv2.IMREAD_COLOR)[..., ::-1]


CHANGES = {
    "the same": lambda rgb: rgb, "compressed": compressed, "a quarter turn": lambda rgb: np.rot90(rgb),
    "a half turn": lambda rgb: np.rot90(rgb, 2), "three quarters": lambda rgb: np.rot90(rgb, 3),
    "mirrored": lambda rgb: rgb[:, ::-1], "upside down": lambda rgb: rgb[::-1],
    "mirrored, turned and compressed": lambda rgb: compressed(np.ascontiguousarray(np.rot90(rgb[:, ::-1]))),
    "lighter": lambda rgb: np.clip(rgb * 1.15 + 8, 0, 255).astype(np.uint8),
    "smaller and back": lambda rgb: cv2.resize(cv2.resize(rgb, (40, 40), interpolation=cv2.INTER_AREA), (SIDE, SIDE)),
    "noisy": lambda rgb: np.clip(rgb + np.random.default_rng(0).normal(0, 8, rgb.shape), 0, 255).astype(np.uint8),
}  # fmt: skip


def pairs_of(photos, **more):
    return find_pairs(hash_photos(photos, np.arange(len(photos))), **more)


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_copy_is_found(photos, change):
    changed = np.stack([np.ascontiguousarray(CHANGES[change](rgb)) for rgb in photos])
    found = {(p.first, p.second) for p in pairs_of(np.concatenate((photos, changed)))}
    wanted = {(i, i + COUNT) for i in range(COUNT)}
    assert len(wanted - found) <= (change != "the same")
    assert not found - wanted


def test_different_leaves_and_flat_pictures_are_no_copies_but_equal_files_are(photos):
    assert pairs_of(photos) == []
    flat = np.stack([np.full((32, 32, 3), level, np.uint8) for level in range(0, 250, 10)])
    assert pairs_of(flat) == []
    content = np.array([3, 1, 2, 0, 1, 0, 3], np.uint8)[:, None].repeat(32, axis=1)
    found = pairs_of(np.full((7, 32, 32, 3), 90, np.uint8), content=content)
    assert found == [Pair(0, 6, 1.0), Pair(1, 4, 1.0)], "files that were not read have no content"
    alike = np.stack([photos[0], CHANGES["noisy"](photos[0])])
    assert pairs_of(alike, content=content[:1].repeat(2, axis=0)) == [Pair(0, 1, 1.0)]
    (pair,) = pairs_of(alike)
    assert pair.likeness < 1
    ridge = (120 - 10 * np.abs(np.arange(24) - 11.5)).astype(np.uint8)[None].repeat(24, axis=0)
    assert near_duplicates.difference_hash(np.stack([ridge, ridge.T])).tolist()[0] == 0xF0F0F0F0F0F0F0F0


@pytest.mark.parametrize("radius", [0, 3, 7])
def test_the_bands_miss_no_pair_within_the_radius(radius):
    random = np.random.default_rng(radius)
    base = random.integers(0, 2**63, 40, dtype=np.uint64)
    hashes = np.empty((80, 8), np.uint64)
    hashes[:40] = base[:, None]
    for i in range(40):
        flips = random.permutation(64)[: random.integers(0, 12)]
        hashes[40 + i] = base[i] ^ np.uint64(sum(1 << int(b) for b in flips))
    hashes[:, 1:] = random.integers(0, 2**63, (80, 7), dtype=np.uint64)
    got = set()
    for first, second, view in near_duplicates._candidates(hashes, radius):
        got |= {(int(a), int(b), view) for a, b in zip(first, second, strict=True)}
    wanted = set()
    for view in range(8):
        bits = np.bitwise_count(hashes[:, None, 0] ^ hashes[None, :, view])
        wanted |= {(int(a), int(b), view) for a, b in np.argwhere(bits <= radius) if a < b or (view and a != b)}
    assert got == wanted
    assert wanted


def test_photos_that_nearly_all_look_alike_take_bounded_work_and_copies_of_others_are_still_found(photos):
    flat = np.full((4000, 24, 24, 3), 120, np.uint8)
    flat[:COUNT] = [cv2.resize(rgb, (24, 24), interpolation=cv2.INTER_AREA) for rgb in photos]
    flat[COUNT : 2 * COUNT] = flat[:COUNT, :, ::-1]
    found = near_duplicates._candidates(hash_photos(flat, np.arange(4000)).hashes, 7)
    count = sum(len(first) for first, _, _ in found)
    assert count < 4000 * 100, "4,000 flat photos would make 8 million pairs in each view"
    assert {(i, i + COUNT) for i in range(COUNT)} <= {(p.first, p.second) for p in pairs_of(flat)}
    blocks = [len(first) for first, _, _ in near_duplicates._candidates(np.zeros((600, 8), np.uint64), 0)]
    assert (max(blocks) < 1 << 16, sum(blocks)) == (True, 600 * 599 * 15 // 2), "their thumbnails are in memory at once"


def test_groups_join_along_pairs_also_a_thousand_copies_of_one_picture():
    pairs = [Pair(0, 3, 1.0), Pair(3, 5, 1.0), Pair(1, 2, 1.0)]
    assert join_pairs(6, pairs).tolist() == [0, 1, 1, 0, 2, 0]
    assert join_pairs(6, [Pair(0, 1, 1.0)], np.array([4, 2, 2, 0, 4, 1])).tolist() == [0, 0, 0, 1, 0, 2]
    assert join_pairs(0, []).tolist() == []
    assert near_duplicates.join_groups(np.array([0, 0, 1, 2, 3]), np.array([5, 1, 1, 2, 3])).tolist() == [0, 0, 0, 1, 2]
    order = np.random.default_rng(0).permutation(1000)
    pairs = [Pair(min(a, b), max(a, b), 1.0) for a, b in zip(order[:-1].tolist(), order[1:].tolist(), strict=True)]
    assert join_pairs(1000, pairs).max() == 0


@pytest.fixture
def copies(tmp_path):
    root = leaf_folder(tmp_path / "photos", each=4)
    (root / "rust" / "again.png").write_bytes((root / "healthy" / "002.png").read_bytes())
    (root / "healthy" / "000.png").write_bytes(b"broken, so that rows and kept rows differ")

    def look():
        dataset = open_folder(root)
        return dataset, find_near_duplicates(open_cache(dataset, 32, folder=str(tmp_path / "store")))

    return root, look


def test_pairs_are_rows_of_the_dataset_and_are_looked_for_once(copies, monkeypatch):
    dataset, pairs = copies[1]()
    paths = list(dataset.paths)
    assert pairs == [Pair(paths.index("healthy/002.png"), paths.index("rust/again.png"), 1.0)]
    assert near_duplicates.describe_conflicts(dataset, pairs).startswith(
        "Pictures with two labels: 1 (healthy/002.png (healthy) = rust/again.png (rust)). ")  # fmt: skip
    monkeypatch.setattr(near_duplicates, "find_pairs", lambda *a: pytest.fail("looked for again"))
    assert copies[1]()[1] == pairs


def test_they_are_looked_for_again_when_a_photo_changes_and_none_is_known_as_well_as_some(copies, monkeypatch):
    root, look = copies
    look()
    (root / "rust" / "again.png").unlink()
    assert look()[1] == []
    with monkeypatch.context() as patch:
        patch.setattr(near_duplicates, "hash_photos", lambda *a: pytest.fail("looked for again"))
        assert look()[1] == []
    (root / "rust" / "more.png").write_bytes((root / "rust" / "001.png").read_bytes())
    assert len(look()[1]) == 1


def test_a_harmed_file_is_written_anew(copies, tmp_path):
    _, first = copies[1]()
    (file,) = (tmp_path / "store").rglob("*.copies")
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert copies[1]()[1] == first
    assert file.read_bytes() == whole
    file.unlink()
    file.mkdir()
    assert copies[1]()[1] == first, "where nothing can be written, as on a full disk"
