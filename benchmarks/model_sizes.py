"""Accuracy against bytes: AlexNet and SqueezeNet with and without bypass, in 32 and 8 bits and pruned.

    python -m benchmarks.model_sizes --photos $LEAFCLINIC_DATA/leaves [--where crop=tomato] [--epochs 15]

Every network is trained from scratch by the same settings, all at once on one GPU; accuracy is that of the validation
photos. 8 bits: weights rounded, a scale for each filter. Pruned: the smallest weights of each layer are zero, without
training again, the others in 8 bits; stored with a bit a weight that says which are there.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import Row, write_results
from benchmarks.ship_model import read_part
from core.diagnosis.model_file import ModelFile, read_model
from core.diagnosis.model_identity import BEST
from core.diagnosis.prediction import Predictor

NETWORKS = ("alexnet", *(f"squeezenet{version}{bypass}" for version in ("1_0", "1_1")
                         for bypass in ("", "_bypass", "_complex_bypass")))  # fmt: skip
RATES = {"alexnet": 1e-4}
RATE = 3e-4
"""Of the other networks: Adam's highest learning rate."""
KEPT = (0.7, 0.5, 0.3)
"""Shares of the weights that pruning leaves."""
LARGEST = 127


def train(options: argparse.Namespace, home: Path) -> dict[str, Path]:
    """Model files by network."""
    where = ["--where", options.where] if options.where else []
    running = {}
    for name in options.networks:
        command = [
            sys.executable, "-m", "core.train", "--data", str(options.photos / "manifest.csv"), *where,
            "--model", name, "--epochs", str(options.epochs), "--batch-size", "64", "--optimizer", "adam",
            "--learning-rate", str(RATES.get(name, RATE)), "--schedule", "one_cycle", "--augment", "light",
            "--device", options.device, "--precision", options.precision, "--image-size", str(options.image_size),
            "--no-leaf-tests", "--out", str(home / name),
        ]  # fmt: skip
        with (home / f"{name}.txt").open("w") as log:
            running[name] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    for name, process in running.items():
        if process.wait():
            print(name, (home / f"{name}.txt").read_text("utf-8")[-1500:], flush=True)
    return {name: home / name / BEST for name in running if (home / name / BEST).exists()}


def variants(weights: Mapping[str, Any]) -> dict[str, tuple[dict[str, Any], int]]:
    """(weights as they act, bytes) of each way to store them."""
    whole = sum(array.nbytes for array in weights.values())
    large = {name for name, array in weights.items() if array.ndim > 1}
    small = sum(array.nbytes for name, array in weights.items() if name not in large)
    scales = small + 4 * sum(len(weights[name]) for name in large)
    count = sum(weights[name].size for name in large)
    found = {"float32": (dict(weights), whole)}
    for kept in (1.0, *KEPT):
        changed = {n: in_eight_bits(pruned(a, kept)) if n in large else a for n, a in weights.items()}
        size = scales + (count if kept == 1 else round(kept * count) + count // 8)
        found["8 bits" if kept == 1 else f"8 bits, {100 * kept:.0f} % of the weights"] = changed, size
    return found


def in_eight_bits(array: Any) -> Any:
    step = np.abs(array).reshape(len(array), -1).max(1).reshape(-1, *[1] * (array.ndim - 1)) / LARGEST
    return (np.rint(array / np.maximum(step, 1e-30)) * step).astype(np.float32)


def pruned(array: Any, kept: float) -> Any:
    limit = np.quantile(np.abs(array), 1 - kept)
    return np.where(np.abs(array) >= limit, array, np.float32(0))


def accuracy(model: ModelFile, photos: Any, labels: Any, device: str) -> float:
    predictor = Predictor(model, device=device, batch=128)
    found = predictor.predict(photos)["logits"].argmax(-1)
    predictor.close()
    return float((found == labels).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=Path, required=True)
    parser.add_argument("--where", default="", metavar="COLUMN=VALUE")
    parser.add_argument("--networks", nargs="+", default=NETWORKS)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precision", default="mixed")
    parser.add_argument("--machine", default="")
    options = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as home:
        for name, path in train(options, Path(home)).items():
            model = read_model(path)
            photos = read_part(options.photos, "val", model.classes, model.source_side)
            for kind, (weights, size) in variants(model.weights).items():
                reached = accuracy(replace(model, weights=weights), photos.photos, photos.labels, options.device)
                rows.append(Row(f"{name}, {kind}: accuracy", 100 * reached, {}, "%"))
                rows.append(Row(f"{name}, {kind}: size", size / 1e6, {}, "MB"))
                print(f"{name}, {kind}: {100 * reached:.1f} %, {size / 1e6:.2f} MB", flush=True)
            write_results("model_sizes", rows, options.machine, epochs=options.epochs, where=options.where,
                          photos=len(photos.labels))  # fmt: skip


if __name__ == "__main__":
    main()
