"""The photos that a run leaves out, all of them, as a CSV file: path, reason, set."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from core.data.dataset import Skipped
from core.data.texts import ENCODING, ERRORS
from core.storage import storage_error, write_file


def write_left_out(path: Path, sets: Mapping[str, Sequence[Skipped]]) -> int:
    """Write a row for each photo and give their number; where there are none there is no file. Raises StorageError."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(("path", "reason", "set"))
    found = [(photo.path, photo.reason, name) for name, photos in sets.items() for photo in photos]
    rows.writerows(found)
    if found:
        write_file(path, text.getvalue().encode(ENCODING, ERRORS))
        return len(found)
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise storage_error(path, error) from error
    return 0
