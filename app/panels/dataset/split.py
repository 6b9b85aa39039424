"""The split of the photos, and the data leakage that a random split would have caused."""

from __future__ import annotations

from typing import Final, final

from PySide6.QtCore import QRect, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.cards import disease_name
from app.theme import Theme
from app.translation import tr
from app.viewmodels.examination import ExaminationModel
from app.viewmodels.rows_model import Column, RowsModel
from app.widgets.parts import label
from app.widgets.table_view import sorted_view
from core.percent import percent

HEIGHT: Final = 76


@final
class LeakMeter(QWidget):
    """Two bars: leaked photos of this split and of a random split."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._bars: tuple[tuple[str, float, bool], ...] = ()
        self.setFixedHeight(HEIGHT)
        theme.changed.connect(self.update)

    def show_leak(self, held_out: int, leaked: int, random_leaked: int) -> None:
        whole = max(held_out, 1)
        self._bars = (
            (tr("this split (by group)"), leaked / whole, False),
            (tr("a random split"), random_leaked / whole, True),
        )
        self.setAccessibleName(", ".join(f"{name}: {percent(share)}" for name, share, _ in self._bars))
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:  # noqa: N802 (Qt's name)
        colours = self._theme.colours
        with QPainter(self) as painter:
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            for at, (name, share, bad) in enumerate(self._bars):
                top = at * HEIGHT // 2
                area = QRect(0, top, self.width(), 18)
                painter.setPen(QColor(colours.text))
                painter.drawText(area, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, name)
                painter.drawText(area, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter, percent(share))
                painter.setPen(Qt.PenStyle.NoPen)
                painter.setBrush(QColor(colours.raised))
                painter.drawRoundedRect(QRect(0, top + 20, self.width(), 8), 4, 4)
                painter.setBrush(QColor(colours.danger if bad or share else colours.accent))
                if share:
                    painter.drawRoundedRect(QRect(0, top + 20, max(int(self.width() * share), 6), 8), 4, 4)


@final
class SplitPane(QWidget):
    """Photos per class and split as the check computed them; training makes the same split."""

    def __init__(self, theme: Theme, examination: ExaminationModel) -> None:
        super().__init__()
        self._examination = examination
        self.text = label("", "muted", wrap=True)
        self.title = label(tr("Data leakage between train and test"), "heading", wrap=True)
        self.meter = LeakMeter(theme)
        self.model = RowsModel([
            Column(tr("Class"), lambda c: disease_name(c[0]), tip=lambda c: c[0]),
            Column(tr("train"), lambda c: f"{c[1]:,}", lambda c: c[1], right=True,
                   help=tr("Photos that the network is trained on")),
            Column(tr("valid."), lambda c: f"{c[2]:,}", lambda c: c[2], right=True,
                   help=tr("Validation photos: they choose the best epoch")),
            Column(tr("test"), lambda c: f"{c[3]:,}", lambda c: c[3], right=True,
                   help=tr("Test photos: used once, for the final accuracy")),
        ], self)  # fmt: skip
        self.table = sorted_view(self.model, tr("Split"), stretch=0)
        self.table.setTextElideMode(Qt.TextElideMode.ElideMiddle)  # classes of one crop differ at either end
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 8, 0, 0)
        layout.addWidget(self.title)
        layout.addWidget(self.meter)
        layout.addWidget(self.text)
        layout.addWidget(self.table, 1)
        layout.addStretch(0)
        examination.changed.connect(self.refresh)
        self.refresh()

    def refresh(self) -> None:
        split = self._examination.split
        for widget in (self.title, self.meter, self.table):
            widget.setVisible(bool(split))
        if not split:
            self.text.setText(tr("Press “Check photos” under Quality. Photos of the same leaf and duplicates are then "
                                 "grouped, and each group stays in one split."))  # fmt: skip
            return
        self.meter.show_leak(split["held_out"], split["leaked"], split["random_leaked"])
        text = tr("{photos} photos in {groups} groups. Accuracy measured on leaked photos is too high.")
        self.text.setText(text.format(photos=f"{split['photos']:,}", groups=f"{split['groups']:,}"))
        counts = split["counts"]
        self.model.show_rows(list(zip(split["classes"], counts["train"], counts["val"], counts["test"], strict=True)))
