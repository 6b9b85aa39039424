"""Several labels per photo: apple leaves in orchards, from the weights of the shipped model.

    python -m benchmarks.several_labels train --out /tmp/labels   # all candidates and seeds at once, on one GPU
    python -m benchmarks.several_labels train --out /tmp/small --start small --candidates plain --device cpu
    python -m benchmarks.several_labels test --out /tmp/labels    # the chosen candidate

Photos: all apple photos in $LEAFCLINIC_DATA/field, 12 label sets of 6 labels; `complex` (upstream's word for too many
diseases to tell apart) is a label like the others. Part `field_train` is split by group as for the shipped model, so
that its validation photos are none that the shipped model was trained on.

Rule, written before training: the candidate with the highest mean average precision on the validation photos, as the
mean over the seeds, is chosen. Its model of each seed, in half precision with the thresholds of its validation photos,
reads `field_test` once. Wanted: a mean F1 of the labels of 0.75.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np

from benchmarks.join_photos import VALIDATION_SHARE, share_of
from benchmarks.record import Row, make_row, write_results
from core.data.cache import open_cache
from core.data.source import open_photos
from core.diagnosis.calibration import label_thresholds
from core.diagnosis.metrics import Metrics, compute_metrics
from core.diagnosis.model_file import ModelFile, in_bits, read_model, write_model
from core.diagnosis.prediction import Predictor
from core.training.events import read_history

SEEDS = (0, 1, 2)
ALL = {"epochs": 30, "batch-size": 32, "optimizer": "adamw", "learning-rate": 3e-4, "weight-decay": 0.01,
       "clip-norm": 2.0, "dropout": 0.2, "ema-decay": 0.99, "precision": "mixed"}  # fmt: skip
ON_CPU = {"epochs": 20, "precision": "float32", "threads": 1}
CANDIDATES = {"plain": {}, "mixed": {"mix": 0.5}, "sampled": {"mix": 0.5, "sampling": "sqrt"}}
WANTED = 0.75
CHOICE = "choice.json"


def write_manifest(target: Path, parts: tuple[str, ...]) -> Path:
    """The apple photos of these parts, of `field_train` split by group, with absolute paths."""
    source = Path(os.environ["LEAFCLINIC_DATA"]).absolute() / "field" / "manifest.csv"
    with source.open(newline="", encoding="utf-8") as file, target.open("w", newline="", encoding="utf-8") as out:
        rows = csv.writer(out)
        rows.writerow(("path", "label", "group", "split"))
        for row in csv.DictReader(file):
            if row["crop"] == "apple" and row["split"] in parts:
                part = "val" if share_of(row["group"]) < VALIDATION_SHARE else "train"
                split = part if row["split"] == "field_train" else "test"
                rows.writerow((source.parent / row["path"], f"apple/{row['condition']}", row["group"], split))
    return target


def train(out: Path, start: str, candidates: Sequence[str], device: str) -> None:
    """Train every candidate with every seed, on a CPU one after another; write the models of the chosen one."""
    manifest = write_manifest(out / "train.csv", ("field_train",))
    runs = {f"{name}-{seed}": out / f"{name}-{seed}" for name in candidates for seed in SEEDS}
    started = []
    for run, folder in runs.items():
        name, seed = run.rsplit("-", 1)
        settings = ALL | CANDIDATES[name] | (ON_CPU if device == "cpu" else {})
        options = [f"--{key}={value}" for key, value in settings.items()]
        command = [sys.executable, "-m", "core.train", "--data", str(manifest), "--from", start, "--labels", "multi",
                   "--seed", seed, "--device", device, "--no-leaf-tests", "--out", str(folder), *options]  # fmt: skip
        log = (out / f"{run}.log").open("w", encoding="utf-8")
        started.append(subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT))
        if device == "cpu":
            started[-1].wait()
    for process in started:
        process.wait()
    epochs = {run: read_history(folder / "events.jsonl").epochs for run, folder in runs.items()}
    figures = {run: {"average_precision": best.average_precision, "mean_f1": best.mean_f1, "epoch": best.epoch + 1}
               for run, found in epochs.items() for best in found if best.best}  # fmt: skip
    means = {name: float(np.mean([figures[f"{name}-{seed}"]["average_precision"] for seed in SEEDS]))
             for name in candidates}  # fmt: skip
    chosen = max(means, key=lambda name: means[name])
    for seed in SEEDS:
        write_model(out / f"{seed}.safetensors", in_bits(read_model(runs[f"{chosen}-{seed}"]), 16))
    choice = {"start": start, "chosen": chosen, "validation": figures, "average_precision": means}
    (out / CHOICE).write_text(json.dumps(choice, indent=1), encoding="utf-8")
    print(json.dumps(choice, indent=1))


def test(out: Path, machine: str) -> None:
    """Read the test photos once with the chosen model of each seed that is there."""
    dataset = open_photos(str(write_manifest(out / "test.csv", ("field_test",))), label="label")
    seeds = sorted(int(path.stem) for path in out.glob("[0-9].safetensors"))
    found = [measure(read_model(out / f"{seed}.safetensors"), dataset) for seed in seeds]
    rows = []
    for name, values in (
        ("mean F1", [all_photos.macro_f1 for all_photos, _ in found]),
        ("mean average precision", [f.several.average_precision for f, _ in found if f.several]),
        ("all labels right", [all_photos.accuracy for all_photos, _ in found]),
        ("mean F1 of the five named conditions, photos without complex", [named.macro_f1 for _, named in found]),
    ):
        wanted = {"wanted": WANTED} if name == "mean F1" else {}
        mean = float(np.mean(values))
        rows.append(make_row(name, mean, wanted, "share"))
        each = zip(seeds, values, strict=True) if len(seeds) > 1 else ()
        rows += [Row(f"{name}, seed {seed}", value, {}, "share") for seed, value in each]
    labels = [
        {"seed": seed, "label": c.label, "photos": c.photos, "precision": c.precision, "recall": c.recall, "f1": c.f1}
        for seed, (figures, _) in zip(seeds, found, strict=True) for c in figures.per_class
    ]  # fmt: skip
    choice = json.loads((out / CHOICE).read_text("utf-8"))
    write_results("several_labels", rows, machine, settings=ALL | CANDIDATES[choice["chosen"]], **choice, labels=labels)


def measure(model: ModelFile, dataset) -> tuple[Metrics, Metrics]:  # noqa: ANN001
    """Metrics on all photos, and those of the other labels on the photos that do not have the label `complex`."""
    cache = open_cache(dataset, model.source_side)
    with closing(Predictor(model, batch=32)) as predictor:
        stated = predictor.probabilities(cache.gather(cache.kept))
    logits, thresholds = np.log(stated) - np.log1p(-stated), label_thresholds(model)
    labels, tangled = dataset.labels_among(model.classes, multi=True)[cache.kept], model.classes.index("apple/complex")
    named = np.flatnonzero(np.arange(len(model.classes)) != tangled)
    rows, five = np.flatnonzero(~labels[:, tangled]), [model.classes[at] for at in named]
    return (compute_metrics(logits, labels, model.classes, thresholds),
            compute_metrics(logits[rows][:, named], labels[rows][:, named], five, thresholds[named]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=("train", "test"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--start", default="leaves", help="model whose weights training starts from")
    parser.add_argument("--candidates", nargs="+", default=list(CANDIDATES), choices=CANDIDATES)
    parser.add_argument("--device", default="cuda", help="to train on")
    parser.add_argument("--machine", default="", help="short name of the machine that trained, for the file")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.stage == "train":
        train(options.out, options.start, options.candidates, options.device)
    else:
        test(options.out, options.machine)


if __name__ == "__main__":
    main()
