"""A user's own small set: some photos a class of one crop, from learned weights and from scratch, interleaved.

    python -m benchmarks.transfer $LEAFCLINIC_DATA/leaves/manifest.csv --crop citrus --from resources/models/...
        [--input-normalization caffe] [--each 50] [--seeds 0 1 2] [--evaluate-on test] [--preset transfer]
        [--train-layers last]

Of each class's photos for training 4 in 5 are learned and the rest validates; all photos of the test split (or, while
recipes are tried, of the validation split: `--evaluate-on val`) measure the end. Time is that of the whole run. On two
cores, a seed of citrus took 100 s from a SqueezeNet and from scratch, 141 s from `leaves` alone.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
import time
from pathlib import Path

from benchmarks.pack_photos import encode_manifest
from benchmarks.record import Row, write_results
from core.config import RunConfig, from_dict
from core.training.events import RunFinished
from core.training.presets import PRESETS
from core.training.trainer import Trainer

GAIN = 10.0
"""Points of accuracy that learned weights must bring."""
LIMIT = 180.0
"""Seconds that the run may take on two cores."""
FROM_SCRATCH = {"model": "squeezenet1_1_bn", "image_size": 224, "train_layers": "all", "learning_rate": 1e-3}


def write_small_set(source: Path, crop: str, each: int, split: str, target: Path) -> None:
    """A manifest of the first photos of every class, by group, and of the split to evaluate on."""
    with source.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["crop"] == crop]
    chosen = [{**row, "split": "test"} for row in rows if row["split"] == split]
    for condition in sorted({row["condition"] for row in rows}):
        mine = [row for row in rows if row["condition"] == condition and row["split"] == "train"]
        mine.sort(key=lambda row: row["group"])
        for i, row in enumerate(mine[:each]):
            chosen.append({**row, "split": "train" if i < 0.8 * min(each, len(mine)) else "val"})
    rows = [{**row, "path": str(source.parent.absolute() / row["path"])} for row in chosen]
    target.write_bytes(encode_manifest(rows, ("path", "condition", "group", "split"), end="\r\n"))


def train(config: RunConfig) -> tuple[float, float]:
    """Accuracy in per cent, and seconds from the command to the finished model."""
    begin = time.perf_counter()
    for event in Trainer(config).run():
        last = event
    assert isinstance(last, RunFinished)
    return 100 * (last.test_accuracy or 0.0), time.perf_counter() - begin


def measure(options: argparse.Namespace, seed: int) -> tuple[float, float, float, float]:
    """Accuracy (per cent) and seconds from learned weights and from scratch, NaN where that is left out."""
    changes = {k: type(getattr(RunConfig(), k))(v) for k, v in (s.split("=") for s in options.set)}
    with tempfile.TemporaryDirectory() as folder:
        manifest = Path(folder) / "photos.csv"
        write_small_set(options.manifest, options.crop, options.each, options.evaluate_on, manifest)
        common = {**PRESETS[options.preset].values, **changes, "preset": options.preset, "data": str(manifest),
                  "label": "condition", "seed": seed}
        which = {"train_layers": options.train_layers} if options.train_layers else {}
        learned, seconds = train(from_dict({
            **common, **which, "start": options.start, "start_colours": options.input_normalization,
            "out": f"{folder}/transfer"}))
        print(f"seed {seed}: from {Path(options.start).name} {learned:.1f} % in {seconds:.0f} s", flush=True)
        if options.without_scratch:
            return learned, seconds, float("nan"), float("nan")
        scratch, other = train(from_dict({**common, **FROM_SCRATCH, "out": f"{folder}/scratch"}))
        print(f"seed {seed}: from scratch {scratch:.1f} % in {other:.0f} s", flush=True)
        return learned, seconds, scratch, other


def rows_of(name: str, found: dict[int, tuple[float, float, float, float]]) -> list[Row]:
    """Each seed, and all of them: mean accuracies and the longest time."""
    rows = []
    for seed, (learned, seconds, scratch, other) in found.items():
        gain = learned - scratch
        rows.append(Row(f"{name} seed {seed} accuracy", learned, {"scratch": scratch, "wanted": scratch + GAIN}, "%",
                        gain / GAIN))
        rows.append(Row(f"{name} seed {seed} time", seconds, {"scratch": other, "wanted": LIMIT}, "s", LIMIT / seconds))
    learned, _, scratch, _ = (sum(column) / len(found) for column in zip(*found.values(), strict=True))
    longest = max(seconds for _, seconds, _, _ in found.values())
    gain = learned - scratch
    rows.append(Row(f"{name} accuracy", learned, {"scratch": scratch, "wanted": scratch + GAIN}, "%", gain / GAIN))
    rows.append(Row(f"{name} time", longest, {"wanted": LIMIT}, "s", LIMIT / longest))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("manifest", type=Path)
    parser.add_argument("--crop", default="citrus")
    parser.add_argument("--from", dest="start", required=True)
    parser.add_argument("--input-normalization", default="auto")
    parser.add_argument("--train-layers", default="", help="instead of the preset's")
    parser.add_argument("--preset", default="transfer")
    parser.add_argument("--each", type=int, default=50)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--evaluate-on", choices=("val", "test"), default="val")
    parser.add_argument("--without-scratch", action="store_true", help="print only, while recipes are tried")
    parser.add_argument("--set", nargs="*", default=[], metavar="FIELD=VALUE", help="other values than the preset's")
    options = parser.parse_args()
    found: dict[int, tuple[float, float, float, float]] = {}
    for seed in options.seeds:
        found[seed] = measure(options, seed)
        if not options.without_scratch:  # after every seed: what was measured stays, whatever ends the rest
            write_results(
                f"transfer-{options.crop}", rows_of(f"transfer {options.crop} {options.each} a class", found),
                evaluated_on=options.evaluate_on, start=Path(options.start).name, preset=options.preset,
                seeds=list(found),
            )


if __name__ == "__main__":
    main()
