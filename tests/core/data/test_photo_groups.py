"""Photos of one leaf are a group: by their names, PlantVillage's list of leaves, and the clocks of cameras."""

import json
import struct
from dataclasses import replace

import numpy as np
import pytest

from core.config import RunConfig
from core.data import photo_groups
from core.data.cache import open_cache
from core.data.folder import open_folder
from core.data.manifest import open_manifest
from core.data.photo_format import taken_at
from core.data.photo_groups import (
    LARGEST_BURST,
    LEAF_MAP,
    describe_sessions,
    find_groups,
    group_by_burst,
    group_by_leaf_map,
    group_by_name,
)
from core.data.photo_reader import read_photo
from core.data.preparation import prepare_photos
from tests.core.data.test_folder import plant
from tests.helpers.photo_files import array, corners, jpeg, jpeg_with_exif, leaf_folder


@pytest.mark.parametrize(("path", "source"), [
    ("a/0ab1-22___RS_HL 0123_flipLR.JPG", "0ab1-22___RS_HL 0123"),
    ("a/0ab1-22___RS_HL 0123_flipTB.JPG", "0ab1-22___RS_HL 0123"),
    ("a/0ab1-22___RS_HL 0123_new30degFlipLR.JPG", "0ab1-22___RS_HL 0123"),
    ("a/0ab1-22___RS_HL 0123_180deg.JPG", "0ab1-22___RS_HL 0123"), ("leaf_rotated90_hflip.png", "leaf"),
    ("leaf-rotated-90.png", "leaf"), ("leaf_aug_3.png", "leaf"), ("leaf_mirrored.png", "leaf"),
    ("IMG_0012.jpg", "IMG_0012"), ("IMG (2).jpg", "IMG (2)"), ("carrot.jpg", "carrot"),
    ("black_rot/black_rot_4.jpg", "black_rot_4"), ("black rot 90.jpg", "black rot 90"), ("rot.jpg", "rot"),
    ("parrot_12.jpg", "parrot_12"),
])  # fmt: skip
def test_what_was_done_is_taken_off_the_name(path, source):
    assert photo_groups.source_name(path) == source


def test_copies_join_their_source_across_folders_but_not_across_classes(tmp_path):
    dataset = open_folder(plant(
        tmp_path, "train/rust/x1_flipLR.jpg", "train/rust/x1_90deg.jpg", "valid/rust/x1.jpg", "valid/healthy/x1.jpg",
        "train/healthy/IMG_1.jpg", "valid/healthy/IMG_1.jpg",
    ))  # fmt: skip
    group = dict(zip(dataset.paths, group_by_name(dataset).tolist(), strict=True))
    assert group["train/rust/x1_flipLR.jpg"] == group["train/rust/x1_90deg.jpg"] == group["valid/rust/x1.jpg"]
    assert group["valid/healthy/x1.jpg"] != group["valid/rust/x1.jpg"]
    assert group["train/healthy/IMG_1.jpg"] != group["valid/healthy/IMG_1.jpg"]
    assert sorted(set(group.values())) == [0, 1, 2, 3]


def test_names_that_say_nothing_or_that_all_photos_share_make_no_groups(tmp_path):
    numbers = [f"{c}/IMG_{i}.jpg" for c in ("a", "b") for i in range(5)]
    shared = [*(f"a/{i}/leaf_aug_{i}.jpg" for i in range(70)), "b/x.jpg"]
    for root, paths in ((tmp_path / "numbers", numbers), (tmp_path / "shared", shared)):
        dataset = open_folder(plant(root, *paths))
        assert len(np.unique(group_by_name(dataset))) == len(paths)


