"""Leave one crop out: how well lab photos of a crop teach a network to name its diseases outdoors.

    python -m benchmarks.leave_crop_out pack $LEAFCLINIC_DATA --crop apple --out /tmp/pack
    python -m benchmarks.leave_crop_out make /tmp/pack --variant scenes --out /tmp/scenes   # on the training machine
    python -m benchmarks.leave_crop_out join joined --scenes /tmp/scenes    # beside the photos of composed_training
    leafclinic train --data /tmp/scenes/manifest.csv --from OLD ... --out /tmp/run
    python -m benchmarks.leave_crop_out evaluate $LEAFCLINIC_DATA --models scenes=/tmp/run ... --out FILE.json

No field photo of the crop is packed: neither trained on nor used as a background. `VARIANTS` are the ways in which its
lab leaves are shown. All have lab and field photos of the other crops, except `only`. `join` writes `without-CROP.csv`
with the photos of `benchmarks.composed_training` except field photos of the crop, and scenes of `only`. The best
variant on the photos of `field_train`, none of which was trained on, reads `field_test` once (--split field_test).
"""

from __future__ import annotations

import argparse
import csv
import json
import multiprocessing
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import cv2
import numpy as np

from benchmarks.composed_photos import CutLeaf, cut_leaf, turned
from benchmarks.pack_photos import encode_manifest
from benchmarks.record import commit
from benchmarks.ship_detector import read_rows, write
from core.data.photo_reader import read_photo
from core.device import Optimizer, PhotoBatch
from core.diagnosis.calibration import crop_of
from core.diagnosis.metrics import wilson_interval
from core.diagnosis.model_file import ModelFile, read_model
from core.diagnosis.prediction import Predictor
from core.diagnosis.verdict import DecisionRule, Prediction
from core.ops.builder import with_loss
from core.ops.contract import Array
from core.ops.photo import identity_augmentation
from core.plan import compile_plan

SIDE: Final = 224
VARIANTS: Final = ("paper", "backgrounds", "scenes", "only")
"""Leaves on plain colours, on backgrounds, in composed scenes with leaves behind them; only: scenes, no other crop."""
PER_CLASS: Final = 170
"""Lab leaves of each class of the crop; of other classes at most `OTHERS` training photos are packed."""
OTHERS: Final = {"lab": 24, "field": 110}
BACKGROUNDS: Final = 260
MADE: Final = 1000
"""Photos that are made for each class of the crop."""
BATCH, FORGOTTEN = 64, 100
"""Photos of a batch, and batches after which statistics of other photos have no weight left."""


def pack(data: Path, crop: str, out: Path) -> None:
    rng, rows = np.random.default_rng(0), read_rows(data)
    out.mkdir(parents=True, exist_ok=True)
    index: dict[str, list[Any]] = {"leaves": [], "backgrounds": [], "others": []}
    taken: dict[tuple[str, str], int] = {}
    for i in rng.permutation(len(rows)):
        row = rows[i]
        name, label = f"{row['sha256'][:16]}.webp", f"{row['crop']}/{row['condition']}"
        if row["split"] not in ("train", "val") or "+" in label or "complex" in label:
            continue
        key = label, f"{row['setting']} {row['split']}"
        most = PER_CLASS if row["crop"] == crop else OTHERS.get(row["setting"], 0)
        most = most if row["split"] == "train" else most // 6
        if row["crop"] == crop:
            if row["setting"] == "lab" and row["split"] == "train" and taken.get(key, 0) < most:
                leaf = cut_leaf(read_photo(row["file"], SIDE), label)
                if leaf is not None:
                    taken[key] = taken.get(key, 0) + 1
                    write(out / name, np.dstack([leaf.rgb, leaf.mask * 255]).astype(np.uint8), 68)
                    index["leaves"].append([name, label])
        elif row["crop"] in ("rice", "soybean", "wheat", "mixed", "strawberry") and row["setting"] == "field":
            if row["split"] == "train" and len(index["backgrounds"]) < BACKGROUNDS:
                write(out / name, read_photo(row["file"], SIDE), 60)
                index["backgrounds"].append(name)
        elif taken.get(key, 0) < most and row["crop"] not in ("rice", "soybean", "wheat", "mixed"):
            taken[key] = taken.get(key, 0) + 1
            write(out / name, read_photo(row["file"], SIDE), 60)
            index["others"].append([name, label, row["split"], row["setting"]])
    print({kind: len(items) for kind, items in index.items()})
    (out / "pack.json").write_text(json.dumps(index))


