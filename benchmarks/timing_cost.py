"""What timing the kernels of some steps costs a training, as a share of its time (asked: under 1 %).

    python -m benchmarks.timing_cost [--device cuda]

Steps as the trainer takes them, sampled as the trainer samples them (`core.training.kernel_timing`). On the CPU it
takes 25 s of processor time.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from benchmarks.record import Row, gpu_name, write_results
from core.config import RunConfig
from core.device import PhotoBatch
from core.models.architectures import build
from core.models.init import initial_weights
from core.ops.builder import with_loss
from core.ops.photo import identity_augmentation
from core.optim.optimizer import optimizer_of
from core.plan import compile_plan
from core.training.kernel_timing import KernelSampling
from core.training.step import start_step

CASES = {"cpu": ("squeezenet1_1", 16, 64, "float32", 900), "cuda": ("squeezenet1_1_bn", 128, 224, "mixed", 1800)}
"""Network, batch, photo side, precision, steps."""


def measure(device: str) -> list[Row]:
    model, batch, side, precision, steps = CASES[device]
    graph = with_loss(build(model, 10, side), 0.0, ())
    plan = compile_plan(
        graph, device=device, batch=batch, training=True, precision=precision, optimizer=optimizer_of(RunConfig())
    )
    plan.load(initial_weights(graph, 0))
    draw = np.random.default_rng(0)
    plan.keep_photos(draw.integers(0, 256, (batch, side, side, 3), np.uint8))
    labels = draw.integers(0, 10, batch).astype(np.int32)
    photos = PhotoBatch(None, identity_augmentation(batch, side, side), labels, np.arange(batch))
    start_step(plan, photos, 1e-4)()
    sampling, timings, begin = KernelSampling(0), [], time.monotonic()
    for step in range(steps):
        before = time.monotonic()
        start_step(plan, photos, 1e-4)()
        now = time.monotonic()
        if sampling.is_due(step, now - before):
            plan.time_kernels(photos)
            timings.append(time.monotonic() - now)
            sampling.count(step, timings[-1])
    total = time.monotonic() - begin
    plan.close()
    name = f"{model} b{batch} {precision}"
    plain = 1e3 * (total - sum(timings)) / steps
    share = sum(timings) / total
    print(f"{len(timings)} of {steps} steps timed, {1e3 * max(timings):.1f} ms at most; a plain step {plain:.2f} ms")
    return [
        Row(f"{name} share of time spent on timing kernels", share, {}, "share", 0.01 / share),
        Row(f"{name} a timed step over a plain one", 1e3 * sum(timings) / len(timings) / plain, {}, "x"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=tuple(CASES), default="cpu")
    options = parser.parse_args()
    write_results("timing_cost", measure(options.device), gpu_name() if options.device == "cuda" else "")


if __name__ == "__main__":
    main()
