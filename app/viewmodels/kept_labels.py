"""Labels that the user confirmed in a review, by photo file; they are remembered between sessions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import final

from app.paths import folder
from core.storage import write_file


@final
class KeptLabels:
    """Confirmed labels; a photo whose label is another one now is not confirmed. Raises StorageError on writing."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or folder("review") / "kept-labels.json"
        try:
            known = json.loads(self._path.read_text("utf-8"))
        except (OSError, ValueError):  # none yet, or damaged: then suspects are shown again
            known = {}
        self._labels: dict[str, str] = known if isinstance(known, dict) else {}

    def has(self, photo: str, label: str) -> bool:
        return self._labels.get(photo) == label

    def keep(self, photo: str, label: str) -> None:
        self._write(self._labels | {photo: label})

    def forget(self, photo: str) -> None:
        self._write({path: label for path, label in self._labels.items() if path != photo})

    def _write(self, labels: dict[str, str]) -> None:
        self._labels = labels
        write_file(self._path, json.dumps(labels, indent=1))
