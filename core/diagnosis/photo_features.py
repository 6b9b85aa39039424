"""Computes the pooled features of decoded photos with a model; they are stored beside the photos' cache."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Final

import numpy as np

from core.data.array_file import complete_rows
from core.data.cache import PhotoCache
from core.data.dataset import ReportStage
from core.diagnosis.completion import compute_outputs
from core.diagnosis.features import feature_node
from core.diagnosis.model_file import read_model
from core.diagnosis.model_identity import read_identity
from core.diagnosis.prediction import Predictor
from core.errors import InputError
from core.ops.contract import Array
from core.plan import choose_device

CHUNK: Final = 64
"""Photos between two progress reports."""


def read_features(
    model: Path, cache: PhotoCache, rows: Array, device: str, threads: int, report: ReportStage
) -> Array:
    """Features float32 ``(len(rows), F)`` of usable photos; stored ones are reused. Raises InputError."""

    def compute(missing: Array) -> Array:
        found = read_model(model)
        node = feature_node(found.graph)
        if node is None:
            raise InputError("This model has no feature map, so labels cannot be reviewed with it. Use the model "
                             "leaves.")
        parts = []
        chosen = choose_device(device)
        with closing(Predictor(found, device=chosen, batch=16, threads=threads, outputs=(node,))) as predictor:
            for first in range(0, len(missing), CHUNK):
                photos = cache.gather(rows[missing[first : first + CHUNK]])
                parts.append(np.asarray(compute_outputs(predictor, photos).features, np.float32))
                report("review", min(first + CHUNK, len(missing)), len(missing))
        return np.concatenate(parts)

    file = Path(cache.home) / f"{cache.side}-{read_identity(model).short_hash}.features"
    return complete_rows(file, cache.content[rows], compute)
