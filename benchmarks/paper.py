"""SqueezeNet 1.0 from scratch for 45 epochs, by SGD and by Adam (0.95, 0.99), ours and PyTorch: curves and accuracy.

    python -m benchmarks.paper leaves/manifest.csv [--where crop=tomato] [--epochs 45] [--seeds 3] [--together]

Ours is the preset `paper` in mixed precision, PyTorch's side `benchmarks.torch_paper`: the same photos, split, batch
size, epochs, learning rates, weight decay, initial weights and input normalization, without random variation of the
photos. Without --where, the whole pack. A seed decides initial weights, order of the photos and dropout; figures are
means over the seeds.
--together runs all four of a seed at once: their times then say nothing, their accuracy does not change.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.record import gpu_name, make_row, write_results
from core.models import build, initial_weights
from core.ops.contract import Array
from core.training.events import LOG, RunFinished, read_events, read_history
from core.training.presets import PRESETS

RATES = {"sgd": 0.0025, "adam": 3e-4}
"""The preset's, and one that Adam is stable with."""
BETAS = {"sgd": [], "adam": ["--beta1", "0.95", "--beta2", "0.99"]}


@dataclass(frozen=True)
class Curve:
    """Validation accuracy and training loss by epoch, accuracy on the test split, seconds; of means the tests too."""

    validation: list[float]
    loss: list[float]
    test: float
    seconds: float
    tests: list[float] = field(default_factory=list)


def mean(curves: Sequence[Curve]) -> Curve:
    def of(lists: Sequence[list[float]]) -> list[float]:
        return [statistics.mean(values) for values in zip(*lists, strict=True)]

    tests = [curve.test for curve in curves]
    return Curve(of([c.validation for c in curves]), of([c.loss for c in curves]), statistics.mean(tests),
                 statistics.mean(c.seconds for c in curves), tests)  # fmt: skip


def initial_arrays(classes: int, seed: int) -> list[Array]:
    """The initial weights of our run, in the order and the layout (out, in, height, width) of PyTorch's parameters."""
    weights = initial_weights(build(PRESETS["paper"].values["model"], classes), seed)
    return [w.transpose(0, 3, 1, 2) if w.ndim == 4 else w for w in weights.values()]


def our_command(options: argparse.Namespace, optimizer: str, seed: int, out: Path) -> list[str]:
    where = ["--where", options.where] if options.where else []
    return [
        sys.executable, "-m", "core.train", "--data", str(options.manifest), *where, "--preset", "paper",
        "--epochs", str(options.epochs), "--optimizer", optimizer, "--learning-rate", str(RATES[optimizer]),
        *BETAS[optimizer], "--device", "cuda", "--precision", "mixed", "--augment", "none",
        "--no-leaf-tests", "--seed", str(seed), "--out", str(out),
    ]  # fmt: skip


def torch_command(options: argparse.Namespace, optimizer: str, seed: int) -> list[str]:
    return [
        sys.executable, "-m", "benchmarks.torch_paper", str(options.manifest), "--where", options.where,
        "--optimizer", optimizer, "--learning-rate", str(RATES[optimizer]), "--epochs", str(options.epochs),
        "--seed", str(seed),
    ]  # fmt: skip


def read_ours(out: Path) -> Curve:
    epochs = read_history(out / LOG).epochs
    (end,) = read_events(out / LOG, (RunFinished,))
    assert isinstance(end, RunFinished)
    assert end.test_accuracy is not None
    return Curve([e.validation_accuracy for e in epochs], [e.train_loss for e in epochs], end.test_accuracy,
                 end.seconds)  # fmt: skip


def read_torch(out: Path) -> Curve:
    *epochs, end = [json.loads(line) for line in out.read_text("utf-8").splitlines() if line.startswith("{")]
    return Curve([e["accuracy"] for e in epochs], [e["loss"] for e in epochs], end["test"], end["seconds"])


def run_seed(options: argparse.Namespace, seed: int, home: Path) -> dict[str, Curve]:
    """By "ours sgd", "PyTorch adam" ..."""
    curves: dict[str, Curve] = {}
    running = []
    for optimizer in RATES:
        for who in ("ours", "PyTorch"):
            name, out = f"{who} {optimizer}", home / f"{who}-{optimizer}-{seed}"
            ours = who == "ours"
            command = our_command(options, optimizer, seed, out) if ours else torch_command(options, optimizer, seed)
            with (home / f"{name}.txt").open("w") as log:
                running.append((name, out, subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)))
            if not options.together:
                running[-1][2].wait()
    for name, out, process in running:
        log_file = home / f"{name}.txt"
        if process.wait():
            print(f"{name} failed:\n{log_file.read_text('utf-8')[-2000:]}", flush=True)
            continue
        curves[name] = read_ours(out) if name.startswith("ours") else read_torch(log_file)
        accuracy, seconds = 100 * curves[name].test, curves[name].seconds
        print(f"{name}, seed {seed}: test accuracy {accuracy:.1f} %, {seconds:.1f} s", flush=True)
    return curves


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("manifest", type=Path)
    parser.add_argument("--where", default="", metavar="COLUMN=VALUE")
    parser.add_argument("--epochs", type=int, default=45)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--together", action="store_true")
    parser.add_argument("--name", default="paper", help="of the result file")
    parser.add_argument("--photos", default="", help="a remark on the photos, for the result file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        found = [run_seed(options, seed, Path(home)) for seed in range(options.seeds)]
    curves = {name: mean([one[name] for one in found]) for name in found[0] if all(name in one for one in found)}
    rows = []
    for optimizer in RATES:
        ours, theirs = curves.get(f"ours {optimizer}"), curves.get(f"PyTorch {optimizer}")
        if ours is not None:
            peers = {} if theirs is None else {"PyTorch": 100 * theirs.test}
            rows.append(make_row(f"paper {optimizer}, test accuracy", 100 * ours.test, peers, "%"))
    if not rows:
        sys.exit("No run of ours succeeded.")
    together = "all runs at once" if options.together else "one run after the other"
    kept = {name: vars(curve) for name, curve in curves.items()}
    write_results(options.name, rows, gpu_name(), epochs=options.epochs, where=options.where, seeds=options.seeds,
                  runs=together, photos=options.photos, curves=kept)  # fmt: skip


if __name__ == "__main__":
    main()
