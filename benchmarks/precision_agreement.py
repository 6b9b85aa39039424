"""Whether mixed precision ends where float32 ends: the same trainings by both, three seeds each, on one GPU.

    python -m benchmarks.precision_agreement --data leaves/manifest.csv [--together 3] [option of core.train ...]

The final epoch's validation accuracy of each; asked: the means within 0.5 points.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.record import Row, gpu_name, make_row, write_results
from core.training.events import EpochDone, from_line

PRECISIONS = ("float32", "mixed")
RECIPE = ("--preset", "leaves-fast", "--image-size", "128", "--eval-size", "0", "--epochs", "40",
          "--validate-every", "40")
WITHIN = 0.5
"""Points."""


def train(manifest: str, home: Path, precision: str, seed: int, changes: list[str]) -> float:
    """Validation accuracy after the last epoch, percent. The run ends there: no model file is completed."""
    out = home / f"{precision}-{seed}"
    command = [
        sys.executable, "-m", "core.train", "--data", manifest, "--test", "0", "--cache", str(home / "cache"), *RECIPE,
        "--precision", precision, "--seed", str(seed), "--out", str(out), "--json", *changes,
    ]  # fmt: skip
    last: EpochDone | None = None
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        epochs = 0
        for line in process.stdout:
            if '"RunStarted"' in line:
                epochs = from_line(line).epochs  # type: ignore[union-attr]
            if '"EpochDone"' in line:
                event = from_line(line)
                assert isinstance(event, EpochDone)
                last = event
                if event.epoch + 1 == epochs:
                    break
        process.kill()
    assert last is not None
    assert last.epoch + 1 == epochs, "the run ended early"
    print(f"{precision} seed {seed}: {100 * last.validation_accuracy:.2f} %", flush=True)
    return 100 * last.validation_accuracy


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--together", type=int, default=1, help="trainings side by side")
    options, changes = parser.parse_known_args()
    cases = [(precision, seed) for seed in options.seeds for precision in PRECISIONS]
    with tempfile.TemporaryDirectory() as home, ThreadPoolExecutor(options.together) as pool:
        found = dict(zip(cases, pool.map(lambda case: train(options.data, Path(home), *case, changes), cases),
                         strict=True))  # fmt: skip
    rows = []
    for seed in options.seeds:
        full, mixed = found["float32", seed], found["mixed", seed]
        rows.append(make_row(f"validation accuracy, seed {seed}", mixed, {"float32": full}, "%"))
    full, mixed = (statistics.mean(found[p, s] for s in options.seeds) for p in PRECISIONS)
    rows.append(make_row("validation accuracy, mean", mixed, {"float32": full}, "%"))
    apart = abs(full - mixed)
    rows.append(Row("means apart", apart, {"allowed": WITHIN}, "points", WITHIN / max(apart, 1e-9)))
    write_results("precision_agreement", rows, gpu_name(), recipe=[*RECIPE, *changes])
    return 0


if __name__ == "__main__":
    sys.exit(main())
