"""Photos a second of training where they lie on the GPU and where they are streamed to it batch by batch.

    python -m benchmarks.streaming

Mixed precision, through the loader and the steps that training takes; four ways interleaved, median of the
rounds. As in a run a step starts before the result of the one before is read, except for "each waited for". "sent when
needed" streams too, but does not announce the batch after, so that nothing travels while a step computes. Losses of all
ways must have the same bits.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from benchmarks.record import Row, gpu_name, make_row, write_results
from core.config import RunConfig
from core.data.loader import Loader
from core.device import Plan, StepResult
from core.gpu.driver.device import open_device
from core.models.architectures import build
from core.models.init import initial_weights
from core.ops.builder import with_loss
from core.optim.optimizer import optimizer_of
from core.plan import compile_plan
from core.training.step import pair_with_next, start_step

CLASSES, PHOTOS = 10, 6400
NETWORKS = {"mlp": (28, 64), "squeezenet1_1": (224, 32), "squeezenet1_1_bn": (224, 128)}
"""Pixels of a side and photos a step, by network."""
WARM, STEPS, ROUNDS = 5, 200, 3


class Way(NamedTuple):
    resident: bool
    announced: bool = True
    ahead: int = 1
    """Steps that are started before the result of the oldest is read."""


WAYS = {
    "resident": Way(True), "streamed": Way(False), "each waited for": Way(True, ahead=0),
    "sent when needed": Way(False, announced=False),
}  # fmt: skip


def make_plan(network: str, photos: np.ndarray, resident: bool) -> Plan:
    side, size = NETWORKS[network]
    graph = with_loss(build(network, CLASSES, side), 0.1, ())
    plan = compile_plan(
        graph, device="cuda", batch=size, training=True, precision="mixed",
        optimizer=optimizer_of(RunConfig()),
    )  # fmt: skip
    assert plan.keep_photos(photos, stream=not resident) == resident
    plan.load(initial_weights(graph, 0))
    return plan


def run(plan: Plan, loader: Loader, way: Way) -> tuple[float, list[float]]:
    """Photos a second over `STEPS` steps, and their losses."""
    endless = itertools.chain.from_iterable(loader.batches(epoch) for epoch in itertools.count())
    losses: list[float] = []
    running: deque[Callable[[], StepResult]] = deque()
    begin = 0.0
    for step, (batch, following) in enumerate(pair_with_next(itertools.islice(endless, WARM + STEPS + 1))):
        if step == WARM:
            begin = time.perf_counter()
        if step == WARM + STEPS:
            break
        running.append(start_step(plan, batch, 1e-3, following if way.announced else None))
        while len(running) > way.ahead:
            losses.append(running.popleft()().loss)
    losses += [wait().loss for wait in running]
    return STEPS * plan.batch / (time.perf_counter() - begin), losses


def compare(network: str) -> list[Row]:
    draw, (side, size) = np.random.default_rng(0), NETWORKS[network]
    photos = np.tile(draw.integers(0, 256, (64, side, side, 3), np.uint8), (PHOTOS // 64, 1, 1, 1))
    labels = draw.integers(0, CLASSES, PHOTOS).astype(np.int32)
    rates: dict[str, list[float]] = {name: [] for name in WAYS}
    losses = {}
    for _ in range(ROUNDS):
        for name, way in WAYS.items():
            plan = make_plan(network, photos, way.resident)
            loader = Loader(
                photos, np.arange(PHOTOS), labels, batch=size, size=side, training=True, augment="standard",
                resident=way.resident,
            )  # fmt: skip
            rate, losses[name] = run(plan, loader, way)
            rates[name].append(rate)
            plan.close()
        print(network, {name: round(found[-1]) for name, found in rates.items()}, flush=True)
    assert all(found == losses["resident"] for found in losses.values())
    found = {name: statistics.median(values) for name, values in rates.items()}
    title = f"train {network} b{size} mixed, photos"
    return [
        make_row(f"{title} resident", found["resident"], {"each waited for": found["each waited for"]}, "photos/s"),
        Row(f"{title} streamed", found["streamed"], {name: found[name] for name in ("resident", "sent when needed")},
            "photos/s", found["streamed"] / found["resident"]),
    ]  # fmt: skip


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    rows = [row for network in NETWORKS for row in compare(network)]
    write_results("streaming", rows, gpu_name(), gpu=open_device().name)


if __name__ == "__main__":
    main()
