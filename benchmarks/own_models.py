"""Models of one crop, trained with and without generated pictures without a leaf: what they say about other photos.

    python -m benchmarks.join_photos $LEAFCLINIC_DATA --out joined
    python -m benchmarks.own_models joined --out benchmarks/results/own_models.json
    python -m benchmarks.own_models joined --recipes gpu tomato-cpu --seeds 0 1 --device cuda --out FILE.json

Each crop is trained with the preset `transfer` from the shipped model `small`, which knows the other crops, and from
scratch with the presets `gpu` and `tomato-cpu`. Own photos, leaves of other crops, unknown crops and scenes without a
leaf are validation photos. Reads no test split. On an H200, twelve trainings side by side took
four minutes.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.join_photos import UNKNOWN
from benchmarks.pack_photos import chosen_rows, encode_manifest
from benchmarks.record import commit
from benchmarks.ship_model import name_of
from core.data.photo_reader import read_photo
from core.diagnosis.model_file import read_model
from core.diagnosis.prediction import Predictor
from core.diagnosis.verdict import NO_LEAF, NOT_SURE

Row = dict[str, str]
RECIPES = {
    "transfer from small": ("--preset", "transfer", "--from", "small"),
    "gpu": ("--preset", "gpu"),
    "tomato-cpu": ("--preset", "tomato-cpu"),
}
CROPS, SHARES = ("bean", "citrus"), (0.0, 0.1)
"""Of the trainings; shares of pictures without a leaf."""
PHOTOS = 150
"""Photos of each kind, by seed."""


def train(manifest: Path, crop: str, out: Path, *options: str) -> None:
    command = [sys.executable, "-m", "core.train", "--data", str(manifest), "--where", f"crop={crop}", *options]
    command += ["--test", "0", "--leaf-tests", "no", "--cache", str(out.parent / "cache"), "--out", str(out)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def choose(rows: list[Row], crop: str) -> dict[str, list[Row]]:
    """Validation photos by kind: of this crop, of other crops, of unknown crops, and without a leaf."""
    kinds: dict[str, Callable[[Row], bool]] = {
        "own": lambda row: row["crop"] == crop and row["split"] == "val",
        "other crops": lambda row: row["crop"] not in (crop, "background") and row["split"] == "val",
        "unknown crops": lambda row: row["crop"] in UNKNOWN and row["split"] == "unknown",
        "scenes": lambda row: row["crop"] == "background" and row["split"] == "val",
    }
    rng, found = np.random.default_rng(1), {}
    for name, belongs in kinds.items():
        own = [row for row in rows if belongs(row)]
        found[name] = [own[i] for i in rng.permutation(len(own))[:PHOTOS]]
    return found


def evaluate(root: Path, run: Path, kinds: dict[str, list[Row]]) -> dict[str, dict[str, float]]:
    """Shares of the photos of each kind: diagnosed with a class, said to show no leaf, and correct."""
    model, found = read_model(run), {}
    with closing(Predictor(model, batch=16)) as predictor:
        for kind, rows in kinds.items():
            photos = np.stack([read_photo(str(root / row["path"]), model.source_side) for row in rows])
            words = [predictor.rule.decide(one).word for one in predictor.predict_calibrated(photos)]
            found[kind] = {
                "photos": len(rows),
                "diagnosed": float(np.mean([word not in (NOT_SURE, NO_LEAF) for word in words])),
                "no leaf": float(np.mean([word == NO_LEAF for word in words])),
                "correct": float(np.mean([word == name_of(row) for word, row in zip(words, rows, strict=True)])),
            }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path, help="a folder of benchmarks.join_photos")
    parser.add_argument("--recipes", nargs="+", choices=RECIPES, default=["transfer from small"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    rows = chosen_rows(options.photos / "manifest.csv", ["train", "val", "unknown"])
    results: dict[str, object] = {"commit": commit(), "machine": platform.machine()}
    with TemporaryDirectory() as home:
        manifest = options.photos.absolute() / "own.csv"
        manifest.write_bytes(encode_manifest([row for row in rows if row["split"] in ("train", "val")], end="\r\n"))
        kinds = {crop: choose(rows, crop) for crop in CROPS}
        for crop, name, seed, share in product(CROPS, options.recipes, options.seeds, SHARES):
            title, out = f"{crop}, {name}, {share:g}, seed {seed}", Path(home) / f"run-{len(results)}"
            how = ("--device", options.device, "--pictures-without-leaf", str(share), "--seed", str(seed))
            train(manifest, crop, out, *RECIPES[name], *how)
            results[title] = evaluate(options.photos, out, kinds[crop])
            print(title, json.dumps(results[title]), flush=True)
            options.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        manifest.unlink()


if __name__ == "__main__":
    main()
