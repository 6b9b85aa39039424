"""IDX files: MNIST's digits, plain or gzip, and crafted ones."""

import gzip
import struct
import tracemalloc

import numpy as np
import pytest

from core.data.digits import read_digits, read_idx
from core.errors import DataError


def idx(array):
    return bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@pytest.fixture
def digits(tmp_path):
    rng = np.random.default_rng(0)
    photos = rng.integers(0, 256, (7, 28, 28), np.uint8)
    labels = np.arange(7, dtype=np.uint8)
    (tmp_path / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(photos)))
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx(labels))
    return tmp_path, photos, labels


def test_digits_come_back_plain_and_packed(digits):
    folder, photos, labels = digits
    read, classes = read_digits(folder, "t10k")
    assert np.array_equal(read[..., 0], photos)
    assert np.array_equal(classes, labels)
    assert (read.dtype, classes.dtype, read.shape) == (np.uint8, np.int32, (7, 28, 28, 1))


def test_labels_that_are_no_digits_and_a_missing_file_are_refused(digits):
    folder, _, labels = digits
    (folder / "t10k-labels-idx1-ubyte").write_bytes(idx(labels + 9))
    with pytest.raises(DataError, match="do not fit"):
        read_digits(folder, "t10k")
    with pytest.raises(DataError, match="train-images-idx3-ubyte"):
        read_digits(folder, "train")


@pytest.mark.parametrize(("data", "words"), [
    (b"", "does not begin"), (b"\0\0\x08", "does not begin"), (b"\0\0\x08\x00", "axes"),
    (b"\0\0\x08\x03\0\0", "header"), (b"\0\0\x08\x03" + b"\xff" * 12, "more than"),
    (idx(np.zeros((2, 3), np.uint8))[:-1], "cut"), (idx(np.zeros((2, 3), np.uint8)) + b"x", "longer"),
    (gzip.compress(idx(np.zeros(9, np.uint8)), mtime=0)[:-9], "cannot be read"),
    (gzip.compress(idx(np.zeros(9, np.uint8)) + bytes(1 << 20), mtime=0), "longer"),
])  # fmt: skip
def test_each_trouble_has_its_sentence(tmp_path, data, words):
    path = tmp_path / "file"
    path.write_bytes(data)
    with pytest.raises(DataError, match=words):
        read_idx(path)


@pytest.mark.thorough
def test_a_bomb_takes_no_more_memory_than_it_may(tmp_path):
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(b"\0\0\x08\x01" + struct.pack(">I", 1 << 26) + bytes(1 << 27), 1))
    tracemalloc.start()
    with pytest.raises(DataError, match="longer"):
        read_idx(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 28
