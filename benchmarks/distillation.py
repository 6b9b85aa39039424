"""What teachers cost: training steps with none, one and four of them, interleaved in one run on a GPU.

    python -m benchmarks.distillation [--teachers 0 1 4] [--streamed]

MobileNetV2 teaches MobileNetV2 at 256 pixels, batch 128, mixed precision, through the loader, the teachers and the
steps that training takes; weights and photos are random, photos as varied as by `--augment soft`. Beside each way the
time that its work needs on the device alone: what a step takes longer, the device waited for the processor.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.record import gpu_name, make_row, write_results
from core.config import RunConfig
from core.data.loader import Loader
from core.device import Plan
from core.diagnosis.model_file import ModelFile, write_model
from core.gpu.driver.device import open_device
from core.gpu.plan import CudaPlan
from core.models.architectures import build
from core.models.init import initial_weights
from core.ops.builder import with_loss
from core.optim.optimizer import optimizer_of
from core.plan import compile_plan
from core.training.step import pair_with_next, start_step
from core.training.teacher import Teachers, read_teachers

MODEL, SIDE, BATCH, PHOTOS = "mobilenetv2", 256, 128, 2560
CLASSES = tuple(f"class {i}" for i in range(37))
WARM, STEPS, ROUNDS = 5, 40, 3


def write_teachers(folder: Path, count: int) -> tuple[str, ...]:
    """Model files of so many untrained networks."""
    graph = build(MODEL, len(CLASSES), SIDE)
    paths = [folder / f"{i}.safetensors" for i in range(count)]
    for i, path in enumerate(paths):
        write_model(path, ModelFile(graph, initial_weights(graph, i + 1), CLASSES, SIDE))
    return tuple(str(path) for path in paths)


def make(config: RunConfig, photos: np.ndarray, streamed: bool) -> tuple[Plan, Teachers | None]:
    graph = with_loss(build(MODEL, len(CLASSES), SIDE), 0.1, (), bool(config.teacher))
    student = compile_plan(
        graph, device="cuda", batch=BATCH, training=True, precision="mixed", optimizer=optimizer_of(config)
    )
    student.load(initial_weights(graph, 0))
    assert student.keep_photos(photos, stream=streamed) != streamed
    if not config.teacher:
        return student, None
    teachers = Teachers(read_teachers(config), config, CLASSES, "cuda", BATCH)
    teachers.borrow_photos(student)
    return student, teachers


def step_milliseconds(student: Plan, teachers: Teachers | None, loader: Loader) -> tuple[float, float]:
    """Of a step as training takes it, and of its work on the device alone."""
    endless = itertools.chain.from_iterable(loader.batches(epoch) for epoch in itertools.count())
    begin = 0.0
    for step, (batch, following) in enumerate(pair_with_next(itertools.islice(endless, WARM + STEPS + 1))):
        if step == WARM:
            begin = time.perf_counter()
        if step == WARM + STEPS:
            break
        taught = batch if teachers is None else teachers.add_targets(batch, following)
        start_step(student, taught, 1e-4, following)()
    took = 1000 * (time.perf_counter() - begin) / STEPS
    alone = 0.0
    for plan, given in [(student, taught), *((plan, batch) for plan in (teachers.plans if teachers else ()))]:
        assert isinstance(plan, CudaPlan)
        alone += plan.replay_milliseconds(given, 10)
    return took, alone


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--teachers", type=int, nargs="+", default=[0, 1, 4], help="how many, one way each")
    parser.add_argument("--streamed", action="store_true", help="photos are streamed instead of lying on the GPU")
    options = parser.parse_args()
    draw = np.random.default_rng(0)
    photos = np.tile(draw.integers(0, 256, (64, SIDE, SIDE, 3), np.uint8), (PHOTOS // 64, 1, 1, 1))
    labels = draw.integers(0, len(CLASSES), PHOTOS).astype(np.int32)
    rates: dict[int, list[tuple[float, float]]] = {count: [] for count in options.teachers}
    with tempfile.TemporaryDirectory() as folder:
        files = write_teachers(Path(folder), max(options.teachers))
        for _ in range(ROUNDS):
            for count, found in rates.items():
                config = RunConfig(teacher=files[:count], image_size=SIDE, precision="mixed", label_smoothing=0.1)
                student, teachers = make(config, photos, options.streamed)
                loader = Loader(
                    photos, np.arange(PHOTOS), labels, batch=BATCH, size=SIDE, training=True, augment="soft",
                    resident=not options.streamed,
                )  # fmt: skip
                found.append(step_milliseconds(student, teachers, loader))
                for plan in (*(teachers.plans if teachers else ()), student):
                    plan.close()
            print({count: f"{found[-1][0]:.2f} ms" for count, found in rates.items()}, flush=True)
    rows = []
    for count, found in rates.items():
        took, alone = (statistics.median(values) for values in zip(*found, strict=True))
        name = f"train {MODEL} b{BATCH} {SIDE} px mixed, {count} teachers" + (", streamed" if options.streamed else "")
        rows.append(make_row(name, took, {"on the device": alone}, "ms"))
    name = "distillation-streamed" if options.streamed else "distillation"
    write_results(name, rows, gpu_name(), gpu=open_device().name)


if __name__ == "__main__":
    main()
