"""Learning from a teacher: targets are its answers to the very same photos, and who may teach is checked."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.model_card import render_card
from core.config import RunConfig
from core.data.augment import draw_augmentation
from core.data.mixing import Mixing
from core.device import PhotoBatch
from core.diagnosis.metrics import softmax
from core.diagnosis.model_file import read_model, write_model
from core.diagnosis.model_identity import BEST
from core.errors import ModelFileError
from core.ops.network import forward
from core.training.events import EpochDone, RunFinished, Warned
from core.training.run_folder import read_config
from core.training.teacher import Teachers, order_classes, read_teachers
from tests.helpers.models import small_model
from tests.helpers.noise import noise
from tests.helpers.reference_plan import network_inputs
from tests.helpers.runs import only, train

pytestmark = pytest.mark.usefixtures("reference_plans")


def write_teacher(path, classes=("brown", "green"), size=16, name="cnn", seed=9):
    """A model file that has learned nothing, but has opinions."""
    model = small_model(classes, size, name, seed, temperature=1.5)
    weights = {k: a + noise(k, a.shape).astype(np.float32) / 5 for k, a in model.weights.items()}
    write_model(path, replace(model, weights=weights))
    return str(path)


def said_by(model, classes, batch):
    """Probabilities of a model for classes in another order, by the reference without any folding."""
    logits = forward(model.graph, model.weights, network_inputs(model.graph, batch))[model.graph.output]
    return softmax(logits[:, [model.classes.index(name) for name in classes]] / model.temperature)


@pytest.mark.parametrize("parts", [5, 2])
def test_targets_are_the_mean_answer_to_the_augmented_photos_and_the_smoothed_label(tmp_path, parts):
    names = [("c", "a", "b"), ("b", "x", "c", "a")]
    files = [write_teacher(tmp_path / f"{i}.safetensors", classes, seed=i) for i, classes in enumerate(names)]
    config = RunConfig(teacher=tuple(files), teacher_share=0.7, label_smoothing=0.2, image_size=16)
    read, classes = read_teachers(config), ("a", "b", "c")
    photos = np.random.default_rng(1).integers(0, 256, (5, 20, 20, 3), dtype=np.uint8)
    augmentation = draw_augmentation("strong", 3, 0, np.arange(5), 20, 16, np.zeros(5, np.int64))
    batch = PhotoBatch(photos, augmentation, np.array([0, 2, 1, 1, 0], np.int32))
    taught = Teachers(read, config, classes, "cpu", parts).add_targets(batch)
    label = 0.2 / 3 + 0.8 * np.eye(3)[batch.labels]
    wanted = 0.3 * label + 0.35 * sum(said_by(read_model(Path(f)), classes, batch) for f in files)
    np.testing.assert_allclose(taught.targets, wanted, atol=1e-5)
    np.testing.assert_allclose(taught.targets.sum(axis=1), 1, atol=1e-6)
    assert taught.targets.dtype == np.float32
    assert taught.augmentation is batch.augmentation
    assert np.ptp(taught.targets, axis=0).max() > 0.2, "teachers without opinions prove nothing"


def test_of_a_mixed_photo_the_teachers_share_is_their_answer_and_the_rest_both_labels(tmp_path):
    config = RunConfig(teacher=(write_teacher(tmp_path / "t.safetensors"),), teacher_share=0.6, mix=1.0, image_size=16)
    photos = np.random.default_rng(1).integers(0, 256, (4, 16, 16, 3), dtype=np.uint8)
    labels, numbers, times = np.array([0, 1, 1, 0], np.int32), np.arange(4), np.zeros(4, np.int64)
    augmentation = draw_augmentation("light", 3, 0, numbers, 16, 16, times)
    both = Mixing(1.0, 4, np.eye(2), "light").draw(augmentation, numbers, labels, (3, 0), numbers, times, 16, 16)
    batch, classes = PhotoBatch(photos, augmentation, labels, targets=both), ("brown", "green")
    taught = Teachers(read_teachers(config), config, classes, "cpu", 4).add_targets(batch)
    said = said_by(read_model(Path(config.teacher[0])), classes, batch)
    np.testing.assert_allclose(taught.targets, 0.4 * both + 0.6 * said, atol=1e-5)
    assert np.abs(both - np.eye(2)[labels]).max() > 0.3, "photos that are hardly mixed prove nothing"


def test_a_student_learns_what_its_teacher_says_whatever_the_labels_say(tiny, tmp_path):
    train(tiny("first", epochs=6))
    right = read_model(Path(tiny("first").out))
    write_model(tmp_path / "liar.safetensors", replace(right, classes=right.classes[::-1]))
    config = tiny("student", epochs=8, teacher=(str(tmp_path / "liar.safetensors"),), teacher_share=1.0)
    epochs = only(train(config), EpochDone)
    assert epochs[0].train_accuracy < 0.9
    assert epochs[-1].train_accuracy < 0.1
    assert epochs[-1].validation_accuracy == 0.0


def test_a_run_says_who_taught_it_and_what_may_be_too_kind(tiny, tmp_path):
    train(tiny("first", epochs=1))
    stranger = write_teacher(tmp_path / "stranger.safetensors")
    config = tiny("student", epochs=1, teacher=(tiny("first").out, stranger), teacher_share=0.8)
    events = train(config)
    told = [event.message for event in only(events, Warned)]
    assert any("Teachers: first, stranger.safetensors. Their predictions have weight 80 %" in text for text in told)
    doubts = [text for text in told if "is too high" in text]
    assert len(doubts) == 1
    assert doubts[0].startswith("stranger.safetensors was trained on other photos")
    assert only(events, RunFinished)[0].reason == "completed"
    said = "Knowledge distillation from first, stranger.safetensors: their predictions had weight 80\u00a0%"
    assert said in render_card(read_model(Path(config.out)), "x")
    page = (Path(config.out) / "report.html").read_text("utf-8")
    assert "Knowledge distillation from first, stranger.safetensors" in page
    assert (Path(tiny("first").out) / BEST).as_posix() in Path(config.out, "config.json").read_text("utf-8")


def test_another_teacher_is_refused_on_resume_and_a_moved_one_is_not(tiny, tmp_path):
    path = tmp_path / "t.safetensors"
    config = tiny(epochs=2, teacher=(write_teacher(path),))
    train(config, stop_after=2)
    moved = path.rename(tmp_path / "moved.safetensors")
    with pytest.raises(ModelFileError, match="There is no file"):
        train(config, resume=True)
    write_teacher(path, seed=4)
    with pytest.raises(ModelFileError, match="have changed or moved"):
        train(config, resume=True)
    with pytest.raises(ModelFileError, match="have changed or moved"):
        train(replace(config, teacher=()), resume=True)
    assert train(replace(config, teacher=(str(moved),)), resume=True)[-1].reason == "completed"
    assert read_config(Path(config.out)).teacher == (str(moved),), "evaluate, export and the next resume find it"


def test_who_cannot_teach_is_told_before_the_first_photo_is_read(tiny, tmp_path):
    photo = next(Path(tiny().data).rglob("*.png"))
    for teacher, sentence in ((str(photo), "cannot be read as"), (str(tmp_path / "none"), "There is no file")):
        with pytest.raises(ModelFileError, match=sentence):
            train(tiny(teacher=(teacher,)))
    assert not Path(tiny().cache).exists()
    assert not Path(tiny().out).exists()


def test_a_teacher_must_know_all_classes_and_the_photo_size(tmp_path):
    path = write_teacher(tmp_path / "t.safetensors", ("b", "a", "c"))
    (teacher,) = read_teachers(RunConfig(teacher=(path,), image_size=16))
    assert list(order_classes(teacher, ("a", "b"))) == [1, 0]
    with pytest.raises(ModelFileError, match=r"does not know the classes d, e\. It knows b, a, c\."):
        order_classes(teacher, ("a", "d", "e"))
    path = write_teacher(tmp_path / "t.safetensors")
    with pytest.raises(ModelFileError, match="on photos of 16 pixels only"):
        read_teachers(RunConfig(teacher=(path,), image_size=24))
