"""Stopped, paused, killed, damaged, out of room: a run goes on with the same bits, or ends with a sentence."""

import os
import re
import sys
from dataclasses import replace
from itertools import chain, product, repeat
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from core.diagnosis.model_file import read_model
from core.errors import DataError, InputError, ModelFileError, StorageError
from core.ops.photo import BACKGROUND
from core.training.checkpoint import LAST, PREVIOUS, RunState, read_checkpoint, save_checkpoint
from core.training.commands import Commands
from core.training.events import EpochDone, Progress, RunFinished, RunStarted, StepDone, from_line
from core.training.run_folder import RunFolder, read_config
from core.training.trainer import Trainer
from tests.core.training.test_teacher import write_teacher
from tests.helpers.reference_plan import ReferencePlan
from tests.helpers.runs import last_weights, only, same_bits, train
from tests.helpers.tiny_photos import write_discs

NO_UTF8 = "\udcff" if sys.platform == "linux" else ""
pytestmark = pytest.mark.usefixtures("reference_plans")


@pytest.mark.parametrize(("stop_after", "taught", "changes"), [
    (1, False, {"optimizer": "sgd", "average": 0.9}), (3, False, {"optimizer": "adamw", "average": 0.9}),
    (4, False, {"optimizer": "adamw", "average": 0.9}), (5, False, {"optimizer": "adam", "average": 0.9}),
    (2, True, {"mix": 0.6}), (2, True, {"epochs": 2, "average": 0.8, "model": "squeezenet1_1_bn", "image_size": 32}),
])  # fmt: skip
def test_stopped_and_resumed_is_the_same_as_never_stopped(tiny, tmp_path, stop_after, taught, changes):
    model, side = changes.get("model", "cnn"), changes.get("image_size", 16)
    teachers = [write_teacher(tmp_path / "t.safetensors", size=side, name=model)] * taught
    whole, parted = (tiny(name, teacher=tuple(teachers), **changes) for name in ("whole", "parted"))
    want = train(whole)
    first = train(parted, stop_after=stop_after)
    assert (first[-1].reason, bool(first[-1].model_path)) == ("stopped", bool(only(first, EpochDone)))
    second = train(parted, resume=True)
    same_bits(last_weights(whole), last_weights(parted))
    one, other = (read_model(Path(config.out)).weights for config in (whole, parted))
    assert all(one[name].tobytes() == other[name].tobytes() for name in one)
    assert last_weights(whole).teachers == last_weights(parted).teachers
    assert len(last_weights(parted).teachers) == taught
    assert only(second, RunStarted)[0].step == stop_after
    got = only(first, StepDone) + only(second, StepDone)
    assert [e.loss for e in got] == [e.loss for e in only(want, StepDone)]
    epochs = [replace(e, seconds=0, photos_per_second=0) for e in only(first, EpochDone) + only(second, EpochDone)]
    assert epochs == [replace(e, seconds=0, photos_per_second=0) for e in only(want, EpochDone)]


@pytest.mark.parametrize("stop_after", [5, 9])
def test_validating_some_epochs_only_changes_no_weight_also_after_a_resume(tiny, stop_after):
    every, some = tiny("every", epochs=5), tiny("some", epochs=5, validate_every=2)
    train(every)
    events = train(some, stop_after=stop_after) + train(some, resume=True)
    assert [e.epoch for e in only(events, EpochDone)] == [1, 3, 4]
    want, got = last_weights(every), last_weights(some)
    assert all(want.weights[name].tobytes() == got.weights[name].tobytes() for name in want.weights)
    assert only(events, RunFinished)[-1].best_epoch in (1, 3, 4)


@pytest.mark.parametrize("minutes", [0.0, 1e-9])  # so little that the first step is the last
def test_a_stop_during_validation_loses_nothing(tiny, monkeypatch, minutes):
    monkeypatch.setattr("core.training.setup.VALIDATION_BATCH", {"cpu": 1})
    whole, parted, commands = tiny("whole", minutes=minutes), tiny("parted", minutes=minutes), Commands()
    train(whole)
    for event in Trainer(parted).run(commands):
        if isinstance(event, Progress) and event.stage == "validation":
            commands.stop()
    assert event.reason == "stopped"
    train(parted, resume=True)
    same_bits(last_weights(whole), last_weights(parted))


