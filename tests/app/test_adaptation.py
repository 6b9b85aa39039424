"""The dialog that adapts a model to a place: it counts photos, refuses what cannot work, and shows before and after."""

import pytest
from PySide6.QtWidgets import QFileDialog

from app.panels.diagnose.adaptation import AdaptationDialog
from app.panels.diagnose.models import ModelsDialog
from app.paths import folder
from app.translation import sentence
from app.viewmodels.model_list import keep_import, list_models, shipped_model
from core.diagnosis.model_identity import read_identity
from tests.app.test_models import given  # noqa: F401 (fixture)
from tests.core.test_adapt import known, place  # noqa: F401 (fixtures)
from tests.helpers.window import write_folder

pytestmark = pytest.mark.gui
ANSWER = {"photos": 20, "right": [12, 19], "intervals": [[0.387, 0.781], [0.764, 0.991]],
          "changes": "7 became correct, 0 became wrong (sign test: p = 0.016).",
          "verdict": "The adapted model is better here."}  # fmt: skip


@pytest.fixture
def open_dialog(start, qtbot):
    """`open_dialog(model)`: the list of models and the dialog of this one, whose process has answered."""
    program = start()

    def make(model):
        keep_import(program.settings, model)
        models = ModelsDialog(program.window, program.settings, program.theme, model)
        models._adapt.click()
        dialog = models.findChild(AdaptationDialog)
        qtbot.waitUntil(lambda: not dialog.model.has_process)
        return models, dialog

    return make


@pytest.fixture
def choose(qtbot, monkeypatch):
    """`choose(dialog, folder)`: until its photos are counted or refused."""

    def take(dialog, folder):
        monkeypatch.setattr(QFileDialog, "getExistingDirectory", lambda *_: str(folder))
        dialog.choose.click()
        qtbot.waitUntil(lambda: not dialog.model.has_process)

    return take


def test_photos_are_counted_and_what_cannot_work_is_refused(open_dialog, choose, language, tmp_path):
    folder = write_folder(tmp_path / "orchard", {"apple/scab": 6, "apple/healthy": 5})
    _, dialog = open_dialog(shipped_model())
    choose(dialog, folder)
    shown = [dialog.list.item(at).text() for at in range(3)]
    photos = {"en": "photos", "vi": "ảnh"}[language]
    assert [one.endswith(f"{n} {photos}") for one, n in zip(shown, (5, 6, 0), strict=True)] == [True, True, False]
    assert dialog.adapt.isEnabled()
    assert dialog.name.text().startswith("LeafClinic leaves, orchard ")
    choose(dialog, folder / "apple")
    assert sentence("The model has no class of the name healthy, scab. Rename the folders, or remove them.") in (
        dialog.notice.text.text())
    assert not dialog.adapt.isEnabled()
    dialog.reject()
    _, dialog = open_dialog(shipped_model("small"))
    assert "leaves" in dialog.notice.text.text()
    assert not dialog.choose.isEnabled()
    dialog.reject()


def test_before_and_after_are_shown_and_the_model_is_used(open_dialog, given, language, qtbot):  # noqa: F811
    models, dialog = open_dialog(given)
    dialog.model._read_answers([{**ANSWER, "path": ""}])
    assert dialog.use.isHidden()
    dialog.model._read_answers([{**ANSWER, "path": given}])
    assert "12" in dialog.before.text()
    assert "19" in dialog.after.text()
    assert ("better" in dialog.verdict.text()) == (language == "en")
    assert ("became" in dialog.verdict.text()) == (language == "en")
    with qtbot.waitSignal(models.chosen) as signal:
        dialog.use.click()
    assert signal.args == [given]


@pytest.mark.thorough
def test_a_process_adapts_the_model_and_can_be_stopped(open_dialog, choose, place, qtbot):  # noqa: F811
    models, dialog = open_dialog(str(place / "known.safetensors"))
    choose(dialog, place / "place")
    with qtbot.waitSignal(dialog.model.stage):
        dialog.adapt.click()
    dialog.stop.click()
    qtbot.waitUntil(lambda: not dialog.model.has_process)
    assert dialog.adapt.isEnabled()
    dialog.adapt.click()
    qtbot.waitUntil(lambda: not dialog.model.has_process)
    assert "of 20 held-out photos correct" in dialog.after.text()
    (written,) = (folder("models")).iterdir()
    assert read_identity(written).name == dialog.name.text()
    assert str(written) in {one.path for one in list_models(models._settings)}
    assert sum(path.is_file() for path in (place / "place").rglob("*")) == 20
    dialog.reject()
