"""Photos a second where they lie on the GPU and where they are streamed to it batch by batch.

    python -m benchmarks.streaming

SqueezeNet 1.1 with batch norm, batch 128, mixed precision, 224 pixels, through the loader and the steps that training
takes; three ways interleaved, median of the rounds. "sent when needed" streams too, but does not announce the batch
after, so that nothing travels while a step computes. Losses of all ways must have the same bits.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time

import numpy as np

from benchmarks.record import Row, write_results
from core.config import RunConfig
from core.data.loader import Loader
from core.device import Plan
from core.gpu.driver.device import open_device
from core.models.architectures import build
from core.models.init import initial_weights
from core.ops.builder import with_loss
from core.optim.optimizer import optimizer_of
from core.plan import compile_plan
from core.training.step import pair_with_next, take_step

CLASSES, SIDE, BATCH, PHOTOS = 10, 224, 128, 6400
WARM, STEPS, ROUNDS = 5, 100, 3


def make_plan(photos: np.ndarray, resident: bool) -> Plan:
    graph = with_loss(build("squeezenet1_1_bn", CLASSES, SIDE), 0.1, ())
    plan = compile_plan(
        graph, device="cuda", batch=BATCH, training=True, precision="mixed", optimizer=optimizer_of(RunConfig())
    )
    assert plan.keep_photos(photos, stream=not resident) == resident
    plan.load(initial_weights(graph, 0))
    return plan


def run(plan: Plan, loader: Loader, announced: bool) -> tuple[float, list[float]]:
    """Photos a second over `STEPS` steps, and their losses."""
    endless = itertools.chain.from_iterable(loader.batches(epoch) for epoch in itertools.count())
    losses, begin = [], 0.0
    for step, (batch, following) in enumerate(pair_with_next(itertools.islice(endless, WARM + STEPS + 1))):
        if step == WARM:
            begin = time.perf_counter()
        if step == WARM + STEPS:
            break
        losses.append(take_step(plan, batch, 1e-3, following if announced else None).loss)
    seconds = time.perf_counter() - begin
    return STEPS * BATCH / seconds, losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", default="nvidia-h200")
    options = parser.parse_args()
    draw = np.random.default_rng(0)
    photos = np.tile(draw.integers(0, 256, (64, SIDE, SIDE, 3), np.uint8), (PHOTOS // 64, 1, 1, 1))
    labels = draw.integers(0, CLASSES, PHOTOS).astype(np.int32)
    ways = {"resident": (True, False), "streamed": (False, True), "sent when needed": (False, False)}
    rates: dict[str, list[float]] = {name: [] for name in ways}
    losses = {}
    for _ in range(ROUNDS):
        for name, (resident, announced) in ways.items():
            plan = make_plan(photos, resident)
            loader = Loader(
                photos, np.arange(PHOTOS), labels, batch=BATCH, size=SIDE, training=True, augment="standard",
                resident=resident,
            )  # fmt: skip
            rate, losses[name] = run(plan, loader, announced)
            rates[name].append(rate)
            plan.close()
        print({name: round(found[-1]) for name, found in rates.items()}, flush=True)
    assert losses["resident"] == losses["streamed"] == losses["sent when needed"]
    found = {name: statistics.median(values) for name, values in rates.items()}
    ours, peers = found["streamed"], {k: v for k, v in found.items() if k != "streamed"}
    name = f"train squeezenet1_1_bn b{BATCH} mixed, photos streamed"
    gpu = open_device().name
    write_results("streaming", [Row(name, ours, peers, "photos/s", ours / found["resident"])], options.machine, gpu=gpu)


if __name__ == "__main__":
    main()
