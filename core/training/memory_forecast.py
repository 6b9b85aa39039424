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

CHECKPOINT_COPIES: Final = 3
"""Copies of weights and optimizer state while a checkpoint is written: the arrays, each as bytes, and the file."""
TRAINING: Final = ("training: ", "teachers")
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
    photo_bytes = 3 * cache_side(config) ** 2
    config, _ = fit_recipe(config, splits[TRAIN])
    weights = () if config.class_weights == "none" else (1.0,) * len(classes)
    training, batch = compile_fitting(config, graph, device, weights, splits[TRAIN])
    lessons, used = read_teachers(config), graph_in_use(config, graph)
    teachers = Teachers(lessons, config, classes, device, training.batch).plans if lessons else ()
    validation = compile_inference(used, device, VALIDATION_BATCH[device], config.threads)
    resident = not config.stream_photos and training.fits(sum(splits.values()) * photo_bytes)
    rows = count_memory(training, validation, sum(splits.values()), photo_bytes, device, resident, teachers)
    swap, finding = 0, 0
    if config.augment_background:
        swap, finding = count_bytes(splits[TRAIN], sum(splits.values()), cache_side(config))
        rows["other backgrounds"] = swap
    plans = sum(rows.values())
    ahead = 0 if resident else count_prefetched(training, splits[TRAIN], photo_bytes)
    following = count_prefetched(validation, splits[VALIDATION], photo_bytes)
    memory = training.memory
    copies = CHECKPOINT_COPIES * (memory.parameters + memory.optimizer)
    tests = count_final_tests(config, used, device, splits, len(classes), photo_bytes)
    given_back = sum(size for name, size in rows.items() if name.startswith(TRAINING))
    phases = {"finding leaves": plans + finding} if swap else {}
    return Forecast(training, batch, rows | {"prefetched photos": max(ahead, following)}, phases | {
        "training": plans + ahead,
        "validation": plans + max(memory.parameters + following, count_choosing(training, ahead, config.average > 0)),
        "saving a checkpoint": plans + copies + max(memory.parameters, ahead),
        "tests of the final model": plans - given_back + tests,
    })  # fmt: skip


def count_memory(
    training: Plan, validation: Plan, photos: int, photo_bytes: int, device: str, resident: bool,
    teachers: Sequence[Plan] = (),
) -> dict[str, int]:  # fmt: skip
    """Bytes of the plans, by purpose.

    photos: their number; photo_bytes: size of one decoded photo; resident: the GPU stores all photos, otherwise the
    buffers of streamed batches. The CPU reads photos in place.
    """
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
    return rows


def count_prefetched(plan: Plan, photos: int, photo_bytes: int) -> int:
    """Bytes of the batches in host memory, of a loader of so many photos: the queue, the one that waits for a place in
    it, the one that is computed and the next (`core.training.step.pair_with_next`)."""
    return min((AHEAD + 3) * plan.batch, photos) * photo_bytes


def count_choosing(plan: Plan, ahead: int, averaged: bool) -> int:
    """Bytes of the copies in `core.training.validation.evaluation_weights`: optimizer state, weights, averaged weights,
    and those with recomputed statistics, which take training batches."""
    renewed = averaged and plan.program.uses_batch_statistics()
    return plan.memory.optimizer + (1 + averaged + renewed) * plan.memory.parameters + renewed * ahead


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
