"""The form of a run, made from the rows of RunConfig; problems are shown below their fields."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from PySide6.QtCore import QSignalBlocker, QSize, Qt, Signal
from PySide6.QtWidgets import QCheckBox, QFormLayout, QLabel, QLineEdit, QWidget

from app.translation import sentence, tr
from app.widgets.fields import ComboBox, SpinBox
from app.widgets.layouts import column, holding
from app.widgets.parts import label, named
from core.config import Setting, settings
from core.cores import count_gpu_files
from core.errors import Problem
from core.training.presets import PRESETS

MINIMUM_WIDTH: Final = 90
"""Pixels of the narrowest field, beside the long captions of some languages."""
GIVEN: Final = ("data", "out")
"""Settings without a field: the window fills in the open project and a new run folder."""
MULTI_GPU: Final = ("gpus", "sync_batch_norm")
"""Settings that have a field only on machines with several GPUs."""
PRESET_GROUPS: Final = ("network", "training", "optimizer", "loss", "augmentation", "device")
"""Groups of settings that a preset sets."""


class Field:
    """One setting: its editor, how to read and write it, and its problem."""

    def __init__(self, name: str, row: Setting, default: Any, choices: Sequence[str]) -> None:
        self.name, self.row, self._kind = name, row, type(default)
        self.editor, self._get, self._set, self.changed = _editor(row, default, choices)
        self.editor.setObjectName(f"field_{name}")
        named(self.editor, tr(row.label))
        self.editor.setAccessibleDescription(tr(row.help))
        self.editor.setToolTip(tip_text(row))
        self.caption = QLabel(tr(row.label))
        self.caption.setBuddy(self.editor)
        self.caption.setMinimumHeight(self.editor.sizeHint().height())  # the same height as the editor
        self.caption.setToolTip(tip_text(row))
        self.problem = label("", "problem", wrap=True)
        self.problem.hide()
        self.place = holding(column(self.editor, self.problem, spacing=2))

    def value(self) -> Any:
        """The value; a text that is not a number stays a text, which the problems report."""
        raw = self._get()
        if self._kind is float:
            if self.row.zero and not raw.strip():
                return 0.0
            try:
                return float(raw.replace(",", "."))
            except ValueError:
                return raw
        return split_values(raw) if self._kind is tuple else raw

    def set_value(self, value: Any) -> None:
        with QSignalBlocker(self.editor):
            if isinstance(value, tuple | list):
                value = " ".join(f'"{one}"' if re.search(r"\s", one) else one for one in value)  # see `split_values`
            meant = self._kind is float and self.row.zero and not value  # the placeholder shows it
            self._set("" if meant else f"{value:g}" if isinstance(value, float) else value)

    def show_problem(self, text: str) -> None:
        self.problem.setText(sentence(text) if text else "")
        room = max(self.editor.width(), MINIMUM_WIDTH)
        self.problem.setMinimumHeight(self.problem.heightForWidth(room) if text else 0)  # forms reserve one line
        self.problem.setVisible(bool(text))
        self.editor.setProperty("wrong", bool(text))
        self.editor.style().polish(self.editor)


class RunForm(QWidget):
    """All settings of a run; `changed` is emitted after any edit. Simple shows some, Expert all."""

    changed = Signal()

    def __init__(self, presets: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        super().__init__()
        self._presets = dict(presets or {})
        self.fields: dict[str, Field] = {}
        self._groups: dict[str, QLabel] = {}
        grow = QFormLayout.FieldGrowthPolicy.AllNonFixedFieldsGrow
        self._layout = QFormLayout(self, verticalSpacing=8, horizontalSpacing=12, fieldGrowthPolicy=grow)
        self._layout.setContentsMargins(0, 0, 8, 0)
        gpus = count_gpu_files()
        for name, (field, row) in settings().items():
            if name == "gpus":
                row = replace(row, high=gpus, expert=False)
            if name not in GIVEN and (gpus > 1 or name not in MULTI_GPU):
                self._add(name, row, field.default)
        self.set_expert(False)

    def _add(self, name: str, row: Setting, default: Any) -> None:
        if row.group not in self._groups:
            heading = label(tr(row.group.capitalize()), "heading")
            heading.setContentsMargins(0, 8, 0, 0)
            self._groups[row.group] = heading
            self._layout.addRow(heading)
        choices = ("", *self._presets) if name == "preset" and self._presets else row.choices
        field = Field(name, row, default, choices)
        field.set_value(default)
        field.changed(self.changed.emit if name != "preset" else self._on_preset)
        self._layout.addRow(field.caption, field.place)
        self.fields[name] = field

    def minimumSizeHint(self) -> QSize:  # noqa: N802 (Qt's names here and below)
        return QSize(MINIMUM_WIDTH, super().minimumSizeHint().height())

    def resizeEvent(self, event: object) -> None:  # noqa: N802
        """Captions are above their fields where both do not fit side by side, as with a large font."""
        wanted = max(field.caption.sizeHint().width() for field in self.fields.values()) + MINIMUM_WIDTH + 20
        policy = QFormLayout.RowWrapPolicy
        self._layout.setRowWrapPolicy(policy.WrapAllRows if self.width() < wanted else policy.DontWrapRows)

    def set_expert(self, expert: bool) -> None:
        shown = set()
        for field in self.fields.values():
            given = field.name == "model" and self.fields["start"].value()  # its network is used
            visible = not given and (expert or not field.row.expert)
            self._layout.setRowVisible(field.place, visible)
            shown |= {field.row.group} if visible else set()
        for group, heading in self._groups.items():
            self._layout.setRowVisible(heading, expert and group in shown)

    def values(self) -> dict[str, Any]:
        """Field name to value; an invalid number stays a text."""
        return {name: field.value() for name, field in self.fields.items()}

    def take_over(self, values: Mapping[str, Any]) -> None:
        for name in self.fields.keys() & values.keys():
            self.fields[name].set_value(values[name])
        self.changed.emit()

    def show_problems(self, problems: Sequence[Problem]) -> list[Problem]:
        """Mark the fields; returns the problems that belong to no visible field."""
        texts: dict[str, str] = {}
        for problem in problems:
            texts.setdefault(problem.field, problem.message)
        for name, field in self.fields.items():
            field.show_problem(texts.get(name, ""))
        return [p for p in problems if p.field not in self.fields or not self.is_visible(p.field)]

    def wrong(self) -> QWidget | None:
        return next((field.place for field in self.fields.values()
                     if field.problem.text() and self.is_visible(field.name)), None)  # fmt: skip

    def is_visible(self, name: str) -> bool:
        return self._layout.isRowVisible(self.fields[name].place)

    def choose_preset(self, name: str) -> None:
        self.fields["preset"].set_value(name)
        self._on_preset()

    def _on_preset(self) -> None:
        values = self._presets.get(self.fields["preset"].value())
        if values is not None:
            for name, field in self.fields.items():
                if field.row.group in PRESET_GROUPS and name != "preset":
                    field.set_value(values.get(name, settings()[name][0].default))
        self.changed.emit()


def tip_text(row: Setting) -> str:
    """The help of a field and what each choice means, as rich text: Qt wraps no other tooltip."""
    choices = (f"<br><b>{tr(choice)}</b>: {tr(meaning)}" for choice, meaning in row.meanings.items())
    return f"<p>{html.escape(tr(row.help))}{''.join(choices)}</p>"


def split_values(text: str) -> tuple[str, ...]:
    """The values of a list, separated by spaces; a value with spaces is in quotes."""
    return tuple(quoted or plain for quoted, plain in re.findall(r'"([^"]+)"|(\S+)', text))


Editor = tuple[QWidget, Callable[[], Any], Callable[[Any], object], Callable[[Callable[[], None]], object]]


def _editor(row: Setting, default: Any, choices: Sequence[str]) -> Editor:
    """(widget, read, write, connect to changes) for one setting."""
    if isinstance(default, bool):
        box = QCheckBox()
        return box, box.isChecked, box.setChecked, lambda slot: box.toggled.connect(lambda _: slot())
    if choices:
        combo = ComboBox()
        combo.setSizeAdjustPolicy(ComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        combo.setMinimumContentsLength(5)
        for choice in choices:
            combo.addItem(tr(choice) if choice else tr("(none)"), choice)
            meaning = PRESETS[choice].idea if choice in PRESETS else row.meanings.get(choice, "")
            combo.setItemData(combo.count() - 1, tr(meaning), Qt.ItemDataRole.ToolTipRole)
        return (
            combo, combo.currentData, lambda value: combo.setCurrentIndex(combo.findData(value)),
            lambda slot: combo.currentIndexChanged.connect(lambda _: slot()),
        )
    if isinstance(default, int):
        spin = SpinBox()
        spin.setRange(0 if row.zero else int(row.low or 0), int(row.high if row.high is not None else 10**9))
        spin.setGroupSeparatorShown(True)
        spin.setSpecialValueText(tr(row.zero) if row.zero else "")
        spin.setMinimumWidth(MINIMUM_WIDTH)
        return spin, spin.value, spin.setValue, lambda slot: spin.valueChanged.connect(lambda _: slot())
    line = QLineEdit(placeholderText=tr(row.zero) if row.zero else "")
    line.setMinimumWidth(MINIMUM_WIDTH)
    return line, line.text, lambda v: line.setText(str(v)), lambda slot: line.textChanged.connect(lambda _: slot())
