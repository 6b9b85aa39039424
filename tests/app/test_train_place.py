"""The Train place without a training: where it starts, and what its end says."""

import json
import re
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
from PySide6.QtWidgets import QLabel

from app.panels.train.outcome import headline
from app.processes import memory, scan
from app.viewmodels.memory_estimate import MemoryEstimate
from app.viewmodels.model_list import shipped_model
from app.viewmodels.runs import RunView
from app.viewmodels.training import State, TrainingModel
from core.config import from_dict, to_dict
from core.data.dataset import Cancelled
from core.errors import StorageError
from core.training.events import EpochDone, RunEvaluated, RunFinished, Warned
from tests.helpers.models import write_small_model

pytestmark = pytest.mark.gui

END = RunFinished("completed", 10, 4, 0.9, 0.8, "/runs/a/best.safetensors", "", 60.0)
JUDGED = RunEvaluated(
    "test", (("test", 100, 80), ("lab photos", 60, 57), ("field photos", 40, 23)), 0.4, 0.2, 0.8, 0.7, 0.6,
    ("80 of 100 test photos right.", "The network is not clearly better than the border baseline: nothing shows that "
                                     "it uses the leaves."),
)  # fmt: skip


def test_training_starts_from_the_pretrained_model_by_default_also_where_no_run_can_be_saved(start, home):
    home.mkdir()
    (home / "runs").touch()
    program, asked = start(), []
    setup = program.window.go("train").setup
    values, program.examination.start = setup.form.values(), asked.append
    assert (values["start"], values["preset"], values["image_size"]) == (shipped_model(), "transfer", 0)
    program.window.page("dataset").health.check.click()
    assert asked[0].keys() >= {"start", "image_size", "use_size"}
    assert not setup.form.is_visible("model"), "the network is that of the model file"
    assert "pretrained model “leaves”" in setup.about_start.text()
    setup.start.button(1).click()
    values = setup.form.values()
    assert (values["start"], values["preset"]) == ("", "tomato-cpu")
    assert setup.form.is_visible("model")
    setup.show_device("cuda")
    setup.start.button(1).click()
    assert setup.form.values()["preset"] == "gpu"
    setup.start.button(0).click()
    config = from_dict(setup.form.values())
    assert (bool(config.start), config.precision) == (True, "float32"), "nothing of the recipe before may stay"
    setup.show_data("", demo=True)
    assert (setup.form.values()["preset"], setup.form.values()["start"]) == ("demo", "")
    setup.show_data("")
    assert setup.form.values()["preset"] == "transfer"


def test_photos_are_checked_in_the_size_of_the_training(tmp_path, monkeypatch):
    prepare = Mock(side_effect=Cancelled)
    monkeypatch.setattr(scan, "prepare_photos", prepare)
    file = str(write_small_model(tmp_path / "m.safetensors", side=40, network="squeezenet1_1"))
    for asked in ({}, {"start": file}, {"start": file, "image_size": 64}, {"start": "gone"}):
        with pytest.raises(Cancelled):
            scan.work(Mock(), asked)
    assert [call.args[0].image_size for call in prepare.mock_calls] == [224, 40, 64, 224]


def test_each_split_has_a_count_for_each_class():
    of = np.array([0, 0, 1])
    photos = Mock(dataset=Mock(classes=("a", "b"), labels=of), rows=lambda at: [at], groups=of, cache=Mock(kept=of))
    assert scan.split_table(photos)["counts"] == {"train": [1, 0], "val": [1, 0], "test": [0, 1]}


def test_the_memory_that_a_run_needs_is_computed_and_stated(qapp):
    config = to_dict(from_dict({"model": "cnn", "image_size": 64, "batch_size": 2, "device": "cpu"}))
    channel, estimate, said = Mock(), MemoryEstimate(), []
    estimate.estimated.connect(said.append)
    estimate._start_process = lambda name, request: memory.work(channel, request)
    estimate.ask(config, [400, 112])
    estimate._rest.timeout.emit()
    estimate._read_answers([channel.send.call_args.kwargs, {"failed": "No memory."}])
    needed = r"This run needs [1-9]\d MB of memory \(cpu, batch size 2\) and 6 MB of disk space\."
    assert re.fullmatch(needed + r"No memory\.", "".join(said)), said
    estimate.ask(config, [4, 4])
    assert (said[-1], estimate._rest.isActive(), estimate._rest.isSingleShot()) == ("", True, True)
    estimate.close()
    assert not estimate._rest.isActive()


