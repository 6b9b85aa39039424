"""How photos are grouped into plants: a choice for all, and commands of the table for the selected ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from PySide6.QtCore import Qt
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QTableView

from app.translation import tr
from app.viewmodels.plants import Plants
from app.viewmodels.result import PhotoResult
from app.widgets.fields import ComboBox
from app.widgets.parts import named
from app.widgets.table_view import selected_rows

COLUMN: Final = 6
"""The plant's column of the results, shown as the second one while there are plants."""
LONGEST: Final = 440
"""Pixels of a plant with its diagnosis; longer ones are cut in the middle."""


def plant_choice(plants: Plants, table: QTableView, remove: Callable[[Sequence[PhotoResult]], None]) -> ComboBox:
    """The choice; `table` gets the commands, in a menu of its own with `remove`, and its column."""
    choice = named(ComboBox(), tr("Plants"))
    choice.setToolTip(tr("One diagnosis of all photos of a plant: of a folder, or taken within a minute of one "
                         "another. To group photos by hand, select them in the table and press Ctrl+G."))  # fmt: skip
    choice.setMaximumWidth(11 * choice.fontMetrics().height())
    kinds = {"": tr("Plants: none"), "folder": tr("Plants: by folder"), "time": tr("Plants: by time")}
    choice.fill([(text, kind) for kind, text in kinds.items()], plants.by)
    choice.currentIndexChanged.connect(lambda _: plants.set_grouping(choice.currentData()))
    together, apart = tr("Group selected photos as one plant"), tr("Ungroup")
    for text, keys, change in ((together, "Ctrl+G", plants.group), (apart, "Ctrl+Shift+G", plants.ungroup),
                               (tr("Remove from the list"), "Del", remove)):  # fmt: skip
        action = QAction(text, table, shortcut=QKeySequence(keys), shortcutContext=Qt.ShortcutContext.WidgetShortcut)
        action.triggered.connect(lambda _=False, change=change: change(selected_rows(table)))
        table.addAction(action)
    table.setContextMenuPolicy(Qt.ContextMenuPolicy.ActionsContextMenu)
    table.setSelectionMode(QTableView.SelectionMode.ExtendedSelection)
    table.horizontalHeader().moveSection(COLUMN, 1)
    table.horizontalHeader().setMaximumSectionSize(LONGEST)
    return choice
