"""One diagnosed photo: large, with the class map over it, the likeliest classes, and the card of the disease."""

from __future__ import annotations

from typing import final

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QComboBox, QHBoxLayout, QSlider, QTextBrowser, QVBoxLayout, QWidget

from app.panels.diagnose.cards import card_html, find_card
from app.theme import Theme
from app.translation import sentence, tr
from app.viewmodels.confusion import readable
from app.viewmodels.diagnosis import Result
from app.viewmodels.thumbnails import Thumbnails
from app.widgets.parts import card, label, row
from app.widgets.photo_view import PhotoView
from app.widgets.probability_bars import ProbabilityBars


@final
class DetailPane(QWidget):
    """Shows a `Result`; nothing here waits for anything."""

    def __init__(self, theme: Theme, language: str, photos: Thumbnails) -> None:
        super().__init__()
        self._photos = photos
        self._language = language
        self.shown: Result | None = None
        self.photo = PhotoView(tr("The photo"))
        self.slider = QSlider(Qt.Orientation.Horizontal)
        self.slider.setRange(0, 100)
        self.slider.setValue(55)
        self.slider.setAccessibleName(tr("Strength of the class map"))
        self.which = QComboBox()
        self.which.setAccessibleName(tr("Class of the map"))
        self.verdict = label("", "title", wrap=True)
        self.doubt = label("", "warning", wrap=True)
        self.notes = label("", "muted", wrap=True)
        self.bars = ProbabilityBars(theme)
        self.card = QTextBrowser()
        self.card.setOpenExternalLinks(False)
        self.card.setAccessibleName(tr("About the disease"))
        self.map_row = QWidget()
        self.map_row.setLayout(row(label(tr("Where it sees it"), "caption"), self.which, self.slider))
        self.slider.valueChanged.connect(lambda value: self.photo.set_strength(value / 100))
        self.photo.set_strength(self.slider.value() / 100)
        self.which.currentIndexChanged.connect(lambda _: self._show_map())
        left, inside = card()
        inside.addWidget(self.photo, 1)
        inside.addWidget(self.map_row)
        middle, texts = card()
        texts.addWidget(self.verdict)
        texts.addWidget(self.doubt)
        texts.addSpacing(4)
        texts.addWidget(self.bars)
        texts.addWidget(self.notes)
        texts.addStretch(1)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(12)
        layout.addWidget(left, 5)
        layout.addWidget(middle, 4)
        column = QVBoxLayout()
        column.addWidget(self.card)
        layout.addLayout(column, 5)

    def show_result(self, result: Result | None) -> None:
        """Show a photo and what was said of it; None clears the place."""
        before, self.shown = self.shown, result
        if result is None:
            return
        if before is None or before.path != result.path:
            self.photo.wish(self._photos, result.path)
        if result.error:
            self.verdict.setText(tr("Not readable"))
            self.doubt.setText(sentence(result.error))
        elif not result.done:
            self.verdict.setText(tr("Looking…"))
            self.doubt.setText("")
        else:
            self.verdict.setText(readable(result.verdict) if result.sure else tr(result.verdict).capitalize())
            self.doubt.setText(" ".join(sentence(text) for text in (result.reason, *result.notes) if text))
        self.doubt.setVisible(bool(self.doubt.text()))
        self.bars.show_top(result.top)
        self.notes.setText(self._severity(result))
        likeliest = result.top[0][0] if result.top else ""
        self.card.setHtml(card_html(find_card(likeliest, self._language), result.sure) if likeliest else "")
        self._fill_maps(result)

    def _severity(self, result: Result) -> str:
        if result.diseased is None or not result.sure or result.verdict.endswith("healthy"):
            return ""
        return tr("About {share} % of the leaf's area looks diseased.", share=f"{result.diseased:.0f}")

    def _fill_maps(self, result: Result) -> None:
        self.which.blockSignals(True)
        self.which.clear()
        for name in result.maps:
            self.which.addItem(readable(name), name)
        self.which.blockSignals(False)
        self.map_row.setVisible(bool(result.maps))
        self._show_map()

    def _show_map(self) -> None:
        maps = self.shown.maps if self.shown else {}
        self.photo.show_map(maps.get(self.which.currentData()))