def read(path: Path) -> Array:
    found = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
    return np.asarray(found[..., [2, 1, 0, *range(3, found.shape[2])]])


def other_light(rng: np.random.Generator, rgb: Array) -> Array:
    """Other light, white balance, saturation and contrast, float32."""
    photo = (np.asarray(rgb, np.float32) / 255) ** np.exp(rng.normal(0, 0.2))
    grey = photo.mean(axis=2, keepdims=True)
    photo = grey + (photo - grey) * np.exp(rng.normal(0.1, 0.25))
    return np.asarray(255 * photo * np.exp(rng.normal(0, 0.15)) * np.exp(rng.normal(0, 0.05, 3)))


def background(rng: np.random.Generator, photos: Sequence[Array], variant: str) -> Array:
    if variant == "paper":
        light = cv2.resize(rng.normal(0, 6, (4, 4, 1)).astype(np.float32), (SIDE, SIDE), interpolation=cv2.INTER_CUBIC)
        return np.asarray(rng.uniform(90, 190) + rng.normal(0, 8, 3) + light[..., None], np.float32)
    photo = photos[rng.integers(len(photos))]
    side = int(min(photo.shape[:2]) / rng.uniform(1, 2.5))
    y, x = (int(rng.integers(0, have - side + 1)) for have in photo.shape[:2])
    part = cv2.resize(photo[y : y + side, x : x + side], (SIDE, SIDE), interpolation=cv2.INTER_LINEAR)
    blur = rng.uniform(0, 5)
    part = cv2.GaussianBlur(part, (0, 0), blur) if blur > 0.4 else part
    return other_light(rng, part)


def lay(photo: Array, rgb: Array, mask: Array, middle: Array) -> None:
    """Lay a leaf with its middle at y, x on the photo in place; what is outside is cut."""
    high, wide = mask.shape
    y, x = (round(float(v)) for v in middle - np.array(mask.shape) / 2)
    here = slice(max(y, 0), min(y + high, SIDE)), slice(max(x, 0), min(x + wide, SIDE))
    there = slice(here[0].start - y, here[0].stop - y), slice(here[1].start - x, here[1].stop - x)
    if here[0].stop > here[0].start and here[1].stop > here[1].start:
        photo[here] += (rgb[there] - photo[here]) * mask[there][..., None]


def make_photo(rng: np.random.Generator, leaf: CutLeaf, leaves: Sequence[CutLeaf], photos: Sequence[Array],
               variant: str) -> Array:  # fmt: skip
    """One leaf as the variant shows it, uint8 ``(SIDE, SIDE, 3)``."""
    photo, scene = background(rng, photos, variant), variant in ("scenes", "only")
    for _ in range(int(rng.integers(0, 8)) if scene else 0):  # leaves behind it, out of focus and in shade
        other = leaves[rng.integers(len(leaves))]
        scale = rng.uniform(0.4, 1.1) * SIDE / max(other.mask.shape)
        rgb, mask = turned(other, rng.uniform(0, 360), scale, bool(rng.integers(2)))
        blur = rng.uniform(0.6, 5)
        rgb, mask = cv2.GaussianBlur(rgb, (0, 0), blur), cv2.GaussianBlur(mask, (0, 0), blur)
        lay(photo, other_light(rng, rgb) * rng.uniform(0.4, 1.0), mask, rng.uniform(0, SIDE, 2))
    low, high, off = (0.6, 1.35, 0.1) if scene else (0.75, 1.0, 0.03)
    rgb, mask = turned(leaf, rng.uniform(0, 360), rng.uniform(low, high) * SIDE / max(leaf.mask.shape),
                        bool(rng.integers(2)))  # fmt: skip
    if variant != "paper":
        rgb = other_light(rng, rgb)
    if scene:  # sun and shade on the leaf
        coarse = rng.normal(0, 0.25, (3, 3)).astype(np.float32)
        shade = cv2.resize(coarse, mask.shape[::-1], interpolation=cv2.INTER_CUBIC)
        rgb = rgb * np.exp(shade)[..., None] + np.float32(rng.uniform(0, 18))
    lay(photo, rgb, mask, SIDE * (0.5 + rng.normal(0, off, 2)))
    if scene:
        squeeze = rng.uniform(0.66, 1)
        if rng.random() < 0.5:
            wide = round(SIDE * squeeze)
            at = int(rng.integers(0, SIDE - wide + 1))
            photo = cv2.resize(photo[at : at + wide], (SIDE, SIDE), interpolation=cv2.INTER_LINEAR)
        if rng.random() < 0.4:
            photo = cv2.GaussianBlur(photo, (0, 0), rng.uniform(0.4, 1.3))
    noisy = photo + rng.normal(0, rng.uniform(0, 6), photo.shape)
    return np.clip(noisy, 0, 255).astype(np.uint8)


