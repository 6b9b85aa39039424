"""Detects the leaves of a photo and crops them.

Two small networks each predict a heatmap of leaf centres, and each leaf's size, the first of the photo and the second
of its mirror image. Source: Zhou et al., "Objects as points", 2019 (CenterNet). Here sizes are logarithms of shares of
the input's side, and offsets are in cells of the map. `benchmarks/ship_detector.py` trains them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Final

import cv2
import numpy as np

from core.data.photo import halve, square
from core.diagnosis.boxes import Box, as_box, decode_maps, fuse, suppress
from core.diagnosis.model_file import read_model
from core.diagnosis.model_identity import SHIPPED
from core.diagnosis.prediction import Predictor
from core.ops.contract import Array

PATHS: Final = (SHIPPED / "detector.safetensors", SHIPPED / "detector_fine.safetensors")
MAPS: Final = "maps"
"""The network's output ``(cells, cells, 5)``, and the channels of its last axis."""
CHANNELS: Final = ("centre", "height", "width", "y", "x")
GREY: Final = (124, 116, 104)
"""Padding of photos that are not square: the mean colour, which is 0 after normalization."""
SCORE: Final = 0.26
"""Smallest confidence of a detection."""
CANDIDATE: Final = 0.08
"""Smallest score of a box from one network. The confidence is the mean over the networks."""
MOST: Final = 12
"""Leaves of a photo that are detected, the most confident."""
MARGIN: Final = 0.03
"""Margin around a leaf, as a share of its longer side."""
LIKE_LARGEST: Final = 0.05
"""Smallest area of a leaf, as a share of the largest leaf's; smaller ones are in the background."""
LIKE_SUBJECT: Final = 0.5
"""The same where the largest leaf is the photo's subject: the most confident, and `SUBJECT` of the photo."""
SUBJECT: Final = 0.3


@dataclass(frozen=True, slots=True)
class FoundLeaf:
    """A region that shows a leaf; score: the network's confidence, 0..1."""

    box: Box
    score: float


class LeafDetector:
    """The shipped networks, loaded. Close it to free the memory."""

    def __init__(self, paths: Sequence[Path] = PATHS, *, device: str = "cpu", threads: int = 0) -> None:
        self._networks = [Predictor(read_model(path), device=device, threads=threads, outputs=(MAPS,))
                          for path in paths]  # fmt: skip

    def find(self, rgb: Array) -> list[FoundLeaf]:
        """Detect the leaves of a whole photo, uint8 RGB of any shape; the most confident first."""
        small = halve(rgb, max(network.model.source_side for network in self._networks))
        boxes, scores = reduce(fuse, (
            _look(network, small, bool(i % 2)) for i, network in enumerate(self._networks)))
        kept = [i for i in suppress(boxes, scores) if scores[i] >= SCORE][:MOST]
        sides = np.array(rgb.shape[:2] * 2) / min(rgb.shape[:2])
        boxes = 0.5 + np.clip((boxes - 0.5) * sides.max(), -sides / 2, sides / 2)
        return [FoundLeaf(as_box(boxes[i]), float(scores[i])) for i in kept]

    def close(self) -> None:
        for network in self._networks:
            network.close()


def _look(network: Predictor, rgb: Array, mirrored: bool) -> tuple[Array, Array]:
    """Boxes as shares of the input's side, and their scores. mirrored: the network sees the mirror image."""
    photo = letterbox(rgb, network.model.source_side)
    (maps,) = network.predict(photo[None, :, ::-1] if mirrored else photo[None])[MAPS]
    return decode_maps(maps[:, ::-1] * (1, 1, 1, 1, -1) if mirrored else maps, CANDIDATE)  # the last: the offset in x


def letterbox(rgb: Array, side: int) -> Array:
    """The whole photo in the middle of a grey square, uint8 ``(side, side, 3)``."""
    scale = side / max(rgb.shape[:2])
    height, width = (max(round(n * scale), 1) for n in rgb.shape[:2])
    y, x = (side - height) // 2, (side - width) // 2
    square = np.full((side, side, 3), GREY, np.uint8)
    how = cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR
    square[y : y + height, x : x + width] = cv2.resize(rgb, (width, height), interpolation=how)
    return square


def choose_leaves(found: Sequence[FoundLeaf], shape: Sequence[int]) -> list[FoundLeaf]:
    """The leaves in the foreground: those not much smaller than the largest one. shape: of the photo."""
    if not found:
        return []
    areas = [(y1 - y0) * (x1 - x0) for y0, x0, y1, x1 in (leaf.box for leaf in found)]
    largest, photo = int(np.argmax(areas)), shape[0] * shape[1] / min(shape[:2]) ** 2
    subject = areas[largest] >= SUBJECT * photo and found[largest].score == max(leaf.score for leaf in found)
    least = (LIKE_SUBJECT if subject else LIKE_LARGEST) * areas[largest]
    return [leaf for leaf, area in zip(found, areas, strict=True) if area >= least]


def cut_square(rgb: Array, box: Box, side: int, margin: float = MARGIN) -> tuple[Array, Box]:
    """The square around a box, inside the photo, uint8 ``(side, side, 3)``; and the square's own box."""
    size = np.array(rgb.shape[:2])
    short = min(rgb.shape[:2])
    low, high = ((size - short) / 2 + short * np.array(corner) for corner in (box[:2], box[2:]))
    cut = min(max(round(float((high - low).max()) * (1 + 2 * margin)), 8), short)
    y, x = (round(float(v)) for v in np.clip((low + high - cut) / 2, 0, size - cut))
    corner = np.array((y, x)) - (size - short) / 2
    place = as_box(np.concatenate((corner, corner + cut)) / short)
    return square(halve(rgb[y : y + cut, x : x + cut], side), side), place