def test_the_logs_of_a_resumed_run_have_every_step_once(tiny):
    config = tiny(checkpoint_seconds=0.1)
    run = Trainer(config).run()
    for event in run:
        if isinstance(event, StepDone) and event.step == 5:
            break  # as a kill: nothing is saved after this
    run.close()
    train(config, resume=True)
    logged = [from_line(line) for line in (Path(config.out) / "events.jsonl").read_text("utf-8").splitlines()]
    steps = [e.step for e in only(logged, StepDone)]
    assert steps == list(range(1, steps[-1] + 1))
    assert [e.epoch for e in only(logged, EpochDone)] == [0, 1, 2]


def test_resuming_a_finished_run_changes_no_weight(tiny):
    """Its folder and that of its photos have names that are no UTF-8, where the system has such names."""
    config = tiny("run" + NO_UTF8)
    config = replace(config, data=str(Path(config.data).rename(config.data + NO_UTF8)))
    train(config)
    assert read_config(Path(config.out)).data == config.data
    before = last_weights(config)
    events = train(replace(config, name="new"), resume=True)
    assert (only(events, StepDone), events[-1].reason) == ([], "completed")
    assert read_model(Path(config.out)).name == "new"
    same_bits(before, last_weights(config))


def test_a_damaged_last_checkpoint_is_told_and_the_one_before_continues(tiny):
    whole, hurt = tiny("whole"), tiny("hurt")
    train(whole)
    train(hurt, stop_after=2, pick=EpochDone)
    path = Path(hurt.out) / LAST
    path.write_bytes(path.read_bytes()[:-7])
    events = train(hurt, resume=True)
    assert any("previous checkpoint" in getattr(e, "message", "") for e in events)
    same_bits(last_weights(whole), last_weights(hurt))
    for state in ({"epoch": -1}, {"step_in_epoch": -1}, {"step": 2**62}, {"step_in_epoch": 2**62}):
        for _ in (LAST, PREVIOUS):
            save_checkpoint(path.parent, replace(last_weights(whole), state=RunState(**state)))
        with pytest.raises(ModelFileError, match="below 0|cannot be step"):
            train(hurt, resume=True)
    for name in (LAST, PREVIOUS):
        (Path(hurt.out) / name).write_bytes(b"nothing")
    with pytest.raises(ModelFileError, match="incomplete, damaged"):
        train(hurt, resume=True)


@pytest.mark.parametrize("written", [8, 18])  # files and folders: before the first checkpoint, and between two
def test_a_full_disk_stops_with_a_sentence_and_the_run_continues(tiny, monkeypatch, written):
    whole, config = tiny("whole"), tiny()
    train(whole)
    results = chain(repeat(None, written), [OSError(28, "No space left on device")], repeat(None))
    monkeypatch.setattr("core.storage.os.fsync", Mock(side_effect=results))
    with pytest.raises(StorageError, match="No space left on device"):
        train(config)
    last = Path(config.out) / LAST
    assert (last.exists() and read_checkpoint(last).state.step > 0) == (written > 8)
    train(config, resume=True)
    same_bits(last_weights(whole), last_weights(config))


@pytest.mark.parametrize("stream", [False, True])
def test_a_photo_cache_that_is_truncated_meanwhile_stops_with_a_sentence_and_the_run_continues(tiny, tmp_path, stream):
    whole, config = tiny("whole"), tiny(stream_photos=stream)
    train(whole)
    (photos,) = (tmp_path / "cache").rglob("*.photos")
    run = Trainer(config).run()
    while not isinstance(next(run), StepDone):
        pass
    os.truncate(photos, 0)
    with pytest.raises(StorageError, match=f"{photos.name} was truncated .* resume the training"):
        list(run)
    train(config, resume=True)
    same_bits(last_weights(whole), last_weights(config))


def test_changed_photos_are_refused_on_resume(tiny, tmp_path):
    config = tiny()
    train(config, stop_after=2)
    added = tmp_path / "photos" / "green" / "new.png"
    added.write_bytes((tmp_path / "photos" / "green" / "000.png").read_bytes() + b" ")
    with pytest.raises(DataError, match="started: 1 new"):
        train(config, resume=True)
    (Path(config.out) / "split.csv").write_text("no split\nx\n", "utf-8")
    with pytest.raises(DataError, match="started: 25 new"):
        train(config, resume=True)


