"""The dialog that adapts a model to the photos of a place: folder, name, progress, and before and after."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFileDialog, QLineEdit, QListWidget, QWidget

from app.cards import disease_name
from app.paths import Settings
from app.translation import count, sentence, tr
from app.viewmodels.adaptation import AdaptationModel
from app.viewmodels.model_list import KnownModel, keep_import
from app.widgets.layouts import column, row
from app.widgets.notice import Notice, follow_stages
from app.widgets.parts import Dialog, button, card, confirm, label, named, progress_bar
from core.diagnosis.model_identity import LONGEST_NAME, adapted_name


class AdaptationDialog(Dialog):
    """Signals: `adapted(path)`: a new model is in the list; `chosen(path)`: diagnose with it."""

    adapted = Signal(str)
    chosen = Signal(str)

    def __init__(self, parent: QWidget, settings: Settings, model: KnownModel) -> None:
        super().__init__(parent, tr("Adapt to my farm"), 640, 560)
        self._settings, self._name, self._folder, self._path = settings, model.identity.name, "", ""
        self._classes: list[str] = []
        self._ready = self._working = False
        self.model = AdaptationModel(model.path, self)
        self.notice = Notice()
        self.choose = button(tr("Choose a folder…"), self._on_choose)
        self.folder = label(tr("No photos chosen yet."), "muted", wrap=True)
        self.name = named(QLineEdit(maxLength=LONGEST_NAME), tr("Name of the adapted model"))
        self.list = named(QListWidget(), tr("Classes of the model"))
        self.bar = progress_bar(tr("Progress of the adaptation"))
        self.state = label("", "muted")
        self.effect = label("", wrap=True)
        self._effect_card = card(self.effect)
        self.stop, self.leave = button(tr("Stop"), self._on_stop), button(tr("Close"), self.reject)
        self.adapt = button(tr("Adapt"), self._on_adapt, "primary")
        self.use = button(tr("Diagnose with this model"), self._on_use, "primary")
        self._lay_out()
        self._connect()
        self.list.addItem(tr("Loading the model…"))
        self.model.check()
        self._refresh()

    def _lay_out(self) -> None:
        about = tr("Improves the model “{model}” for one place, such as your farm, with about 10 photos of each class "
                   "that occurs there. Put the photos of each class into a folder of its own, named as below: for "
                   "apple/scab a folder apple with a folder scab in it. It takes a few minutes.",
                   model=self._name)  # fmt: skip
        self.setLayout(column(
            label(about, "muted", wrap=True), self.notice, row(self.choose, (self.folder, 1)),
            label(tr("Classes of the model"), "caption"), (self.list, 1), row(label(tr("Name")), (self.name, 1)),
            self.bar, self.state, self._effect_card,
            row(None, self.stop, self.leave, self.adapt, self.use), margins=None,
        ))  # fmt: skip

    def _connect(self) -> None:
        self.model.known.connect(self._on_known)
        self.model.counted.connect(self._on_counted)
        self.model.measured.connect(self._on_measured)
        follow_stages(self.model, self.bar, self.state)
        self.model.failed.connect(self.notice.alarm)
        self.model.failed.connect(lambda *_: self._show_classes({}))
        self.model.ended.connect(self._on_ended)
        self.name.textChanged.connect(lambda _: self._refresh())

    def reject(self) -> None:
        """Stay open until the work, which takes minutes, has ended or was stopped; ask whether to stop it."""
        if not self._working:
            super().reject()
        elif self.stop.isEnabled() and confirm(self, tr("Stop the adaptation?"), tr("Unfinished work is lost."),
                                               tr("Stop")):  # fmt: skip
            self._on_stop()

    def _work(self, working: bool) -> None:
        self._working = working
        self.stop.setEnabled(working)
        self._refresh()

    def _refresh(self) -> None:
        for widget in (self.bar, self.state, self.stop):
            widget.setVisible(self._working)
        self.leave.setVisible(not self._working)
        self._effect_card.setVisible(bool(self.effect.text()))
        self.choose.setEnabled(not self._working and (self.model.has_process or bool(self._classes)))
        self.name.setEnabled(not self._working)
        self.adapt.setVisible(not self._path)
        self.adapt.setEnabled(self._ready and not self._working and bool(self.name.text().strip()))
        self.use.setVisible(bool(self._path))
        (self.use if self._path else self.adapt).setDefault(True)

    def _on_choose(self) -> None:
        found = QFileDialog.getExistingDirectory(self, tr("Photos of the place"), self._settings.text("last_photos"))
        if not found:
            return
        self._folder, self._path, self._ready = found, "", False
        self.folder.setText(found)
        if not self.name.isModified():
            self.name.setText(adapted_name(self._name, found))
        self.notice.hide()
        self.effect.setText("")
        self.model.check(found)
        self._refresh()

    def _on_known(self, classes: list[str]) -> None:
        self._classes = classes
        self._show_classes({})

    def _on_counted(self, counts: dict[str, int]) -> None:
        self._ready = True
        self._show_classes(counts)
        self._refresh()

    def _show_classes(self, counts: dict[str, int]) -> None:
        self.list.clear()
        for name in sorted(self._classes, key=lambda one: one not in counts):
            photos = count(counts[name], "{n} photo", "{n} photos") if name in counts else ""
            self.list.addItem("   ".join(filter(None, (name, disease_name(name), photos))))

    def _on_adapt(self) -> None:
        self.notice.hide()
        self.effect.setText("")
        self.bar.setRange(0, 0)
        self.state.setText("")
        self._work(True)
        self.model.start(self._folder, self.name.text().strip())

    def _on_stop(self) -> None:
        self.stop.setEnabled(False)
        self.state.setText(tr("Stopping…"))
        self.model.cancel()

    def _on_ended(self) -> None:
        if self._working and not self.effect.text() and self.notice.isHidden():  # neither a result nor an error
            self.notice.show_message(tr("Stopped. Nothing was saved."))
        self._work(False)

    def _on_measured(self, effect: list[str], path: str) -> None:
        before, after, *more, verdict, test = map(sentence, effect)
        self.effect.setToolTip(test)
        self.effect.setText("\n".join((verdict, before, after, " ".join(more))))
        self._path = path
        self._refresh()
        if path:
            keep_import(self._settings, path)
            self.adapted.emit(path)

    def _on_use(self) -> None:
        self.accept()
        self.chosen.emit(self._path)
