"""Describes a run before it starts: its network, and its memory by purpose and in each phase."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import prod
from typing import Final

from core.config import RunConfig
from core.data.cache import check_home
from core.data.dataset import TEST, TRAIN, VALIDATION
from core.data.field_photos import check_field
from core.data.label_sets import read_label_sets
from core.data.loader import AHEAD
from core.data.preparation import cache_side, name_outputs
from core.data.source import open_dataset
from core.device import STREAM_BUFFERS, Memory, Plan
from core.diagnosis import context_features
from core.diagnosis.backgrounds import count_bytes
from core.diagnosis.completion import BACKGROUND_PHOTOS, CHUNK, PER_CLASS
from core.diagnosis.features import find_nodes
from core.diagnosis.pictures_without_leaf import class_without_leaf, count_pictures
from core.graph import Graph
from core.plan import choose_device
from core.text import align_columns
from core.training.finish import LEAST_PHOTOS, MOST_BYTES
from core.training.presets import fit_recipe
from core.training.setup import VALIDATION_BATCH, check_request, graph_in_use
from core.training.teacher import Teachers, read_teachers
from core.training.training_plan import add_loss, compile_fitting
from core.training.transfer import first_network, read_start
from core.training.validation import compile_inference

CHECKPOINT_COPIES: Final = 3
"""Copies of weights and optimizer state while a checkpoint is written: the arrays, each as bytes, and the file."""
TRAINING: Final = ("training: ", "teachers")
"""Prefixes of the rows that are released before the tests of the final model."""


def describe_run(config: RunConfig) -> str:
    """Tables of the network and of the memory; photos are listed, not decoded. Raises what the run would, so far."""
    device = choose_device(config.device)
    config, origin = read_start(config)
    dataset = open_dataset(config)
    check_home(dataset, config.cache)
    scanned = check_request(config, device, origin)
    sets = read_label_sets(dataset.classes, config.labels)
    classes = name_outputs(dataset, sets)
    added = class_without_leaf(config, classes, sets is not None)
    counts = [*dataset.counts().values(), *(count_pictures(config, len(dataset)) for _ in added)]
    config = config if sets is None else replace(config, labels="multi")
    if scanned is not None:
        check_field(scanned, classes, sets is not None)
    classes = (*classes, *added)
    graph = first_network(config, origin, classes).graph
    forecast = forecast_memory(config, graph, classes, counts, device)
    table = {**forecast.rows, **forecast.phases, "memory of the run": forecast.peak}
    memory = align_columns([(name, f"{size / 2**20:.2f} MB") for name, size in table.items()], right=(1,))
    return (f"{graph.name} for {len(classes)} classes on {device}, batches of {forecast.batch}\n\n"
            f"{describe_network(forecast.plan)}\n\n{memory}")


def describe_network(plan: Plan) -> str:
    """Table of a plan's steps, one line each: costs of one photo forward, kernels of all directions."""
    kernels: dict[str, list[str]] = defaultdict(list)
    for layer, _, kernel in plan.kernels():
        if kernel not in kernels[layer]:
            kernels[layer].append(kernel)
    rows = [("layer", "op", "shape", "parameters", "MFLOP", "kB", "kernel")]
    flops = parameters = moved = 0
    for step in plan.program.steps:
        owned = sum(p.size for p in step.parameters)
        flops, parameters, moved = flops + step.cost.flops, parameters + owned, moved + step.cost.bytes
        op = step.op + (f"+{step.activation}" if step.activation else "")
        shape = "x".join(str(side) for side in step.output.shape) or "1"
        rows.append((step.node, op, shape, f"{owned:,}", f"{step.cost.flops / 1e6:.2f}",
                     f"{step.cost.bytes / 1e3:.0f}", ", ".join(kernels[step.node])))
    rows.append(("all", "", "", f"{parameters:,}", f"{flops / 1e6:.2f}", f"{moved / 1e3:.0f}", ""))
    return align_columns(rows, right=(3, 4, 5))


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


