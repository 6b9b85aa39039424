"""Light and dark: one set of colours each, for Qt's palette, the style sheet and the plots."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Final

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QColor, QFontInfo, QPalette
from PySide6.QtWidgets import QApplication

from app import resources


@dataclass(frozen=True, slots=True)
class Colours:
    """Colours by use. Text on its background has a contrast of 4.5 : 1 or better."""

    window: str
    surface: str
    raised: str
    border: str
    text: str
    muted: str
    accent: str
    on_accent: str
    accent_soft: str
    danger: str
    warning: str
    curves: tuple[str, ...]


# Curves after Okabe and Ito (2008), distinguishable with every common colour blindness; the dark set is lighter.
LIGHT: Final = Colours(
    window="#f4f6f3", surface="#ffffff", raised="#eef2ec", border="#d5dcd2", text="#1c2620", muted="#58655c",
    accent="#297749", on_accent="#ffffff", accent_soft="#dcefe2", danger="#b3261e", warning="#8a5a00",
    curves=("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00", "#56b4e9", "#3d3d3d", "#e69f00"),
)
DARK: Final = Colours(
    window="#141a17", surface="#1c2420", raised="#26302b", border="#36423b", text="#e6ece8", muted="#9fb0a6",
    accent="#5fc48a", on_accent="#0c1f15", accent_soft="#20402f", danger="#ff8a80", warning="#f0c060",
    curves=("#56b4e9", "#ff9d5c", "#3fd0a4", "#e6a3c8", "#f0e442", "#8fb4ff", "#d0d0d0", "#e69f00"),
)


class Theme(QObject):
    """Applies colours and font sizes; follows the system unless light or dark is set. `changed` is emitted then."""

    changed = Signal()

    def __init__(self, application: QApplication) -> None:
        super().__init__(application)
        self._application = application
        self._wanted = Qt.ColorScheme.Unknown
        self.colours = LIGHT
        application.setStyle("Fusion")
        application.styleHints().colorSchemeChanged.connect(lambda _: self._apply())
        application.fontChanged.connect(lambda _: self._apply())

    def set(self, wanted: str) -> None:
        """"system", "light" or "dark"."""
        schemes = {"light": Qt.ColorScheme.Light, "dark": Qt.ColorScheme.Dark}
        self._wanted = schemes.get(wanted, Qt.ColorScheme.Unknown)
        self._application.styleHints().setColorScheme(self._wanted)
        self._apply()

    def _apply(self) -> None:
        system = self._application.styleHints().colorScheme()
        scheme = system if self._wanted is Qt.ColorScheme.Unknown else self._wanted
        self.colours = DARK if scheme is Qt.ColorScheme.Dark else LIGHT
        self._application.setPalette(palette(self.colours))
        sheet = stylesheet(self.colours)
        if self._application.styleSheet() != sheet:  # setting it styles every widget again
            self._application.setStyleSheet("")  # from one sheet to another Qt takes four times as long
            self._application.setStyleSheet(sheet)
        self.changed.emit()


@cache
def current_theme() -> Theme:
    """The theme of all windows, as Qt has one palette and one style sheet for them."""
    application = QApplication.instance()
    assert isinstance(application, QApplication)
    return Theme(application)


def palette(colours: Colours) -> QPalette:
    role = QPalette.ColorRole
    made = QPalette(QColor(colours.raised), QColor(colours.window))
    for where, colour in {
        role.Window: colours.window, role.Base: colours.surface, role.AlternateBase: colours.raised,
        role.Button: colours.raised, role.Text: colours.text, role.WindowText: colours.text,
        role.ButtonText: colours.text, role.Highlight: colours.accent, role.HighlightedText: colours.on_accent,
        role.PlaceholderText: colours.muted, role.ToolTipBase: colours.raised, role.ToolTipText: colours.text,
        role.Link: colours.accent, role.Accent: colours.accent, role.Mid: colours.border, role.Dark: colours.border,
    }.items():
        made.setColor(where, QColor(colour))
    for where in (role.Text, role.WindowText, role.ButtonText):
        made.setColor(QPalette.ColorGroup.Disabled, where, mixed(colours.muted, colours.surface, 0.5))
    return made


def mixed(colour: str, background: str, share: float) -> QColor:
    """A colour blended with its background, opaque.

    Qt paints translucent items in threads of its own: 330 to 600 wakeups a second while the cores train.
    """
    above, below = ((c.red(), c.green(), c.blue()) for c in (QColor(colour), QColor(background)))
    return QColor(*(round(share * a + (1 - share) * b) for a, b in zip(above, below, strict=True)))


def stylesheet(colours: Colours) -> str:
    """`resources/style.qss` with the colours filled in for `@name`, and em in pixels: Qt does not follow the font."""
    size = QFontInfo(QApplication.font()).pixelSize()
    sheet = re.sub(r"([\d.]+)em\b", lambda found: f"{float(found[1]) * size:.0f}px", resources.text("style.qss"))
    names = sorted((n for n in Colours.__slots__ if n != "curves"), key=len, reverse=True)
    for name in names:
        sheet = sheet.replace(f"@{name}", getattr(colours, name))
    return sheet.replace("@icons", resources.place("icons"))
