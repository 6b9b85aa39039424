"""The whole road from a configuration to photos that can be trained on."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from core.config import RunConfig
from core.data.cache import open_cache
from core.data.dataset import TEST, TRAIN, UNSPLIT, VALIDATION
from core.data.folder import open_folder
from core.data.preparation import prepare_photos
from core.data.split import write_split
from core.data.synthetic import write_demo
from core.errors import DataError
from tests.helpers.photo_files import leaf_folder


@pytest.fixture
def config(tmp_path):
    leaf_folder(tmp_path / "photos", each=20)
    return RunConfig(data=str(tmp_path / "photos"), cache=str(tmp_path / "store"), image_size=32, seed=5)


def test_every_usable_photo_has_a_split_and_every_stage_reports(config):
    told = []
    photos = prepare_photos(config, lambda *report: told.append(report))
    assert [len(photos.rows(s)) for s in (TRAIN, VALIDATION, TEST)] == [28, 6, 6]
    assert {stage for stage, _, _ in told} == {"scan", "cache", "copies"}
    assert (photos.leak.leaked, photos.warnings) == (0, ())
    assert np.array_equal(photos.splits, prepare_photos(config).splits)
    assert photos.fingerprint == prepare_photos(config).fingerprint


def test_a_set_of_labels_may_be_missing_in_the_training_split_but_no_label(config, tmp_path):
    rows = [f"healthy/{n:03d}.png,{label},{split}" for n, (label, split) in enumerate((
        ("scab", "train"), ("rust", "train"), ("mildew", "val"), ("scab+rust", "val"), ("scab", "val")))]  # fmt: skip
    shutil.copy(tmp_path / "photos" / "healthy" / "003.png", tmp_path / "photos" / "same.png")
    rows.append("same.png,rust+scab,val")
    manifest = tmp_path / "photos" / "manifest.csv"
    manifest.write_text("\n".join(("path,label,split", *(row for row in rows if "mildew" not in row))))
    photos = prepare_photos(replace(config, data=str(manifest), label="label"))
    assert (photos.classes, [text for text in photos.warnings if "two labels" in text]) == (("rust", "scab"), [])
    manifest.write_text("\n".join(("path,label,split", *rows)))
    with pytest.raises(DataError, match="training split has no photo of mildew\\."):
        prepare_photos(replace(config, data=str(manifest), label="label"))


def list_photos(config, group):
    """The configuration for a manifest of the photos, with the group that `group` gives a file."""
    root = Path(config.data)
    rows = (f"{file.relative_to(root).as_posix()},{file.parent.name},{group(file)}" for file in root.rglob("*.png"))
    (root / "all.csv").write_text("\n".join(["path,label,group", *sorted(rows)]))
    return replace(config, data=str(root / "all.csv"))


def test_classes_that_look_the_same_are_named(config, tmp_path):
    labels, photos = ("Rust", "rust", "black rot", "black_rot", "gỉ", "gỉ\u200b", "scab"), tmp_path / "photos"
    rows = [f"{photo},{labels[at % 7]}" for at, photo in enumerate(sorted(photos.rglob("*.png")))]
    (photos / "list.csv").write_text("\n".join(["path,label", *rows]), "utf-8")
    alike = "'Rust', 'rust', 'black rot', 'black_rot', 'gỉ', 'gỉ\\u200b'"
    said = f"The classes {alike} differ only in case, underscores or invisible characters."
    assert said in "".join(prepare_photos(replace(config, data=str(photos / "list.csv"))).warnings)


@pytest.mark.parametrize("named", [None, "none", "healthy", "-again"])
def test_near_copies_go_to_one_split_unless_the_source_names_their_groups(config, named):
    for source in Path(config.data).rglob("*[02468].png"):
        source.with_stem(f"{source.stem}-again").write_bytes(source.read_bytes())
    if named is not None:
        config = list_photos(config, lambda file: file if named in str(file.relative_to(config.data)) else "")
    photos = prepare_photos(config)
    rows = {path: row for row, path in enumerate(photos.dataset.paths)}
    for path, row in rows.items():
        if "again" in path and not path.startswith(str(named)):
            assert photos.splits[row] == photos.splits[rows[path.replace("-again", "")]]
    assert photos.leak.leaked == 0
    assert photos.random_leak.leaked > 0


def test_pictures_under_two_labels_are_named_also_where_the_groups_are_given(config, tmp_path):
    healthy, rust = (tmp_path / "photos" / label for label in ("healthy", "rust"))
    for number in range(4):
        (rust / f"{number}-again.png").write_bytes((healthy / f"{number:03d}.png").read_bytes())
    for file in (healthy, rust):
        (file / "broken.png").write_bytes(b"no photo")  # equal too, but left out
    (said,) = (text for text in prepare_photos(config).warnings if "labels" in text)
    assert said == (
        "Pictures with two labels: 4 (healthy/000.png (healthy) = rust/0-again.png (rust); healthy/001.png (healthy) = "
        "rust/1-again.png (rust); healthy/002.png (healthy) = rust/2-again.png (rust); …). Correct the labels, or "
        "remove these photos."
    )
    told = prepare_photos(list_photos(config, str))
    assert told.dataset.groups is not None
    assert said in told.warnings


def test_photos_that_cannot_be_used_are_said_and_a_class_or_a_set_of_none_but_these_stops_the_run(config, tmp_path):
    (tmp_path / "photos" / "rust" / "bad.jpg").write_bytes(b"bad")
    photos = prepare_photos(config)
    row = list(photos.dataset.paths).index("rust/bad.jpg")
    assert photos.splits[row] == UNSPLIT
    assert "1 photo is excluded: 1 x The file is not a photo" in photos.warnings[0]
    (tmp_path / "photos" / "blight").mkdir()
    (tmp_path / "photos" / "blight" / "bad.jpg").write_bytes(b"")
    with pytest.raises(DataError, match=r"blight can be used: 1 x The file is empty \(such as blight/bad.jpg\)\. R"):
        prepare_photos(config)
    for file in (tmp_path / "photos").rglob("*.png"):
        file.write_bytes(b"bad")
    with pytest.raises(DataError, match="None of the 42 photos can be used: 41 x"):
        prepare_photos(config)


def test_the_manifests_groups_and_splits_win_and_a_split_that_tears_groups_apart_is_warned_about(tmp_path):
    manifest = write_demo(tmp_path / "demo", photos_per_class=20, side=32)
    config = RunConfig(data=str(manifest), cache=str(tmp_path / "store"), image_size=32)
    photos = prepare_photos(config)
    assert np.array_equal(photos.splits, photos.dataset.splits)
    assert len(np.unique(photos.groups)) == 40
    assert photos.random_leak.leaked > 10
    lines = manifest.read_text().splitlines()
    torn = [line.replace(",train,", ",test,") if "00001.jpg" in line else line for line in lines]
    manifest.write_text("\n".join(torn) + "\n")
    photos = prepare_photos(config)
    assert photos.leak.leaked == 4
    assert any("4 of 28 validation and test photos" in w and "too high" in w for w in photos.warnings)


@pytest.mark.parametrize(("split", "said"), [
    ("train", "None of the 40 photos .* is left for validation"), ("val", "None of the 40 photos .* for training"),
])  # fmt: skip
def test_a_split_with_an_empty_part_stops_the_run(config, tmp_path, split, said):
    dataset = open_folder(tmp_path / "photos")
    cache = open_cache(dataset, 32, folder=config.cache)
    splits = np.full(len(dataset), ("train", "val").index(split), np.int8)
    write_split(tmp_path / "split.csv", dataset, cache, splits, np.arange(len(dataset)))
    with pytest.raises(DataError, match=said):
        prepare_photos(replace(config, split=str(tmp_path / "split.csv")))