_shared: list[Any] = []


def _prepare(folder: Path) -> None:
    cv2.setNumThreads(1)
    index = json.loads((folder / "pack.json").read_text())
    rgba = [(read(folder / name), label) for name, label in index["leaves"]]
    leaves = [CutLeaf(a[..., :3], a[..., 3].astype(np.float32) / 255, label) for a, label in rgba]
    field = [name for name, _, split, setting in index["others"] if setting == "field" and split == "train"]
    _shared[:] = [leaves, [read(folder / name) for name in [*index["backgrounds"], *field]]]


def _make(out: Path, variant: str, job: tuple[int, int]) -> list[Any]:
    number, source = job
    leaves, photos = _shared
    rng, label = np.random.default_rng((3, number)), leaves[source].label
    name = f"{label.replace('/', '-')}-{number}.jpg"
    photo = make_photo(rng, leaves[source], leaves, photos, variant)
    cv2.imwrite(str(out / name), photo[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, int(rng.integers(70, 96))])
    return [name, *label.split("/"), f"leaf-{source}", "val" if source % 12 == 0 else "train"]


def make(folder: Path, variant: str, out: Path, processes: int) -> None:
    index = json.loads((folder / "pack.json").read_text())
    out.mkdir(parents=True, exist_ok=True)
    labels = np.array([label for _, label in index["leaves"]])
    jobs = [(1000 * c + n, int(rows[n % len(rows)])) for c, rows in enumerate(
        np.flatnonzero(labels == label) for label in np.unique(labels)) for n in range(MADE)]  # fmt: skip
    with multiprocessing.get_context("spawn").Pool(processes, _prepare, (folder,)) as pool:
        rows = pool.map(partial(_make, out, variant), jobs, chunksize=50)
    if variant != "only":
        rows += [[str((folder / name).absolute()), *label.split("/"), name, split]
                 for name, label, split, _ in index["others"]]  # fmt: skip
    with (out / "manifest.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("path", "crop", "condition", "group", "split"), *rows])


def join(folder: Path, scenes: Path, crop: str) -> None:
    """Write the manifest of all crops, without field photos of this crop and with its scenes."""
    with (folder / "composed.csv").open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if (row["crop"], row["setting"]) != (crop, "field")]
    with (scenes / "manifest.csv").open(newline="", encoding="utf-8") as file:
        rows += [{**dict.fromkeys(rows[0], ""), **row, "path": str((scenes / row["path"]).absolute())}
                 for row in csv.DictReader(file)]  # fmt: skip
    (folder / f"without-{crop}.csv").write_bytes(encode_manifest(rows))


