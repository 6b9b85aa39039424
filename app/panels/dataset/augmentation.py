"""A live preview of the augmentation of one photo."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from PySide6.QtGui import QImage, QPixmap
from PySide6.QtWidgets import QGridLayout, QLabel, QWidget

from app.task import Task
from app.translation import tr
from app.viewmodels.thumbnails import to_image
from app.widgets.fields import ComboBox
from app.widgets.layouts import TAB, column, row
from app.widgets.parts import button, label, named
from core.config import AUGMENTATIONS

COUNT: Final = 9
SIDE: Final = 128
SOURCE: Final = 256


class AugmentationPane(QWidget):
    """Nine random augmentations of the selected photo at the chosen level, computed in the background."""

    def __init__(self, selected_path: Callable[[], str]) -> None:
        super().__init__()
        self._path = selected_path
        self._epoch = 0
        self._task: Task | None = None
        self._again = False
        self.strength = named(ComboBox(), tr("Strength of the augmentation"))
        self.strength.fill(((tr(name), name) for name in AUGMENTATIONS), "standard")
        self.meaning = label("", "caption", wrap=True)
        self.strength.currentIndexChanged.connect(lambda _: self.refresh())
        grid = QGridLayout()
        grid.setSpacing(6)
        self.pictures = [QLabel(scaledContents=True) for _ in range(COUNT)]
        for at, picture in enumerate(self.pictures):
            picture.setFixedSize(100, 100)
            picture.setAccessibleName(tr("Example {n}", n=at + 1))
            grid.addWidget(picture, at // 3, at % 3)
        grid.setColumnStretch(3, 1)  # pictures are left-aligned
        self.text = label(tr("Select a photo. Each time it is used in training, it is changed at random, for example:"),
                          "muted", wrap=True)  # fmt: skip
        choice = row(self.strength, button(tr("Others"), self._on_others), None)
        self.setLayout(column(self.text, choice, self.meaning, grid, None, margins=TAB))

    def refresh(self) -> None:
        """Compute the preview of the selected photo, if this pane is visible."""
        self.meaning.setText(tr(AUGMENTATIONS[self.strength.currentData()]))
        path = self._path()
        if not path or not self.isVisible():
            return
        if self._task is not None and self._task.active:
            self._again = True
            return
        name, epoch, self._again = self.strength.currentData(), self._epoch, False
        self._task = Task(lambda report, cancelled: draw(path, name, epoch), self, done=self._on_drawn)

    def showEvent(self, event: object) -> None:  # noqa: N802 (Qt's name)
        self.refresh()

    def _on_others(self) -> None:
        self._epoch += 1
        self.refresh()

    def _on_drawn(self, images: list[QImage]) -> None:
        for place, image in zip(self.pictures, images, strict=False):
            place.setPixmap(QPixmap.fromImage(image))
        if self._again:
            self.refresh()

    def hideEvent(self, event: object) -> None:  # noqa: N802 (Qt's name)
        """Cancel the preview of a hidden pane, also when the window closes."""
        if self._task is not None:
            self._task.cancel()


def draw(path: str, strength: str, epoch: int) -> list[Any]:
    """Augmented versions of one photo; none if the file cannot be read."""
    import numpy as np

    from core.data.augment import draw_augmentation
    from core.data.photo import PhotoError
    from core.data.photo_reader import read_photo
    from core.ops.photo import transform

    try:
        photo = read_photo(path, SOURCE)
    except PhotoError:
        return []
    augmentation = draw_augmentation(strength, 0, epoch, np.arange(COUNT), SOURCE, SIDE)
    pictures = transform(np.repeat(photo[None], COUNT, axis=0), augmentation, (SIDE, SIDE), (0.0,) * 3, (1.0,) * 3)
    flat = np.clip(255 * pictures + 0.5, 0, 255).astype(np.uint8)
    return [to_image(picture) for picture in flat]