PHOTOS = {"Apple___scab/0a-1___JR_FrgE.S 2891.JPG": "Apple_scab:::13.0",
          "Apple___scab/0a-2___JR_FrgE.S_2893.JPG": "Apple_scab:::13.0",
          "Apple___scab/0a-2___JR_FrgE.S 2893_flipLR.JPG": "Apple_scab:::13.0",
          "Apple___scab/0a-3___JR_FrgE.S 2894.JPG": "Apple_scab:::14.0",
          "Apple___scab/0a-4___RS_HL 7.JPG": "Apple___scab:::1.0",
          "Apple___healthy/0a-5___RS_HL 7.JPG": "Apple___healthy:::1.0",
          "Apple___healthy/0a-6___RS_HL 8.JPG": "Apple___healthy:::1.0",
          "Apple___healthy/0a-8___RS_HL 10.JPG": "Apple___sound:::1.0",
          "Apple___healthy/0a-9___RS_HL 11.JPG": "Apple___sound:::1.0"}  # fmt: skip
MAP = {"jr_frge.s 2891": ["Apple_scab:::13.0"], "jr_frge.s 2893": ["Apple_scab:::13.0"],
       "jr_frge.s 2894": ["Apple_scab:::14.0"], "rs_hl 7": ["Apple___scab:::1.0", "Apple___healthy:::1.0"],
       "rs_hl 8": ["Apple___healthy:::1.0"], "rs_hl 10": ["Apple___sound:::1.0"], "rs_hl 11": ["Apple___sound:::1.0"],
       "rs_hl 9": ["Apple___scab:::2.0", "Grape___rot:::2.0"]}  # fmt: skip


def plant_all(root, *more):
    return open_folder(plant(root, *PHOTOS, *more))


@pytest.mark.parametrize("place", [".", "..", "../.."])
def test_photos_of_one_leaf_are_one_group(tmp_path, place):
    root = tmp_path / "raw" / "color"
    dataset = plant_all(root, "Apple___healthy/new.JPG", "Apple___healthy/0a-7___RS_HL 9.JPG")
    (root / place / LEAF_MAP).write_text(json.dumps(MAP))
    groups = dict(zip(dataset.paths, group_by_leaf_map(dataset).tolist(), strict=True))
    for first, leaf in PHOTOS.items():
        for second, other in PHOTOS.items():
            assert (groups[first] == groups[second]) == (leaf == other), (first, second)
    assert len(set(groups.values())) == 5 + 2, "a photo that is not in the map, or of an unclear leaf, is alone"


@pytest.mark.parametrize(("name", "text"), [
    *((LEAF_MAP, text) for text in ("", "[1, 2]", "{", '{"rs_hl 7": 3}', '"text"', "[" * 100_000)),
    ("../../../" + LEAF_MAP, json.dumps(MAP)), ("no map", ""),
])  # fmt: skip
def test_without_a_valid_map_nearby_all_are_alone(tmp_path, name, text):
    root = tmp_path / "one" / "two" / "three"
    dataset = plant_all(root)
    (root / name).write_text(text)
    assert np.array_equal(group_by_leaf_map(dataset), np.arange(len(dataset)))


def test_groups_that_a_source_names_stay_and_copies_without_a_group_join_them(tmp_path):
    photos = leaf_folder(tmp_path / "photos", each=3) / "healthy"
    for copy, source in (("003.png", "001.png"), ("004.png", "002.png")):
        (photos / copy).write_bytes((photos / source).read_bytes())
    found = []
    for names in (("", "p", "p", "q", ""), "pqrst"):
        rows = [f"{at:03d}.png,healthy,{group}" for at, group in enumerate(names)]
        (photos / "list.csv").write_text("\n".join(["path,label,group", *rows]))
        dataset = open_manifest(photos / "list.csv")
        groups, copies = find_groups(dataset, open_cache(dataset, 32, folder=str(tmp_path / "store")))
        found.append((groups.tolist(), copies and len(copies)))
    assert found == [([0, 1, 1, 1, 1], 2), ([0, 1, 2, 1, 2], None)], "identical files are one group in any case"


