"""How photos are diagnosed: minimum confidence with its effect, cropping, several leaves, known crop, plants."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Final

from PySide6.QtCore import QSignalBlocker, Qt
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QCheckBox, QWidget

from app.panels.diagnose.start_page import crop_name
from app.paths import Settings
from app.translation import tr
from app.viewmodels.diagnosis import DiagnosisModel
from app.viewmodels.plants import Plants
from app.viewmodels.result import PLANT, PhotoResult
from app.widgets.fields import ComboBox, Slider
from app.widgets.layouts import Flow, column, holding, row
from app.widgets.parts import Slot, label, named
from app.widgets.table_view import Table
from core.diagnosis.known_crop import list_crops
from core.diagnosis.thresholds import COVERAGE, UNFAMILIAR_REJECTED, UNTESTED, CoveragePoint, at_coverage
from core.percent import percent

LONGEST: Final = 440
"""Pixels of a plant with its diagnosis; longer ones are cut in the middle."""


class CoverageBar(QWidget):
    """Left: every photo is diagnosed; right: only those with the highest confidence. The effect is shown below it."""

    def __init__(self, model: DiagnosisModel, settings: Settings) -> None:
        super().__init__()
        self._model, self._settings = model, settings
        self._points: list[CoveragePoint] = []
        with contextlib.suppress(ValueError):  # a hand-edited file may not contain a number
            model.verdicts.coverage = min(max(float(settings.text("coverage", str(COVERAGE))), 0.0), 1.0)
        self.slider = Slider(tr("Minimum confidence"))
        self.slider.setFixedWidth(150)
        self.slider.setPageStep(1)
        self.slider.setToolTip(tr("Left: every photo gets a diagnosis. Right: only those with the highest confidence "
                                  "do."))
        self.caption = label("", "muted", wrap=True)
        self.crop = QCheckBox(tr("Zoom in on small leaves"))
        self.crop.setToolTip(tr("Examines only the leaf if it is small in the photo, as the frame shows."))
        self.leaves = QCheckBox(tr("Several leaves"))
        self.leaves.setToolTip(tr("Finds the leaves in each photo and diagnoses them one by one. For photos of one "
                                  "leaf this is less accurate."))
        for box, checked in ((self.crop, model.crop), (self.leaves, model.leaves)):
            box.setChecked(checked)
            box.toggled.connect(lambda _: model.set_view(crop=self.crop.isChecked(), leaves=self.leaves.isChecked()))
        threshold = holding(row(label(tr("Minimum confidence"), "caption"), self.slider))
        controls = Flow(threshold, self.crop, self.leaves, spacing=18)
        self.setLayout(column(controls, self.caption, spacing=4))
        self.slider.valueChanged.connect(self._on_moved)
        model.model_ready.connect(self._on_model)
        model.loading.connect(self._on_model)
        self._on_model()

    def _on_model(self) -> None:
        thresholds = self._model.verdicts.thresholds
        known = {round(p.coverage, 4): p for p in thresholds.curve} if thresholds and thresholds.measured else {}
        self._points = [known[coverage] for coverage in sorted(known, reverse=True)]
        self.slider.setEnabled(len(self._points) > 1)  # several labels have thresholds of their own
        now = at_coverage(self._points, self._model.verdicts.coverage) if self._points else None
        with QSignalBlocker(self.slider):
            self.slider.setRange(0, max(len(self._points) - 1, 0))
            self.slider.setValue(self._points.index(now) if now else 0)
        self._say()

    def _on_moved(self, at: int) -> None:
        coverage = self._points[at].coverage
        self._settings.set("coverage", f"{coverage:.6f}")
        self._model.verdicts.set_coverage(coverage)
        self._say()

    def _say(self) -> None:
        text = details = ""
        if self._points:
            point = self._points[self.slider.value()]
            figures = {"coverage": percent(point.coverage, 0), "accuracy": percent(point.accuracy)}
            text = tr("Of photos like those it learned from, the model diagnoses {coverage}, {accuracy} of them "
                      "correctly.", **figures)
            details = tr("It is “not sure” of {refused} that it would diagnose correctly, and of up to {far} that look "
                         "unfamiliar. Measured on this model's validation photos. Results on photos from other places "
                         "are usually lower.", refused=percent(point.wrongly_refused),
                         far=percent(UNFAMILIAR_REJECTED, 0))  # fmt: skip
            if self._model.ready.get("adapted"):  # its own are not known: no validation photos were there
                details, text = "", tr("Before it was adapted, the model diagnosed {coverage} of photos like those it "
                                       "learned from, {accuracy} of them correctly.", **figures)  # fmt: skip
        elif self._model.ready:
            text = tr("This model had too few validation photos to measure confidence thresholds. A class is named if "
                      "its probability is at least {share}.", share=percent(UNTESTED, 0))  # fmt: skip
        self.caption.setText(text)
        self.caption.setToolTip(details)
        self.slider.setAccessibleDescription(f"{text} {details}".strip())


def crop_choice(model: DiagnosisModel) -> ComboBox:
    """The choice among the crops of the model in use; hidden where it knows one only."""
    choice = named(ComboBox(), tr("Known crop"))
    choice.setToolTip(tr("Diagnoses all photos as photos of this crop, and excludes the diseases of others."))

    def fill(*_: object) -> None:
        crops = list_crops(model.ready.get("classes", ()))
        named_crops = [(tr("Crop: {name}", name=crop_name(crop)), crop) for crop in crops]
        choice.fill([(tr("Crop: any"), ""), *named_crops], model.verdicts.known_crop)
        choice.setVisible(bool(crops))

    choice.currentIndexChanged.connect(lambda _: model.verdicts.set_known_crop(choice.currentData()))
    model.model_ready.connect(Slot(choice, fill).call)
    fill()
    return choice


def plant_choice(plants: Plants, table: Table, remove: Callable[[Sequence[PhotoResult]], None]) -> ComboBox:
    """The choice; `table` gets the commands, in a menu of its own with `remove`, and its column."""
    choice = named(ComboBox(), tr("Plants"))
    choice.setToolTip(tr("One diagnosis of all photos of a plant: of a folder, or each within a minute of the one "
                         "before. To group photos by hand, select them in the table and press Ctrl+G."))  # fmt: skip
    choice.setMaximumWidth(11 * choice.fontMetrics().height())
    kinds = {"": tr("Plants: none"), "folder": tr("Plants: by folder"), "time": tr("Plants: by time")}
    choice.fill([(text, kind) for kind, text in kinds.items()], plants.by)
    choice.currentIndexChanged.connect(lambda _: plants.set_grouping(choice.currentData()))
    together, apart = tr("Group selected photos as one plant"), tr("Ungroup")
    for text, keys, change in ((together, "Ctrl+G", plants.group), (apart, "Ctrl+Shift+G", plants.ungroup),
                               (tr("Remove from the list"), "Del", remove)):  # fmt: skip
        action = QAction(text, table, shortcut=QKeySequence(keys), shortcutContext=Qt.ShortcutContext.WidgetShortcut)
        action.triggered.connect(lambda _=False, change=change: change(table.selected_rows()))
        table.addAction(action)
    table.horizontalHeader().moveSection(PLANT, 1)
    table.horizontalHeader().setMaximumSectionSize(LONGEST)
    return choice
