"""Language and colours change while the program runs; what is open, listed and running stays."""

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel, QPushButton

from app.main_window import PAGES
from app.theme import current_theme
from app.viewmodels.kernel_benchmark import BenchmarkedKernel
from app.viewmodels.result import PhotoResult, read_result
from app.viewmodels.runs import RunView
from app.viewmodels.training import State
from core.diagnosis.model_identity import ModelIdentity
from core.training.events import Progress
from tests.app.test_diagnose_place import CLASSES, THRESHOLDS, answer

pytestmark = pytest.mark.gui


KEPT = 7, 2, 3, "run"
"""Epochs, tabs of Train and Dataset, and compared runs before and after the change."""


def texts(widget):
    return {w.text() for kind in (QLabel, QPushButton) for w in widget.findChildren(kind)}


def test_the_language_changes_at_once_and_nothing_is_lost(opened, qtbot):
    opened.document.exclude([0], True)
    opened.diagnosis.ready, opened.diagnosis.verdicts.thresholds = {"classes": CLASSES}, THRESHOLDS
    opened.diagnosis.rows.append([read_result(PhotoResult(n, f"/photos/{n}.jpg"), answer(0.9)) for n in (0, 1)])
    for place in PAGES:
        opened.window.go(place)
    opened.diagnosis.rows.sort(0, Qt.SortOrder.DescendingOrder)
    opened.window.page("diagnose").table.selectRow(0)
    opened.window.page("dataset").side.setCurrentIndex(3)
    opened.window.page("train").tabs.setCurrentIndex(2)
    opened.window.page("train").curves.compared["run"] = RunView()
    opened.window.page("diagnose").search.setText("1.jpg")
    opened.window.page("dataset").search.setText("rust")
    opened.benchmark.kernels = [BenchmarkedKernel("conv2d", "forward", "cpu", "naive", "")]
    opened.window.go("train").setup.form.fields["epochs"].set_value(7)
    (old := opened.window).resize(780, 700)
    with qtbot.waitSignal(old.destroyed):
        old.actions_.language_vi.trigger()
    window = opened.window
    assert (window is old, window.isVisible(), window.width(), window.height()) == (False, True, 780, 700)
    assert window.stack.currentWidget().objectName() == "page_train"
    train, tab = window.page("train"), window.page("dataset").side.currentIndex()
    assert (train.setup.form.values()["epochs"], train.tabs.currentIndex(), tab, *train.curves.compared) == KEPT
    assert [window.actions_.undo.isEnabled(), window.actions_.language_vi.isChecked()] == [True, True]
    assert "Huấn luyện" in texts(window)
    for place in PAGES:
        assert not {"Dataset", "Train", "Diagnose", "Kernels", "Start training"} & texts(window.go(place))
    qtbot.waitUntil(lambda: len(window.page("dataset").photos.rows) == 3, timeout=5000)
    assert window.page("kernels").op.count()
    table = window.page("diagnose").table
    assert (table.model().rowCount(), table.model().place(table.currentIndex().row())) == (1, 1)
    assert window.page("diagnose").state.text() == "1 trong 2 kết quả"
    assert [table.model().headerData(at, Qt.Orientation.Horizontal) for at in (0, 1)] == ["Ảnh ↓", "Chẩn đoán"]
    current_theme().set("dark")  # reaches no widget of the window before, nor does this:
    for model in (one for one in vars(opened).values() if hasattr(one, "failed") and one is not opened.training):
        model.failed.emit("A sentence.", "")
    opened.diagnosis.model_ready.emit("leaves")
    with qtbot.waitSignal(window.destroyed):
        window.actions_.language_en.trigger()
    assert "Start training" in texts(opened.window.go("train"))


def test_the_order_of_classes_and_what_is_offered_or_going_on_stay(opened, qtbot, monkeypatch):
    opened.diagnosis.rows.append([read_result(PhotoResult(0, "/photos/0.jpg"), answer(0.9))])
    opened.diagnosis.model = ModelIdentity(hash="another model")
    opened.photo_commands.offer_again()
    opened.diagnosis._waiting.append(0)
    monkeypatch.setattr("app.panels.diagnose.panel.ask_target", lambda *_: "a.csv")
    opened.exports.start = lambda *_, **__: None
    opened.window.actions_.export_csv.trigger()
    opened.window.page("dataset").classes.table.sortByColumn(1, Qt.SortOrder.DescendingOrder)
    opened.window.go("train")
    opened.training._set(State.RUNNING)
    with qtbot.waitSignal(opened.window.destroyed):
        opened.window.actions_.language_vi.trigger()
    assert opened.window.page("dataset").classes.model.sorting == (1, Qt.SortOrder.DescendingOrder)
    panel = opened.window.page("diagnose")
    assert (panel.notice.do.text(), panel.cancel.isHidden()) == ("Chẩn đoán lại", False)
    opened.exports.written.emit({"written": "a.csv", "notes": []})
    assert len(opened.diagnosis.exported) == 1, "closing does not ask about it"
    train = opened.window.page("train")
    assert train.pause.isEnabled()
    opened.training._read_answers([Progress("cache", 1, 2)])
    qtbot.waitUntil(lambda: "1 / 2" in train.stage.text())
    opened.training._set(State.IDLE)
