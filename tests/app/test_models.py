"""One list of models: shipped, own runs, imported, adapted to a farm; names can be set."""

import re
from pathlib import Path

import numpy as np
import pytest
import shiboken6
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QFileDialog, QInputDialog, QLabel, QMessageBox

from app import paths, resources
from app.cards import find_card
from app.panels.diagnose.adaptation import AdaptationDialog
from app.panels.diagnose.models import ModelsDialog
from app.panels.diagnose.start_page import crop_name
from app.translation import sentence, tr
from app.viewmodels.diagnosis import DiagnosisModel
from app.viewmodels.model_list import IMPORTED, OWN, SHIPPED, keep_import, list_models, shipped_model
from app.viewmodels.result import PhotoResult
from core.diagnosis.adaptation import Adaptation
from core.diagnosis.model_file import read_model
from core.diagnosis.model_identity import SHIPPED_MODELS, ModelIdentity, read_identity
from tests.core.test_adapt import known, place  # noqa: F401 (fixtures)
from tests.helpers.models import write_small_model
from tests.helpers.window import write_folder

pytestmark = pytest.mark.gui


@pytest.fixture
def own(settings):
    return write_small(paths.folder("runs") / "20261122-cnn" / "best.safetensors", "tomato 2026-11-22")


@pytest.fixture
def given(tmp_path):
    return write_small(tmp_path / "given" / "friend.safetensors", "")


@pytest.fixture
def dialog(settings, own, given, program):
    keep_import(program.settings, given)
    yield ModelsDialog(program.window, program.settings, own)
    for made in program.window.findChildren(ModelsDialog):
        made.close()


@pytest.fixture
def adapting(dialog, qtbot, monkeypatch):
    """`adapting(model)`: the dialog that adapts this model; its process has answered. `choose` takes a folder."""

    def make(model):
        keep_import(dialog._settings, model)
        dialog._refresh(model)
        dialog._adapt.click()
        made = dialog.findChildren(AdaptationDialog)[-1]
        assert made.list.item(0).text() == tr("Loading the model…")
        qtbot.waitUntil(lambda: not made.model.has_process)
        return made

    def choose(made, folder):
        monkeypatch.setattr(QFileDialog, "getExistingDirectory", lambda *_: str(folder))
        made.choose.click()
        qtbot.waitUntil(lambda: not made.model.has_process)

    make.choose = choose
    yield make
    for one in (w for w in QApplication.topLevelWidgets() if isinstance(w, AdaptationDialog)):
        one.reject()


def write_small(path: Path, name: str) -> str:
    path.parent.mkdir(parents=True)
    return str(write_small_model(path, "ab", 32, figures={"validation_accuracy": 0.75}, name=name))


def names(dialog):
    return {dialog.rows.index(row, 0).data() for row in range(dialog.rows.rowCount())}


def test_shipped_own_and_imported_models_are_one_list(settings, own, given):
    keep_import(settings, given)
    keep_import(settings, own)  # no import: it is a run's
    Path(given).with_name("broken.safetensors").write_bytes(b"no model")
    keep_import(settings, str(Path(given).with_name("broken.safetensors")))
    found = list_models(settings)
    assert [(model.path, model.origin) for model in found] == [
        *((shipped_model(name), SHIPPED) for name in SHIPPED_MODELS), (own, OWN), (given, IMPORTED),
    ]  # fmt: skip
    assert [model.identity.name for model in found[-2:]] == ["tomato 2026-11-22", "friend"]
    assert [model.purpose for model in found] == [*SHIPPED_MODELS.values(), "", ""]
    assert (found[0].classes, found[-2].classes, found[-2].accuracy) == (50, 2, 0.75)
    Path(given).unlink()
    assert [model.path for model in list_models(settings)] == [model.path for model in found[:-1]]


