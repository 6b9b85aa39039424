"""The user's own field photos: matched by name, told apart from the rest, refused with a sentence."""

import os
import shutil
from pathlib import Path

import pytest

from core.command_line import read_toml
from core.config import RunConfig
from core.data.cache import open_cache
from core.data.field_photos import describe_field, open_field, scan_field
from core.data.source import find_photos, open_photos
from core.errors import DataError
from tests.helpers.tiny_photos import write_photos


@pytest.fixture
def photos(tmp_path):
    return write_photos(tmp_path / "photos")


def opened(tmp_path, field, classes):
    config = RunConfig(field=str(field), cache=str(tmp_path / "cache"))
    return open_field(scan_field(config), classes, 16, config, False)


def test_classes_are_matched_by_name_and_broken_files_are_told(tmp_path, photos):
    known = open_photos(str(photos)).classes
    field = tmp_path / "field"
    shutil.copytree(photos / known[-1], field / known[-1])
    (field / known[-1] / "broken.jpg").write_bytes(b"no photo")
    found = opened(tmp_path, field, known)
    labels = found.dataset.labels_among(known)[found.cache.kept]
    assert labels.tolist() == [len(known) - 1] * len(list((photos / known[-1]).iterdir()))
    assert "1 field photo is excluded" in describe_field(found)[0]


def test_photos_that_are_also_learned_from_are_counted(tmp_path, photos):
    dataset = open_photos(str(photos))
    cache = open_cache(dataset, 16, folder=str(tmp_path / "cache"))
    (field := tmp_path / "field" / dataset.classes[0]).mkdir(parents=True)
    shutil.copy(dataset.path(0), field / "same.png")
    found = opened(tmp_path, field.parent, dataset.classes)
    assert describe_field(found, cache)[0].startswith("Data leakage: 1 of the field photos")


def test_an_unknown_class_unreadable_photos_no_photos_and_those_around_the_cache_are_refused(tmp_path, photos):
    with pytest.raises(DataError, match="not a known class.*class names: a, b"):
        opened(tmp_path, photos, ("a", "b"))
    empty = tmp_path / "field" / "a"
    empty.mkdir(parents=True)
    (empty / "x.jpg").write_bytes(b"no photo")
    with pytest.raises(DataError, match="None of the 1 field photos"):
        opened(tmp_path, empty.parent, ("a", "b"))
    for field, reason in ((tmp_path / "nothing", "does not exist"), (photos, "is inside the photo folder")):
        with pytest.raises(DataError, match=f"--field.*{reason}"):
            scan_field(RunConfig(field=str(field), cache=str(photos / "cache")))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes there")
@pytest.mark.parametrize("read", [open_photos, lambda name: list(find_photos([name])), lambda n: read_toml(Path(n))])
def test_a_pipe_is_refused_instead_of_waiting_for_somebody_to_write(tmp_path, read):
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(DataError, match="is a pipe or a device"):
        read(str(tmp_path / "pipe.csv"))
