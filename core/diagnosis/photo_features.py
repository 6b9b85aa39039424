"""Computes the pooled features of decoded photos with a model; they are stored beside the photos' cache."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

import numpy as np

from core.data.array_file import read_arrays, write_arrays
from core.data.cache import PhotoCache
from core.data.dataset import Cancelled, IsCancelled
from core.diagnosis.completion import compute_outputs
from core.diagnosis.features import feature_node
from core.diagnosis.model_file import read_model
from core.diagnosis.model_identity import read_identity
from core.diagnosis.prediction import Predictor, choose_device
from core.errors import InputError
from core.ops.contract import Array

CHUNK: Final = 64
"""Photos between two progress reports."""


def read_features(
    model: Path, cache: PhotoCache, rows: Array, device: str = "auto", threads: int = 0,
    report: Callable[[str, int, int], None] | None = None, cancelled: IsCancelled | None = None,
) -> Array:  # fmt: skip
    """Features float32 ``(len(rows), F)`` of usable photos; stored ones are reused. Raises Cancelled, InputError."""
    file = Path(cache.home) / f"{cache.side}-{read_identity(model).short_hash}.features"
    content, stored = cache.content[rows], read_arrays(file) or {"content": np.empty((0, 32), np.uint8)}
    at = {key.tobytes(): i for i, key in enumerate(stored["content"])}
    missing = np.array([row for row, key in zip(rows, content, strict=True) if key.tobytes() not in at], np.int64)
    if len(missing):
        new = _compute_features(model, cache, missing, device, threads, report, cancelled)
        old = stored.get("features", new[:0])
        stored = {"content": np.r_[stored["content"], cache.content[missing]], "features": np.r_[old, new]}
        write_arrays(file, stored)
        at = {key.tobytes(): i for i, key in enumerate(stored["content"])}
    return stored["features"][[at[key.tobytes()] for key in content]]


def _compute_features(
    path: Path, cache: PhotoCache, rows: Array, device: str, threads: int,
    report: Callable[[str, int, int], None] | None, cancelled: IsCancelled | None,
) -> Array:  # fmt: skip
    model = read_model(path)
    node = feature_node(model.graph)
    if node is None:
        raise InputError("This model has no feature map, so labels cannot be reviewed with it. Use the model leaves.")
    parts = []
    chosen = choose_device(device)
    with closing(Predictor(model, device=chosen, batch=16, threads=threads, outputs=(node,))) as predictor:
        for first in range(0, len(rows), CHUNK):
            if cancelled is not None and cancelled():
                raise Cancelled("The review was stopped.")
            parts.append(compute_outputs(predictor, cache.gather(rows[first : first + CHUNK]), node).features)
            if report is not None:
                report("review", min(first + CHUNK, len(rows)), len(rows))
    return np.asarray(np.concatenate([part for part in parts if part is not None]), np.float32)
