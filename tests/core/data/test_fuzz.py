"""Damaged photos and manifests: a sentence of ours or a result, never anything else."""

from functools import partial

import numpy as np
import pytest

from core.data.manifest import open_manifest
from core.data.photo import PhotoError, check
from core.data.photo_format import taken_at
from core.errors import LeafClinicError
from tests.core.data.test_photo_groups import jpeg_taken
from tests.helpers.damage import damage, refusals
from tests.helpers.hostile_photos import tiff
from tests.helpers.photo_files import corners, encode, jpeg_with_orientation

COUNTS = [300, pytest.param(30_000, marks=pytest.mark.slow)]
PHOTOS = (jpeg_with_orientation(corners(), 6), jpeg_taken(corners(), "2024:06:01 12:00:00"),
          *(encode(corners(), ending) for ending in (".png", ".webp", ".bmp")), tiff("u1", 3),
          b"GIF89a" + bytes([16, 0, 16, 0, 0x80, 0, 0]) + bytes(40))  # fmt: skip
MANIFEST = b'path,label,group,split\na.jpg,"leaf, rust",1,train\nb/c.png,healthy,2,test\n'


@pytest.mark.parametrize("count", COUNTS)
def test_headers_of_damaged_photos_are_refused_with_a_sentence_or_read(count):
    rng = np.random.default_rng(0)

    def read(photo):
        data = np.frombuffer(damage(photo, rng), np.uint8)
        assert taken_at(data) >= 0
        header = check(data)
        assert min(header.width, header.height) >= 0

    refusals(PhotoError, (partial(read, PHOTOS[number % len(PHOTOS)]) for number in range(count)))


@pytest.mark.parametrize("count", COUNTS)
def test_damaged_manifests_are_refused_with_a_sentence_or_read(count, tmp_path):
    rng, path = np.random.default_rng(0), tmp_path / "damaged.csv"

    def read():
        path.write_bytes(damage(MANIFEST, rng))
        assert len(open_manifest(path)) > 0

    refusals(LeafClinicError, [read] * count)
