"""The loop: it learns, says what it does, and what it may be asked for beside; resuming is in `test_resume`."""

import csv
import json
import threading
import time
from dataclasses import replace
from hashlib import sha256
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest

from core import storage
from core.config import RunConfig
from core.diagnosis.model_file import read_model
from core.errors import InputError, ModelFileError, StorageError, TrainingDiverged
from core.tensor_file import read_tensor_file
from core.training import events as run_events
from core.training import stall, trainer
from core.training.checkpoint import LAST, PREVIOUS, VERSION
from core.training.commands import Commands
from core.training.events import EpochDone, Progress, RunEvaluated, RunFinished, RunStarted, StepDone, Warned
from core.training.run_folder import read_config
from core.training.trainer import Trainer
from tests.core.training.test_teacher import write_teacher
from tests.helpers.reference_plan import ReferencePlan
from tests.helpers.runs import last_weights, only, same_bits, train
from tests.helpers.tiny_photos import write_photos


@pytest.fixture(autouse=True)
def closed(reference_plans):
    """However a run ends, it closes all its plans."""
    yield
    assert all(plan.closed for plan in reference_plans)


def test_it_learns_to_tell_two_colours_says_so_in_order_and_its_folder_holds_all_it_promises(tiny, monkeypatch):
    monkeypatch.setattr(stall, "WINDOW", 10)
    config = tiny(epochs=5)
    events = train(config)
    kinds = [type(e).__name__ for e in events if not isinstance(e, Progress)]
    assert (kinds[0], kinds[-1]) == ("RunStarted", "RunFinished")
    assert {e.stage for e in only(events, Progress)} >= {"scan", "cache", "compile", "validation", "test"}
    steps, per_epoch = only(events, StepDone), only(events, RunStarted)[0].steps_per_epoch
    rates = [trainer.learning_rate(config, step, 5 * per_epoch, per_epoch) for step in range(5 * per_epoch)]
    assert [(e.step, e.learning_rate) for e in steps] == list(enumerate(rates, 1))
    assert all(0 <= e.wait_seconds < 60 > e.seconds > 0 for e in steps)
    finished = events[-1]
    assert (finished.reason, finished.test_accuracy) == ("completed", 1.0)
    assert all(0 < epoch.photos_per_second < 1e6 for epoch in only(events, EpochDone))
    assert Path(finished.model_path).is_file()
    page = Path(finished.report_path).read_text("utf-8")
    assert ("macro F1" in page, "Knowledge distillation" in page) == (True, False)
    half, split = only(events, RunStarted)[0].train_photos // 2, Path(config.out, "split.csv").read_bytes()
    facts = (f"brown {half}, green {half}", "adamw", "Normalization", "file names, times", sha256(split).hexdigest())
    assert not [words for words in facts if words not in page]
    assert not [e for e in only(events, Warned) if e.urgent or "Teachers:" in e.message]
    assert "teachers" not in read_tensor_file(Path(config.out) / LAST, "checkpoint", VERSION).header
    assert last_weights(config).teachers == ()
    assert only(train(tiny("other", epochs=1, seed=1)), StepDone)[0].loss != steps[0].loss
    folder = Path(config.out)
    assert {p.name for p in folder.iterdir()} == {
        "config.json", "events.jsonl", "metrics.csv", "split.csv", "confusion.csv", "report.html", LAST, PREVIOUS,
        "best.safetensors", ".lock", "test_readings.csv",
    }
    log, evaluated = folder / "events.jsonl", only(events, run_events.RunEvaluated)
    assert list(run_events.read_events(log)) == [e for e in events if not isinstance(e, Progress)]
    assert list(run_events.read_events(log, (run_events.RunEvaluated,))) == evaluated != []
    assert len((folder / "metrics.csv").read_text().splitlines()) == 1 + config.epochs


def test_patience_ends_a_run_that_gets_no_better_also_after_a_resume(tiny):
    config = tiny(epochs=20, patience=2, learning_rate=1e-8, optimizer="sgd")
    events = train(config)
    assert (events[-1].reason, len(only(events, EpochDone))) == ("early", 3)
    assert train(config, resume=True)[-1].reason == "early"
    rare = train(tiny("rare", epochs=20, patience=2, validate_every=3, learning_rate=1e-8, optimizer="sgd"))
    assert (rare[-1].reason, [e.epoch for e in only(rare, EpochDone)]) == ("early", [2, 5]), "not before a validation"


def test_a_time_limit_ends_with_a_judged_model_and_the_schedule_follows_the_time(tiny):
    config = RunConfig(epochs=10, minutes=1.0)
    for seconds, step in ((0, 3), (30, 50), (61, 99)):
        run = Mock(_config=config, _per_epoch=10, state=Mock(step=2), _running=[1], _agreement=Mock(seconds=seconds))
        assert trainer._Run._schedule_step(run) == step
    end = train(tiny(epochs=100000, minutes=0.003))[-1]
    assert (end.reason, end.test_accuracy is None) == ("completed", False)


