"""PlantVillage's list of leaves: used where it lies, and only where it is one."""

import json

import numpy as np
import pytest

from core.config import RunConfig
from core.data.folder import open_folder
from core.data.leaf_map import NAME, group_by_leaf_map
from core.data.preparation import prepare_photos
from tests.core.data.test_folder import plant
from tests.helpers.photo_files import leaf_folder

PHOTOS = {
    "Apple___scab/0a-1___JR_FrgE.S 2891.JPG": "Apple_scab:::13.0",
    "Apple___scab/0a-2___JR_FrgE.S_2893.JPG": "Apple_scab:::13.0",
    "Apple___scab/0a-2___JR_FrgE.S 2893_flipLR.JPG": "Apple_scab:::13.0",
    "Apple___scab/0a-3___JR_FrgE.S 2894.JPG": "Apple_scab:::14.0",
    "Apple___scab/0a-4___RS_HL 7.JPG": "Apple___scab:::1.0",
    "Apple___healthy/0a-5___RS_HL 7.JPG": "Apple___healthy:::1.0",
    "Apple___healthy/0a-6___RS_HL 8.JPG": "Apple___healthy:::1.0",
}
MAP = {
    "jr_frge.s 2891": ["Apple_scab:::13.0"], "jr_frge.s 2893": ["Apple_scab:::13.0"],
    "jr_frge.s 2894": ["Apple_scab:::14.0"], "rs_hl 7": ["Apple___scab:::1.0", "Apple___healthy:::1.0"],
    "rs_hl 8": ["Apple___healthy:::1.0"], "rs_hl 9": ["Apple___scab:::2.0", "Grape___rot:::2.0"],
}  # fmt: skip


def plant_all(root, *more):
    return open_folder(plant(root, *PHOTOS, *more))


@pytest.mark.parametrize("place", [".", "..", "../.."])
def test_photos_of_one_leaf_are_one_group(tmp_path, place):
    root = tmp_path / "raw" / "color"
    dataset = plant_all(root, "Apple___healthy/new.JPG", "Apple___healthy/0a-7___RS_HL 9.JPG")
    (root / place / NAME).write_text(json.dumps(MAP))
    groups = dict(zip(dataset.paths, group_by_leaf_map(dataset).tolist(), strict=True))
    for first, leaf in PHOTOS.items():
        for second, other in PHOTOS.items():
            assert (groups[first] == groups[second]) == (leaf == other), (first, second)
    assert len(set(groups.values())) == 4 + 2, "a photo that is not in the map, or of an unclear leaf, is alone"


@pytest.mark.parametrize(("name", "text"), [
    *((NAME, text) for text in ("", "[1, 2]", "{", '{"rs_hl 7": 3}', '"text"')), ("../../../" + NAME, json.dumps(MAP)),
    ("no map", ""),
])  # fmt: skip
def test_without_a_valid_map_nearby_all_are_alone(tmp_path, name, text):
    root = tmp_path / "one" / "two" / "three"
    dataset = plant_all(root)
    (root / name).write_text(text)
    assert np.array_equal(group_by_leaf_map(dataset), np.arange(len(dataset)))


def test_a_run_keeps_leaves_in_one_split(tmp_path):
    root = leaf_folder(tmp_path / "photos", each=30)
    leaves = {f"{n:03d}": [f"{label}:::{n // 3}" for label in ("healthy", "rust")] for n in range(30)}
    (root / NAME).write_text(json.dumps(leaves))
    photos = prepare_photos(RunConfig(data=str(root), cache=str(tmp_path / "store"), image_size=32))
    assert len(np.unique(photos.groups)) == 20
    assert photos.leak.leaked == 0
    assert photos.random_leak.leaked > 0
