"""Leave out each crop in turn, and one disease of several crops: does a network notice leaves that it does not know?

    python -m benchmarks.join_photos $LEAFCLINIC_DATA --out joined
    python -m benchmarks.left_out joined --weights $LEAFCLINIC_DATA/weights/mobilenetv2_1.0_224.onnx --device cuda \
        --gpus 2 --processes 12 --seeds 0 1 2 --out benchmarks/results/left_out.json

Networks of the recipe of the shipped model's second one, at 224 pixels, are trained without the photos of each part.
Scores of familiarity (`benchmarks.unknown_crops`) are compared on the part's photos, of which none was trained on, and
on validation leaves of all other classes; also of the first two networks side by side, as the shipped model is made.
`--outliers`: the first network is trained further on its own photos and on outliers, whose target is the same
probability for each class (Hendrycks et al., "Deep anomaly detection with outlier exposure", 2019): generated pictures,
or photos of other crops that are never evaluated here. Reads no test split.
On two H200, twelve trainings at once, a seed takes six and a half minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

from benchmarks.adaptation import decide
from benchmarks.diagnosis import read_squares
from benchmarks.join_networks import join
from benchmarks.pack_photos import chosen_rows, encode_manifest
from benchmarks.record import commit
from benchmarks.ship_model import name_of
from benchmarks.unknown_crops import compare, compute, scores
from core.data.augment import draw_augmentation
from core.data.photo import square
from core.device import Optimizer, PhotoBatch
from core.diagnosis.calibration import crop_of, fit_temperature
from core.diagnosis.completion import sample_per_class, with_thresholds
from core.diagnosis.familiarity import fit_familiarity
from core.diagnosis.features import NetworkOutputs
from core.diagnosis.model_file import ModelFile, read_model, with_photo_side
from core.diagnosis.pictures_without_leaf import SCRAMBLED, draw
from core.diagnosis.verdict import is_healthy
from core.ops.builder import with_loss
from core.ops.contract import Array
from core.optim.learning_rate import one_cycle
from core.plan import compile_plan
from core.program import fold_batch_norm, fold_weights

Row = dict[str, str]
SIDE: Final = 224
DRAWS: Final = 2
"""Parts that leave out one disease, drawn by seed, of each crop with at least three classes."""
PER_CLASS: Final = 60
LEFT: Final = 300
GENERATED: Final = 450
STEPS: Final = 300
KNOWN, OUTLIERS = 48, 16
"""Photos of a batch that trains on outliers."""
RATE: Final = 1e-4
VIM: Final = "ViM, 128 dimensions"
SPREADS: Final = "spreads of bottlenecks"
PROGRAM: Final = "familiarity in the program"
SCORES: Final = ("probability", "energy", "nearest photos", "relative Mahalanobis", VIM, SPREADS, PROGRAM)


def find_parts(rows: Sequence[Row]) -> dict[str, tuple[str, ...]]:
    """The classes that are left out, by the part's name."""
    names = sorted({name_of(row) for row in rows if row["split"] in ("train", "val") and row["crop"] != "background"})
    crops = {crop: [name for name in names if crop_of(name) == crop] for crop in sorted({crop_of(n) for n in names})}
    parts = {crop: tuple(own) for crop, own in crops.items()}
    for seed in range(DRAWS):
        rng = np.random.default_rng(seed)
        sick = [[name for name in own if not is_healthy(name)] for own in crops.values() if len(own) >= 3]
        parts[f"diseases {seed}"] = tuple(str(rng.choice(own)) for own in sick)
    return parts


def train(
    photos: Path, part: str, left: Sequence[str], options: argparse.Namespace, seed: int, out: Path
) -> ModelFile:
    manifest = photos.absolute() / f"without-{part.replace(' ', '-')}.csv"
    rows = [row for row in chosen_rows(photos / "manifest.csv", ["train", "val"]) if name_of(row) not in left]
    manifest.write_bytes(encode_manifest(rows, end="\r\n"))
    subprocess.run([
        sys.executable, "-m", "core.train", "--data", str(manifest), "--preset", "leaves-field", "--seed", str(seed),
        "--from", str(options.weights), "--input-normalization", "tensorflow",
        "--image-size", str(options.image_size), "--eval-size", str(options.image_size + 32),
        "--epochs", str(options.epochs), "--validate-every", str(options.epochs), "--test", "0", "--leaf-tests", "no",
        "--device", options.device, *(("--precision", "float32") if options.device == "cpu" else ()), "--out", str(out),
    ], check=True, stdout=subprocess.DEVNULL)  # fmt: skip
    manifest.unlink()
    return read_model(out)


