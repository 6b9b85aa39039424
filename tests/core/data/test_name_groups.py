"""Names that say from which photo a photo was made."""

import numpy as np
import pytest

from core.data.folder import open_folder
from core.data.name_groups import group_by_name, source_name
from tests.core.data.test_folder import plant


@pytest.mark.parametrize(("path", "source"), [
    ("a/0ab1-22___RS_HL 0123_flipLR.JPG", "0ab1-22___RS_HL 0123"),
    ("a/0ab1-22___RS_HL 0123_flipTB.JPG", "0ab1-22___RS_HL 0123"),
    ("a/0ab1-22___RS_HL 0123_new30degFlipLR.JPG", "0ab1-22___RS_HL 0123"),
    ("a/0ab1-22___RS_HL 0123_180deg.JPG", "0ab1-22___RS_HL 0123"),
    ("leaf_rotated90_hflip.png", "leaf"),
    ("leaf-rotated-90.png", "leaf"),
    ("leaf_aug_3.png", "leaf"),
    ("leaf_mirrored.png", "leaf"),
    ("IMG_0012.jpg", "IMG_0012"),
    ("IMG (2).jpg", "IMG (2)"),
    ("carrot.jpg", "carrot"),
    ("black_rot/black_rot_4.jpg", "black_rot_4"),
    ("black rot 90.jpg", "black rot 90"),
    ("rot.jpg", "rot"),
    ("parrot_12.jpg", "parrot_12"),
])  # fmt: skip
def test_what_was_done_is_taken_off_the_name(path, source):
    assert source_name(path) == source


def test_copies_join_their_source_across_folders_but_not_across_classes(tmp_path):
    dataset = open_folder(plant(
        tmp_path,
        "train/rust/x1_flipLR.jpg", "train/rust/x1_90deg.jpg", "valid/rust/x1.jpg", "valid/healthy/x1.jpg",
        "train/healthy/IMG_1.jpg", "valid/healthy/IMG_1.jpg",
    ))  # fmt: skip
    group = dict(zip(dataset.paths, group_by_name(dataset).tolist(), strict=True))
    assert group["train/rust/x1_flipLR.jpg"] == group["train/rust/x1_90deg.jpg"] == group["valid/rust/x1.jpg"]
    assert group["valid/healthy/x1.jpg"] != group["valid/rust/x1.jpg"]
    assert group["train/healthy/IMG_1.jpg"] != group["valid/healthy/IMG_1.jpg"]
    assert sorted(set(group.values())) == [0, 1, 2, 3]


def test_names_that_say_nothing_make_no_groups(tmp_path):
    dataset = open_folder(plant(tmp_path, *(f"{c}/IMG_{i}.jpg" for c in ("a", "b") for i in range(5))))
    assert len(np.unique(group_by_name(dataset))) == 10


def test_a_way_of_naming_that_all_photos_share_is_not_believed(tmp_path):
    dataset = open_folder(plant(tmp_path, *(f"a/{i}/leaf_aug_{i}.jpg" for i in range(70)), "b/x.jpg"))
    assert len(np.unique(group_by_name(dataset))) == 71
