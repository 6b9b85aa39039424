"""Files of arrays: whole or refused, whatever was done to them."""

import json
import os

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from core.errors import ModelFileError, StorageError
from core.storage import TEMPORARY, write_file
from core.tensor_file import read_tensor_file, write_tensor_file


@pytest.fixture
def path(tmp_path):
    tensors = {"b": np.zeros((0, 3), np.float32), "a": np.arange(6.0).reshape(2, 3), "step": np.array(5, np.int64)}
    write_tensor_file(tmp_path / "x.safetensors", "model", 1, {"names": ["ä", 1]}, tensors)
    return tmp_path / "x.safetensors"


def test_the_same_content_is_the_same_file_byte_by_byte(tmp_path):
    files = [tmp_path / f"{n}.safetensors" for n in range(8)]
    for file in files:
        write_tensor_file(file, "model", 1, {"b": 1, "a": "é"}, {"w": np.arange(3.0), "a": np.zeros(2, np.uint8)})
    assert len({file.read_bytes() for file in files}) == 1
    assert safe_open(files[0], framework="numpy").metadata()["kind"] == "model"


def test_what_was_written_is_read(path):
    file = read_tensor_file(path, "model", 1)
    assert file.header == {"names": ["ä", 1]}
    assert (file.tensors["a"].tolist(), file.tensors["step"].shape) == ([[0, 1, 2], [3, 4, 5]], ())
    assert file.tensors["b"].shape == (0, 3)


def with_numbers_that_numpy_lacks(raw):
    head = raw[8 : 8 + int.from_bytes(raw[:8], "little")]
    new = head.replace(b'"F32"', b'"F8_E5M2"')
    return len(new).to_bytes(8, "little") + new + raw[8 + len(head) :]


@pytest.mark.parametrize(("damage", "sentence"), [
    *((lambda raw, cut=cut: raw[:cut], "incomplete, damaged") for cut in (0, 1, 8, 60, -1)),
    *((lambda raw, at=at: raw[:at] + bytes([raw[at] ^ 4]) + raw[at:][1:], "x.safetensors")
      for at in (20, 150, 230, -30, -1)),
    (with_numbers_that_numpy_lacks, "in another format"),
])  # fmt: skip
def test_a_damaged_file_is_refused(path, damage, sentence):
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ModelFileError, match=sentence):
        read_tensor_file(path, "model", 1)


def test_another_kind_or_version_or_program_is_named(path, tmp_path):
    with pytest.raises(ModelFileError, match="is a LeafClinic model, not a LeafClinic checkpoint"):
        read_tensor_file(path, "checkpoint", 1)
    with pytest.raises(ModelFileError, match="version 1, but this program reads version 2"):
        read_tensor_file(path, "model", 2)
    save_file({"a": np.zeros(3)}, tmp_path / "other.safetensors")
    with pytest.raises(ModelFileError, match="of another program"):
        read_tensor_file(tmp_path / "other.safetensors", "model", 1)
    with pytest.raises(ModelFileError, match="no file"):
        read_tensor_file(tmp_path / "none.safetensors", "model", 1)


def test_a_header_that_promises_terabytes_takes_no_memory(tmp_path):
    header = json.dumps({"a": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]}}).encode()
    for size in (len(header), 1 << 60):
        (tmp_path / "big.safetensors").write_bytes(size.to_bytes(8, "little") + header)
        with pytest.raises(ModelFileError, match="incomplete, damaged"):
            read_tensor_file(tmp_path / "big.safetensors", "model", 1)


def test_a_failed_write_leaves_the_old_file_and_no_rest(tmp_path, monkeypatch):
    path = tmp_path / "settings"
    write_file(path, "old")

    def fail(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StorageError, match="No space left on device"):
        write_file(path, "new")
    assert path.read_text() == "old"
    assert not list(tmp_path.glob("*" + TEMPORARY))
