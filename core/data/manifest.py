"""Reads a CSV manifest as a `Dataset`, row by row, in bounded memory, and writes one."""

from __future__ import annotations

import codecs
import csv
import os
import re
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from core.data.dataset import SPLIT_NAMES, SPLITS, UNSPLIT, Dataset, DatasetBuilder, ReportProgress, clean_name, ignore
from core.data.string_array import ENCODING, ERRORS
from core.errors import DataError
from core.ops.contract import Array
from core.storage import refuse_pipe, write_file
from core.text import csv_lines

PATH_COLUMNS: Final = ("path", "file", "filename", "image", "photo")
LABEL_COLUMNS: Final = ("label", "class", "condition", "disease")
"""Searched in this order if there are no columns crop and condition."""
HEADING: Final = ("path", "label", "split")
"""First columns of a manifest that `write_manifest` writes."""
SETTING: Final = "setting"
"""Optional column with where a photo was taken ("lab", "field"), for metrics by setting."""
REPORT_EVERY: Final = 10_000
MOST_FIELD: Final = 1 << 20
"""Longest field of a row, characters; a longer one is a quote that was never closed."""
VALUES_NAMED: Final = 12
"""Values of a column that an error lists."""


def is_manifest(name: str) -> bool:
    """Whether a file is a manifest by its name; a folder or a photo is not."""
    return name.lower().endswith(".csv")


@dataclass(frozen=True, slots=True)
class _Columns:
    """The index of each column; -1 if it is missing."""

    path: int
    labels: tuple[int, ...]
    split: int
    group: int
    where: tuple[tuple[int, str], ...]
    extra: tuple[int, ...]


def list_settings(dataset: Dataset, rows: Array) -> list[str]:
    """Where each of these photos was taken, "" if the manifest does not say."""
    column = dataset.columns.get(SETTING) or [""] * len(dataset)
    return [column[row] for row in rows]


def open_manifest(
    path: Path, *, label: str = "", where: Sequence[str] = (), columns: Sequence[str] = (),
    progress: ReportProgress = ignore, empty: bool = False,
) -> Dataset:  # fmt: skip
    """Read the photos of a CSV file with a header line; paths are relative to the file's folder.

    The class is ``crop/condition``, or the column `label`. Columns ``split`` and ``group`` are honoured.
    `where` keeps rows with ``column=value`` (every one must hold); `columns`, and ``setting`` if there is one, are
    kept unchanged. Raises DataError, also for a file without rows unless it may be `empty`.
    """
    with _open(path) as file:
        rows = _rows(file, path)
        heading = next(rows, (0, []))[1]
        if SETTING not in columns and _find_column([name.strip() for name in heading], SETTING, path) >= 0:
            columns = (*columns, SETTING)
        at = _find_columns(heading, path, label, where, columns)
        table = DatasetBuilder(str(path.parent.absolute()), columns, grouped=at.group >= 0)
        for count, (line, row) in enumerate(rows, 2):
            if count % REPORT_EVERY == 0:
                progress(len(table), 0)
            if any(clean_name(row[column]) != value for column, value in at.where):
                continue
            _append(table, row, at, line, path)
        if not len(table) and not empty:
            raise DataError(_nothing(file, path, where, at))
        progress(len(table), len(table))
        return table.finish(listed=True)


def read_paths(path: Path, column: str = "") -> Iterator[str]:
    """The photo files of a manifest, row by row; it needs no classes. Raises DataError.

    column: yield its values instead, and the file where it is empty.
    """
    with _open(path) as file:
        rows = _rows(file, path)
        names = [name.strip() for name in next(rows, (0, []))[1]]
        at, group = _find_path_column(names, path), _find_column(names, column, path) if column else None
        if group == -1:
            raise DataError(f"--group: {path} has no column {column!r}; its columns are {_list_columns(names)}.")
        for line, row in rows:
            if not (photo := file_name(row[at], path)):
                raise DataError(f"Line {line} of {path} has no path. Fill it in, or remove the line.")
            yield (row[group].strip() if group is not None else "") or os.path.join(path.parent, photo)


