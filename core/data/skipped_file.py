"""Writes all photos that a run skips to a CSV file with the columns path, reason, set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from core.data.dataset import Skipped
from core.storage import storage_error, write_file
from core.text import csv_text


def write_skipped(path: Path, sets: Mapping[str, Sequence[Skipped]]) -> int:
    """Write one line per skipped photo and return their number; without any, remove the file. Raises StorageError."""
    found = [(photo.path, photo.reason, name) for name, photos in sets.items() for photo in photos]
    if found:
        write_file(path, csv_text([("path", "reason", "set"), *found]))
        return len(found)
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise storage_error(path, error) from error
    return 0
