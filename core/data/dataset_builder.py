"""Builds a `Dataset` photo by photo, with the checks that folders and manifests share."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final, final

import numpy as np

from core.data.dataset import Dataset, Skipped
from core.data.string_array import StringArray, StringArrayBuilder, encode, readable
from core.errors import DataError
from core.ops.contract import Array

MOST_CLASSES: Final = 10_000
"""More distinct labels than this mean a wrong column."""


@final
class DatasetBuilder:
    """Collects the rows of a dataset; `columns` names additional columns."""

    def __init__(self, root: str, columns: Sequence[str] = (), grouped: bool = False) -> None:
        self.root = root
        self.skipped: list[Skipped] = []
        self._paths = StringArrayBuilder()
        self._labels = array("i")
        self._splits = array("b")
        self._groups = StringArrayBuilder() if grouped else None
        self._columns = {name: StringArrayBuilder() for name in columns}
        self._codes: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._paths)

    def append(self, path: str, label: str, split: int, group: str = "", extra: Sequence[str] = ()) -> None:
        """Add a photo. Raises DataError if there are too many labels or one is not UTF-8."""
        code = self._codes.setdefault(label, len(self._codes))
        if code >= MOST_CLASSES:
            raise DataError(
                f"There are more than {MOST_CLASSES} different labels (such as {label!r}), so this is not the class "
                "column. Choose the class column with --label COLUMN."
            )
        if code == len(self._codes) - 1 and readable(label) != label:
            raise DataError(f"The class name {readable(label)!r} is not valid UTF-8. Rename the folder, or save the "
                            "manifest again as CSV (UTF-8).")
        self._paths.append(path)
        self._labels.append(code)
        self._splits.append(split)
        if self._groups is not None:
            self._groups.append(group)
        for builder, value in zip(self._columns.values(), extra, strict=True):
            builder.append(value)

    def finish(self) -> Dataset:
        """The dataset, with classes sorted by name and repeated paths removed. Raises DataError."""
        paths = self._paths.finish()
        labels = np.frombuffer(self._labels, np.int32) if self._labels else np.empty(0, np.int32)
        splits = np.frombuffer(self._splits, np.int8) if self._splits else np.empty(0, np.int8)
        classes = tuple(sorted(self._codes))
        place = {name: at for at, name in enumerate(classes)}
        renumber = np.array([place[name] for name in self._codes], np.int32)
        groups, names = (None, None) if self._groups is None else _group(self._groups.finish())
        dataset = Dataset(
            root=self.root, paths=paths, classes=classes, labels=renumber[labels] if len(classes) else labels,
            splits=splits, groups=groups, group_names=names,
            columns={name: builder.finish() for name, builder in self._columns.items()}, skipped=tuple(self.skipped),
        )
        return _without_repeats(dataset)


def _group(texts: StringArray) -> tuple[Array, StringArray]:
    """Group numbers and names; each row without a group name becomes its own group."""
    codes, names = encode(texts)
    unnamed = [code for code, name in enumerate(names) if not name]
    if unnamed:
        alone = np.flatnonzero(codes == unnamed[0])
        codes[alone] = len(names) + np.arange(len(alone), dtype=np.int32)
        names = StringArray.of([*names, *(f"row-{row}" for row in alone)])
    return codes, names


def _without_repeats(dataset: Dataset) -> Dataset:
    keys = dataset.paths.keys()
    _, first = np.unique(keys, return_index=True)
    if len(first) == len(keys):
        return dataset
    order = np.argsort(keys, kind="stable")
    same = keys[order][1:] == keys[order][:-1]
    differ = order[1:][same & (dataset.labels[order][1:] != dataset.labels[order][:-1])]
    if len(differ):
        raise DataError(
            f"{len(differ)} photos have two different labels in the manifest, such as {dataset.paths[differ[0]]}. Keep "
            "one row for each photo."
        )
    return dataset.take(np.sort(first))