@pytest.mark.parametrize("changes", [
    {"class_weights": "balanced", "label_smoothing": 0.1}, {"mix": 0.6, "label_smoothing": 0.1}, {"teacher": ()},
], ids=lambda changes: next(iter(changes)))  # fmt: skip
def test_parts_of_a_batch_and_streamed_photos_learn_the_same(tiny, tmp_path, changes):
    if "teacher" in changes:
        changes = {"teacher": (write_teacher(tmp_path / "t.safetensors"),)}
    runs = [tiny(f"run{i}", epochs=2, **more) for i, more in enumerate((
        changes, {**changes, "accumulate": 2}, {**changes, "stream_photos": True}, {}))]  # fmt: skip
    whole, parts, streamed, plain = ([e.loss for e in only(train(config), StepDone)] for config in runs)
    np.testing.assert_allclose(parts, whole, rtol=1e-4)
    assert streamed == whole
    same_bits(last_weights(runs[0]), last_weights(runs[2]))
    assert plain != whole, "the changes change nothing"


def test_photos_may_be_larger_in_validation_and_use_than_in_training_if_the_network_is_not_bound_to_a_size(tiny):
    with pytest.raises(ModelFileError, match="16 pixels only"):
        train(tiny(use_size=24))
    config = tiny(model="squeezenet1_1", image_size=32, use_size=40, epochs=1)
    events = train(config)
    model = read_model(Path(config.out))
    assert only(events, RunFinished)[0].test_accuracy is not None
    assert (model.graph.photo_shape, model.source_side) == ((40, 40, 3), 40)
    assert only(events, RunStarted)[0].model == model.graph.name


def test_kernels_are_timed_where_a_run_is_profiled_or_asks_for_it_and_change_nothing(tiny):
    times = only(train(tiny(), profiled=True), run_events.KernelTimes)
    assert [(event.step, 0 < event.seconds < 60) for event in times] == [(2, True)]
    plain, timed = tiny("plain"), tiny("timed", time_every=2)
    assert not only(train(plain), run_events.KernelTimes)
    assert len(only(train(timed), run_events.KernelTimes)) >= 3
    same_bits(last_weights(plain), last_weights(timed))


def test_a_device_that_computes_by_itself_starts_a_step_before_the_result_of_the_last_is_read(tiny, monkeypatch):
    original, begun = trainer.start_step, []
    monkeypatch.setattr(trainer, "start_step", lambda *given: begun.append(1) or original(*given))
    ahead = {}
    for name in ("plain", "by itself"):
        begun.clear()
        monkeypatch.setattr(ReferencePlan, "asynchronous", name != "plain")
        run = Trainer(tiny(name, epochs=2)).run()
        ahead[name] = [len(begun) - e.step for e in run if isinstance(e, StepDone)]
    assert ahead == {"plain": [0] * 6, "by itself": [2, 1, 0] * 2}  # all steps of an epoch are waited for
    same_bits(last_weights(tiny("plain")), last_weights(tiny("by itself")))


@pytest.mark.parametrize("changes", [{}, {"checkpoint_seconds": 0.1}, {"batch_size": 16, "accumulate": 2}])
def test_steps_that_were_started_end_before_a_run_is_saved_or_stopped(tiny, monkeypatch, changes):
    plain, stopped = tiny("plain", **changes), tiny("stopped", **changes)
    train(plain)
    monkeypatch.setattr("core.training.agreement.time", SimpleNamespace(monotonic=count(0.0, 0.1).__next__))
    monkeypatch.setattr(ReferencePlan, "asynchronous", True)
    for resume in (False, True, True):
        commands = Commands()
        for event in Trainer(stopped, resume=resume).run(commands):
            if isinstance(event, StepDone) and event.step in (1, 4):
                commands.stop()
    same_bits(last_weights(plain), last_weights(stopped))


def test_a_paused_run_waits_until_it_is_resumed_or_stopped(tiny):
    commands, ended = Commands(), []
    for event in Trainer(tiny()).run(commands):
        if isinstance(event, StepDone):
            ended.append(time.monotonic())
            commands.pause()
            threading.Timer(0.2, commands.resume if event.step == 1 else commands.stop).start()
    assert (len(ended), event.reason, ended[1] - ended[0] >= 0.2) == (2, "stopped", True)


def test_an_exploding_run_names_step_and_layer_and_keeps_the_good_checkpoint(tiny, monkeypatch):
    config, original, taken = tiny(optimizer="sgd"), ReferencePlan.gradient, []

    def explode(plan, batch, **how):
        taken.append(batch)
        result = original(plan, batch, **how)
        if any(batch is fifth for fifth in taken[4:5]):
            plan._gradient[:] = np.inf
        return replace(result, gradient_norm=plan._gradient.max())

    monkeypatch.setattr(ReferencePlan, "asynchronous", True)  # the sixth step, which is finite, has begun
    monkeypatch.setattr(ReferencePlan, "gradient", explode)
    with pytest.raises(TrainingDiverged, match=r"at step 5. .* layer 'dense2'") as caught:
        train(config)
    assert str(Path(config.out) / LAST) in str(caught.value)
    assert all(np.isfinite(a).all() for a in last_weights(config).weights.values())
    logged = (Path(config.out) / "events.jsonl").read_text("utf-8").splitlines()
    assert json.loads(logged[-1])["event"] == "RunFailed"


