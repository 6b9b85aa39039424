"""A run keeps to the memory that --dry-run prints: all its arrays, counted while it trains and judges."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from core.config import RunConfig
from core.cpu.warm import all_kernels, compile_kernels
from core.diagnosis.model_file import ModelFile, write_model
from core.models.init import initial_weights
from core.models.table import build
from core.training.dry_run import count_memory
from core.training.events import EpochDone, Progress, StepDone
from core.training.setup import VALIDATION_BATCH, compile_fitting
from core.training.teacher import Teachers, read_teachers
from core.training.trainer import Trainer
from core.training.validation import compile_inference
from tests.helpers.tiny_photos import write_photos

CLASSES = ("brown", "green")
ARRAYS = tracemalloc.DomainFilter(inclusive=True, domain=np.lib.tracemalloc_domain)


@pytest.fixture
def traced() -> Iterator[None]:
    compile_kernels(all_kernels(), lambda done, total: None)
    tracemalloc.start()
    yield
    tracemalloc.stop()


def held() -> int:
    """Bytes of all arrays that NumPy has allocated since the trace began; mapped files are none."""
    return sum(s.size for s in tracemalloc.take_snapshot().filter_traces([ARRAYS]).statistics("filename"))


def foretold(config: RunConfig, photos: int) -> int:
    graph = build(config.model, len(CLASSES), config.image_size, config.dropout)
    training, _ = compile_fitting(config, graph, "cpu", (), photos)
    teachers = Teachers(read_teachers(config), config, CLASSES, "cpu", training.batch)
    judging = compile_inference(graph, "cpu", VALIDATION_BATCH["cpu"], config.threads)
    rows = count_memory(
        training, judging, photos, 3 * config.image_size**2, device="cpu", stream=config.stream_photos,
        teachers=teachers.plans,
    )
    return rows["memory of the run"]


def write_teacher(path: Path) -> str:
    graph = build("squeezenet1_1_bn", len(CLASSES), 96)
    write_model(path, ModelFile(graph, initial_weights(graph, 0), CLASSES, 96))
    return str(path)


@pytest.mark.parametrize(
    ("model", "stream", "taught"),
    [("squeezenet1_1", True, 0), ("squeezenet1_1_bn", False, 0), ("squeezenet1_1", True, 2)],
)
def test_the_arrays_of_a_run_are_those_it_foretold(tmp_path, traced, model, stream, taught):
    photos = write_photos(tmp_path / "photos", each=100)
    config = RunConfig(
        data=str(photos), cache=str(tmp_path / "cache"), out=str(tmp_path / "run"), model=model, image_size=96,
        epochs=1, batch_size=16, device="cpu", threads=2, stream_photos=stream, validation=0.4, test=0.1,
        teacher=(write_teacher(tmp_path / "t.safetensors"),) * taught,
    )  # fmt: skip
    said = foretold(config, 200)
    before, seen = held(), {}
    for event in Trainer(config).run():
        if isinstance(event, StepDone) or (isinstance(event, Progress) and event.stage == "validate"):
            seen[type(event)] = max(seen.get(type(event), 0), held() - before)
        if isinstance(event, EpochDone):
            break
    assert set(seen) == {StepDone, Progress}
    assert 0.95 * said <= max(seen.values()) <= 1.05 * said
