"""What a run starts from: weights of another file, layers that stay, weights of classes."""

from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest

from benchmarks.model_card import render_card
from core import train
from core.config import RunConfig, problems
from core.data.preparation import prepare_photos
from core.errors import EXIT_WRONG_INPUT, InputError, OutOfMemory
from core.training import training_plan
from core.training.commands import Commands
from core.training.dry_run import describe_run
from core.training.finish import _take_validation, describe_data
from core.training.setup import choose_precision, set_up
from core.training.training_plan import auto_batch, class_weights
from tests.helpers.models import small_model, write_small_model
from tests.helpers.tiny_photos import write_photos


def finish(steps):
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


@pytest.mark.parametrize(
    ("device", "photos", "batch"), [("cpu", 10**6, 32), ("cuda", 10**6, 256), ("cpu", 200, 8), ("cpu", 9, 4)]
)
def test_a_batch_of_0_leaves_an_epoch_its_steps(device, photos, batch):
    assert auto_batch(device, photos) == batch


@pytest.mark.usefixtures("reference_plans")
def test_class_weights_are_one_on_average_and_larger_for_rare_classes(tiny, tmp_path):
    for number in range(3, 12):
        (tmp_path / "photos" / "brown" / f"{number:03d}.png").unlink()
    config = tiny(class_weights="balanced", validation=0.1, test=0.0, batch_size=400)
    setup = finish(set_up(config, Commands()))
    labels = setup.train.labels
    assert setup.config.batch_size == setup.train.batch == len(labels), "a batch has no more photos than there are"
    brown, green = class_weights(config, setup.photos)
    assert brown / green == pytest.approx((labels == 1).sum() / (labels == 0).sum())
    assert np.array([brown, green])[labels].mean() == pytest.approx(1)
    root = class_weights(replace(config, class_weights="sqrt"), setup.photos)
    assert root[0] / root[1] == pytest.approx((brown / green) ** 0.5)
    assert class_weights(replace(config, class_weights="none"), setup.photos) == ()


@pytest.mark.usefixtures("reference_plans")
@pytest.mark.parametrize(("parts", "batches"), [(1, [4, 2]), (3, [6, 3])])
def test_what_does_not_fit_is_halved_and_remembered(tiny, monkeypatch, parts, batches):
    original = training_plan.compile_training
    tried = []

    def refuse(config, graph, device, batch, *more):
        tried.append(batch)
        if batch > 3:
            raise OutOfMemory("too much")
        return original(config, graph, device, batch, *more)

    monkeypatch.setattr(training_plan, "compile_training", refuse)
    setup = finish(set_up(tiny(batch_size=0, accumulate=parts), Commands()))
    assert (tried, problems(setup.config)) == (batches, [])
    assert setup.config.batch_size == setup.train.batch == setup.plan.batch * parts == batches[-1]
    with pytest.raises(OutOfMemory):
        finish(set_up(tiny(batch_size=8), Commands()))


def test_what_a_run_cannot_have_is_said_before_photos_are_decoded(tiny, monkeypatch):
    monkeypatch.setattr("core.training.setup.cuda_problem", lambda: "There is no GPU here.")
    monkeypatch.setattr("core.data.preparation.open_cache", Mock(side_effect=AssertionError))
    for said, settings in (("There is no GPU here", {"device": "cuda"}), ("is not the split", {"split": "missing.csv"}),
                           ("The CPU computes in float32", {"precision": "mixed"}),
                           ("pixels only", {"use_size": 48}), ("cannot be built", {"model": "alexnet"})):  # fmt: skip
        with pytest.raises(InputError, match=said):
            list(set_up(tiny(**settings), Commands()))


@pytest.mark.parametrize(("device", "wanted", "older", "taken"), [
    ("cuda", "mixed", True, "float32"), ("cuda", "tf32", True, "float32"), ("cuda", "float32", True, "float32"),
    ("cuda", "mixed", False, "mixed"), ("cpu", "float32", True, "float32"),
])  # fmt: skip
def test_an_older_gpu_computes_in_float32_and_the_run_says_so(device, wanted, older, taken, monkeypatch):
    module = pytest.importorskip("core.gpu.driver.device")
    monkeypatch.setattr(module, "precision_problem", lambda: "The T4 computes in float32." if older else None)
    precision, told = choose_precision(wanted, device)
    assert precision == taken
    said = f"The T4 computes in float32. This run uses it instead of {wanted}."
    assert told == (() if precision == wanted else (said,))


