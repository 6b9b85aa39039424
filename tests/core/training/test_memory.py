"""A run keeps to the memory that --dry-run prints: all its arrays, counted while it trains and evaluates."""

import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from queue import SimpleQueue

import numpy as np
import pytest

from core.config import RunConfig
from core.cpu.precompilation import all_kernels, compile_kernels
from core.diagnosis import completion
from core.models.architectures import build
from core.training import dry_run, finish
from core.training.dry_run import forecast_memory
from core.training.events import CheckpointSaved, EpochDone, Event, Progress, RunFinished, StepDone
from core.training.trainer import Trainer
from tests.helpers.models import write_small_model
from tests.helpers.tiny_photos import write_photos

COUNTS = {"brown": 170, "green": 30}
CLASSES = tuple(COUNTS)
ARRAYS = tracemalloc.DomainFilter(inclusive=True, domain=np.lib.tracemalloc_domain)


@pytest.fixture
def configure(tmp_path):
    for name, count in COUNTS.items():
        write_photos(tmp_path / "photos", classes=(name,), each=count)
    fields = {"data": str(tmp_path / "photos"), "cache": str(tmp_path / "cache"), "out": str(tmp_path / "run"),
              "epochs": 1, "device": "cpu", "threads": 2, "test": 0.1, "model": "squeezenet1_1"}  # fmt: skip
    return lambda **changes: RunConfig(**{**fields, **changes})


@pytest.fixture
def traced(monkeypatch) -> Iterator[None]:
    monkeypatch.setattr(dry_run.context_features, "_free", SimpleQueue())  # earlier tests leave a plan
    compile_kernels(all_kernels(), lambda done, total: None)
    tracemalloc.start()
    yield
    tracemalloc.stop()


def held() -> int:
    """Bytes of all arrays that NumPy has allocated since the trace began; mapped files are none."""
    return sum(s.size for s in tracemalloc.take_snapshot().filter_traces([ARRAYS]).statistics("filename"))


def foretold(config: RunConfig) -> dict[str, int]:
    """The most bytes in each phase of a run on 200 photos."""
    graph = build(config.model, len(CLASSES), config.image_size, config.dropout)
    forecast = forecast_memory(config, graph, CLASSES, list(COUNTS.values()), "cpu")
    assert forecast.peak == max(forecast.phases.values())
    return dict(forecast.phases)


def test_other_backgrounds_are_part_of_every_phase():
    plain = RunConfig(data="photos", model="cnn", image_size=96, batch_size=16, device="cpu", threads=1)
    before, after = foretold(plain), foretold(replace(plain, augment_background=0.5))
    more, plan = 200 * 48**2 + (200 - 2 * 30) * 3 * 96**2, dry_run.context_features.count_bytes()
    assert {after[phase] - size for phase, size in before.items()} == {more, more + plan}
    assert after["finding leaves"] - after["training"] == dry_run.count_bytes(140, 200, 96)[1] > 0
    assert dry_run.context_features.count_bytes.cache_info().misses == 1


def test_the_statistics_of_the_final_model_take_so_many_photos_of_each_class():
    config = RunConfig(data="photos", model="cnn", image_size=96, device="cpu", threads=1, validation=0.25, test=0.25)
    graph = build("cnn", 2, 96)
    seen = [forecast_memory(config, graph, CLASSES, counts, "cpu").phases["tests of the final model"]
            for counts in ((100, 300), (200, 200), (0, 400))]
    photos_and_features = 50 * (3 * 96**2 + 8 * 8)  # the network has 8 features, pooled in float64
    assert (seen[1] - seen[0], seen[0] - seen[2]) == (photos_and_features, photos_and_features)


def test_photos_lie_on_a_gpu_or_pass_through_its_buffers():
    plan = dry_run.compile_inference(build("cnn", 2, 96), "cpu", 4, 1)
    rest = replace(plan.memory, photos=0).total
    for resident, size in ((True, 200 * 9), (False, 3 * 4 * 9)):
        rows = dry_run.count_memory(plan, plan, 200, 9, "cuda", resident, (plan,))
        assert (rows["training: photos"], rows["validation plan"]) == (size, rest + 3 * 4 * 9)
        assert rows["teachers"] == rest + (0 if resident else size)


def phase_of(event: Event) -> str:
    """The phase that an event ends a part of, "" for none."""
    if isinstance(event, CheckpointSaved):
        return "saving a checkpoint"
    if isinstance(event, Progress) and event.stage in ("features", "calibration", "background"):
        return "tests of the final model"
    if isinstance(event, StepDone):
        return "training"
    return "validation" if isinstance(event, Progress) and event.stage == "validation" else ""


def measure_peaks(config: RunConfig, last: type[Event]) -> dict[str, int]:
    """The most bytes at any moment of each phase, up to an event; what Python's own objects take is measured once and
    subtracted."""
    before, arrays = tracemalloc.get_traced_memory()[0], held()
    seen: dict[str, int] = {}
    objects = 0
    for event in Trainer(config).run():
        most = tracemalloc.get_traced_memory()[1] - before - objects
        if phase := phase_of(event):
            seen[phase] = max(seen.get(phase, 0), most)
        if isinstance(event, StepDone) and not objects:
            objects = tracemalloc.get_traced_memory()[0] - before - (held() - arrays)
            seen.clear()
        if isinstance(event, last):
            break
        tracemalloc.reset_peak()
    return seen


def test_every_phase_of_a_run_to_its_end_takes_what_was_foretold(configure, traced, monkeypatch):
    for module in (completion, dry_run, finish):  # fewer photos for the feature statistics than one class has
        monkeypatch.setattr(module, "PER_CLASS", 20)
    config = configure(image_size=128, batch_size=8, validation=0.4)
    said = foretold(config)
    seen = measure_peaks(config, RunFinished)
    assert seen.keys() == said.keys()
    for phase, size in said.items():
        assert 0.95 * size <= seen[phase] <= 1.05 * size, (phase, seen, said)
    assert max(said, key=lambda phase: said[phase]) == "saving a checkpoint"  # the tests run without the training plan


@pytest.mark.parametrize(("model", "changes", "taught"), [
    ("squeezenet1_1_bn", {}, 0), ("squeezenet1_1", {"average": 0.9}, 0),
    ("squeezenet1_1", {"stream_photos": True, "use_size": 224}, 2),
    ("squeezenet1_1_bn", {"average": 0.9, "stream_photos": True, "use_size": 224}, 0),  # statistics are recomputed
])  # fmt: skip
def test_an_epoch_takes_what_was_foretold(tmp_path, configure, traced, model, changes, taught):
    teachers = (str(write_small_model(tmp_path / "t.safetensors", CLASSES, 96, "squeezenet1_1_bn")),) * taught
    config = configure(model=model, image_size=96, batch_size=16, validation=0.5, teacher=teachers, **changes)
    said, seen = foretold(config), measure_peaks(config, EpochDone)
    for phase in ("training", "validation"):
        assert 0.95 * said[phase] <= seen[phase] <= 1.05 * said[phase], (phase, seen, said)