def test_a_resumed_run_shows_its_own_settings_and_not_those_of_its_photos(start, tmp_path, monkeypatch, qtbot):
    program, asked = start(), {}
    monkeypatch.setattr(TrainingModel, "start", lambda _, request, folder, history: asked.update(json.loads(request)))
    of_photos = {"data": str(tmp_path), "labels": "multi", "validation": 0.3, "seed": 5, "split": "s.csv", "name": "a"}
    config = from_dict({**of_photos, "out": str(tmp_path), "epochs": 7, "model": "cnn"})
    (tmp_path / "config.json").write_text(json.dumps(to_dict(config)))
    before = program.window.go("train").setup.form.values()
    program.run_commands.resume_run(str(tmp_path))
    qtbot.waitUntil(lambda: bool(asked))
    assert (asked["resume"], asked["config"]["out"]) == (True, str(tmp_path))
    values = program.window.page("train").setup.form.values()
    assert [values.get(name) for name in of_photos] == [before.get(name) for name in of_photos], "of the next training"
    assert (values["epochs"], values["model"], values["start"]) == (7, "cnn", "")


def test_the_end_says_the_accuracy_or_why_there_is_none():
    view = RunView()
    assert "Nothing was changed" in headline(RunFinished("stopped", 0, -1, 0.0, None, "", "", 0.0), view)
    assert "resume it" in headline(RunFinished("stopped", 3, -1, 0.0, None, "", "", 0.0), view)
    view.read([EpochDone(0, 3, 0.5, 0.9, 0.5, 0.9, True, (), 1.0, 20.0, 0, mean_f1=0.9)])
    assert "Validation accuracy 90.0\u00a0% (all labels right at threshold 0.5) after" in headline(END, view)
    view.read([JUDGED])
    assert headline(END, view) == "80 of 100 test photos right."


def test_the_result_stands_in_its_place_with_what_to_do_next(program, qtbot, tmp_path, monkeypatch):
    report = tmp_path / "report.html"
    report.write_bytes(b"<h1>report of gr\xe4ser</h1>")  # a name that is not UTF-8
    panel = program.window.go("train")
    view: RunView = program.training.view
    view.read([Warned("Training on the CPU."), Warned("Too high.", kind="leakage")] * 2)  # a resumed run warns again
    view.read([JUDGED, replace(END, report_path=str(report))])
    panel.notice.alarm("Stop this run.")
    panel._tell_end()
    panel.redraw()
    assert (panel.tabs.currentWidget(), panel.notice.isHidden()) == (panel.outcome, True)
    said = [text.text() for text in panel.outcome.findChildren(QLabel) if text.isVisible()]
    once = ("of 100 test", "order baseline", "Training on the CPU.", "Too high.")
    assert [sum(one.count(words) for one in said) for words in once] == [1] * 4
    assert ("Too high." in panel.outcome.words.text(), panel.outcome.notes.text()) == (True, "Training on the CPU.")
    assert program.window.actions_.run_pdf.isEnabled()
    monkeypatch.setattr("app.run_commands.open_file", opened := Mock())
    monkeypatch.setattr("app.run_commands.language", lambda: "vi")
    program.window.actions_.run_report.trigger()
    assert opened.call_args.args == (*tmp_path.glob("report.vi.html"),), "a translation beside it"
    monkeypatch.setattr("app.run_commands.write_file", Mock(side_effect=StorageError("No permission.")))
    program.window.actions_.run_report.trigger()
    assert (opened.call_args.args, panel.notice.text.text()) == ((report,), "No permission.")
    with qtbot.waitSignal(panel.outcome.diagnose_asked) as asked:
        panel.outcome.use.click()
    assert asked.args == ["/runs/a/best.safetensors"]
    panel._on_state(State.RUNNING)
    assert panel.tabs.currentWidget() is panel.curves, "the next run has no result yet"


def test_a_loss_that_does_not_fall_is_told_while_the_run_goes_on(start):
    panel = start().window.go("train")
    model = panel._model
    model.state = State.RUNNING
    model.view.read([Warned("1 photo is excluded: too small.")])
    panel.redraw()
    assert not panel.notice.isVisible()
    for message in ("The loss is not decreasing.", "The loss is not decreasing."):
        model.view.read([Warned(message, urgent=True)])
        panel.redraw()
        assert panel.notice.isVisible() == (panel.notice.text.text() == message)
    assert panel.notice.isVisible()
    panel.notice.hide()
    panel.redraw()
    assert not panel.notice.isVisible(), "closed by the user, it stays closed"
    model.view.read([Warned("It still does not fall.", urgent=True)])
    panel.redraw()
    model.view.read([Warned("The loss is decreasing now.")])
    panel.redraw()
    assert not panel.notice.isVisible()
    model.state = State.IDLE
