"""The process of one checkout for `benchmarks.two_trees`: builds a plan on the GPU, then answers questions.

"check": 20 losses of training steps, or the sum of the logits, as exact hexadecimal floats, and the kernels chosen.
"time": milliseconds of one step or prediction, the fastest of five repeats of a few replays.
Only names that both checkouts have are imported.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

from core.device import Optimizer, PhotoBatch
from core.gpu.driver.device import open_device
from core.gpu.plan import CudaPlan
from core.models import build, initial_weights
from core.ops.builder import with_loss
from core.ops.photo import identity_augmentation
from core.program import fold_batch_norm, fold_weights

CLASSES, SIDE, STEPS = 10, 224, 20


def make(model: str, batch: int, precision: str, training: bool) -> tuple[CudaPlan, PhotoBatch]:
    open_device()
    graph = build(model, CLASSES, SIDE)
    weights = initial_weights(graph, 0)
    if training:
        plan = CudaPlan(with_loss(graph, 0.0, ()), batch=batch, training=True, precision=precision,
                        optimizer=Optimizer("adam"))  # fmt: skip
        plan.load(weights)
    else:
        plan = CudaPlan(fold_batch_norm(graph), batch=batch, training=False, precision=precision)
        plan.load(fold_weights(graph, weights))
    rng = np.random.default_rng(0)
    photos = rng.integers(0, 256, (batch, SIDE, SIDE, 3)).astype(np.uint8)
    plan.keep_photos(photos)
    labels = rng.integers(0, CLASSES, batch).astype(np.int32)
    return plan, PhotoBatch(None, identity_augmentation(batch, SIDE, SIDE), labels, np.arange(batch, dtype=np.int32))


def check(plan: CudaPlan, batch: PhotoBatch, training: bool) -> dict[str, Any]:
    if training:
        values = [float(plan.train_step(batch, 1e-4).loss).hex() for _ in range(STEPS)]
    else:
        values = [float(value).hex() for value in plan.predict(batch)["logits"].ravel()[:STEPS]]
    return {"values": values, "kernels": [list(kernel) for kernel in plan.kernels()]}


def main() -> None:
    model, batch, precision, training = json.loads(sys.argv[1])
    plan, photos = make(model, batch, precision, training)
    replays = 20 if batch == 1 else 5
    for question in sys.stdin:
        if question.strip() == "check":
            answer: Any = check(plan, photos, training)
        else:
            answer = min(plan.replay_milliseconds(photos, replays) for _ in range(5))
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
