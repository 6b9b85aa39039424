"""The messages of a page: a line with one suggested next step, and the progress of what takes seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from PySide6.QtGui import QAccessible, QAccessibleAnnouncementEvent
from PySide6.QtWidgets import QApplication, QFrame, QLabel, QProgressBar, QPushButton, QWidget

from app import resources
from app.theme import current_theme
from app.translation import sentence, stage_text, tr
from app.viewmodels.process_model import ProcessModel
from app.viewmodels.writing import Writing
from app.widgets.layouts import row
from app.widgets.parts import Slot, button, label, open_file, progress_bar


class Notice(QFrame):
    """Hidden without a message. `do` is the button of the next step, `copy` copies the details."""

    def __init__(self) -> None:
        super().__init__()
        self._details = ""
        self._act: Callable[[], object] | None = None
        self._icon = QLabel()
        self.text = label("", wrap=True)
        self.do = QPushButton()
        self.do.setProperty("role", "primary")
        self.do.clicked.connect(self._on_do)
        self.do.hide()
        self.copy = button(tr("Copy details"), lambda: QApplication.clipboard().setText(
            f"{self.text.text()}\n\n{self._details}"), "flat", tr("Copy the technical details"))  # fmt: skip
        self.dismiss = button(tr("Close"), self.hide, "flat")
        buttons = (self.do, self.copy, self.dismiss)
        self.setLayout(row(self._icon, (self.text, 1), *buttons, spacing=10, margins=(12, 8, 8, 8)))
        self.hide()

    def show_message(self, text: str, verb: str = "", act: Callable[[], object] | None = None) -> None:
        """Show a success or a neutral message."""
        self._show("notice", text, "", verb, act)

    def alarm(self, text: str, details: str = "", verb: str = "", act: Callable[[], object] | None = None) -> None:
        """Show an error as a sentence, from the window or from core."""
        self._show("alarm", sentence(text), details, verb, act)

    def hide_alarm(self) -> None:
        """Hide an error that the user has just overcome; other messages stay."""
        if self.property("role") == "alarm":
            self.hide()

    def _show(self, role: str, text: str, details: str, verb: str, act: Callable[[], object] | None) -> None:
        colours = current_theme().colours
        icon, colour = ("warning", colours.danger) if role == "alarm" else ("check", colours.accent)
        self.setProperty("role", role)
        self.style().polish(self)
        self._icon.setPixmap(resources.pixmap(icon, colour, 20, self.devicePixelRatioF()))
        self.text.setText(text)
        self.setAccessibleName(text)
        if not verb or self.isHidden() or verb != self.do.text():  # not each step of a progress
            QAccessible.updateAccessibility(QAccessibleAnnouncementEvent(self, text))
        self._act, self._details = act, details
        self.do.setText(verb)
        self.do.setVisible(bool(verb and act))
        self.copy.setVisible(bool(details))
        self.show()

    def _on_do(self) -> None:
        self.hide()
        if self._act is not None:
            self._act()


READABLE: Final = frozenset({".csv", ".html", ".pdf"})


def show_written(notice: Notice, names: Sequence[str], more: Sequence[str] = ()) -> None:
    """Say where files were saved, notes on them, and offer to open a single one or their folder."""
    text = "\n".join([tr("Saved to {name}", name=", ".join(names)), *map(sentence, more)])
    path = Path(names[0])
    alone = len(names) == 1 and path.suffix.lower() in READABLE
    shown, verb = (path, tr("Open")) if alone else (path.parent, tr("Open folder"))
    notice.show_message(text, verb, lambda: open_file(shown))


def follow_writing(notice: Notice, writing: Writing) -> None:
    saved: list[dict[str, Any]] = []

    def going(done: int = 0, total: int = 0) -> None:
        name = Path(writing.target).name
        text = tr("Saving {name}: {done} of {total}", name=name, done=f"{done:,}", total=f"{total:,}")
        notice.show_message(text if total else tr("Saving {name}…", name=name), tr("Cancel"), writing.cancel)

    def written(answer: dict[str, Any]) -> None:
        saved.append(answer)
        show_written(notice, [one["written"] for one in saved], [note for one in saved for note in one["notes"]])

    writing.busy.connect(Slot(notice, lambda busy: going() if busy else saved.clear()).call)
    writing.progress.connect(Slot(notice, going).call)
    writing.written.connect(Slot(notice, written).call)
    writing.failed.connect(notice.alarm)


def follow_stages(process: ProcessModel, bar: QProgressBar, state: QLabel) -> None:
    """Show the progress of a process in a bar and in words."""

    def going(stage: str, done: int, total: int) -> None:
        bar.setRange(0, total)
        bar.setValue(done)
        state.setText(stage_text(stage, done, total))

    process.stage.connect(Slot(bar, going).call)


class PreparationBar(QWidget):
    """Hidden unless something takes seconds to prepare."""

    def __init__(self) -> None:
        super().__init__()
        self._begun = 0.0
        self.text = label("", "muted", wrap=True)
        self.bar = progress_bar(tr("Progress of the preparation"), 180)
        self.setLayout(row(self.bar, (self.text, 1), spacing=10))
        self.hide()

    def show_progress(self, done: int, total: int) -> None:
        """Show `done` of `total` kernels of the model; hides the bar when all are done."""
        if done == 0:
            self._begun = time.monotonic()
        self.setVisible(done < total)
        self.bar.setMaximum(total)
        self.bar.setValue(done)
        text = tr("Preparing the model for this computer (first time only): step {step} of {steps}.",
                  step=min(done + 1, total), steps=total)  # fmt: skip
        if done:
            left = (time.monotonic() - self._begun) * (total - done) / done
            text += " " + tr("About {seconds} s left.", seconds=max(round(left), 1))
        self.text.setText(text)
