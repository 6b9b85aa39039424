"""Crops of leaves from composed photos, as training photos; and how well models diagnose such crops.

    python -m benchmarks.composed_training make joined --count 8000 --pictures 1500 --processes 16
    leafclinic train --data joined/composed.csv --preset leaves-field --from leaves --epochs 40 --validate-every 10
    python -m benchmarks.composed_training score $LEAFCLINIC_DATA MODEL ... --out FILE.json

`make` composes photos of lab leaves of the split `train` only, on scenes and foliage of that split, and cuts each leaf
by its box, which is moved and resized as a detector's boxes are. `composed.csv` has all rows of the folder's manifest,
the crops, each in the group of the leaf that it shows, and pictures without a leaf. `score` diagnoses leaves of
validation photos, cut by their true boxes from the composed photos of `benchmarks.several_leaves`, and the lab photos
of the same leaves.

`benchmarks/results/composed_training.json` has the networks trained with such crops, and means of their weights with
the model before. Half of seed 1 is the first network of the shipped model. Halves of seeds 0 and 2 show the spread over
seeds (`benchmarks/results/leaves_seeds.json`). The rule for the next ones is in `benchmarks.candidates`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from contextlib import closing
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import cv2
import numpy as np

from benchmarks.composed_photos import CutLeaf, compose, cut_leaf, random_background, random_shape
from benchmarks.pack_photos import chosen_rows, encode_manifest
from benchmarks.record import commit
from benchmarks.several_leaves import SIDE, composed_photos, share, to_shares
from benchmarks.ship_model import name_of, prepared
from core.data.photo import square
from core.data.photo_reader import read_photo
from core.diagnosis.boxes import as_box
from core.diagnosis.leaf_detector import cut_square
from core.diagnosis.model_file import read_model
from core.diagnosis.pictures_without_leaf import draw
from core.diagnosis.prediction import Predictor
from core.diagnosis.verdict import is_healthy
from core.ops.contract import Array

Row = dict[str, str]
FOLDER: Final = "composed"
CROP_SIDE: Final = 288
"""Pixels of a crop's side: the network's in use."""
READ: Final = 224
"""Pixels of a lab photo's side before its leaf is cut out, as in `benchmarks.several_leaves`."""
MARGINS: Final = (-0.02, 0.1)
MOVED: Final = 0.04
"""Standard deviation of the error of a box's edges, as a share of its longer side."""
SCENES: Final = 150
SCRAMBLED: Final = 0.2
"""Share of the pictures without a leaf that are tiles of a scene in random order."""


@cache
def training_rows(root: Path) -> tuple[dict[str, dict[str, list[Row]]], list[Row], list[Row]]:
    """Lab rows of the split `train` by crop and condition, scenes without a leaf, and foliage."""
    rows, crops = chosen_rows(root / "manifest.csv", ["train"]), dict[str, dict[str, list[Row]]]()
    for row in rows:
        if row["setting"] == "lab":
            crops.setdefault(row["crop"], {}).setdefault(row["condition"], []).append(row)
    scenes = [row for row in rows if row["crop"] == "background"]
    return crops, scenes, [row for row in rows if row["crop"] in ("bean", "chilli")]


@cache
def cut_out(path: str, label: str) -> CutLeaf | None:
    return cut_leaf(read_photo(path, READ), label)


def jittered(rng: np.random.Generator, box: Array) -> Array:
    """The box as a detector might find it."""
    longer = (box[2:] - box[:2]).max()
    return np.asarray(box + rng.normal(0, MOVED, 4) * longer)


