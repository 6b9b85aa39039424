"""From scratch on few photos: the preset `gpu` on 631 orchard photos of four apple conditions.

    python -m benchmarks.few_photos

Only part `field_train` of the photos in $LEAFCLINIC_DATA/field is read, split by group. Without steps fitted to the
number of photos, this run stayed at chance.
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.record import Row, gpu_name, make_row, write_results
from core.training.events import LOG, RunFinished, read_events, read_history

CONDITIONS = ("black_rot", "healthy", "powdery_mildew", "scab")
WANTED = 0.8


def write_manifest(source: Path, target: Path) -> None:
    """The chosen rows of the field photos' manifest, with absolute paths."""
    with source.open(newline="", encoding="utf-8") as file:
        rows = [
            (source.parent / row["path"], row["condition"], row["group"]) for row in csv.DictReader(file)
            if row["crop"] == "apple" and row["split"] == "field_train" and row["condition"] in CONDITIONS
        ]  # fmt: skip
    with target.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("path", "label", "group"), *rows])


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    with tempfile.TemporaryDirectory() as home:
        manifest, out = Path(home) / "apple.csv", Path(home) / "run"
        write_manifest(Path(os.environ["LEAFCLINIC_DATA"]) / "field" / "manifest.csv", manifest)
        command = [sys.executable, "-m", "core.train", "--data", str(manifest), "--preset", "gpu", "--no-leaf-tests",
                   "--out", str(out)]  # fmt: skip
        subprocess.run(command, check=True)
        epochs = read_history(out / LOG).epochs
        (end,) = read_events(out / LOG, (RunFinished,))
    assert isinstance(end, RunFinished)
    assert end.test_accuracy is not None
    rows = [
        make_row("preset gpu, test accuracy", end.test_accuracy, {"wanted": WANTED}, "share"),
        Row("seconds of the run", end.seconds, {}, "s"),
    ]
    losses = [round(event.train_loss, 3) for event in epochs[:: max(len(epochs) // 20, 1)]]
    write_results("few_photos", rows, gpu_name(), train_loss=losses)


if __name__ == "__main__":
    main()