def forecast_memory(
    config: RunConfig, graph: Graph, classes: Sequence[str], counts: Sequence[int], device: str
) -> Forecast:
    """Predict the memory of a run on so many photos of each class. Raises OutOfMemory if its plans do not fit."""
    photos, photo_bytes = sum(counts), 3 * cache_side(config) ** 2
    splits = {VALIDATION: round(photos * config.validation), TEST: round(photos * config.test)}
    splits[TRAIN] = photos - sum(splits.values())
    config, _ = fit_recipe(config, splits[TRAIN])
    weights = () if config.class_weights == "none" else (1.0,) * len(classes)
    training, batch = compile_fitting(config, add_loss(config, graph, weights), device, splits[TRAIN])
    read, used = read_teachers(config), graph_in_use(config, graph)
    teachers = Teachers(read, config, classes, device, training.batch).plans if read else ()
    validation = compile_inference(used, device, VALIDATION_BATCH[device], config.threads)
    resident = not config.stream_photos and training.fits(photos * photo_bytes)
    rows = count_memory(training, validation, photos, photo_bytes, device, resident, teachers)
    swap, finding = 0, 0
    if config.augment_background:
        swap, finding = count_bytes(splits[TRAIN], photos, cache_side(config))
        rows["other backgrounds"] = swap + context_features.count_bytes()
    plans = sum(rows.values())
    ahead = 0 if resident else count_prefetched(training, splits[TRAIN], photo_bytes)
    following = count_prefetched(validation, splits[VALIDATION], photo_bytes)
    memory = training.memory
    copies = CHECKPOINT_COPIES * (memory.parameters + memory.optimizer)
    known = sum(min(round(count * splits[TRAIN] / photos), PER_CLASS) for count in counts)
    tests = count_final_tests(config, used, device, known, splits[VALIDATION], photo_bytes)
    released = sum(size for name, size in rows.items() if name.startswith(TRAINING))
    phases = {"finding leaves": plans + finding} if swap else {}
    return Forecast(training, batch, rows | {"prefetched photos": max(ahead, following)}, phases | {
        "training": plans + ahead,
        "validation": plans + max(memory.parameters + following, count_choosing(training, ahead, config.average > 0)),
        "saving a checkpoint": plans + copies + max(memory.parameters, ahead),
        "tests of the final model": plans - released + tests,
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
    """Bytes of a loader's batches in host memory: those gathered ahead, those of running steps and the next."""
    return min((AHEAD + 2 + plan.asynchronous) * plan.batch, photos) * photo_bytes


def count_choosing(plan: Plan, ahead: int, averaged: bool) -> int:
    """Bytes of the copies in `core.training.validation.evaluation_weights`: optimizer state, weights, averaged weights,
    and those with recomputed statistics, which take training batches."""
    renewed = averaged and plan.program.uses_batch_statistics()
    return plan.memory.optimizer + (1 + averaged + renewed) * plan.memory.parameters + renewed * ahead


def count_final_tests(
    config: RunConfig, graph: Graph, device: str, known: int, validation: int, photo_bytes: int
) -> int:
    """Bytes that the tests after the last epoch add (`core.diagnosis.completion`).

    graph: for inference; known: photos for the feature statistics; validation: validation photos, whose last batch the
    validation plan still refers to.
    """
    if validation < LEAST_PHOTOS:
        return 0
    names = find_nodes(graph).names
    maps = [4 * prod(graph.node(name).shape) for name in names]
    predictor = compile_inference(graph, device, CHUNK, config.threads, outputs=names)
    seen, last_batch = min(validation, MOST_BYTES // photo_bytes), (validation - 1) % VALIDATION_BATCH[device] + 1
    looked_at = min(BACKGROUND_PHOTOS, seen) if config.leaf_tests else 0
    pooling = CHUNK * (sum(maps) + max(maps[1:], default=0))  # and the deviations from a bottleneck's means
    pooled = 8 * (known + seen) * sum(graph.node(name).shape[-1] for name in names)
    changed = looked_at * (2 * photo_bytes + photo_bytes // 3)  # two copies, and masks
    model = predictor.memory.total + predictor.memory.parameters  # those of the model file are another copy
    if looked_at and not config.augment_background:  # which has found leaves before
        model += context_features.count_bytes()
    predictor.close()
    return model + (known + seen + last_batch) * photo_bytes + pooled + pooling + changed
