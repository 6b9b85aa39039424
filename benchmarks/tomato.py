"""Ten tomato conditions from scratch: ``python -m benchmarks.tomato [--device cuda] [--minutes M] [--seeds 0 1 2]``.

Trains the preset `tomato-cpu`, or `tomato-gpu` (MobileNetV2), on the tomato photos of LEAFCLINIC_DATA with the pack's
own split, one seed after the other, and reads the test split once per seed. Beside the accuracy is the border baseline
(`core.diagnosis.background_dependence`), measured on the run's own split; the pack states 63.7 %.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.record import Row, write_results
from core.training.events import LOG, RunEvaluated, RunFinished, read_events

WANTED = {"cpu": 0.90, "cuda": 0.98}
PRESET = {"cpu": "tomato-cpu", "cuda": "tomato-gpu"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", choices=tuple(PRESET))
    parser.add_argument("--machine", default="", help="short name of the machine, for the file")
    parser.add_argument("--minutes", type=float, default=18.0, help="training time a seed may take")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args()
    manifest = Path(os.environ["LEAFCLINIC_DATA"]) / "leaves" / "manifest.csv"
    rows = []
    with tempfile.TemporaryDirectory() as home:
        for seed in options.seeds:
            rows += train(manifest, Path(home) / f"seed{seed}", options.device, seed, options.minutes)
            name = "tomato_cpu" if options.device == "cpu" else "tomato"
            write_results(name, rows, options.machine, minutes_allowed=options.minutes)
    return 0


def train(manifest: Path, out: Path, device: str, seed: int, minutes: float) -> list[Row]:
    """One seed: test accuracy over the wanted one, and the minutes it took under the twenty allowed."""
    command = [
        sys.executable, "-m", "core.train", "--data", str(manifest), "--where", "crop=tomato",
        "--preset", PRESET[device], "--device", device, "--seed", str(seed), "--minutes", str(minutes),
        "--out", str(out),
    ]  # fmt: skip
    subprocess.run(command, check=True)
    evaluated, end = read_events(out / LOG, (RunEvaluated, RunFinished))
    assert isinstance(evaluated, RunEvaluated)
    assert isinstance(end, RunFinished)
    assert end.test_accuracy is not None
    name = f"train {PRESET[device]} seed {seed}"
    accuracy = end.test_accuracy
    return [
        Row(f"{name} test accuracy", accuracy, {"border": evaluated.border}, "share", accuracy / WANTED[device]),
        Row(f"{name} minutes", end.seconds / 60, {}, "min", 20 / (end.seconds / 60)),
    ]


if __name__ == "__main__":
    sys.exit(main())
