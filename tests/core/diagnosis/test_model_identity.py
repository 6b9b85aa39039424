"""A model has a name, a hash and a date; a new name changes nothing else."""

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from core.diagnosis.model_file import read_model, write_model
from core.diagnosis.model_identity import LONGEST_NAME, default_name, find_model, read_identity, rename_model
from core.errors import InputError, ModelFileError
from tests.helpers.models import small_model


@pytest.fixture(scope="module")
def model():
    return small_model(name="leaves", date="2026-11-22")


@pytest.fixture
def path(model, tmp_path):
    write_model(tmp_path / "model.safetensors", model)
    return tmp_path / "model.safetensors"


def test_a_file_says_name_on_one_line_date_and_hash_which_is_another_for_other_weights(path, model):
    found = read_identity(path)
    assert (found.name, found.date, len(found.hash)) == ("leaves", "2026-11-22", 64)
    write_model(path, replace(model, temperature=1.5))
    assert read_identity(path).hash != found.hash
    write_model(path, replace(model, name="a\x1b[2J\nb" + "c" * 500))
    assert read_identity(path).name == ("a[2Jb" + "c" * 500)[: LONGEST_NAME - 2]


def test_a_model_is_renamed_and_nothing_else_changes(path):
    before, weights = read_identity(path), read_model(path).weights
    rename_model(path, "  Lá cà chua  ")
    assert read_identity(path) == replace(before, name="Lá cà chua")
    assert all(np.array_equal(array, weights[name]) for name, array in read_model(path).weights.items())
    once = path.read_bytes()
    rename_model(path, "Lá cà chua")
    assert path.read_bytes() == once


def test_a_file_without_a_name_is_called_as_its_run_or_itself(model, tmp_path):
    (run := tmp_path / "20261122-tomato").mkdir()
    for file in (tmp_path / "mine.safetensors", run / "best.safetensors"):
        write_model(file, replace(model, name="", date=""))
    assert read_identity(tmp_path / "mine.safetensors").name == "mine"
    assert (read_identity(run).name, read_identity(run).date) == ("20261122-tomato", "")


def test_no_name_a_shipped_model_and_what_is_no_model_are_refused(path, monkeypatch, tmp_path):
    for name, folder, message in (("  ", path, "needs a name"), ("mine", path.parent, "came with the program")):
        monkeypatch.setattr("core.diagnosis.model_identity.SHIPPED", folder)
        with pytest.raises(InputError, match=message):
            rename_model(path, name)
        assert read_identity(path).name == "leaves"
    (tmp_path / "x.safetensors").write_bytes(b"nothing")
    with pytest.raises(ModelFileError):
        read_identity(tmp_path / "x.safetensors")


def test_the_default_name_is_that_of_the_photos_and_the_minute(tmp_path, monkeypatch):
    (tmp_path / "tomato").mkdir()
    (manifest := tmp_path / "tomato" / "manifest.csv").write_text("path,label\n")
    monkeypatch.setattr(time, "strftime", lambda form: form)
    assert default_name(str(tmp_path / "tomato")) == default_name(str(manifest)) == "tomato %Y-%m-%d %H:%M"


def test_a_shipped_model_is_found_by_its_name_in_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert (shipped := find_model(Path("leaves"))).is_file()
    (tmp_path / "leaves").mkdir()  # of photos
    assert find_model(Path("leaves")) == find_model(Path("leaves").absolute()) == shipped
    for path in (tmp_path / "elsewhere" / "leaves", Path("detector")):  # a network that diagnoses nothing
        assert find_model(path) == path
    (tmp_path / "leaves" / "config.json").touch()
    assert find_model(Path("leaves")) == Path("leaves/best.safetensors")
    (tmp_path / "small").write_bytes(b"a file of that name is meant itself")
    assert find_model(Path("small")) == Path("small")
