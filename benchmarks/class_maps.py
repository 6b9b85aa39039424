"""How well class activation maps agree with lesions drawn by hand, on validation photos of diseases a model knows.

    python -m benchmarks.class_maps $LEAFCLINIC_DATA/field leaves small --out benchmarks/results/class_maps.json

The figure is the area under the ROC curve (AUROC): the probability that the map is higher at a pixel of a lesion than
at another pixel of the photo, and at another pixel of the leaf. The map is that of the photo's true class: at the
network's own image size, as the mean of copies of the photo shifted by half a cell and interleaved, and of the
enlarged photo (`core.diagnosis.class_map`). No test photo is read. It takes 20 s of processor time.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import cv2
import numpy as np

from benchmarks.auroc import auroc
from benchmarks.pack_photos import chosen_rows
from benchmarks.record import commit
from benchmarks.severity import read_mask
from core.data.photo import square
from core.data.photo_reader import read_photo
from core.diagnosis.class_map import ClassMapper, channel_weights
from core.diagnosis.examination import SEVERAL
from core.diagnosis.features import feature_node
from core.diagnosis.model_file import ModelFile, read_model
from core.diagnosis.model_identity import find_model
from core.diagnosis.prediction import Predictor
from core.ops.contract import Array

WAYS = ("own size", "half-cell shifts", "enlarged")


def shifted(photo: Array, y: float, x: float) -> Array:
    """The photo moved by so many pixels, its edge repeated."""
    matrix = np.array([[1, 0, x], [0, 1, y]], np.float32)
    return cv2.warpAffine(photo, matrix, photo.shape[1::-1], flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)


def interleave(photo: Array, compute: Callable[[Array], Array]) -> Array:
    """The feature map of twice as many cells a side, from four copies shifted by a quarter of a cell each way."""
    own = compute(photo)
    height, width, channels = own.shape
    quarter = photo.shape[0] / height / 4
    fine = np.empty((2 * height, 2 * width, channels), np.float32)
    for y in range(2):
        for x in range(2):
            fine[y::2, x::2] = compute(shifted(photo, quarter * (1 - 2 * y), quarter * (1 - 2 * x)))
    return fine


def measure(model: ModelFile, root: Path, rows: list[dict[str, str]]) -> dict[str, object]:
    """Mean AUROC of each way over the photos whose class the model has."""
    node = feature_node(model.graph)
    assert node is not None
    figures: dict[str, list[list[float]]] = {way: [] for way in WAYS}
    cells = {}
    with closing(Predictor(model, outputs=(node,))) as predictor, closing(ClassMapper(model)) as mapper:

        def compute(photo: Array) -> Array:
            return np.asarray(predictor.predict(photo[None])[node][0])

        for row in rows:
            photo = read_photo(str(root / row["path"]), SEVERAL, 2 * SEVERAL)
            drawn, index = read_mask(root / row["mask"]), model.classes.index(f"{row['crop']}/{row['condition']}")
            small = square(photo, model.source_side)
            own, fine = compute(small), interleave(small, compute)
            features = partial(compute, small)
            weights = channel_weights(model.graph, model.weights, features, index)
            enlarged = mapper.map_class(square(photo, mapper.side), features, index)
            maps = dict(zip(WAYS, (own @ weights, fine @ weights, enlarged), strict=True))
            cells = {"own size": own.shape[0], "half-cell shifts": fine.shape[0], "enlarged": mapper.cells}
            for way, found in maps.items():
                values = cv2.resize(np.maximum(found, 0), drawn.leaf.shape[::-1], interpolation=cv2.INTER_LINEAR)
                lesion = values[drawn.lesions]
                figures[way].append([auroc(lesion, values[~drawn.lesions]),
                                     auroc(lesion, values[drawn.leaf & ~drawn.lesions])])  # fmt: skip
    means = {way: np.nanmean(np.array(found), axis=0) for way, found in figures.items()}
    shown = {way: {"cells": cells[way], "photo": round(float(mean[0]), 3), "leaf": round(float(mean[1]), 3)}
             for way, mean in means.items()}  # fmt: skip
    return {"photos": len(rows), **shown}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    models = {name: read_model(find_model(Path(name))) for name in options.models}
    masked = [row for row in chosen_rows(options.root / "manifest.csv", ["val"]) if row["mask"]]
    table = {
        name: measure(model, options.root,
                      [row for row in masked if f"{row['crop']}/{row['condition']}" in model.classes])
        for name, model in models.items()
    }  # fmt: skip
    print(json.dumps(table, indent=1))
    if options.out:
        result = {"splits": "val", "commit": commit(), "models": table}
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
