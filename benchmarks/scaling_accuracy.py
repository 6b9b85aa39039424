"""Seconds to 96.5 % on validation photos with one and with several GPUs, and the accuracy at the end.

    python -m benchmarks.scaling_accuracy --data leaves/manifest.csv --gpus 1 2 4 --preset leaves-mobile --epochs 64 \\
        --augment-background 0

128 photos on each GPU. N GPUs have N times the learning rate (Goyal et al. 2017, https://arxiv.org/abs/1706.02677) and
the N-th power of the weight average's decay (Busbridge et al. 2023, https://arxiv.org/abs/2307.13813). Other options
are those of `leafclinic train`. Kernels are compiled before. Seconds count from the start of the training, when photos
are decoded. `benchmarks.pack_photos` packs the photos; with strong compression (`--quality`) a network reaches less.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from benchmarks.record import Row, gpu_name, write_results
from benchmarks.time_to_accuracy import race, reached, read_ours, show
from core.training.presets import PRESETS

GOALS = (0.95, 0.96, 0.965)
PHOTOS = 128
"""Photos of a GPU in a step."""


def command(manifest: str, home: str, gpus: int, preset: str, changes: Sequence[str]) -> list[str]:
    values = PRESETS[preset].values
    return ["-m", "core.train", "--data", manifest, "--test", "0", "--cache", f"{home}/cache", "--leaf-tests", "no",
            "--preset", preset, "--validate-every", "2", "--gpus", str(gpus), "--batch-size", str(PHOTOS * gpus),
            "--learning-rate", str(values["learning_rate"] * gpus), "--ema-decay", str(values["average"] ** gpus),
            *changes]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="manifest of the photos")
    parser.add_argument("--photos", default="", help="what the photos are, for the result")
    parser.add_argument("--gpus", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seconds", type=float, default=60, help="longest time for each")
    parser.add_argument("--preset", default="leaves-fast", choices=("leaves-fast", "leaves-mobile"))
    parser.add_argument("--epochs", type=int, default=48, help="not the preset's own number, which is adapted")
    options, changes = parser.parse_known_args()
    changes += ["--epochs", str(options.epochs)]
    curves, rows = {}, []
    with tempfile.TemporaryDirectory() as home:
        compile_kernels = [sys.executable, *command(options.data, home, 1, options.preset, changes), "--dry-run"]
        subprocess.run(compile_kernels, check=True, stdout=subprocess.DEVNULL)
        for gpus in options.gpus:
            run = [*command(options.data, home, gpus, options.preset, changes), "--out", f"{home}/run-{gpus}", "--json"]
            found = race(run, read_ours, 2.0, options.seconds, options.epochs)
            show(f"{gpus} GPUs", found)
            if not found:
                continue
            begun = found[0].seconds
            for goal in GOALS:
                seconds = reached(found, goal) - begun
                rows.append(Row(f"{100 * goal:g} %, {gpus} GPUs", seconds, {}, "s"))
            curves[gpus] = [[one.epoch, round(one.seconds - begun, 3), round(one.accuracy, 4)] for one in found]
            machine = f"{gpu_name()}-x{max(options.gpus)}"
            write_results("scaling_accuracy", rows, machine, photos=options.photos, preset=options.preset,
                          changes=changes, curves=curves)


if __name__ == "__main__":
    main()