def jpeg_taken(rgb, text, order="<"):
    """A JPEG whose EXIF has DateTimeOriginal, and a decoy DateTime."""

    def entry(tag, kind, count, value):
        return struct.pack(order + "HHII", tag, kind, count, value)

    end = struct.pack(order + "I", 0)
    first = struct.pack(order + "H", 2) + entry(0x0132, 2, 20, 8) + entry(0x8769, 4, 1, 38) + end
    details = struct.pack(order + "H", 1) + entry(0x9003, 2, 20, 56) + end
    notes = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "I", 8) + first + details
    assert len(notes) == 56
    return jpeg_with_exif(rgb, notes + text.encode() + b"\0")


@pytest.mark.parametrize("order", ["<", ">"])
def test_the_cameras_time_is_read(order):
    assert taken_at(array(jpeg_taken(corners(), "2024:06:01 12:00:00", order))) == 1_717_243_200


UNSET = ["0000:00:00 00:00:00", "    :  :     :  :  ", "yesterday at noon..", "1960:01:01 00:00:00"]


@pytest.mark.parametrize("photo", [*(jpeg_taken(corners(), text) for text in UNSET), jpeg(corners())], ids=range(5))
def test_a_photo_without_exif_or_from_a_clock_that_was_never_set_has_no_time(photo):
    assert taken_at(array(photo)) == 0


def test_a_burst_is_one_group_classes_do_not_mix_and_endless_ones_are_not_believed():
    taken = np.array([100, 105, 200, 109, 0, 0, 103, 113, 124])
    labels = np.array([0, 0, 0, 0, 0, 0, 1, 1, 1])
    groups = group_by_burst(taken, labels)
    assert groups[0] == groups[1] == groups[3]
    assert groups[6] == groups[7]
    assert len(np.unique(groups)) == 6
    taken = np.r_[0, 0, 0, 1000 + np.arange(LARGEST_BURST + 1)]
    labels = np.minimum(taken, 1)
    assert len(np.unique(group_by_burst(taken, labels))) == 3 + LARGEST_BURST + 1
    assert len(np.unique(group_by_burst(taken[:-1], labels[:-1]))) == 3 + 1
    assert len(group_by_burst(np.empty(0, np.int64), np.empty(0, np.int32))) == 0
    taken = (1000 * np.arange(1, 4)[:, None] + 3 * np.arange(20)).ravel()  # 3 leaves, 20 photos of each
    assert np.array_equal(group_by_burst(taken, np.zeros(60, np.int32)), np.arange(3).repeat(20))


def test_a_run_keeps_leaves_bursts_and_photos_made_of_one_in_one_split(tmp_path):
    root = leaf_folder(tmp_path / "photos", each=30)
    leaves = {f"{n:03d}": [f"{label}:::{n // 3}" for label in ("healthy", "rust")] for n in range(12)}
    (root / LEAF_MAP).write_text(json.dumps(leaves))
    for file in sorted(root.rglob("*.png")):
        if 12 <= (number := int(file.stem)) < 21:
            taken = f"2024:06:01 {number // 3:02d}:00:{3 * (number % 3):02d}"
            file.with_suffix(".jpg").write_bytes(jpeg_taken(read_photo(str(file), 32), taken))
            file.unlink()
        elif number >= 21:
            file.rename(file.with_stem(f"s{number // 3}{('', '_90deg', '_flipLR')[number % 3]}"))
    photos = prepare_photos(RunConfig(data=str(root), cache=str(tmp_path / "store"), image_size=32))
    assert len(np.unique(photos.groups)) == 20
    assert photos.leak.leaked == 0
    assert photos.random_leak.leaked > 0
    facts = photos.cache.facts.copy()
    for last, named in ((3601, True), (9000, False)):
        facts[photos.dataset.labels == 0, 2] = np.linspace(1, last, 30).astype(int)
        said = describe_sessions(photos.dataset, replace(photos.cache, facts=facts))
        assert said.startswith("All photos of healthy were taken") is named, "some of rust have no time"
