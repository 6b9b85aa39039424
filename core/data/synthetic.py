"""Writes a dataset of synthetic leaves for trying the program without photos of one's own.

A model trained on it knows nothing about real leaves; the README in the folder states this.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from core.cores import usable_cores
from core.data.dataset import ReportProgress, ignore
from core.data.leaf_drawing import CONDITIONS, draw_leaf
from core.data.map_ahead import map_ahead
from core.data.photo import encode_jpeg
from core.errors import DataError
from core.storage import saving, write_file
from core.text import csv_text

VERSION: Final = 2
VIEWS: Final = 2
"""Photos of each leaf, which form one group."""
MANIFEST: Final = "manifest.csv"
README: Final = "README.md"
TRAINED, CHOSEN = 0.70, 0.85
"""Shares of the leaves up to which they are for training and for validation."""
_ABOUT: Final = """# Demo photos of LeafClinic

These {count} photos are DRAWN BY A PROGRAM. No such plant exists. They show that the program works and
what it does; a model trained on them knows nothing of real leaves. Never use it on a crop.

Classes: {classes}; {each} photos each, {side} pixels a side, {views} views of every leaf (one group).
`manifest.csv` has path, label, group, split, and the true areas of leaf and lesion in pixels.
Generator version {version}, seed 0.
"""


def write_demo(folder: Path, photos_per_class: int = 240, side: int = 160, progress: ReportProgress = ignore) -> Path:
    """Write the synthetic leaves into `folder`, created if necessary, and return the path of the manifest.

    A folder that contains exactly this dataset stays unchanged. Raises StorageError, DataError for other contents.
    """
    about = _ABOUT.format(
        count=photos_per_class * len(CONDITIONS), classes=", ".join(CONDITIONS), each=photos_per_class, side=side,
        views=VIEWS, version=VERSION,
    )  # fmt: skip
    manifest = folder / MANIFEST
    with saving(folder):
        if _is_there(folder, about):
            return manifest
        for old in (manifest, *folder.glob(f"*/{'[0-9]' * 5}.jpg")):  # an unfinished or other demo set
            old.unlink(missing_ok=True)
        for condition in CONDITIONS:
            (folder / condition).mkdir(parents=True, exist_ok=True)
        (folder / README).write_text(about, "utf-8")
        rows: list[tuple[str, ...]] = [("path", "label", "group", "split", "leaf_pixels", "lesion_pixels")]
        jobs = [(condition, number) for condition in CONDITIONS for number in range(photos_per_class)]
        photos = map_ahead(  # in threads: OpenCV and NumPy release the interpreter lock
            lambda job: _write_photo(folder, *job, photos_per_class, side), jobs, usable_cores(), 64)
        for done, row in enumerate(photos, 1):
            rows.append(row)
            if done % 16 == 0:
                progress(done, photos_per_class * len(CONDITIONS))
        write_file(manifest, csv_text(rows))
    return manifest


def _is_there(folder: Path, about: str) -> bool:
    """Whether the folder contains exactly this complete dataset; raises DataError for other contents."""
    if not folder.exists() or not any(folder.iterdir()):
        return False
    readme = folder / README
    readme_text = readme.read_text("utf-8", "replace") if readme.is_file() else ""
    strangers = {p.name for p in folder.iterdir()} - {MANIFEST, README, *CONDITIONS}
    if not readme_text.startswith(_ABOUT.splitlines()[0]) or strangers:
        raise DataError(f"{folder} contains other files. Choose a new folder for the synthetic leaves.")
    return readme_text == about and (folder / MANIFEST).is_file()


def _write_photo(folder: Path, condition: str, number: int, each: int, side: int) -> tuple[str, ...]:
    leaf, view = divmod(number, VIEWS)
    photo = draw_leaf(condition, 0, leaf, view, side)
    path = f"{condition}/{number:05d}.jpg"
    (folder / path).write_bytes(encode_jpeg(photo.rgb, quality=92))
    leaves = -(-each // VIEWS)  # drawn independently: the first are as good a training split as any
    split = "train" if leaf < round(TRAINED * leaves) else "val" if leaf < round(CHOSEN * leaves) else "test"
    areas = (str(int(photo.leaf.sum())), str(int(photo.lesion.sum())))
    return (path, condition, f"{condition}-{leaf:05d}", split, *areas)
