"""Activations of the small model around each pixel, from layers of three strides.

They tell `core.diagnosis.segmentation` what shapes a pixel belongs to: a hypercolumn (Hariharan et al., "Hypercolumns
for object segmentation and fine-grained localization", 2015).
"""

from __future__ import annotations

import functools
import queue
from typing import Final

import cv2

from core.device import PhotoBatch, Plan
from core.diagnosis.model_file import read_model
from core.diagnosis.model_identity import SHIPPED
from core.diagnosis.pixel_features import SIDE
from core.graph import Graph
from core.ops.builder import Builder
from core.ops.contract import Array
from core.plan import compile_plan

MODEL: Final = SHIPPED / "small.safetensors"
LAYERS: Final = tuple(f"features.{number}.squeeze_activation" for number in (4, 6, 7, 10, 12))
"""Their strides are 4, 8, 8, 16 and 16 pixels."""
CONTEXT: Final = 16 + 32 + 32 + 48 + 64
"""Channels of the layers together."""
PADDING: Final = (1, 2, 1, 2)
"""Border of the photo at the top, bottom, left and right: with it each activation is in the middle of its pixels."""
_free: Final[queue.SimpleQueue[Plan]] = queue.SimpleQueue()
"""Plans that no thread is using."""


def compute_context(photo: Array) -> list[Array]:
    """Activations of `LAYERS`, float32 ``(SIDE / stride, SIDE / stride, channels)``, for uint8 ``(SIDE, SIDE, 3)``."""
    padded = cv2.copyMakeBorder(photo, *PADDING, cv2.BORDER_REPLICATE)[None]
    try:
        plan = _free.get_nowait()
    except queue.Empty:
        plan = _open()
    outputs = plan.predict(PhotoBatch.plain(padded, padded.shape[1]))
    _free.put(plan)
    return [outputs[name][0] for name in LAYERS]


@functools.cache
def count_bytes() -> int:
    """Bytes of a plan, which are kept for the next photos."""
    plan = _open()
    plan.close()
    return plan.memory.total


def _open() -> Plan:
    graph, weights = read_context()
    plan = compile_plan(graph, device="cpu", threads=1, outputs=LAYERS)
    plan.load(weights)
    return plan


def read_context() -> tuple[Graph, dict[str, Array]]:
    """The small model up to the last layer that is used. Raises ModelFileError."""
    model, side = read_model(MODEL), SIDE + PADDING[0] + PADDING[1]
    photo, *nodes = model.graph.nodes
    b = Builder("context", (side, side, 3), photo.attributes["mean"], photo.attributes["std"])  # type: ignore[arg-type]
    for node in nodes:
        b.add(node.op, node.name, *node.inputs, **node.attributes)
        if node.name == LAYERS[-1]:
            break
    graph = b.graph(b.add("global_avg_pool", "mean", node.name))  # plans need a vector
    return graph, {name: model.weights[name] for name in graph.parameters()}