def test_the_list_says_what_each_shipped_model_is_for_and_one_can_be_chosen_again(dialog, qtbot):
    for name, purpose in SHIPPED_MODELS.items():
        dialog._refresh(shipped_model(name))
        assert dialog.purpose.text() == purpose in resources.table("translations/vi.json")
    dialog._refresh(list_models(dialog._settings)[-1].path)
    assert not dialog.purpose.text()
    dialog._refresh(shipped_model())
    assert (dialog._rename.isEnabled(), dialog._forget.isEnabled()) == (False, False)
    dialog.show()
    qtbot.keyClick(dialog.focusWidget(), Qt.Key.Key_Down)
    with qtbot.waitSignal(dialog.chosen) as signal:
        dialog._use.click()
    assert signal.args == [shipped_model(list(SHIPPED_MODELS)[1])]


def test_a_model_is_renamed_in_the_list(dialog, own, qtbot, monkeypatch):
    monkeypatch.setattr(QInputDialog, "getText", lambda *_, **__: (" ", True))
    dialog._rename.click()
    assert "needs a name" in dialog.notice.text.text()
    monkeypatch.setattr(QInputDialog, "getText", lambda *_, **__: ("Farm tomatoes", True))
    with qtbot.waitSignal(dialog.renamed) as signal:
        dialog._rename.click()
    assert signal.args == [read_identity(Path(own))]
    assert ("Farm tomatoes" in names(dialog), dialog.notice.isHidden()) == (True, True)


def test_a_file_is_imported_and_taken_off_the_list(dialog, tmp_path, monkeypatch):
    other = write_small(tmp_path / "other" / "mango.safetensors", "")
    monkeypatch.setattr(QFileDialog, "getOpenFileName", lambda *_: (other, ""))
    dialog._on_import()
    assert "mango" in names(dialog)
    dialog._forget.click()
    assert ("mango" in names(dialog), Path(other).is_file()) == (False, True)
    monkeypatch.setattr(QFileDialog, "getOpenFileName", lambda *_: (__file__, ""))
    dialog._on_import()
    assert "cannot be read" in dialog.notice.text.text()


def test_photos_of_a_farm_are_counted_and_what_cannot_work_is_refused(adapting, language, tmp_path):
    folder = write_folder(tmp_path / "orchard", {"apple/scab": 6, "apple/healthy": 5})
    made = adapting(shipped_model())
    adapting.choose(made, folder)
    photos = {"en": "photos", "vi": "ảnh"}[language]
    assert [made.list.item(at).text().rpartition("   ")[2] for at in (0, 1)] == [f"5 {photos}", f"6 {photos}"]
    assert (made.name.text()[:27], str(folder) in paths.PHOTO_FOLDERS) == ("LeafClinic leaves, orchard ", True)
    assert made.adapt.isEnabled()
    for inside in (folder / "apple", folder / "apple" / "scab"):
        adapting.choose(made, inside)
        refusal = f"The photos in {inside} are of one class or crop. Choose the folder that contains it: {folder}."
        assert made.notice.text.text() == sentence(refusal)
        assert not made.adapt.isEnabled()
    assert not adapting(shipped_model("small")).choose.isEnabled()


def test_before_and_after_are_shown_and_the_adapted_model_is_used(adapting, dialog, given, language, qtbot):
    made = adapting(given)
    right = (*(np.arange(20) < np.array([[12], [19]])), np.maximum(np.arange(20), 1))
    made.model._read_answers([{"effect": Adaptation(None, *right).describe(), "path": ""}])
    assert made.use.isHidden()
    made.model._read_answers([{"effect": Adaptation(read_model(Path(given)), *right).describe(), "path": given}])
    said = made.effect.text()
    assert said.count("20") == 3
    assert not re.search("held-out|interval|để riêng|khoảng tin cậy", said), "words of statistics"
    assert ("p =" in said, "p = 0.016." in made.effect.toolTip()) == (False, True), "for those who look for it"
    words = enumerate(("better", "Before", "After", "became"))
    assert [word in said.split("\n")[at] for at, word in words] == [language == "en"] * 4
    with qtbot.waitSignal(dialog.chosen) as signal:
        made.use.click()
    assert signal.args == [given]


