"""Reads a folder of photos as a `Dataset`: subfolders are classes (or crop/condition), above or below splits if any."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NoReturn, TypeAlias

from core.data.dataset import SPLIT_NAMES, UNSPLIT, Dataset, DatasetBuilder, ReportProgress, Skipped, clean_name, ignore
from core.data.photo_format import NAMED, UNREADABLE
from core.data.string_array import readable
from core.errors import DataError

NOT_PHOTOS: Final = ("__macosx",)
"""Folders created by archivers, which are skipped."""
_Found: TypeAlias = tuple[tuple[str, ...], list[str]]
"""The photos directly in one folder: names of folders below the root, and sorted file names."""


def open_folder(root: Path, *, where: Sequence[str] = (), progress: ReportProgress = ignore) -> Dataset:
    """Photos below `root`, listed in sorted order and not decoded.

    The class is the folder's name, or ``crop/condition`` where folders nest. Photos in deeper folders belong to the
    class above them. `where` filters on crop, condition, label or split. Raises DataError.
    """
    skipped: list[Skipped] = []
    found: list[_Found] = []
    count = 0
    for folder, photos in photo_folders(str(root), refuse_folder):
        parts, refused = Path(folder).relative_to(root).parts, {photo.name: _refusal(photo) for photo in photos}
        skipped += [Skipped(readable("/".join((*parts, name))), reason) for name, reason in refused.items() if reason]
        if names := [name for name, reason in refused.items() if not reason]:
            found.append((parts, names))
            count += len(names)
            progress(count, 0)
    if not found:
        raise DataError(f"There are no photos in {root}. Put the photos of each class into a subfolder (JPEG, PNG, "
                        "WebP, TIFF, BMP or GIF).")
    table = DatasetBuilder(str(root.absolute()))
    table.skipped = skipped
    _label(table, found, _filters(where))
    if not len(table):
        raise DataError(
            f"No photo below {root} has {' and '.join(where)}." if where else
            f"The photos in {root} are not in class folders. Put the photos of each class into a subfolder with the "
            "name of the class."
        )  # fmt: skip
    progress(len(table), len(table))
    return table.finish()


def photo_folders(root: str, refuse: Callable[[str, OSError], object]) -> Iterator[tuple[str, list[os.DirEntry[str]]]]:
    """The folders below `root` that have photos, and their photos by name, also in unsupported formats; without hidden
    ones (telephones keep .thumbnails, macOS leaves ._photo.jpg). Each folder is listed once, even if links lead to it
    again. refuse: called for each folder that cannot be read."""
    seen: set[tuple[int, int]] = set()
    stack = [root]
    while stack:
        folder = stack.pop()
        try:
            state = os.stat(folder)
            if (identity := (state.st_dev, state.st_ino)) in seen:
                continue
            seen.add(identity)
            with os.scandir(folder) as entries:
                shown = [e for e in entries if e.name[0] != "." and e.name.lower() not in NOT_PHOTOS]
        except OSError as error:
            refuse(folder, error)
            continue
        shown.sort(key=lambda entry: entry.name)
        deeper = {e for e in shown if e.is_dir(follow_symlinks=False) or e.is_symlink() and os.path.isdir(e)}
        stack += [e.path for e in reversed(shown) if e in deeper]
        if photos := [e for e in shown if (e.name.lower().endswith(NAMED) or _leads_nowhere(e)) and e not in deeper]:
            yield folder, photos


def _leads_nowhere(entry: os.DirEntry[str]) -> bool:
    return entry.is_symlink() and not os.path.exists(entry)


def _refusal(photo: os.DirEntry[str]) -> str:
    """Why an entry of `photo_folders` is no photo for training; "" if it is one."""
    if _leads_nowhere(photo):
        return "The symbolic link leads to nothing that can be read."
    form = UNREADABLE.get(os.path.splitext(photo.name)[1].lower())
    return f"{form} files are not supported. Save the photo as JPEG or PNG." if form else ""


def refuse_folder(folder: str, error: OSError) -> NoReturn:
    raise DataError(f"The folder {folder} cannot be read: {error.strerror or error}. Change its permissions, or move "
                    "it out of the photo folder.") from error  # fmt: skip


def _label(table: DatasetBuilder, found: Sequence[_Found], filters: Sequence[tuple[str, str]]) -> None:
    """Add the photos of each folder with their class and split."""
    folders = [tuple(map(clean_name, folder)) for folder, _ in found]
    start = _shared(folders)
    split_level = _has_splits([folder[start:] for folder in folders])
    below = [folder[start + 1 :] for folder in folders if folder[start:]]
    if not split_level and all(below) and (split_level := _has_splits(below)):  # each class or crop has its own
        folders = [(*f[:start], *f[start + 1 : start + 2], *f[start : start + 1], *f[start + 2 :]) for f in folders]
    first = start + split_level
    nested = all(len(folder) != first + 1 for folder in folders)
    for folder, (named, names) in zip(folders, found, strict=True):
        levels = folder[first : first + 1 + nested]
        paths = ["/".join((*named, name)) for name in names]
        if not all(levels or [""]):
            reason = "The photo is not in a class folder, so it has no class."
            table.skipped += [Skipped(readable(path), reason) for path in paths]
            continue
        split, label = folder[start].lower() if split_level else "", "/".join(levels)
        facts = {"crop": levels[0] if nested else "", "condition": levels[-1], "label": label, "split": split}
        if all(facts.get(name) == value for name, value in filters):
            for path in paths:
                table.append(path, label, SPLIT_NAMES[split] if split else UNSPLIT)


def _shared(folders: Sequence[tuple[str, ...]]) -> int:
    """Number of outer folder levels that all photos share, leaving at least crop/condition."""
    start = 0
    while all(len(f) > start + 1 for f in folders) and len({f[start] for f in folders}) == 1:
        rest = [f[start + 1 :] for f in folders]
        if _has_splits([f[start:] for f in folders]) or not _has_splits(rest) and min(len(f) for f in rest) < 2:
            break
        start += 1
    return start


def _has_splits(folders: Sequence[tuple[str, ...]]) -> bool:
    """Whether the outermost folders are splits: train, and optionally val and test, by any of their names."""
    outer = {f[0].lower() for f in folders if f}
    return bool(outer) and outer <= SPLIT_NAMES.keys() and any(SPLIT_NAMES[name] == 0 for name in outer)


def _filters(where: Sequence[str]) -> list[tuple[str, str]]:
    pairs = [(name.strip(), clean_name(value)) for name, _, value in (w.partition("=") for w in where)]
    for name, _ in pairs:
        if name not in ("crop", "condition", "label", "split"):
            raise DataError(f"--where: photos in folders have crop, condition, label and split, but no {name!r}.")
    return pairs
