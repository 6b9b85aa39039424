"""Seconds to 96.5 % on validation photos with one and with several GPUs, and the accuracy at the end.

    python -m benchmarks.scaling_accuracy --data leaves/manifest.csv --gpus 1 2

Preset `leaves-fast` for 48 epochs with 128 photos on each GPU. N GPUs have N times the learning rate (Goyal et al.
2017, https://arxiv.org/abs/1706.02677) and the N-th power of the weight average's decay (Busbridge et al. 2023,
https://arxiv.org/abs/2307.13813). Kernels are compiled before. Seconds count from the start of the training, when
photos are decoded.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile

from benchmarks.record import Row, write_results
from benchmarks.time_to_accuracy import race, reached, read_ours, show
from benchmarks.two_trees import gpu_name

GOALS = (0.95, 0.96, 0.965)
PHOTOS, RATE, DECAY, EPOCHS = 128, 0.1, 0.998, 48
"""Photos of a GPU in a step; learning rate and decay of the preset; epochs, another number than its own stays."""


def command(manifest: str, home: str, gpus: int) -> list[str]:
    return ["-m", "core.train", "--data", manifest, "--test", "0", "--cache", f"{home}/cache", "--leaf-tests", "no",
            "--preset", "leaves-fast", "--validate-every", "2", "--gpus", str(gpus),
            "--batch-size", str(PHOTOS * gpus), "--learning-rate", str(RATE * gpus), "--epochs", str(EPOCHS),
            "--ema-decay", str(DECAY**gpus)]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="manifest of the photos")
    parser.add_argument("--photos", default="", help="what the photos are, for the result")
    parser.add_argument("--gpus", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seconds", type=float, default=60, help="longest time for each")
    options = parser.parse_args()
    curves, rows = {}, []
    with tempfile.TemporaryDirectory() as home:
        compile_kernels = [sys.executable, *command(options.data, home, 1), "--dry-run"]
        subprocess.run(compile_kernels, check=True, stdout=subprocess.DEVNULL)
        for gpus in options.gpus:
            run = [*command(options.data, home, gpus), "--out", f"{home}/run-{gpus}", "--json"]
            found = race(run, read_ours, 2.0, options.seconds, EPOCHS)
            show(f"{gpus} GPUs", found)
            if not found:
                continue
            begun = found[0].seconds
            for goal in GOALS:
                seconds = reached(found, goal) - begun
                rows.append(Row(f"{100 * goal:g} %, {gpus} GPUs", seconds, {}, "s", float("nan")))
            curves[gpus] = [[one.epoch, round(one.seconds - begun, 3), round(one.accuracy, 4)] for one in found]
            machine = f"{gpu_name()}-x{max(options.gpus)}"
            write_results("scaling_accuracy", rows, machine, photos=options.photos, curves=curves)


if __name__ == "__main__":
    main()