def with_own_statistics(model: ModelFile, paths: Sequence[str]) -> ModelFile:
    """The model with the batch norm statistics of these photos, which need no labels (Schneider et al., 2020)."""
    photos = np.stack([read_photo(path, model.source_side) for path in paths])
    rng, labels = np.random.default_rng(0), np.zeros(BATCH, np.int32)
    shown = identity_augmentation(BATCH, model.source_side, model.size[0])
    with closing(compile_plan(with_loss(model.graph, 0.0, ()), batch=BATCH, training=True,
                              optimizer=Optimizer("sgd"))) as plan:  # fmt: skip
        plan.load(model.weights)
        for _ in range(FORGOTTEN):
            plan.train_step(PhotoBatch(photos[rng.choice(len(photos), BATCH, False)], shown, labels), 0.0)
        return replace(model, weights=plan.weights())


def evaluate(data: Path, models: Sequence[str], split: str, crop: str, own_statistics: bool = False) -> dict[str, Any]:
    """Of the crop's field photos with one known label, what each model says."""
    with (data / "field" / "manifest.csv").open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["crop"] == crop and row["split"] == split]
    result = {}
    for given in models:
        name, path = given.split("=", 1)
        model = read_model(Path(path))
        mine = [row for row in rows if f"{crop}/{row['condition']}" in model.classes]
        truth = np.array([model.classes.index(f"{crop}/{row['condition']}") for row in mine])
        if own_statistics:
            model = with_own_statistics(model, [str(data / "field" / row["path"]) for row in mine])
        words, shares, known_words = [], [], []
        of_the_crop = DecisionRule(model.classes, None, crop=crop)
        with closing(Predictor(model, batch=16)) as predictor:
            for begin in range(0, len(mine), 64):
                paths = [str(data / "field" / row["path"]) for row in mine[begin : begin + 64]]
                photos = np.stack([read_photo(path, model.source_side) for path in paths])
                for found in predictor.predict_calibrated(photos):
                    words.append(predictor.rule.decide(found).word)
                    shares.append(found.probabilities)
                    known = Prediction(*of_the_crop.restrict(found.probabilities, found.familiar))
                    known_words.append(predictor.rule.decide(known).word)
        p, of_crop = np.stack(shares), np.array([crop_of(label) == crop for label in model.classes])
        first, known_first = p.argmax(axis=1), np.where(of_crop, p, -1).argmax(axis=1)
        result[name] = {
            "photos": len(truth), "right": share(first == truth), "crop right": share(of_crop[first]),
            **answers(words, first, truth, model.classes),
            "known crop": {"right": share(known_first == truth),
                           **answers(known_words, known_first, truth, model.classes)},
        }  # fmt: skip
        print(name, json.dumps(result[name]), flush=True)
    return result


def answers(words: Sequence[str], first: Array, truth: Array, classes: Sequence[str]) -> dict[str, Any]:
    """Photos with a class as verdict, how many of these are right, and the share of the wrong without one."""
    said, right = np.array([word in classes for word in words]), first == truth
    return {
        "answered": share(said),
        "answers right": share(right[said]) if said.any() else None,
        "wrong answers refused": 1 - int((said & ~right).sum()) / max(int((~right).sum()), 1),
    }


def share(hits: Array) -> dict[str, Any]:
    return {"share": round(float(hits.mean()), 4), "interval": wilson_interval(int(hits.sum()), len(hits))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("pack", "make", "join", "evaluate"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--crop", default="apple")
    parser.add_argument("--variant", choices=VARIANTS, default="scenes")
    parser.add_argument("--models", nargs="+", default=[], help="name=FILE")
    parser.add_argument("--split", default="field_train")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--scenes", type=Path, help="folder that `make` wrote")
    parser.add_argument("--own-statistics", action="store_true", help="batch norm: of the split's photos")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.command == "pack":
        pack(options.folder, options.crop, options.out)
    elif options.command == "make":
        make(options.folder, options.variant, options.out, options.processes)
    elif options.command == "join":
        join(options.folder, options.scenes, options.crop)
    else:
        found = evaluate(options.folder, options.models, options.split, options.crop, options.own_statistics)
        known = json.loads(options.out.read_text()) if options.out.exists() else {}
        known[options.split] = known.get(options.split, {}) | found
        options.out.write_text(json.dumps(known | {"commit": commit()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
