"""The Diagnose page without photos: a drop area, what the model knows, and how to take a photo."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Final

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QLabel, QWidget

from app import resources
from app.actions import Actions
from app.cards import disease_name
from app.theme import current_theme
from app.translation import tr
from app.widgets.layouts import GAP, column, row
from app.widgets.parts import action_button, button, card, label, scrolling
from core.diagnosis.thresholds import is_no_leaf
from core.diagnosis.verdict import is_healthy

DRAWING: Final = 48


class StartPage(QWidget):
    """Signal: `synthetic_asked()`."""

    synthetic_asked = Signal()

    def __init__(self, actions: Actions) -> None:
        super().__init__()
        self.known = label("", wrap=True)
        known = _scrolled_card(tr("What this model knows"), self.known)
        below = row((known, 5), (self._advice_card(), 4), spacing=GAP)
        self.setLayout(column((self._drop_area(actions), 3), (below, 2), spacing=GAP))
        current_theme().changed.connect(self._draw)
        self._draw()

    def show_classes(self, classes: Sequence[str]) -> None:
        """Show the classes of the model; none while it is being loaded."""
        self.known.setText(crops_html(classes) if classes else tr("Loading the model…"))

    def _drop_area(self, actions: Actions) -> QFrame:
        self._drawing = QLabel()
        title = label(tr("Drop photos of leaves here"), "title")
        text = label(tr("Add photos or whole folders. They stay on this computer."), "muted")
        for widget in (self._drawing, title, text):
            widget.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        files = row(None, action_button(actions.diagnose_photos, "add", primary=True),
                    action_button(actions.diagnose_folder, "folder"), None)  # fmt: skip
        others = row(None, action_button(actions.paste, "paste"), action_button(actions.camera, "camera"), None)
        tip = tr("Generates leaf pictures, trains a network on them in about a minute, and diagnoses new ones")
        self.synthetic = button(tr("Try with synthetic leaves"), self.synthetic_asked.emit, "flat", tip)
        synthetic = row(None, label(tr("No photo yet?"), "muted"), self.synthetic, None, spacing=2)
        return card(None, self._drawing, title, text, files, others, synthetic, None, role="dropzone", spacing=10)

    def _advice_card(self) -> QFrame:
        rules = (
            tr("One leaf that fills most of the picture."),
            tr("Use daylight or shade, no flash. Keep the leaf in focus."),
            tr("Show the upper side, flat, against a plain background."),
            tr("Choose a leaf with clear symptoms: not the first small spot, not an all-brown leaf."),
        )
        text = "".join(f"<li>{html.escape(rule)}</li>" for rule in rules)
        tips = label(f"<ul style='margin:0 0 0 -22px'>{text}</ul>", wrap=True)
        return _scrolled_card(tr("How to take a good photo"), tips)

    def _draw(self) -> None:
        colour, ratio = current_theme().colours.accent, self.devicePixelRatioF()
        self._drawing.setPixmap(resources.pixmap("drop", colour, DRAWING, ratio))


def crops_html(classes: Sequence[str]) -> str:
    """The diseases of each crop as rich text; classes without a crop as one list."""
    crops: dict[str, list[str]] = {}
    for name in classes:
        crop, _, disease = name.rpartition("/")
        if is_no_leaf(name) or is_no_leaf(disease) or is_healthy(name):
            crops.setdefault(crop, [])
            continue
        crops.setdefault(crop, []).append(disease_name(name))
    lines = []
    for crop, diseases in crops.items():
        head = f"<b>{html.escape(crop_name(crop))}</b>: " if crop else ""
        if diseases:
            lines.append(f"<p style='margin:0 0 4px 0'>{head}{html.escape('; '.join(diseases))}</p>")
    return "".join(lines)


def crop_name(crop: str) -> str:
    """The name in the window of a crop, by its name in classes; the shipped model's are translated."""
    names = {
        "apple": tr("Apple"), "bean": tr("Bean"), "blackgram": tr("Black gram"), "chilli": tr("Chilli"),
        "citrus": tr("Citrus"), "maize": tr("Maize"), "mango": tr("Mango"), "potato": tr("Potato"),
        "strawberry": tr("Strawberry"), "tomato": tr("Tomato"),
    }  # fmt: skip
    return names.get(crop, disease_name(crop).capitalize())


def _scrolled_card(title: str, text: QLabel) -> QFrame:
    text.setTextFormat(Qt.TextFormat.RichText)
    text.setAlignment(Qt.AlignmentFlag.AlignTop)
    return card(label(title, "heading", wrap=True), (scrolling(text, title), 1))
