"""Generated pictures without a leaf: training photos of a class of their own, the same ones in every run."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from core.config import RunConfig
from core.data.cache_limit import empty_cache
from core.data.dataset import TRAIN
from core.data.photo import square
from core.data.preparation import prepare_photos
from core.diagnosis.model_file import read_model
from core.diagnosis.pictures_without_leaf import LEAST, MOST, add_pictures, class_without_leaf, count_pictures, draw
from core.diagnosis.prediction import Predictor
from core.errors import DataError
from core.training.dry_run import describe_run
from core.training.events import EpochDone, RunStarted
from tests.helpers.runs import last_weights, only, same_bits, train
from tests.helpers.tiny_photos import write_photos

SIDE = 32


@pytest.fixture
def config(tmp_path):
    photos = write_photos(tmp_path / "photos", each=20, side=SIDE)
    return RunConfig(data=str(photos), cache=str(tmp_path / "cache"), out=str(tmp_path / "run"), image_size=SIDE,
                     model="cnn", epochs=6, batch_size=8, learning_rate=0.003, test=0.0, device="cpu",
                     pictures_without_leaf=0.3, leaf_tests=False)  # fmt: skip


def test_pictures_are_training_photos_of_a_class_that_follows_those_of_the_folder(config):
    plain = prepare_photos(config)
    photos = add_pictures(config, plain)
    slots, labels = photos.training
    assert (plain.classes, photos.classes) == (("brown", "green"), ("brown", "green", "background/none"))
    assert np.array_equal(slots[:-LEAST], plain.cache.slots[plain.rows(TRAIN)])
    assert (labels[-LEAST:] == 2).all()
    assert (labels[:-LEAST] < 2).all()
    drawn = photos.cache.photos[slots[-LEAST:]]
    assert len(np.unique(drawn.reshape(LEAST, -1), axis=0)) == LEAST
    again = add_pictures(config, prepare_photos(config))
    assert np.array_equal(again.pictures, photos.pictures)
    assert len(again.cache.photos) == len(photos.cache.photos)
    assert photos.fingerprint == plain.fingerprint
    assert "50 generated pictures without a leaf" in photos.warnings[-1]


def test_a_cache_that_was_emptied_meanwhile_is_filled_again_where_the_photos_are_the_same(config):
    plain = prepare_photos(config)
    assert empty_cache(Path(plain.cache.home))
    photos, rows = add_pictures(config, plain), plain.rows(TRAIN)
    assert np.array_equal(photos.cache.gather(rows), plain.cache.gather(rows))
    empty_cache(Path(plain.cache.home))
    Path(plain.dataset.path(0)).unlink()
    with pytest.raises(DataError, match="have changed since they were read"):
        add_pictures(config, plain)


@pytest.mark.parametrize(("classes", "multi", "changes"), [
    (("rust", "No_Leaf"), False, {}), (("rust", "scab"), True, {}), (("rust", "scab"), False, {"teacher": ("leaves",)}),
    (("rust", "scab"), False, {"pictures_without_leaf": 0.0}),
])  # fmt: skip
def test_runs_with_such_a_class_or_several_labels_or_teachers_get_none(config, classes, multi, changes):
    assert class_without_leaf(config, ("rust", "scab"), False) == ("background/none",)
    assert class_without_leaf(replace(config, **changes), classes, multi) == ()


def test_their_number_is_a_share_of_the_photos_within_limits_and_a_dry_run_counts_their_class(config):
    assert "for 3 classes" in describe_run(config)
    assert [count_pictures(config, photos) for photos in (10, 1000, 10**6)] == [LEAST, 300, MOST]


def test_a_trained_network_names_no_disease_on_other_pictures_and_resumes_bit_by_bit(config, tmp_path):
    events = train(config)
    (started,) = only(events, RunStarted)
    assert started.classes[-1] == "background/none"
    assert only(events, EpochDone)[-1].validation_accuracy > 0.9
    sources = read_model(Path(config.out)).sections["data"]["sources"]
    assert f"{started.train_photos} training photos of 2 classes and 50 generated pictures without a leaf" in sources[0]
    report = (Path(config.out) / "report.html").read_text("utf-8")
    assert ">green</td>" in report
    assert ">background/none</td>" not in report, "no validation photo has this class"
    rng = np.random.default_rng(99)
    pictures = np.stack([square(draw(rng), SIDE) for _ in range(60)])
    predictor = Predictor(read_model(Path(config.out)))
    guessed = predictor.predict(pictures)["logits"].argmax(axis=1)
    predictor.close()
    assert (guessed == 2).mean() > 0.8
    other = replace(config, out=str(tmp_path / "other"))
    train(other, stop_after=2, pick=EpochDone)
    train(other, resume=True)
    same_bits(last_weights(config), last_weights(other))