def test_an_earlier_run_or_a_foreign_folder_is_not_touched(tiny, tmp_path):
    config = tiny()
    train(config, stop_after=1)
    with pytest.raises(InputError, match="--resume"):
        train(config)
    assert train(config, overwrite=True)[-1].reason == "completed"
    (skipped := Path(config.out) / "left_out.csv").mkdir()  # cannot be removed as a file
    with pytest.raises(StorageError):
        train(config, overwrite=True)
    assert skipped.with_name("config.json").exists()
    for part in ({"start": config.out}, {"teacher": (config.out,)}, {"split": f"{config.out}/split.csv"}):
        with pytest.raises(InputError, match="would be replaced by the new run"):
            train(replace(config, **part), overwrite=True)
    for name, overwrite in product(("thesis.txt", "config.json", "report.html"), (0, 1)):
        (foreign := tmp_path / f"{name}{overwrite}").mkdir()
        (foreign / name).write_text("{}")
        with pytest.raises(InputError, match="not empty"):
            train(replace(config, out=str(foreign)), overwrite=overwrite)
    for photos in ({}, {"data": "elsewhere", "field": config.data}):
        with pytest.raises(InputError, match="inside the photo folder"):
            train(replace(config, out=str(tmp_path / "photos" / "run"), **photos))
    (tmp_path / "loop").symlink_to("loop")
    for name, place in (("out", "loop"), ("out", "loop/run"), ("cache", "loop"), ("data", "loop")):
        with pytest.raises(InputError, match="loop (is a file, or a link that|does not exist)"):
            train(replace(tiny("new"), **{name: str(tmp_path / place)}))


def test_a_place_where_nothing_may_be_written_is_told_before_photos_are_read(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr("core.training.run_folder.os.access", lambda place, mode: place != tmp_path)
    with pytest.raises(InputError, match=re.escape(f"There is no permission to write in {tmp_path}")):
        next(Trainer(replace(tiny(), out=str(tmp_path / "not" / "there"))).run())


@pytest.mark.parametrize(("permitted", "how"), [(True, "resume"), (True, "overwrite"), (False, "resume")])
def test_a_run_that_cannot_be_resumed_or_replaced_is_refused_before_photos_are_read(tiny, monkeypatch, permitted, how):
    config = tiny()
    first = Trainer(config).run()
    while not isinstance(next(first), StepDone):
        pass
    reason = "Another process is training" if permitted else f"There is no permission to write in {config.out}"
    with monkeypatch.context() as patch:
        patch.setattr("core.training.run_folder.os.access", lambda place, mode: permitted)
        patch.setattr("core.training.trainer.set_up", lambda *_: pytest.fail("the photos are read"))
        with pytest.raises(InputError, match=re.escape(reason)):
            next(Trainer(config, **{how: True}).run())
    first.close()
    assert train(config, **{how: True})[-1].reason == "completed"


def test_a_lock_that_is_a_link_is_not_followed(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match="symbolic link"):
        RunFolder(tmp_path / "run")
    assert not (tmp_path / "elsewhere").exists()


def test_leaves_on_other_backgrounds_and_a_resumed_run_has_the_same_bits(tiny, tmp_path, monkeypatch):
    seen, gradient = [], ReferencePlan.gradient
    monkeypatch.setattr(ReferencePlan, "gradient", lambda plan, batch, **how: (
        seen.append(batch.augmentation), gradient(plan, batch, **how))[1])  # fmt: skip
    discs = write_discs(tmp_path / "discs", {"oak": (60, 160, 50), "ash": (160, 150, 40)}, each=12, side=32)
    changes = {"data": str(discs), "image_size": 32, "augment_background": 0.5, "epochs": 2}
    whole = tiny("whole", **changes)
    assert any(event.stage == "leaves" for event in only(train(whole), Progress))
    assert 0.2 < (np.concatenate(seen)[:, BACKGROUND] > 0).mean() < 0.8
    broken = tiny("broken", **changes)
    train(broken, stop_after=3)
    train(broken, resume=True)
    same_bits(last_weights(whole), last_weights(broken))
