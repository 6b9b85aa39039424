"""Masks of leaf and diseased area that a user can correct with a brush; stored in the program's folder. No Qt."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from core.diagnosis.boxes import WHOLE, Box, as_box
from core.diagnosis.severity import Severity
from core.errors import LeafClinicError
from core.ops.contract import Array
from core.tensor_file import read_tensor_file, write_tensor_file

BACKGROUND, LEAF, DISEASED = 0, 1, 2
KIND: Final = "mask"
VERSION: Final = 1


@dataclass(frozen=True, slots=True, eq=False)
class Mask:
    """A mask of a photo.

    labels: uint8 ``(side, side)`` of BACKGROUND, LEAF or DISEASED; box: y0, x0, y1, x1 in the photo's central square,
    0..1; corrected: edited by a user.
    """

    labels: Array
    box: Box = WHOLE
    corrected: bool = False

    @property
    def severity(self) -> Severity:
        return Severity(self.labels > BACKGROUND, self.labels == DISEASED)

    def paint(self, y: float, x: float, radius: float, label: int) -> Mask:
        """The mask with a disc of `label`; position and radius as fractions of the photo's square."""
        y0, x0, y1, x1 = self.box
        side = self.labels.shape[0]
        scale = side / max(y1 - y0, 1e-6), side / max(x1 - x0, 1e-6)
        labels = self.labels.copy()
        rows, columns = np.ogrid[:side, :side]
        down = (rows - (y - y0) * scale[0]) / max(radius * scale[0], 1.0)
        across = (columns - (x - x0) * scale[1]) / max(radius * scale[1], 1.0)
        labels[down**2 + across**2 <= 1] = label
        return replace(self, labels=labels, corrected=True)


def encode_mask(severity: Severity, box: Box) -> dict[str, Any]:
    """The measured mask as one line of text, about 1 KB; `lesions` may be numbers of leaves, see `select_lesions`."""
    labels = severity.leaf * (1 + severity.lesions.astype(np.uint8))
    packed = zlib.compress(labels.tobytes(), 6)
    return {"side": labels.shape[0], "box": list(box), "data": base64.b64encode(packed).decode()}


def decode_mask(raw: Mapping[str, Any]) -> Mask:
    side = int(raw["side"])
    labels = np.frombuffer(zlib.decompress(base64.b64decode(raw["data"])), np.uint8).reshape(side, side)
    return Mask(labels, decode_box(raw))


def select_lesions(mask: Mask, leaves: Collection[int]) -> Mask:
    """The mask with the lesions of these leaves alone: label ``n + 1`` is lesions of leaf `n`."""
    table = np.full(256, LEAF, np.uint8)
    table[BACKGROUND] = BACKGROUND
    table[[1 + number for number in leaves]] = DISEASED
    return replace(mask, labels=table[mask.labels])


def decode_box(raw: Mapping[str, Any] | None) -> Box:
    """The box of the mask; the whole square if nothing was measured."""
    return as_box(raw["box"]) if raw else WHOLE


def mask_path(place: Path, photo: str) -> Path:
    """The file of a photo's corrected mask; `photo` is the SHA-256 of its file."""
    return place / f"{photo[:32]}.safetensors"


def write_mask(path: Path, mask: Mask | None, photo: str) -> None:
    """Store the corrected mask; None removes it. Raises StorageError."""
    if mask is None:
        path.unlink(missing_ok=True)
        return
    header = {"photo": photo, "box": list(mask.box), "percent": mask.severity.percent, "grade": mask.severity.grade}
    write_tensor_file(path, KIND, VERSION, header, {"labels": np.ascontiguousarray(mask.labels)})


def read_mask(path: Path) -> Mask | None:
    """The corrected mask; None if there is none, or none that can be read."""
    try:
        found = read_tensor_file(path, KIND, VERSION) if path.is_file() else None
        if found is None:
            return None
        box, labels = decode_box(found.header), found.tensors["labels"]
    except (LeafClinicError, KeyError, TypeError, ValueError):
        return None
    sound = labels.ndim == 2 and labels.dtype == np.uint8 and labels.size and int(labels.max()) <= DISEASED
    return Mask(labels, box, corrected=True) if sound else None