@contextmanager
def _open(path: Path) -> Iterator[IO[str]]:
    """The manifest as text; what cannot be read is a DataError."""
    try:
        refuse_pipe(path)
        encoding, errors = _encoding(path)
        with path.open("r", encoding=encoding, errors=errors, newline="") as file:
            yield file
    except OSError as error:
        raise DataError(f"The manifest {path} cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise DataError(f"The manifest {path} starts like UTF-16 but is not valid: {error.reason}. Save it again as "
                        "CSV (UTF-8).") from error
    except csv.Error as error:
        raise DataError(f"The manifest {path} is not a valid CSV file: {error}. Save it again as CSV "
                        "(UTF-8).") from error


def _encoding(path: Path) -> tuple[str, str]:
    """Encoding and error handler: UTF-16 if there is a byte order mark (spreadsheets' "Unicode text"), else UTF-8.

    UTF-8 may contain file names that are not text; UTF-16 cannot represent those.
    """
    with path.open("rb") as file:
        marked = file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    return ("utf-16", "strict") if marked else ("utf-8-sig", ERRORS)


def _rows(file: IO[str], path: Path) -> Iterator[tuple[int, list[str]]]:
    """The heading and the rows that are not empty, with the number of their first line. The separator is the one that
    the heading line has most of, or that a line before it names, as Excel's "sep=;" does. Raises DataError."""
    first = file.readline()
    csv.field_size_limit(MOST_FIELD)
    named = first.rstrip("\r\n")
    marked = named.lower() in ("sep=,", "sep=;", "sep=|", "sep=\t")
    if not first.strip():
        raise DataError(f"The manifest {path} is empty. Its first line names the columns, such as path,label.")
    if "\0" in first:
        raise DataError(f"{path} is not a text file. A manifest is a CSV file (UTF-8) whose first line names the "
                        "columns.")
    if not marked:
        file.seek(0)
    reader = csv.reader(file, delimiter=named[-1] if marked else max(",;\t", key=first.count), strict=True)
    line, width = 1 + marked, 0
    for row in reader:
        width = width or len(row)
        if row and len(row) != width:
            raise DataError(f"Line {line} of {path} has {len(row)} fields, but the header has {width}. Put quotes "
                            "around fields that contain the separator.")
        if any(row):  # spreadsheets leave rows of separators
            yield line, row
        line = 1 + marked + reader.line_num


def _find_columns(heading: list[str], path: Path, label: str, where: Sequence[str], columns: Sequence[str]) -> _Columns:
    names = [name.strip() for name in heading]

    def find(name: str) -> int:
        return _find_column(names, name, path)

    def require(name: str, option: str) -> int:
        if find(name) < 0:
            raise DataError(f"{option}: {path} has no column {name!r}; its columns are {_list_columns(names)}.")
        return find(name)

    photos = _find_path_column(names, path)
    if label:
        labels: tuple[int, ...] = (require(label, "--label"),)
    elif find("crop") >= 0 and find("condition") >= 0:
        labels = (find("crop"), find("condition"))
    else:
        labels = tuple(find(name) for name in LABEL_COLUMNS if find(name) >= 0)[:1]
    if not labels:
        raise DataError(f"{path} has no class column; its columns are {_list_columns(names)}. Choose the class column "
                        "with --label COLUMN.")
    filters = [w.partition("=") for w in where]
    return _Columns(
        path=photos, labels=labels, split=find("split"), group=find("group"),
        where=tuple((require(name.strip(), "--where"), clean_name(value)) for name, _, value in filters),
        extra=tuple(require(name, "columns") for name in columns),
    )


def _find_column(names: Sequence[str], name: str, path: Path) -> int:
    """The index of a column, in any case where there is none of just this name; -1 if it is missing."""
    lower = [other.lower() for other in names]
    known, wanted = (names, name) if name in names else (lower, name.lower())
    if known.count(wanted) > 1:
        raise DataError(f"{path} has more than one column {name}. Rename the columns that are not meant.")
    return known.index(wanted) if wanted in known else -1


