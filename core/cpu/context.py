"""The context of a run: int64 fields that all kernels can read besides their records."""

from __future__ import annotations

import numpy as np

from core.cpu.memory import FIELDS
from core.ops.contract import Array

PHOTOS, PHOTO_BYTES, SOURCE_HEIGHT, SOURCE_WIDTH, AUGMENTATION, INDEX = range(6)
"""Address of uint8 photos, bytes of one, their size, augmentation parameters, and 0 or int64 indices of the photos."""
SEED, STEP, PHOTO0 = range(8, 11)
"""Of dropout (`core.ops.contract.Mode`)."""
LABELS, LOSSES, CORRECT, INVERSE_WEIGHT = range(11, 15)
"""Addresses of int32 labels, float32 loss shares, int32 0 or 1 of every image, and 1 / sum of the labels' weights."""
COUNT = 15
"""Images in the batch."""
MASKS, MASK_HEIGHT, MASK_WIDTH, BACKGROUNDS, BACKGROUND_HEIGHT, BACKGROUND_WIDTH = range(16, 22)
"""uint8 leaf masks and backgrounds (`core.ops.photo.Backgrounds`) and their sizes; read only if they are used."""
ADD = 22
"""1: sums over a batch are accumulated."""
TARGETS = 23
"""Address of every image's float targets, 0 without targets."""
TOTAL, RANKS = 24, 25
"""Images in batch norm's sums, and ranks with such images: of all ranks if statistics are synchronized."""


class Context:
    """The fields, and the arrays that a loss writes for every image."""

    def __init__(self, batch: int) -> None:
        self.fields = np.zeros(FIELDS, np.int64)
        self.address = self.fields.ctypes.data
        self.losses, self.correct = np.zeros(batch, np.float32), np.zeros(batch, np.int32)
        self.inverse_weight = np.ones(1, np.float32)

    def set_count(self, images: int) -> None:
        self.fields[COUNT], self.fields[TOTAL], self.fields[RANKS] = images, images, 1

    def set_labels(self, labels: Array, targets: Array | None, class_weights: object) -> None:
        """Point to int32 labels and float32 targets, which the caller keeps alive."""
        fields = self.fields
        fields[LABELS], fields[TARGETS] = labels.ctypes.data, 0 if targets is None else targets.ctypes.data
        fields[LOSSES], fields[CORRECT] = self.losses.ctypes.data, self.correct.ctypes.data
        fields[INVERSE_WEIGHT] = self.inverse_weight.ctypes.data
        known, weights = labels[labels >= 0], np.asarray(class_weights)
        total = float(weights[known].sum()) if weights.size else float(len(known))
        self.inverse_weight[0] = 1 / total if total > 0 else 1.0