def test_what_adapts_ends_with_the_window(adapting, given):
    made = adapting(given)
    assert any("It takes a few minutes." in text.text() for text in made.findChildren(QLabel))
    made.model.check()
    thread = made.model._thread
    shiboken6.delete(made)
    assert thread._killed


@pytest.mark.thorough
def test_a_process_adapts_the_model_and_can_be_stopped(adapting, dialog, place, qtbot, answers):  # noqa: F811
    made = adapting(str(place / "known.safetensors"))
    adapting.choose(made, place / "place")
    with qtbot.waitSignal(made.model.stage):
        made.adapt.click()
    answers.reply = QMessageBox.StandardButton.Cancel
    qtbot.keyClick(made, Qt.Key.Key_Escape)
    assert (made.model.has_process, made.isVisible()) == (True, True), "closing it would lose minutes of work"
    answers.reply = QMessageBox.StandardButton.Yes
    for _ in range(2):  # the second finds it stopping
        made.close()
    assert answers == ["Stop the adaptation? Unfinished work is lost."] * 2
    qtbot.waitUntil(lambda: not made.model.has_process)
    assert (made.effect.text(), made.notice.text.text()) == ("", "Stopped. Nothing was saved.")
    made.adapt.click()
    assert made.notice.isHidden()
    qtbot.waitUntil(lambda: not made.model.has_process)
    assert "of 20 photos correct" in made.effect.text()
    (written,) = paths.folder("models").iterdir()
    assert read_identity(written).name == made.name.text()
    assert made.name.text() in names(dialog)
    assert {dialog.rows.index(row, 1).data() for row in range(dialog.rows.rowCount())} >= {"adapted from colours"}
    assert sum(path.is_file() for path in (place / "place").rglob("*")) == 20, "nothing is written there"


def test_a_damaged_file_does_not_replace_the_model_in_use(start, tmp_path):
    program, file = start(), tmp_path / "damaged.safetensors"
    program.photo_commands.find_model()
    file.write_bytes(b"no model")
    program.commands.open([str(file)])
    assert "damaged.safetensors cannot be read" in program.window.page("diagnose").notice.text.text()
    assert program.diagnosis.model_path == shipped_model()
    assert str(file) not in program.settings.paths("models")


def test_rows_keep_the_model_that_diagnosed_them(qapp):
    model = DiagnosisModel()
    first, second = ModelIdentity("first", "1" * 64, "2026-11-21"), ModelIdentity("second", "2" * 64, "2026-11-22")
    model.rows.append([PhotoResult(0, "a.jpg", True, "rust", (("rust", 0.9),), model=first), PhotoResult(1, "b.jpg")])
    model.ready, model.model = {"classes": ("rust",)}, second
    model._flying.add(1)
    model._thread = sender = object()
    model.sender = lambda: sender
    model._on_bundle([{"id": 1, "verdict": "rust", "top": [["rust", 0.8]], "probabilities": [0.8]}])
    model._thread = None
    assert [row.model for row in model.rows.rows] == [first, second]
    renamed = ModelIdentity("third", "2" * 64, "2026-11-22")
    model.rename_model(renamed)
    assert (model.model.name, [row.model for row in model.rows.rows]) == ("third", [first, renamed])
    model.close()


def test_every_crop_of_the_shipped_model_has_a_name_in_the_window(language):
    crops = {name.partition("/")[0] for name in read_model(Path(shipped_model())).classes if "/" in name}
    assert (language == "en") == any(crop_name(crop) == crop.capitalize() for crop in crops - {"background"})


@pytest.mark.parametrize("model", SHIPPED_MODELS)
def test_every_class_of_a_shipped_model_has_a_card_and_a_vietnamese_name(model):
    classes = read_model(Path(shipped_model(model))).classes
    names = {name: [card.name for card in (find_card(name, "en"), find_card(name, "vi")) if card] for name in classes}
    assert [name for name, shown in names.items() if len(set(shown)) < 2] == []
