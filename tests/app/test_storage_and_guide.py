"""The dialogs on storage, the user guide and the camera."""

import os
import re
import time
from types import SimpleNamespace

import numpy as np
import pytest
import shiboken6
from PySide6.QtGui import QTextDocument

from app import resources
from app.translation import LANGUAGES, tr
from app.widgets.dialogs import CameraDialog, GuideDialog, StorageDialog
from core.data.cache import open_cache
from core.data.cache_limit import list_caches, read_limit
from core.data.folder import open_folder
from core.data.photo_reader import read_photo
from core.user_cache import kernel_bytes, user_cache_folder
from tests.helpers.photo_files import leaf_folder
from tests.helpers.window import children


@pytest.fixture
def caches(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    open_cache(open_folder(leaf_folder(tmp_path / "photos")), 24)
    for name, days in (("avx2-0123", 40), ("conv-0123.ptx", 40), ("avx2-4567", 0)):
        entry = user_cache_folder() / "kernels" / name
        file = entry if name.endswith("ptx") else entry / "kernel.nbc"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"x" * 1000)
        for one in {file, entry}:
            os.utime(one, (time.time() - 86400 * days,) * 2)
    return user_cache_folder()


def test_clearing_removes_decoded_photos_and_old_kernels_and_the_limit_is_kept(program, caches):
    dialog = StorageDialog(program.window)
    assert kernel_bytes() > 3000
    dialog.clear_button.click()
    assert list_caches(caches) == []
    assert [entry.name for entry in (caches / "kernels").iterdir()] == ["avx2-4567"]
    assert "0.00 GB" in dialog.used.text()
    assert dialog.limit.value() == 20
    dialog.limit.setValue(3)
    assert read_limit(caches) == 3_000_000_000
    dialog.deleteLater()


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_guide_is_shown_offline_with_its_pictures_and_names_what_the_window_shows(program, language):
    texts_of = f"translations/{'vi' if language == 'en' else language}.json"
    texts = {text.replace("&", "") for pair in resources.table(texts_of).items() for text in pair}
    bold = re.findall(r"\*\*([^*\n]+)\*\*", resources.data(f"guide/{language}.md").decode())
    terms = [name for term in bold if not term.endswith(".") for name in term.split(" > ")]
    assert len(terms) > 10
    assert not set(terms) - texts
    program.change_language(language)
    dialog = GuideDialog(program.window)
    dialog.show()
    assert not dialog.page.horizontalScrollBar().maximum(), "pictures are cut"
    shown = dialog.page.document()
    assert shown.toPlainText().splitlines()[0] == tr("User guide")
    for name in ("diagnose.jpg", "train.jpg", "result.jpg"):
        assert f"]({name})" in resources.text(f"guide/{language}.md")
        assert shown.resource(QTextDocument.ResourceType.ImageResource.value, shown.baseUrl().resolved(name))
        assert resources.data(f"guide/{name}")
    dialog.deleteLater()


def test_a_camera_that_fails_is_reported(start, qtbot, monkeypatch):
    monkeypatch.setattr("cv2.VideoCapture", None)
    dialog = CameraDialog(start().window)
    qtbot.waitUntil(lambda: dialog.state.text().startswith("No camera was found."))
    dialog.reject()


def test_the_camera_is_released_with_its_window(start, monkeypatch, qtbot):
    released, program, seen = [], start(), []
    program.diagnosis.model_path, program.diagnosis.add = "/a/model", seen.append
    camera = SimpleNamespace(isOpened=lambda: True, read=lambda: (True, np.zeros((8, 8, 3), np.uint8)),
                             release=lambda: released.append(True))  # fmt: skip
    monkeypatch.setattr("cv2.VideoCapture", lambda number: camera)
    program.window.actions_.camera.trigger()
    dialog = program.window.findChild(CameraDialog)
    qtbot.waitUntil(dialog.take.isEnabled)
    dialog.take.click()
    assert not seen, "saving takes a while: in a thread"
    qtbot.waitUntil(lambda: bool(seen and released))
    shiboken6.delete(CameraDialog(program.window))
    assert (len(released), seen[0][0][-11:]) == (2, "-camera.png")


def test_menus_lead_there(start, monkeypatch):
    opened = []
    for dialog in (StorageDialog, GuideDialog):
        monkeypatch.setattr(dialog, "exec", lambda self: opened.append(type(self).__name__))
    actions = start().window.actions_
    actions.storage.trigger()
    actions.guide.trigger()
    assert opened == ["StorageDialog", "GuideDialog"]


def test_closing_the_program_ends_the_processes_that_decode_photos(program, tmp_path):
    before = children()
    read_photo(str(next(leaf_folder(tmp_path / "photos").rglob("*.png"))), 24)
    assert children() - before
    program.close()
    assert not children() - before
