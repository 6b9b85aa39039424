"""Commands that bring photos to the Diagnose page (files, folders, clipboard, camera) and choose the model."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Final

from PySide6.QtCore import QBuffer, QMimeData, QObject
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QApplication, QFileDialog, QMessageBox

from app import paths
from app.main_window import MainWindow
from app.paths import Settings
from app.task import Task
from app.translation import count, tr
from app.viewmodels.diagnosis import DiagnosisModel
from app.viewmodels.document import Document
from app.viewmodels.model_list import keep_import, shipped_model
from app.viewmodels.writing import Writing
from app.widgets.parts import Slot, ask_target
from core.data.photo_format import EXTENSIONS
from core.diagnosis.model_identity import BEST, CONFIG, KIND, VERSION
from core.errors import LeafClinicError
from core.storage import write_file
from core.tensor_file import read_metadata

PHOTO_FILTER: Final = "*" + " *".join(sorted(EXTENSIONS))


class PhotoCommands(QObject):
    """Connected to the actions once; every method is one user command."""

    def __init__(
        self, window: MainWindow, settings: Settings, diagnosis: DiagnosisModel, document: Document, exports: Writing
    ) -> None:
        super().__init__(window)
        self._window, self._settings, self._diagnosis = window, settings, diagnosis
        self._document, self._exports = document, exports
        actions = window.actions_
        actions.connect(
            diagnose_photos=self._on_diagnose_photos, diagnose_folder=self._on_diagnose_folder, paste=self._on_paste,
            camera=self._on_camera, choose_model=self._on_choose_model, go_diagnose=self.find_model,
            export_model=self._on_export_model,
        )  # fmt: skip
        for action in (actions.export_csv, actions.export_html, actions.export_pdf):
            action.setEnabled(False)
        diagnosis.model_ready.connect(Slot(self, lambda path: settings.set("model", path)).call)

    def diagnose(self, found: list[str]) -> None:
        """Diagnose files and folders."""
        self._window.go("diagnose")
        self.find_model()
        self._diagnosis.add(found)

    def use_model(self, path: str) -> None:
        """Diagnose with this model from now on; a file from elsewhere is added to the list, a damaged one refused."""
        panel = self._window.go("diagnose")
        try:
            read_metadata(Path(path), KIND, VERSION)
        except LeafClinicError as error:
            onnx = tr("{name} is an ONNX file, for other programs. Choose the model that it was made from.",
                      name=Path(path).name)  # fmt: skip
            panel.notice.alarm(onnx if path.lower().endswith(".onnx") else str(error))
            return
        keep_import(self._settings, path)
        self._diagnosis.load(path)
        self.offer_again()

    def offer_again(self) -> None:
        """Offer to diagnose the photos again that another model has diagnosed."""
        if other := self._diagnosis.outdated():
            text = count(len(other), "{n} listed photo was diagnosed by another model.",
                         "{n} listed photos were diagnosed by another model.")  # fmt: skip
            notice = self._window.page("diagnose").notice
            notice.show_message(text, tr("Diagnose again"), lambda: self._diagnosis.add(other))

    def find_model(self) -> None:
        """Load the model used last, or the one that came with the program, if none is in use."""
        if not self._diagnosis.model_path:
            last = self._settings.text("model")
            self._diagnosis.load(last if os.path.isfile(last) else shipped_model())

    def _on_choose_model(self) -> None:
        from app.panels.diagnose.models import ModelsDialog

        dialog = ModelsDialog(self._window, self._settings, self._diagnosis.model_path)
        dialog.chosen.connect(self.use_model)
        dialog.renamed.connect(self._diagnosis.rename_model)
        dialog.open()

    def _on_export_model(self) -> None:
        self.find_model()
        self._window.go("diagnose")
        model = self._diagnosis.model_path
        run, photos = photos_for(model, self._document.source)
        possible = bool(photos) or run != model
        about = tr("One ONNX file for other programs, with the network, class names, preprocessing, temperature and "
                   "thresholds.")  # fmt: skip
        held = tr("The file is checked with onnxruntime if it is installed.")
        cost = tr("Measures activation ranges and the loss of accuracy on the model's photos. This takes a few "
                  "minutes.")  # fmt: skip
        none = tr("This needs photos. Under Dataset, open the photos that the model was trained on.")
        box = QMessageBox(QMessageBox.Icon.NoIcon, tr("Export the model"), f"{about} {held}", parent=self._window)
        box.setInformativeText(f"{tr('8 bits: a quarter of the size')}. {cost if possible else none}")
        box.addButton(tr("Float32: same predictions"), QMessageBox.ButtonRole.AcceptRole)
        eight = box.addButton(tr("8 bits: a quarter of the size"), QMessageBox.ButtonRole.AcceptRole)
        eight.setEnabled(possible)
        cancel = box.addButton(QMessageBox.StandardButton.Cancel)
        box.buttonClicked.connect(
            lambda one: self._export_model(run, photos, one is eight) if one is not cancel else None
        )
        box.open()

    def _export_model(self, run: str, photos: str, eight: bool) -> None:
        stem = Path(run).name if os.path.isdir(run) else Path(run).stem
        name = f"{stem}-int8.onnx" if eight else f"{stem}.onnx"
        chosen = ask_target(self._window, tr("Export the model"), name, "ONNX (*.onnx)")
        if chosen:
            self._exports.start("onnx", chosen, model=run, eight=eight, data=photos)

    def _on_diagnose_photos(self) -> None:
        kinds = tr("Photos") + f" ({PHOTO_FILTER})"
        last = self._settings.text("last_photos")
        found, _ = QFileDialog.getOpenFileNames(self._window, tr("Choose photos"), last, kinds)
        if found:
            self._settings.set("last_photos", str(Path(found[0]).parent))
            self.diagnose(found)

    def _on_diagnose_folder(self) -> None:
        last = self._settings.text("last_photos")
        found = QFileDialog.getExistingDirectory(self._window, tr("Choose a folder"), last)
        if found:
            self.diagnose([found])

    def _on_paste(self) -> None:
        data = QApplication.clipboard().mimeData()  # None where nobody has copied anything, on some platforms
        self.receive(data or QMimeData(), self.diagnose, tr("There is no picture in the clipboard."))

    def receive(self, data: QMimeData, use: Callable[[list[str]], None], none: str) -> None:
        """Use files and folders on this computer, or the picture once it is saved as a file; or show `none`."""
        if found := [url.toLocalFile() for url in data.urls() if url.isLocalFile()]:
            use(found)
        elif (image := data.imageData()) is not None and not image.isNull():
            self._save(image, "pasted", use)
        else:
            self._window.page(self._window.current).notice.alarm(none)

    def _save(self, image: QImage, origin: str, use: Callable[[list[str]], None]) -> None:
        """Use a picture as a file, which takes seconds for 12 megapixels."""
        alarm = self._window.page(self._window.current).notice.alarm
        Task(lambda *_: [save_picture(image, origin)], self, done=use, failed=alarm)

    def _on_camera(self) -> None:
        from app.widgets.dialogs import CameraDialog

        dialog = CameraDialog(self._window)
        dialog.taken.connect(lambda image: self._save(image, "camera", self.diagnose))
        dialog.open()


def save_picture(image: QImage, origin: str) -> str:
    """Save a picture, once: a file that has it is used again. Raises StorageError."""
    buffer, folder = QBuffer(), paths.folder("pictures")
    image.save(buffer, "PNG")  # type: ignore[call-overload]
    content = bytes(buffer.data().data())
    mark = f"-{sha256(content).hexdigest()[:16]}-{origin}.png"
    known = next(folder.glob(f"*{mark}"), None)
    path = known or folder / f"{datetime.now():%Y%m%d-%H%M%S}{mark}"
    if known is None:
        write_file(path, content)
    return str(path)


def photos_for(model: str, opened: str) -> tuple[str, str]:
    """The model for `core.export` (its run folder, if it is in one), and the photos for 8 bits.

    The photos are "" if the run has its own, or if there are none.
    """
    run = Path(model).parent
    own = Path(model).name == BEST and (run / CONFIG).is_file()
    return (str(run), "") if own else (model, opened)