def test_validation_photos_that_do_not_fit_in_memory_are_sampled_as_their_classes_are_frequent(tmp_path, monkeypatch):
    for name, each in (("brown", 90), ("green", 30)):
        photos = write_photos(tmp_path / "photos", (name,), each)
    monkeypatch.setattr("core.training.finish.MOST_BYTES", 20 * 3 * 16**2)
    config = RunConfig(data=str(photos), cache=str(tmp_path), image_size=16, validation=0.5)
    found = _take_validation(prepare_photos(config))
    assert len(found.photos) == len(found.groups) == 20
    assert 12 <= (found.labels == 0).sum() <= 17, "15 of 20 expected; equal numbers would be 10"


@pytest.mark.usefixtures("reference_plans")
def test_a_run_says_what_its_split_by_group_has_spared_it(tiny, tmp_path):
    config = tiny()
    assert not [text for text in finish(set_up(config, Commands())).warnings if "A random split would leak" in text]
    for file in [*(tmp_path / "photos").rglob("*.png")]:
        file.with_stem(file.stem + "-again").write_bytes(file.read_bytes())
    (tmp_path / "photos/green/empty.png").touch()
    setup = finish(set_up(config, Commands()))
    spared = setup.photos.random_leak
    assert spared.leaked > 5
    (said,) = (text for text in setup.warnings if "A random split would leak" in text)
    assert f"{spared.leaked} of {spared.held_out} validation and test photos" in said
    torn = replace(setup, photos=replace(setup.photos, leak=spared))
    card = render_card(describe_data(torn, small_model(("brown", "green"))), "x")
    assert f"Data leakage: {spared.leaked} of {spared.held_out} validation and test photos have" in card
    assert f"by which they were split: {len(set(setup.photos.groups[setup.photos.splits >= 0]))}." in card


@pytest.mark.usefixtures("reference_plans")
@pytest.mark.parametrize("named", ["field", "teacher"])
def test_classes_that_do_not_fit_are_told_before_a_photo_is_decoded(tiny, tmp_path, monkeypatch, named):
    teacher = write_small_model(tmp_path / "m.safetensors", ("green", "grey"))
    field = write_photos(tmp_path / "field", ("green", "grey"), each=2)
    monkeypatch.setattr("core.data.preparation.open_cache", Mock(side_effect=AssertionError("a photo was decoded")))
    config = tiny(**({"field": str(field)} if named == "field" else {"teacher": (str(teacher),)}))
    said = "class grey, which is not a known class" if named == "field" else "does not know the class brown"
    for start in (lambda: finish(set_up(config, Commands())), lambda: describe_run(config)):
        with pytest.raises(InputError, match=said):
            start()


@pytest.mark.parametrize(("option", "said"), [
    ("out", "would be inside the photo folder"), ("cache", "is inside the photo folder"),
    ("split", "is not the split of a run"),
])  # fmt: skip
def test_a_dry_run_refuses_files_that_the_run_would_refuse(tiny, tmp_path, capsys, option, said):
    place = tmp_path / "photos" / "here"
    place.write_text("a,b\n") if option == "split" else None
    options = ["--data", tiny().data, "--cache", str(tmp_path / "cache"), f"--{option}", str(place), "--device", "cpu"]
    assert train.main([*options, "--dry-run"]) == EXIT_WRONG_INPUT
    assert said in capsys.readouterr().err


def test_tuning_that_several_processes_skip_is_said(monkeypatch):
    monkeypatch.setattr(training_plan, "add_loss", lambda *_: None)
    monkeypatch.setattr(training_plan, "compile_fitting", lambda *_: ("plan", 4))
    monkeypatch.setattr(training_plan, "untuned_note", lambda: None)
    photos = Mock(training=(range(8), range(8)))
    compiled = training_plan.compile_for_training(RunConfig(tune=True), None, "cuda", photos, {}, Mock(size=2))
    assert next(compiled).stage == "compile"
    assert finish(compiled) == ("plan", 4, (training_plan.TUNED_ALONE,))
