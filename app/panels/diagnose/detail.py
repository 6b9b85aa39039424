"""One diagnosed photo: enlarged, with outlined diseased area, most probable classes and disease card."""

from __future__ import annotations

import html
import os
from typing import Final

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QFrame, QTextBrowser, QWidget

from app.cards import Card, card_html, disease_name, find_card
from app.mask import Mask, decode_box
from app.translation import sentence, tr
from app.viewmodels.result import PhotoResult, doubts, severity_text, verdict_text
from app.viewmodels.thumbnails import Thumbnails
from app.widgets.bars import ProbabilityBars
from app.widgets.fields import ComboBox, Slider
from app.widgets.layouts import column, holding, row
from app.widgets.overlays import RAMP, SICK, outlined
from app.widgets.parts import button, card, label, named, scrolling
from app.widgets.photo_view import PhotoView
from core.diagnosis.thresholds import is_no_leaf
from core.diagnosis.verdict import NO_LEAF, is_healthy
from core.percent import percent

AREA: Final = "\0area"
ALONE: Final = "\0alone"
"""Stand for the outlines of leaf and diseased area, and for nothing, among the class names."""
HEALTHY: Final = QColor(30, 140, 70)
UNSURE: Final = QColor(110, 110, 110)
MINIMUM_LINES: Final = 14
"""Lines of text: a verdict, a class, and four lines about the diseased area; more classes scroll."""


class DetailPane(QWidget):
    """Shows a `PhotoResult`. Signals: `correct_asked()`; `map_asked(class)` if missing."""

    correct_asked = Signal()
    map_asked = Signal(str)

    def __init__(self, photos: Thumbnails) -> None:
        super().__init__()
        self._photos = photos
        self.shown: PhotoResult | None = None
        self._threshold = 0.0
        self._waiting = tr("Diagnosing…")
        self.setMinimumHeight(MINIMUM_LINES * self.fontMetrics().height())
        self.card = named(QTextBrowser(openExternalLinks=False), tr("About the disease"))
        self.card.setProperty("role", "inside")
        advice = card(self.card, margins=(2, 2, 2, 2))
        self.setLayout(row((self._photo_card(), 5), (self._answer_card(), 4), (advice, 5), spacing=12))

    def hasHeightForWidth(self) -> bool:  # noqa: N802 (Qt's names here and below)
        """False: the height of the table below does not depend on the length of a photo's texts."""
        return False

    def sizeHint(self) -> QSize:  # noqa: N802
        return QSize(super().sizeHint().width(), self.minimumHeight())

    def _photo_card(self) -> QFrame:
        """The photo with its overlay, and the opacity and legend of a class map."""
        self.photo = PhotoView(tr("Photo only"))
        self.photo.setMinimumHeight(110)
        self.photo.setToolTip(tr("Double-click, or Enter in the table: show only the photo, enlarged"))
        self.slider = Slider(tr("Opacity of the class map"), value=55)
        self.slider.setToolTip(tr("Opacity of the class map"))
        self.which = named(ComboBox(), tr("Overlay on the photo"))
        self.which.setToolTip(tr("Outlines of the leaf and of its diseased areas, or the class map: which parts of the "
                                 "photo support a class."))  # fmt: skip
        self.slider.valueChanged.connect(lambda _: self._show_map())
        self.which.currentIndexChanged.connect(lambda _: self._show_map())
        self.photo.picked.connect(lambda leaf: self.which.setCurrentIndex(self.which.findData(leaf)))
        self.map_row = holding(row(label(tr("Shown"), "caption"), (self.which, 1)))
        self.legend = holding(row((_map_legend(), 2), (self.slider, 1)))
        return card((self.photo, 1), self.map_row, self.legend)

    def _answer_card(self) -> QFrame:
        """The verdict, scrollable in a low window, and the diseased area below it, always visible."""
        self.verdict = label("", "verdict", wrap=True)
        self.doubt = label("", "warning", wrap=True)
        self.plant = label("", "muted", wrap=True)
        self.plant.setMinimumWidth(1)  # a long file name, which has no place for a break, must not widen all texts
        self.plant.hide()
        self.bars = ProbabilityBars()
        self.threshold = label("", "caption", wrap=True)
        self.threshold.setToolTip(tr("Below this confidence the verdict is “not sure”. Set it with the slider below "
                                     "the photo."))
        self.notes = label("", "muted", wrap=True)
        self.notes.setToolTip(tr("Horsfall-Barratt grades: steps of the diseased leaf area, finer near 0 and 100 %"))
        self.correct = button(tr("Edit diseased area…"), self.correct_asked.emit, "",
                              tr("Edit the diseased area with a brush") + " (Ctrl+B)")  # fmt: skip
        self.correct.setShortcut("Ctrl+B")
        texts = column(self.verdict, self.doubt, self.plant, self.bars, self.threshold, None, margins=(14, 10, 12, 4))
        foot = column(self.notes, row(None, self.correct), margins=(14, 0, 12, 8))
        return card((scrolling(holding(texts)), 1), foot, spacing=4, margins=(0, 2, 2, 2))

    def show_waiting(self, preparing: bool) -> None:
        self._waiting = tr("Preparing the model…") if preparing else tr("Diagnosing…")
        if self.shown is not None and not (self.shown.done or self.shown.cancelled):
            self.verdict.setText(self._waiting)

    def show_result(self, result: PhotoResult | None, threshold: float = 0.0, maps: bool = False) -> None:
        """Show a photo and its result; None clears the pane. `threshold`: the minimum confidence; `maps`: whether class
        maps can be asked for."""
        before, self.shown = self.shown, result
        if result is None:
            return
        if before is None or before.path != result.path or not result.done:  # the file may have been replaced
            self.photo.request(self._photos, result.path)
        self._threshold = threshold
        area = result.area()
        one = bool(result.hash) and not result.leaves  # a correction is of one leaf
        self.correct.setVisible(one and area is not None and bool((area.labels > 0).any()))
        self.photo.show_frame(None if result.leaves else decode_box(result.measured))
        self._show_answer(result)
        self._fill_maps(result, area, maps)

    def _show_answer(self, result: PhotoResult, leaf: str = "") -> None:
        """Show verdict, doubts, classes, diseased area and disease card of a photo, or of its leaf of this name."""
        shown = verdict_text(result) if result.done or result.cancelled else self._waiting
        self.verdict.setText(leaf or shown)
        self.doubt.setText(sentence(result.error) if result.error else doubts(result))
        self.doubt.setVisible(bool(self.doubt.text()))
        self.notes.setText(severity_text(result))
        self.notes.setVisible(bool(self.notes.text()))
        top, limits = ((), ()) if result.unfamiliar else (result.top, result.limits)  # probabilities do not apply
        below = bool(top) and not result.sure and result.probability < self._threshold
        self.bars.show_top(top, result.sure, limits or (self._threshold,) * below)
        self.threshold.setText(
            tr("A photo has the labels whose probability reaches the mark on their bar.") if limits
            else tr("Minimum confidence: {share}", share=percent(self._threshold, 0)) if below else "")  # fmt: skip
        self.threshold.setVisible(bool(self.threshold.text()))
        self.card.setHtml(_advice(result))

    def _fill_maps(self, result: PhotoResult, area: Mask | None, maps: bool) -> None:
        """List the outlines and the maps of the most probable classes; the selected kind stays selected."""
        likely = [name for name, _ in result.top] + [name for leaf in result.leaves for name in leaf.labels]
        names = list(dict.fromkeys(likely)) if maps else []
        choices: list[tuple[str, object]] = [(tr("Outlines"), AREA)] if area is not None else []
        choices += [(tr("Leaf {number}: {verdict}", number=index + 1, verdict=verdict_text(leaf)), index)
                    for index, leaf in enumerate(result.leaves)]  # fmt: skip
        choices += [(tr("Class map: {name}", name=disease_name(name)), name) for name in names]
        before = self.which.currentData()
        chosen = before if before in (AREA, ALONE, *names) else names[0] if names and isinstance(before, str) else None
        self.which.fill([*choices, (tr("Photo only"), ALONE)] if choices else (), chosen)
        self.map_row.setVisible(bool(choices))
        self._show_map()

    def _show_map(self) -> None:
        chosen, result = self.which.currentData(), self.shown
        area = result.area() if result and chosen == AREA else None
        of_class = result.maps.get(chosen) if result else None
        if isinstance(chosen, str) and chosen not in (AREA, ALONE) and of_class is None:
            self.map_asked.emit(chosen)
        leaf = chosen if isinstance(chosen, int) else -1
        if result and result.leaves:
            self._show_answer(*((result.leaves[leaf], self.which.currentText()) if leaf >= 0 else (result,)))
        boxes = () if result is None or chosen == ALONE else [(one.box, _colour(one)) for one in result.leaves]
        self.photo.show_boxes(boxes, leaf)
        self.legend.setVisible(of_class is not None)
        self.photo.set_strength(1.0 if of_class is None else self.slider.value() / 100)
        if area is not None and result is not None:
            self.photo.show_layer(outlined(area.labels, result.shown_percent is not None), area.box)
        else:
            self.photo.show_map(of_class)


