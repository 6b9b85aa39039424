"""Cameras' clocks: read where they are, and photos of one burst stay together."""

import struct

import numpy as np
import pytest

from core.config import RunConfig
from core.data.burst_groups import MOST, group_by_burst
from core.data.exif import taken_at
from core.data.preparation import prepare_photos
from tests.helpers.photo_files import array, corners, jpeg, leaf_folder

NOON = 1_717_243_200  # 2024-06-01 12:00:00


def jpeg_taken(rgb, text, order="<"):
    """A JPEG whose EXIF has DateTimeOriginal, and a decoy DateTime."""

    def entry(tag, kind, count, value):
        return struct.pack(order + "HHII", tag, kind, count, value)

    end = struct.pack(order + "I", 0)
    first = struct.pack(order + "H", 2) + entry(0x0132, 2, 20, 8) + entry(0x8769, 4, 1, 38) + end
    details = struct.pack(order + "H", 1) + entry(0x9003, 2, 20, 56) + end
    notes = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "I", 8) + first + details
    assert len(notes) == 56
    body = b"Exif\0\0" + notes + text.encode() + b"\0"
    plain = jpeg(rgb)
    return plain[:2] + b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body + plain[2:]


@pytest.mark.parametrize("order", ["<", ">"])
def test_the_cameras_time_is_read(order):
    assert taken_at(array(jpeg_taken(corners(), "2024:06:01 12:00:00", order))) == NOON


UNSET = ["0000:00:00 00:00:00", "    :  :     :  :  ", "yesterday at noon..", "1960:01:01 00:00:00"]


@pytest.mark.parametrize("photo", [*(jpeg_taken(corners(), text) for text in UNSET), jpeg(corners())], ids=range(5))
def test_a_photo_without_exif_or_from_a_clock_that_was_never_set_has_no_time(photo):
    assert taken_at(array(photo)) == 0


def test_a_burst_is_one_group_and_classes_do_not_mix():
    taken = np.array([100, 105, 200, 109, 0, 0, 103])
    labels = np.array([0, 0, 0, 0, 0, 0, 1])
    groups = group_by_burst(taken, labels)
    assert groups[0] == groups[1] == groups[3]
    assert len(np.unique(groups)) == 5


def test_endless_bursts_are_not_believed():
    taken = 1000 + np.arange(MOST + 1)
    labels = np.zeros(MOST + 1, np.int32)
    assert len(np.unique(group_by_burst(taken, labels))) == MOST + 1
    assert len(np.unique(group_by_burst(taken[:MOST], labels[:MOST]))) == 1
    assert len(group_by_burst(np.empty(0, np.int64), np.empty(0, np.int32))) == 0


def test_a_run_keeps_bursts_in_one_split(tmp_path):
    root = leaf_folder(tmp_path / "photos", each=1)
    random = np.random.default_rng(0)
    for label in ("healthy", "rust"):
        for leaf in range(10):
            for shot in range(3):
                rgb = np.kron(random.integers(0, 255, (4, 4, 3)), np.ones((8, 8, 1))).astype(np.uint8)
                text = f"2024:06:01 {leaf:02d}:00:{3 * shot:02d}"
                (root / label / f"IMG_{leaf}{shot}.jpg").write_bytes(jpeg_taken(rgb, text))
    photos = prepare_photos(RunConfig(data=str(root), cache=str(tmp_path / "store"), image_size=32))
    assert len(np.unique(photos.groups)) == 22
    assert photos.leak.leaked == 0
    assert photos.random_leak.leaked > 0
