"""onnxruntime, if it is installed: the only module that imports it, with its telemetry switched off.

When onnxruntime 1.32 is imported it creates files in the user's cache folder, and some seconds later it resolves the
name of a telemetry host. Only an environment variable set before the import prevents both;
`onnxruntime.disable_telemetry_events()` does not.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import numpy as np

from core.ops.contract import Array


@cache
def _library() -> Any:
    """Return the package, or None: it is optional, only checks and benchmarks use it."""
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    try:
        import onnxruntime  # takes a third of a second: only where it is used
    except ImportError:
        return None
    return onnxruntime


def version() -> str | None:
    return None if _library() is None else str(_library().__version__)


def open_session(model: bytes | str, threads: int = 0, fuse: bool = True) -> Any:
    """Return an `InferenceSession` on the CPU for an ONNX model, or for the file of that name.

    threads: 0 leaves the number to onnxruntime. fuse: False computes the nodes as they are in the file.
    """
    options = _library().SessionOptions()
    options.intra_op_num_threads = threads
    if not fuse:
        options.graph_optimization_level = _library().GraphOptimizationLevel.ORT_DISABLE_ALL
    return _library().InferenceSession(model, options, providers=["CPUExecutionProvider"])


def compute_output(model: bytes, photos: Array, fuse: bool = True) -> Array:
    """Return the first output of a model for its only input, normalised photos ``(N, H, W, C)``."""
    session = open_session(model, fuse=fuse)
    planes = np.ascontiguousarray(photos.transpose(0, 3, 1, 2))
    return np.asarray(session.run(None, {session.get_inputs()[0].name: planes})[0])