def _map_legend() -> QWidget:
    stops = ", ".join(f"stop:{at / 2} rgb({', '.join(map(str, map(int, rgb)))})" for at, rgb in enumerate(RAMP))
    scale = QWidget(styleSheet=f"background: qlineargradient(x1:0, y1:0, x2:1, y2:0, {stops})")
    scale.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
    scale.setFixedHeight(8)
    legend = holding(row(label(tr("weak"), "caption"), (scale, 1), label(tr("strong"), "caption"), spacing=6))
    legend.setToolTip(tr("How strongly each part of the photo supports the class. Each map is scaled to its own "
                         "maximum."))  # fmt: skip
    return legend


def _colour(leaf: PhotoResult) -> QColor:
    """Red for a disease, green for a healthy leaf, grey where there is no diagnosis."""
    return HEALTHY if leaf.healthy else QColor(*SICK) if leaf.sure else UNSURE


def _advice(result: PhotoResult) -> str:
    """The cards of the diagnosis, or of the most probable class; none for a photo that looks unfamiliar."""
    if result.error:
        hint = tr("If another program shows this photo, save it there as JPEG and add that file here.")
        return f"<p>{html.escape(hint)}</p>" if os.path.exists(result.path) else ""
    if not result.top:
        return ""
    if result.unfamiliar:
        hint = tr("The model is not sure, so no disease card is shown. If the model knows this crop, take the photo "
                  "again: one leaf that fills the picture, in daylight, in focus.")
        return f"<p>{html.escape(hint)}</p>"
    best = result.top[0][0]
    bare = result.verdict == NO_LEAF and is_no_leaf(best)
    sick = [name for name in result.labels if not is_healthy(name)]  # beside a disease, "Nothing to do" is wrong
    cards: list[Card | None] = [card for name in sick or result.labels if (card := find_card(name))]
    return "<hr>".join(card_html(card, result.sure or bare) for card in cards or [find_card(best)])
