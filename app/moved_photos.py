"""Finds the edits of photos that were moved, renamed or copied since, and where the photos of a run are now. No Qt."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b, sha256
from pathlib import Path
from typing import Final

import numpy as np

from app.project import FILE, Edits, photo_folder, read_edits
from core.data.cache_index import read_sample
from core.data.dataset import Dataset, ReportProgress
from core.data.manifest import is_manifest
from core.errors import InputError

MARKED: Final = 64
"""Photos whose content is stored with the edits of their folder."""
CHECKED: Final = 16
"""Photos of a run whose whole content is compared."""


def mark_photos(dataset: Dataset, report: ReportProgress) -> dict[str, str]:
    """The content of photos that are drawn at random, the same ones each time, by path; "" if a file is unreadable."""
    many = len(dataset)
    drawn = np.random.default_rng(0).choice(many, min(many, MARKED), replace=False).tolist()
    return {path: _mark(dataset, path, report) for path in (dataset.paths[row] for row in sorted(drawn))}


def _mark(dataset: Dataset, path: str, report: ReportProgress) -> str:
    """A hash of a file's size, beginning, middle and end: fast also for large photos on a slow disk."""
    report(len(dataset), len(dataset))
    file = os.path.join(dataset.root, path)
    try:
        size = os.stat(file).st_size
        return blake2b(b"%d:" % size + read_sample(file, size), digest_size=16).hexdigest()
    except (OSError, ValueError):
        return ""


def find_edits(folder: Path, own: Edits, dataset: Dataset, report: ReportProgress) -> list[Edits]:
    """The edits that other projects than `folder` have of these photos, without those that others continue.

    Of photos with edits of their own, only edits that continue these, in a folder that is gone: they were moved back.
    """
    found: dict[str, Edits] = {}
    mine = own.identity
    for path in sorted(folder.parent.glob(f"*/{FILE}")):
        with suppress(InputError):  # it matters only where its own photos are opened
            edits = read_edits(path.parent)
            identity, gone = edits.identity, not os.path.exists(edits.source)
            if identity in ("", mine, *own.earlier) or mine and not (gone and mine in edits.earlier):
                continue
            if _are_same(edits, dataset, report):
                found[identity] = edits
    continued = {mark for identity, edits in found.items() for mark in edits.earlier if mark != identity}
    return [edits for identity, edits in found.items() if identity not in continued] or list(found.values())


def _are_same(edits: Edits, dataset: Dataset, report: ReportProgress) -> bool:
    """Whether the photos are those of the edits, or at least a third of them. Another manifest of photos that are where
    they were may name other photos and classes."""
    listed, beside = is_manifest(edits.source), os.path.dirname(edits.source) == dataset.root
    if listed != dataset.listed or listed and beside and os.path.exists(edits.source):
        return False
    now = [(_mark(dataset, path, report), before) for path, before in edits.photos.items() if before]
    same, others = (sum(a == b for a, b in now), sum(a not in ("", b) for a, b in now))
    return 3 * (same - others) >= len(now) > 0


def find_moved(
    files: list[str], contents: list[str], source: str, root: str, row_of: Callable[[str], int | None]
) -> list[str]:
    """Those files of a folder or manifest that are among the open photos in the folder `root`.

    contents: their SHA-256, in hex. None are found if one of the first has changed.
    """
    folder, found = photo_folder(source), list[str]()
    folders = {folder, os.path.realpath(folder)}  # manifests that the window wrote name the real folder
    for file, content in zip(files, contents, strict=True):
        with suppress(OSError, ValueError):  # it has gone meanwhile, or is on another drive
            places = (os.path.join(root, os.path.relpath(file, folder)) for folder in folders)
            place = next((place for place in places if row_of(place) is not None), "")
            if place and len(found) < CHECKED and sha256(Path(place).read_bytes()).hexdigest() != content:
                return []
            found += [place] if place else []
    return found