def test_averaged_weights_are_kept_with_statistics_of_their_own_and_the_run_goes_on_unchanged(tiny):
    changes = {"model": "squeezenet1_1_bn", "image_size": 32, "epochs": 2}
    plain, averaged = tiny("plain", **changes), tiny("averaged", **changes, average=0.8)
    train(plain)
    train(averaged)
    raw, last = last_weights(plain).weights, last_weights(averaged).weights
    assert all(raw[name].tobytes() == last[name].tobytes() for name in raw)
    kept = read_model(Path(averaged.out)).weights
    for end in (".weight", "running_mean"):
        assert any((kept[name] != last[name]).any() for name in kept if name.endswith(end))


def test_own_field_photos_are_a_second_test_told_beside_the_first(tiny, tmp_path):
    config = tiny(field=str(write_photos(tmp_path / "field", classes=("green",), each=4, noise=90, seed=5)))
    events = train(config)
    judged, finished = only(events, RunEvaluated)[0], events[-1]
    assert [name for name, _, _ in judged.parts] == ["test", "test photos", "own field photos"]
    assert judged.parts[2][1] == 4
    assert "own field photos" in judged.words[1]
    assert "own field photos" in Path(finished.report_path).read_text("utf-8")
    model = read_model(Path(finished.model_path))
    assert model.figures["field_accuracy"] == judged.parts[2][2] / 4
    assert [row["name"] for row in model.sections["test"]["parts"]] == ["all", "test photos", "own field photos"]


def test_every_photo_that_is_left_out_is_listed_with_its_reason_and_learned_field_photos_are_told(tiny, tmp_path):
    (tmp_path / "photos" / "green" / "empty.png").write_bytes(b"")
    for number in range(5):
        (tmp_path / "photos" / "brown" / f"text, {number}.png").write_bytes(f"no photo {number}".encode())
    field = tmp_path / "field" / "green"
    field.mkdir(parents=True)
    (field / "own.png").write_bytes((tmp_path / "photos" / "green" / "000.png").read_bytes())
    (field / "bad.png").write_bytes(b"")
    config = tiny(epochs=1, field=str(field.parent))
    told = [event.message for event in only(train(config), Warned)]
    assert any("also in the dataset" in text for text in told)
    file = Path(config.out) / "left_out.csv"
    assert f"Every excluded photo is listed in {file} with the reason." in told
    with file.open(encoding="utf-8", newline="") as opened:
        rows = [tuple(row.values()) for row in csv.DictReader(opened)]
    assert [(path, kind) for path, _, kind in rows] == [
        *((f"brown/text, {number}.png", "photos") for number in range(5)), ("green/empty.png", "photos"),
        ("green/bad.png", "field"),
    ]  # fmt: skip
    assert {reason for path, reason, _ in rows if "empty" in path or "bad" in path} == {"The file is empty."}
    photos = tmp_path / "photos"
    for photo in (*photos.rglob("text*"), photos / "green" / "empty.png", field / "bad.png"):
        photo.unlink()
    train(config, resume=True)
    assert not file.exists(), "a resumed run says what it leaves out itself"


@pytest.mark.parametrize("name", ["config.json", "split.csv", "events.jsonl", "left_out.csv"])
def test_a_run_that_could_not_begin_leaves_nothing_that_stands_in_the_way(tiny, tmp_path, monkeypatch, name):
    (tmp_path / "photos" / "green" / "empty.png").write_bytes(b"")
    config = tiny(epochs=1)
    refuse = Mock(side_effect=OSError(28, "No space left on device"))
    with monkeypatch.context() as patch:
        for owner, function in ((Path, "open"), (storage, "open_new")):
            opened = getattr(owner, function)
            patch.setattr(owner, function, lambda path, *how, opened=opened, **more: (
                refuse if path.name.startswith(name) else opened)(path, *how, **more))  # fmt: skip
        with pytest.raises(StorageError, match="No space left on device. Free disk space"):
            train(config)
    assert not Path(config.out).exists()
    assert train(config)[-1].reason == "completed"


def test_a_folder_in_which_a_start_was_cut_off_is_begun_anew(tiny):
    config = tiny(epochs=1)
    Path(config.out).mkdir()
    for name in ("config.json", "config.json.writing", ".lock", "split.csv.7.writing"):
        (Path(config.out) / name).write_text('{"data": "photos"}')
    assert train(config)[-1].reason == "completed"
    assert not [*Path(config.out).glob("*.writing")]
    with pytest.raises(InputError, match="already contains a run"):
        train(config)


def test_two_runs_of_one_second_get_their_own_folders(tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(storage.time, "strftime", lambda form: "now")
    runs = [trainer.Trainer(tiny(out="", epochs=1)).run() for _ in range(2)]
    folders = [next(event.folder for event in run if isinstance(event, RunStarted)) for run in runs]
    assert folders == [str(Path("runs", name)) for name in ("now-cnn", "now-cnn-2")]
    assert [read_config(Path(folder)).out for folder in folders] == folders
