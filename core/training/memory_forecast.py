"""Predicts the memory of a run before it starts: by purpose, and the peak of each phase."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import prod
from typing import Final, final

from core.config import RunConfig
from core.data.dataset import TEST, TRAIN, VALIDATION
from core.data.loader import AHEAD
from core.data.preparation import cache_side
from core.device import STREAM_BUFFERS, Memory, Plan
from core.diagnosis.backgrounds import count_bytes
from core.diagnosis.completion import BACKGROUND_PHOTOS, CHUNK, PER_CLASS
from core.diagnosis.features import feature_node
from core.graph import Graph
from core.training.model_completion import LEAST_PHOTOS, MOST_BYTES
from core.training.recipe_fitting import fit_recipe
from core.training.setup import VALIDATION_BATCH, graph_in_use
from core.training.teacher import Teachers, read_teachers
from core.training.training_plan import compile_fitting
from core.training.validation import compile_inference

CHECKPOINT_COPIES: Final = 2
"""Copies of weights and optimizer state while a checkpoint is written: the arrays and the bytes of the file."""
TRAINING: Final = ("training: ", "teachers", "prefetched photos")
"""Rows, by how their names begin, of what is given back before the tests of the final model."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Forecast:
    """The training plan with its batch, bytes by purpose during training, and the peak of each phase."""

    plan: Plan
    batch: int
    rows: Mapping[str, int]
    phases: Mapping[str, int]

    @property
    def peak(self) -> int:
        return max(self.phases.values())


def share_photos(config: RunConfig, photos: int) -> dict[int, int]:
    """The expected number of photos of each split."""
    validation, test = round(photos * config.validation), round(photos * config.test)
    return {TRAIN: photos - validation - test, VALIDATION: validation, TEST: test}


def forecast_memory(
    config: RunConfig, graph: Graph, classes: Sequence[str], splits: Mapping[int, int], device: str
) -> Forecast:
    """Predict the memory of a run for the given split sizes. Raises OutOfMemory if its plans do not fit."""
    photos, photo_bytes = sum(splits.values()), 3 * cache_side(config) ** 2
    config, _ = fit_recipe(config, splits[TRAIN])
    weights = () if config.class_weights == "none" else (1.0,) * len(classes)
    training, batch = compile_fitting(config, graph, device, weights, splits[TRAIN])
    lessons, used = read_teachers(config), graph_in_use(config, graph)
    teachers = Teachers(lessons, config, classes, device, training.batch).plans if lessons else ()
    validation = compile_inference(used, device, VALIDATION_BATCH[device], config.threads)
    rows = count_memory(
        training, validation, photos, photo_bytes, device=device, stream=config.stream_photos, teachers=teachers
    )
    swap, finding = count_bytes(splits[TRAIN], photos, cache_side(config)) if config.augment_background else (0, 0)
    if swap:
        rows["other backgrounds"] = swap
    working = sum(rows.values())
    copies = CHECKPOINT_COPIES * (training.memory.parameters + training.memory.optimizer)
    copies += training.memory.parameters  # the weights that were validated
    tests = count_final_tests(config, used, device, splits, len(classes), photo_bytes)
    given_back = sum(size for name, size in rows.items() if name.startswith(TRAINING))
    phases = {"finding leaves": working - rows["prefetched photos"] + finding} if swap else {}
    return Forecast(training, batch, rows, phases | {
        "training and validation": working,
        "saving a checkpoint": working + copies,
        "tests of the final model": working - given_back + tests,
    })  # fmt: skip


def count_memory(
    training: Plan, validation: Plan, photos: int, photo_bytes: int, *, device: str, stream: bool,
    teachers: Sequence[Plan] = (),
) -> dict[str, int]:  # fmt: skip
    """Bytes of training and validation, by purpose.

    photos: their number; photo_bytes: size of one decoded photo. The GPU stores all photos, or the buffers of streamed
    batches; the CPU reads photos in place. The loader holds some batches ahead in host memory, of the larger plan that
    does not take photos by index.
    """
    resident = not stream and training.fits(photos * photo_bytes)
    on_device = [STREAM_BUFFERS * plan.batch * photo_bytes for plan in (training, validation)]
    if resident:
        on_device[0] = photos * photo_bytes
    if device == "cpu":
        on_device = [0, 0]
    known = replace(training.memory, photos=on_device[0])
    rows = {f"training: {f.name}": int(getattr(known, f.name)) for f in fields(Memory)}
    if teachers:  # they share the photos of the training plan, or each has its own buffers
        way = 0 if resident or device == "cpu" else STREAM_BUFFERS * training.batch * photo_bytes
        rows["teachers"] = sum(replace(plan.memory, photos=way).total for plan in teachers)
    rows["validation plan"] = replace(validation.memory, photos=on_device[1]).total
    ahead = validation.batch if resident else max(training.batch, validation.batch)
    rows["prefetched photos"] = (AHEAD + 2) * ahead * photo_bytes
    return rows


def count_final_tests(
    config: RunConfig, graph: Graph, device: str, splits: Mapping[int, int], classes: int, photo_bytes: int
) -> int:
    """Bytes that the tests after the last epoch add (`core.diagnosis.completion`); graph: as in use."""
    if splits[VALIDATION] < LEAST_PHOTOS:
        return 0
    node = feature_node(graph)
    map_bytes = 4 * prod(graph.node(node).shape) if node else 0
    predictor = compile_inference(graph, device, CHUNK, config.threads, outputs=(node,) if node else ())
    known = min(splits[TRAIN], PER_CLASS * classes)
    seen = min(splits[VALIDATION], MOST_BYTES // photo_bytes)
    looked_at = min(BACKGROUND_PHOTOS, seen) if config.leaf_tests else 0
    features = 4 * CHUNK * map_bytes  # two in float32 and one in float64, for the means
    changed = looked_at * (2 * photo_bytes + photo_bytes // 3) + 2 * CHUNK * map_bytes  # two copies, and masks
    total = predictor.memory.total + (2 * known + seen) * photo_bytes + max(features, changed)
    predictor.close()
    return total
