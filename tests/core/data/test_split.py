"""Splits by group: deterministic, stratified, and no group in two splits."""

import os
import re
import sys

import numpy as np
import pytest

from core.data import split
from core.data.cache import open_cache
from core.data.dataset import SPLITS, TEST, TRAIN, UNSPLIT, VALIDATION
from core.data.folder import open_folder
from core.data.manifest import open_manifest
from core.data.split import complete_splits, measure_leak, random_split_leak, read_split, split_by_group, write_split
from core.errors import DataError
from tests.helpers.photo_files import leaf_folder


def example(classes=4, groups=60, most=6, seed=0):
    """Labels and groups of photos: groups of 1..most photos, each within one class."""
    random = np.random.default_rng(seed)
    sizes = random.integers(1, most + 1, classes * groups)
    owner = np.repeat(np.arange(classes * groups), sizes)
    return (owner % classes).astype(np.int32), owner.astype(np.int32)


def split_of_groups(splits, groups):
    return [set(splits[groups == g].tolist()) for g in np.unique(groups)]


def test_a_group_of_two_classes_stays_together_and_the_leak_meter_counts_siblings_in_training():
    labels = np.array([0, 0, 1, 1, 1, 0, 1, 0], np.int32)
    groups = np.array([0, 0, 0, 1, 2, 3, 4, 5], np.int32)
    splits = split_by_group(labels, groups, 1, 0.3, 0.2)
    assert all(len(s) == 1 for s in split_of_groups(splits, groups))
    splits = np.array([TRAIN, TEST, VALIDATION, TRAIN, TEST, TEST, UNSPLIT, TEST], np.int8)
    leak = measure_leak(splits, np.array([0, 0, 1, 2, 2, 1, 3, 3]))
    assert (leak.held_out, leak.leaked) == (5, 3), "a test photo has one of its group in validation"
    homes = split._home_class(np.array([0, 1, 1, 2, 0]), np.array([0, 0, 0, 3, 3]))
    assert homes.tolist() == [1, -1, -1, 0], "the most frequent class, the first of a tie, none without photos"


def test_each_group_goes_where_the_counts_come_closest_to_their_targets():
    assert split._assign_splits(np.ones(8, int), np.array([0.75, 0.25, 0])).tolist() == [0, 1, 0, 0, 0, 1, 0, 0]
    assert split._assign_splits(np.array([1, 5, 2, 4]), np.array([0.5, 0.25, 0.25])).tolist() == [0, 0, 1, 2]


@pytest.mark.parametrize("sizes", [[50, *[3] * 8], [1, 1, 1], [5, 1, 1], [30, 30, 1], [9, 3, 3, 2], [12, 1]])
def test_three_groups_are_enough_for_three_splits_and_the_largest_of_few_is_for_training(sizes):
    groups = np.repeat(np.arange(len(sizes)), sizes).astype(np.int32)
    labels = np.zeros(len(groups), np.int32)
    for seed in range(10):
        splits = split_by_group(labels, groups, seed, 0.15, 0.15)
        assert len(set(splits.tolist())) == min(len(sizes), 3)
        if sizes.count(sizes[0]) == 1:
            assert (splits[groups == 0] == TRAIN).all(), "a group of most photos belongs to training"


@pytest.mark.parametrize("seed", range(20))
def test_whatever_the_groups_each_is_whole_training_is_never_empty_and_seed_and_class_alone_decide(seed):
    classes, count, most = np.random.default_rng(seed).integers(1, (6, 31, 10)).tolist()
    labels, groups = example(classes, count, most, seed)
    splits = split_by_group(labels, groups, seed, 0.15, 0.15)
    assert all(len(s) == 1 for s in split_of_groups(splits, groups))
    assert measure_leak(splits, groups).leaked == 0
    assert set(labels[splits == TRAIN].tolist()) == set(labels.tolist())
    first = labels == labels.min()
    assert np.array_equal(splits[first], split_by_group(labels[first], groups[first], seed, 0.15, 0.15))
    assert count < 20 or not np.array_equal(splits, split_by_group(labels, groups, seed + 1, 0.15, 0.15))


def test_a_random_split_of_pairs_leaks_as_chance_says():
    labels = np.zeros(4000, np.int32)
    groups = np.repeat(np.arange(2000), 2)
    splits = split_by_group(labels, groups, 0, 0.15, 0.15)
    leak = random_split_leak(splits, labels, groups, 5)
    assert leak.held_out == measure_leak(splits, groups).held_out
    assert 0.75 < leak.leaked / leak.held_out < 0.8, "0.7 of the siblings are in training, 0.15 in validation"
    pairs = np.maximum(groups, np.arange(4000) - 20)[:60]  # 20, and 20 photos alone
    few = [random_split_leak(splits[:60], labels[:60], pairs, seed).leaked for seed in range(10)]
    assert max(few) - min(few) <= 2, "it is no single draw"


