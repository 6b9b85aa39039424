"""What a model file says of the photos it learned from: read back, counted, and refused where it is crafted."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.model_card import render_card
from core.diagnosis.model_file import LEARNED, read_model, write_model
from core.diagnosis.training_photos import TrainingPhotos, describe_overlap, measure_overlap, record_photos
from core.errors import ModelFileError
from core.tensor_file import read_tensor_file, write_tensor_file
from tests.helpers.models import small_model


def content(*photos):
    """SHA-256 of photos whose files hold their numbers, uint8 ``(N, 32)``."""
    digests = b"".join(hashlib.sha256(str(photo).encode()).digest() for photo in photos)
    return np.frombuffer(digests, np.uint8).reshape(-1, 32)


@pytest.fixture
def model():
    return small_model(side=32, network="mobilenetv2", learned=record_photos(content(*range(100))))


def test_photos_are_known_again_by_eight_bytes_of_their_hash_and_a_record_without_those_before_is_incomplete():
    (mark,) = record_photos(content("x")).marks.tolist()
    assert f"{mark:016x}" == hashlib.sha256(b"x").hexdigest()[:16]
    learned = record_photos(content(*range(50), 7, 8))
    assert len(learned.marks) == 50
    assert learned.knows(content(3, 50, 49, 51)).tolist() == [True, False, True, False]
    assert not learned.knows(content()).size
    assert learned.whole
    first = record_photos(content(1, 2))
    second = record_photos(content(3), (first,))
    assert second.knows(content(1, 2, 3, 4)).tolist() == [True, True, True, False]
    assert second.whole
    assert not record_photos(content(3), (None,)).whole
    assert not record_photos(content(4), (record_photos(content(3), (None,)),)).whole


@pytest.mark.parametrize("marks", [
    np.array([3, 2], np.uint64), np.array([2, 2], np.uint64), np.array([1, 2], np.int64), np.array([1.0, 2.0]),
    np.array([[1, 2]], np.uint64), np.array(1, np.uint64),
])  # fmt: skip
def test_a_crafted_record_is_refused(model, tmp_path, marks):
    path = tmp_path / "m.safetensors"
    write_model(path, replace(model, learned=TrainingPhotos(marks)))
    with pytest.raises(ModelFileError, match="record of its training photos is not valid"):
        read_model(path)


def test_half_a_record_is_refused(model, tmp_path):
    path = tmp_path / "m.safetensors"
    write_model(path, model)
    file = read_tensor_file(path, "model", 1)
    arrays = {name: array for name, array in file.tensors.items() if LEARNED not in name}
    bare = {name: value for name, value in file.header.items() if name != LEARNED}
    for header, tensors, said in (
        (file.header, arrays, "record of its training photos is incomplete"),
        (bare, file.tensors, "record of its training photos is incomplete"),
        ({**file.header, LEARNED: {"whole": 1}}, file.tensors, "is not valid"),
        ({**file.header, LEARNED: {}}, file.tensors, "an invalid header"),
        ({**file.header, LEARNED: None}, file.tensors, "an invalid header"),
    ):  # fmt: skip
        write_tensor_file(path, "model", 1, header, tensors)
        with pytest.raises(ModelFileError, match=said):
            read_model(path)


def test_what_is_known_is_said_in_numbers_and_words():
    learned = record_photos(content(*range(10)))
    judged = [("validation", content(8, 9, 10)), ("test", content(20, 21))]
    overlap = measure_overlap(learned, judged)
    assert [(part.photos, part.learned) for part in overlap] == [(3, 2), (2, 0)]
    assert describe_overlap("old", learned, overlap) == (
        "Data leakage: old was trained on 2 of the 3 validation photos. The accuracy on them is too high.",
    )
    assert "old was trained on none of the 2 evaluated files." in describe_overlap("old", learned, overlap[1:])[0]
    (_, more) = describe_overlap("old", replace(learned, whole=False), overlap)
    assert "there may be more data leakage" in more
    assert measure_overlap(None, judged) is None
    assert "cannot be measured" in describe_overlap("old", None, None)[0]


def test_the_card_tells_how_many_bytes_the_record_takes(model):
    card = render_card(model, "x")
    assert "records 100 training photos" in card
    assert "(0.8 kB)" in card
    assert "photos again" not in render_card(replace(model, learned=None), "x")