def side_by_side(
    first: ModelFile, second: ModelFile, photos: Photos, device: str
) -> tuple[ModelFile, NetworkOutputs]:
    """Both networks joined, with thresholds of the known leaves, and the outputs."""
    model = join(first, second, first.size[0], "joined")
    known, own = photos.rows["known"], photos.rows["own"]
    seen = compute(model, photos.pixels, device)
    model = replace(model, temperature=fit_temperature(seen.logits[known], photos.labels[known]))
    parts = [(seen.take(rows), photos.labels[rows]) for rows in (own, known)]
    return with_thresholds(model, *parts[0], *parts[1]), seen


def expose(model: ModelFile, photos: Array, labels: Array, outliers: Array, device: str) -> ModelFile:
    """The model, trained further on photos and outliers, uint8 ``(N, side, side, 3)``."""
    graph, classes = fold_batch_norm(model.graph), len(model.classes)
    targets = np.r_[np.eye(classes, dtype=np.float32)[labels],
                    np.full((len(outliers), classes), 1 / classes, np.float32)]  # fmt: skip
    both, rng = np.concatenate((photos, outliers)), np.random.default_rng(0)
    places = [np.flatnonzero(labels == index) for index in np.unique(labels)]
    with closing(compile_plan(
        with_loss(with_photo_side(graph, SIDE), 0.0, (), targets=True), device=device, batch=KNOWN + OUTLIERS,
        training=True, optimizer=Optimizer("adamw", weight_decay=1e-2),
    )) as plan:  # fmt: skip
        plan.load(fold_weights(model.graph, model.weights))
        for step in range(STEPS):
            known = [int(rng.choice(places[i])) for i in rng.integers(0, len(places), KNOWN)]
            rows = np.r_[known, len(photos) + rng.integers(0, len(outliers), OUTLIERS)]
            shown = draw_augmentation("soft", 0, step, rows, both.shape[1], SIDE, np.arange(len(rows)))
            labelled = targets[rows].argmax(axis=1).astype(np.int32)
            plan.train_step(PhotoBatch(both[rows], shown, labelled, targets=targets[rows]),
                            RATE * one_cycle(step, STEPS // 10, STEPS))  # fmt: skip
        return replace(model, graph=graph, weights=plan.weights())


@dataclass(frozen=True, eq=False)
class Photos:
    """Photos uint8 ``(N, side, side, 3)``, their classes (-1: left out or unknown) and names, and rows by kind.

    own: trained on; known: validation leaves; left: of the part; other: of crops that are never evaluated here.
    """

    pixels: Array
    labels: Array
    names: Array
    rows: dict[str, Array]


def read_parts(photos: Path, model: ModelFile, left: Sequence[str]) -> Photos:
    rows, rng = chosen_rows(photos / "manifest.csv", ["train", "val", "unknown"]), np.random.default_rng(0)
    names, split = np.array([name_of(row) for row in rows]), np.array([row["split"] for row in rows])
    labels = np.array([model.classes.index(name) if name in model.classes else -1 for name in names])
    leaf = (labels >= 0) & (split != "unknown") & np.array([row["crop"] != "background" for row in rows])
    own = np.flatnonzero(leaf & (split == "train"))
    mixed = rng.permutation(np.flatnonzero(np.isin(names, left) & (split != "unknown")))
    crops = {crop_of(name) for name in left}
    kinds = {
        "own": own[sample_per_class(labels[own], PER_CLASS, 0)],
        "known": np.flatnonzero(leaf & (split == "val")),
        "left": np.concatenate([mixed[names[mixed] == name][: -(-LEFT // len(left))] for name in left]),
        "other": np.flatnonzero((split == "unknown") & np.array([row["crop"] not in crops for row in rows])),
    }
    order = np.concatenate(list(kinds.values()))
    places = np.split(np.arange(len(order)), np.cumsum([len(kind) for kind in kinds.values()])[:-1])
    pixels = read_squares(photos, [rows[i] for i in order], model.source_side)
    return Photos(pixels, labels[order], names[order], dict(zip(kinds, places, strict=True)))


def make_pictures(photos: Photos) -> Array:
    rng, side = np.random.default_rng(0), photos.pixels.shape[1]
    scenes = (photos.pixels[rng.choice(photos.rows["own"])] if rng.random() < SCRAMBLED else None
              for _ in range(GENERATED))  # fmt: skip
    return np.stack([square(draw(rng, scene), side) for scene in scenes])


def measure(
    model: ModelFile, seen: NetworkOutputs, photos: Photos, groups: dict[str, Array], kept: Sequence[str]
) -> dict[str, Any]:
    known, own = photos.rows["known"], photos.rows["own"]
    assert seen.features is not None
    tempered = replace(model, temperature=fit_temperature(seen.logits[known], photos.labels[known]))
    found = scores(tempered, seen.logits, seen.features, photos.labels, own)
    fitted = fit_familiarity(seen.take(own), photos.labels[own], seen.take(known), tempered.temperature)
    assert fitted.spreads is not None
    assert seen.spreads is not None
    found |= {SPREADS: fitted.spreads.score(seen.spreads), PROGRAM: fitted.measure(seen)}
    correct = float((seen.logits[known].argmax(axis=1) == photos.labels[known]).mean())
    return {"known, correct": correct, **compare({name: found[name] for name in kept}, known, groups)}


def evaluate(
    photos: Photos, model: ModelFile, seen: NetworkOutputs, left: Sequence[str], device: str,
    outliers: bool = False,
) -> dict[str, Any]:  # fmt: skip
    rows, names = photos.rows["left"], photos.names
    groups = {"all": rows}
    if len({crop_of(name) for name in left}) > 1:
        groups |= {name: rows[names[rows] == name] for name in left}
    result: dict[str, Any] = {"photos": {name: len(part) for name, part in groups.items()},
                              "network": measure(model, seen, photos, groups, SCORES)}  # fmt: skip
    for kind in ("known", "left"):
        verdicts = decide(model, seen.take(photos.rows[kind]))[0]
        result[f"{kind}, diagnosed"] = float(np.mean([verdict.is_class for verdict in verdicts]))
    own = photos.rows["own"]
    strange = {"generated": make_pictures(photos), "real": photos.pixels[photos.rows["other"]]} if outliers else {}
    for kind, pictures in strange.items():
        further = expose(model, photos.pixels[own], photos.labels[own], pictures, device)
        kept, found = ("energy", VIM), compute(further, photos.pixels, device)
        result[f"trained further on {kind} outliers"] = measure(further, found, photos, groups, kept)
    return result


def run_part(options: argparse.Namespace, part: str) -> dict[str, Any]:
    left, models = find_parts(chosen_rows(options.photos / "manifest.csv", ["train", "val"]))[part], {}
    with TemporaryDirectory() as home:
        for seed in options.seeds:
            models[f"seed {seed}"] = train(options.photos, part, left, options, seed, Path(home) / f"run-{seed}")
    first, second, *_ = [*models.values(), None, None]
    photos = read_parts(options.photos, first, left)
    pixels, device = photos.pixels, options.device
    seen = {name: (model, compute(model, pixels, device)) for name, model in models.items()}
    if second:
        seen["two side by side"] = side_by_side(first, second, photos, device)
    return {name: evaluate(photos, model, outputs, left, device, options.outliers and model is first)
            for name, (model, outputs) in seen.items()}  # fmt: skip


def run_all(options: argparse.Namespace) -> Iterator[tuple[str, Any]]:
    """Each part in a process of its own, several at once on each GPU."""
    parts = options.parts or list(find_parts(chosen_rows(options.photos / "manifest.csv", ["train", "val"])))
    command = [sys.executable, "-m", "benchmarks.left_out", str(options.photos), "--weights", str(options.weights),
               "--device", options.device, "--epochs", str(options.epochs), "--seeds", *map(str, options.seeds),
               "--image-size", str(options.image_size), *(["--outliers"] if options.outliers else [])]  # fmt: skip

    def start(at: int, part: str) -> tuple[str, Any]:
        visible = os.environ | ({"CUDA_VISIBLE_DEVICES": str(at % options.gpus)} if options.gpus > 1 else {})
        done = subprocess.run([*command, "--part", part], env=visible, stdout=subprocess.PIPE, check=True)
        return part, json.loads(done.stdout)

    with ThreadPoolExecutor(options.processes) as pool:
        for future in as_completed(pool.submit(start, at, part) for at, part in enumerate(parts)):
            yield future.result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path, help="a folder of benchmarks.join_photos")
    parser.add_argument("--weights", type=Path, required=True, help="ONNX file of a MobileNetV2 for ImageNet")
    parser.add_argument("--part", default="", help="one part only, whose result is printed")
    parser.add_argument("--parts", nargs="+", help="default: all")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--image-size", type=int, default=SIDE, help="of training; outputs are of photos 32 px larger")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--outliers", action="store_true", help="train the first network further on outliers")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.part:
        print(json.dumps(run_part(options, options.part)))
        return
    results: dict[str, Any] = {
        "commit": commit(), "machine": platform.machine(), "epochs": options.epochs,
        "note": "each group: AUROC, FPR at 95 % TPR, share refused where 3 % of known leaves are", "parts": {},
    }  # fmt: skip
    for part, found in run_all(options):
        results["parts"][part] = found
        options.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