def test_splits_of_the_source_stay_missing_ones_come_from_training_and_rows_follow_their_group():
    given_splits = np.array([TRAIN, VALIDATION, TEST, TRAIN, TEST], np.int8)
    done = complete_splits(given_splits, np.zeros(5, np.int32), np.arange(5), 0, 0.15, 0.15)
    assert np.array_equal(done, given_splits)
    tested = np.full(5, TEST, np.int8)
    assert np.array_equal(complete_splits(tested, np.zeros(5, np.int32), np.arange(5), 0, 0.15, 0.15), tested)
    labels, groups = example()
    source = np.where(groups % 5 == 0, TEST, TRAIN).astype(np.int8)
    done = complete_splits(source, labels, groups, 0, 0.15, 0.15)
    assert np.array_equal(done == TEST, source == TEST)
    share = (done == VALIDATION).sum() / (source == TRAIN).sum()
    assert 0.12 < share < 0.18
    assert measure_leak(done, groups).leaked == 0
    source = np.full(len(labels), UNSPLIT, np.int8)
    source[: len(labels) // 2] = split_by_group(labels, groups, 1, 0.2, 0.2)[: len(labels) // 2]
    done = complete_splits(source, labels, groups, 0, 0.15, 0.15)
    assert (done != UNSPLIT).all()
    assert measure_leak(done, groups).leaked == 0


@pytest.fixture
def split_photos(tmp_path):
    photos = leaf_folder(tmp_path / "photos", each=10)
    if os.name == "posix":
        (photos / "rust" / "009.png").rename(photos / "rust" / f"9\r{chr(0xDCFF) * (sys.platform == 'linux')}.png")
    (photos / "rust" / "000.png").write_bytes((photos / "healthy" / "000.png").read_bytes())
    dataset = open_folder(photos)
    cache = open_cache(dataset, 16, folder=str(tmp_path / "store"))
    groups = np.arange(len(dataset), dtype=np.int32) // 2
    splits = split_by_group(dataset.labels, groups, 3, 0.2, 0.2)
    write_split(tmp_path / "split.csv", dataset, cache, splits, groups)
    return tmp_path, splits


def test_a_written_split_comes_back_and_finds_photos_that_were_renamed(split_photos):
    folder, splits = split_photos
    lines = (folder / "split.csv").read_text(errors="replace").splitlines()
    assert lines[0] == "path,label,group,split,sha256"
    assert lines[1].startswith("healthy/000.png,healthy,g0,")
    assert len(lines[1].rpartition(",")[2]) == 64
    assert np.array_equal(read_again(folder)[0], splits)
    (folder / "photos" / "rust" / "003.png").rename(folder / "photos" / "rust" / "003b.png")
    assert np.array_equal(read_again(folder)[0], splits)
    (folder / "photos" / "healthy" / "001.png").unlink()
    said = [read_again(folder, filtered=filtered)[1] for filtered in (False, True)]
    assert (f"were edited: {SPLITS[splits[1]]} 1." in said[0], said[1]) == (True, ""), "it may be filtered out"


def test_groups_keep_the_names_of_a_source_that_names_them_all(split_photos):
    folder, splits = split_photos
    manifest, written = folder / "photos" / "list.csv", (folder / "split.csv").read_bytes()
    named = re.sub(rb",g(\d)", rb",plant-\1", written)
    for text, wanted in ((named, named), (named.replace(b",plant-0,", b",,", 1), b",g1,")):
        manifest.write_bytes(text)
        dataset = open_manifest(manifest, label="label")
        cache = open_cache(dataset, 16, folder=str(folder / "store"))
        write_split(folder / "again.csv", dataset, cache, splits, dataset.groups)
        assert wanted in (folder / "again.csv").read_bytes()


def test_photos_that_were_renumbered_keep_their_splits(split_photos):
    folder, splits = split_photos
    rust = sorted((folder / "photos" / "rust").iterdir())
    for photo, content in zip(rust, [rust[-1].read_bytes(), *(photo.read_bytes() for photo in rust[:-1])], strict=True):
        photo.write_bytes(content)
    assert not np.array_equal(splits[10:], np.roll(splits[10:], 1))
    assert np.array_equal(read_again(folder)[0], [*splits[:10], *np.roll(splits[10:], 1)])
    rust[3].write_bytes(rust[3].read_bytes() + b"\0")  # an edited photo is found by its name
    assert read_again(folder)[0][13] == splits[13]
    rust[0].unlink()
    assert "are missing or were edited: train 1, val 1." in read_again(folder)[1]


def read_again(folder, name="split.csv", filtered=False):
    """The splits that a file gives the photos as they lie in the folder now, and whether some are missing."""
    dataset = open_folder(folder / "photos")
    return read_split(folder / name, dataset, open_cache(dataset, 16, folder=str(folder / "store")), filtered)


def test_a_split_refuses_new_photos_and_changed_classes(split_photos):
    folder, _ = split_photos
    photos = folder / "photos"
    leaf_folder(folder / "more", classes=("rust",), each=1, seed=5)
    (folder / "more" / "rust" / "000.png").rename(photos / "rust" / "new.png")
    (folder / "split.csv").write_bytes((folder / "split.csv").read_bytes().replace(b",train,", b",,", 1))
    with pytest.raises(DataError, match=r"2 photos are not in the split"):
        read_again(folder)
    (photos / "rust" / "new.png").unlink()
    (photos / "rust").rename(photos / "blight")
    with pytest.raises(DataError, match="has the class blight, but rust in the split"):
        read_again(folder)


def test_a_file_that_is_no_split_is_called_so(split_photos):
    folder, _ = split_photos
    for text in ("path,reason,set\na.jpg,The file is empty.,photos\n", "path,label,split,sha256\na,b,train,01a\n"):
        (folder / "left_out.csv").write_text(text)
        with pytest.raises(DataError, match=r"left_out.csv is not the split of a run. Choose the split.csv"):
            read_again(folder, "left_out.csv")