def _find_path_column(names: Sequence[str], path: Path) -> int:
    for name in PATH_COLUMNS:
        if (found := _find_column(names, name, path)) >= 0:
            return found
    raise DataError(f"{path} has no column path; its columns are {_list_columns(names)}. Rename the column with the "
                    f"photo files to `path` (also accepted: {', '.join(PATH_COLUMNS[1:])}).")  # fmt: skip


def _list_columns(names: Sequence[str]) -> str:
    return textwrap.shorten(", ".join(names), 1000)


def file_name(text: str, path: Path) -> str:
    """The file that a manifest names, with "/" between folders; as written if, on POSIX, there is such a file.

    Without "./", so that a photo has one name; ".." stays, as the folder before it may be a link.
    """
    clean = text.strip().replace("\\", "/")
    found = text if clean != text and os.sep == "/" and os.path.isfile(path.parent / text) else clean
    return re.sub(r"(?<![^/])(?:\./+)+", "", found)


def _append(table: DatasetBuilder, row: list[str], at: _Columns, line: int, path: Path) -> None:
    file = file_name(row[at.path], path)
    parts = [clean_name(row[column]) for column in at.labels]
    if any("\0" in text for text in (file, *parts)):
        raise DataError(f"Line {line} of {path} contains a zero byte, so this is not a text file. Save it again as CSV "
                        "(UTF-8).")
    if not file or not all(parts):
        missing = "path" if not file else "class"
        raise DataError(f"Line {line} of {path} has no {missing}. Fill it in, or remove the line.")
    split = row[at.split].strip().lower() if at.split >= 0 else ""
    if split not in ("", *SPLIT_NAMES):
        raise DataError(f"Line {line} of {path}: the split {split!r} is not train, val or test.")
    group = row[at.group].strip() if at.group >= 0 else ""
    table.append(file, "/".join(parts), SPLIT_NAMES.get(split, UNSPLIT), group, [row[column] for column in at.extra])


def _nothing(file: IO[str], path: Path, where: Sequence[str], at: _Columns) -> str:
    """Why no row is left; with `where`, the values that its columns contain."""
    if not where:
        return f"The manifest {path} has no rows below its header."
    file.seek(0)
    rows = _rows(file, path)
    _, heading = next(rows)
    held: dict[str, set[str]] = {heading[column].strip(): set() for column, _ in at.where}
    for _, row in rows:
        for column, _ in at.where:
            values = held[heading[column].strip()]
            if len(values) <= VALUES_NAMED:
                values.add(row[column].strip())
    named = []
    for name, values in held.items():
        more = ", ..." if len(values) > VALUES_NAMED else ""
        named.append(f"{name} is one of {', '.join(sorted(values)[:VALUES_NAMED])}{more}")
    return f"No row of {path} has {' and '.join(where)}. There, {'; '.join(named)}."


def write_manifest(path: Path, dataset: Dataset, classes: Sequence[str], labels: Array, rows: Array) -> None:
    """Write rows with ``classes[labels[row]]`` and other columns; paths relative if possible. Raises StorageError."""
    groups, names = dataset.groups, dataset.group_names
    root, folder = (os.path.realpath(place) for place in (dataset.root, path.parent))  # ".." leaves the real folder

    def lines() -> Iterator[Sequence[str]]:
        yield *HEADING, *([] if groups is None else ["group"]), *dataset.columns
        for row in rows.tolist():
            split = int(dataset.splits[row])
            photo = _relative(os.path.join(root, dataset.paths[row]), folder)
            group = [] if groups is None or names is None else [names[int(groups[row])]]
            yield (photo, classes[int(labels[row])], SPLITS[split] if split >= 0 else "", *group,
                   *(column[row] for column in dataset.columns.values()))  # fmt: skip

    write_file(path, "".join(csv_lines(lines())).encode(ENCODING, ERRORS))


def _relative(path: str, folder: str) -> str:
    """A path relative to a folder; unchanged if there is none (on Windows, another drive)."""
    try:
        return os.path.relpath(path, folder).replace(os.sep, "/")
    except ValueError:
        return path