def make_part(root: Path, seed: int, job: tuple[int, int]) -> list[Row]:
    """Write this many crops of one process, and return their rows of the manifest."""
    number, count = job
    cv2.setNumThreads(1)
    rng = np.random.default_rng((seed, number))
    crops, scene_rows, foliage_rows = training_rows(root)
    scenes, foliage = ([read_photo(str(root / rows[i]["path"]), READ) for i in rng.permutation(len(rows))[:SCENES]]
                       for rows in (scene_rows, foliage_rows))  # fmt: skip
    names = sorted(crops)
    weights = np.sqrt([len(crops[name]) for name in names])
    made: list[Row] = []
    while len(made) < count:
        conditions = crops[str(rng.choice(names, p=weights / weights.sum()))]
        disease = str(rng.choice([name for name in conditions if not is_healthy(name)]))
        wanted = [disease if rng.random() < 0.6 else "healthy" for _ in range(int(rng.integers(2, 7)))]
        chosen = [conditions[name][rng.integers(len(conditions[name]))] for name in wanted if name in conditions]
        cut = [(cut_out(str(root / row["path"]), name_of(row)), row) for row in chosen]
        kept = [(leaf, row) for leaf, row in cut if leaf is not None]
        backdrop = random_background(rng, scenes, foliage, random_shape(rng, SIDE))
        photo = compose(rng, [leaf for leaf, _ in kept], backdrop)
        for box, source in zip(photo.boxes, photo.sources, strict=True):
            place = to_shares(jittered(rng, box)[None], photo.photo.shape)[0]
            crop, _ = cut_square(photo.photo, as_box(place), CROP_SIDE, rng.uniform(*MARGINS))
            path = f"{FOLDER}/{number}-{len(made)}.jpg"
            cv2.imwrite(str(root / path), crop[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 92])
            made.append({**kept[source][1], "path": path, "setting": FOLDER})
    return made


def make_pictures(root: Path, seed: int, count: int) -> list[Row]:
    """Write this many pictures without a leaf, a fifth of them scrambled scenes, and return their rows."""
    rng, scenes = np.random.default_rng((seed, count)), training_rows(root)[1]
    made: list[Row] = []
    for number in range(count):
        row = scenes[int(rng.integers(len(scenes)))]
        drawn = draw(rng, read_photo(str(root / row["path"]), CROP_SIDE) if rng.random() < SCRAMBLED else None)
        path = f"{FOLDER}/picture-{number}.png"  # JPEG would smooth noise
        cv2.imwrite(str(root / path), drawn[..., ::-1])
        made.append({**row, "path": path, "setting": FOLDER, "group": f"picture-{number}", "source": "generated"})
    return made


def make(root: Path, count: int, pictures: int, processes: int, seed: int) -> None:
    (root / FOLDER).mkdir(exist_ok=True)
    jobs = [(number, count // processes) for number in range(processes)]
    with get_context("spawn").Pool(processes) as pool:
        made = [row for part in pool.map(partial(make_part, root, seed), jobs) for row in part]
    made += make_pictures(root, seed, pictures)
    rows = chosen_rows(root / "manifest.csv", ["train", "val"]) + made
    (root / f"{FOLDER}.csv").write_bytes(encode_manifest(rows))
    print(f"{len(made)} crops and pictures, {len(rows)} rows")


def score(data: Path, models: Sequence[Path], count: int) -> dict[str, Any]:
    """Of leaves of composed validation photos, cut by their true boxes, and of their lab photos: how many are right."""
    photos, sources = composed_photos(data, "val", count, 1)
    labels = [label for photo in photos for label in photo.labels]
    found: dict[str, Any] = {"commit": commit()}
    for path in models:
        model = prepared(read_model(path), 0, 0, 8)
        side = model.source_side
        crops = [cut_square(p.photo, as_box(box), side)[0] for p in photos for box in to_shares(p.boxes, p.photo.shape)]
        with closing(Predictor(model, batch=4)) as predictor:
            guesses, alone = (predictor.predict(np.stack(shown))["logits"].argmax(axis=1)
                              for shown in (crops, [square(p, side) for group in sources for p in group]))  # fmt: skip
        truth = np.array([model.classes.index(label) for label in labels])
        found[path.stem] = {"composed": share(int((guesses == truth).sum()), len(truth)),
                            "single": share(int((alone == truth).sum()), len(truth))}  # fmt: skip
        print(path.stem, json.dumps(found[path.stem]), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("make", "score"))
    parser.add_argument("folder", type=Path, help="joined photos (make), or photo packs (score)")
    parser.add_argument("models", type=Path, nargs="*")
    parser.add_argument("--count", type=int, default=8000, help="crops to make")
    parser.add_argument("--pictures", type=int, default=0, help="pictures without a leaf to make")
    parser.add_argument("--photos", type=int, default=120, help="composed photos that score")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.what == "make":
        make(options.folder, options.count, options.pictures, options.processes, options.seed)
        return
    found = score(options.folder, options.models, options.photos)
    if options.out:
        options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
