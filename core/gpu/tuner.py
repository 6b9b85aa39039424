"""Tunes a plan on this GPU: measures every candidate and configuration of each of its cases and keeps the fastest.

Each measured case is saved at once, so an interrupted tuning resumes. The present choice is measured in the same
rounds. At the end the whole step runs with the old table and the new one, interleaved; entries that make it slower are
dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from math import inf, isnan
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any, Final

import numpy as np

from core.device import Optimizer, PhotoBatch
from core.errors import DeviceError
from core.gpu.candidates import CANDIDATES
from core.gpu.compilation.compiler import Recipe
from core.gpu.driver.device import Device, open_device
from core.gpu.frame import Frame
from core.gpu.launch import RELU
from core.gpu.lowering import overlap_launches
from core.gpu.ops.loss.head import is_computed_with_loss
from core.gpu.plan import CudaPlan
from core.gpu.select import BACKWARD, FORWARD, INPUT, WEIGHT, Candidate, Case, Choice
from core.gpu.timing import Bench, write_choice
from core.gpu.tuning import Entries, Key, Measured, Table, encode, load_table, make_user_path, resume_table, write_table
from core.graph import PHOTO, Graph
from core.ops.contract import Array
from core.ops.photo import identity_augmentation
from core.program import lower

LIMIT: Final = 6
"""Most configurations of a candidate that are measured, besides the one in use."""
UNLIKELY: Final = 2.0
"""Ratio to the cheapest estimate above which only one configuration is measured. Where all were measured on an H200
(169 cases with several candidates), the estimate of the fastest was at most 1.33 times the cheapest."""
FINAL: Final = 3
"""Most configurations of a candidate that are measured again, more often."""
ROUNDS: Final = (2, 9)
"""Measurements of every choice, and of those measured again."""
CLOSE: Final = 1.25
"""Largest ratio to a candidate's fastest time at which a configuration is measured again."""
SLOWER: Final = 1.002
"""Largest ratio of a whole step's time to that with the old table at which new entries are accepted: noise."""
PARTS: Final = 4
"""Parts of the new entries that are tried one by one if all together make the step slower."""
DIFFERENT: Final = {"bf16": 0.25, "tf32": 0.05, "float32": 1e-3, "fma": 1e-3}
"""Largest relative difference of logits or gradients; beyond it a kernel must be wrong."""


@dataclass(frozen=True, slots=True)
class TuningTarget:
    """A plan to tune: its network (with its loss when `training`) and weights, batch and precision."""

    name: str
    graph: Graph
    weights: Mapping[str, Array]
    batch: int
    precision: str
    training: bool


@dataclass(frozen=True, slots=True)
class TuningProgress:
    """Progress of tuning a plan: measured cases, all cases, and the present work."""

    target: TuningTarget
    done: int
    total: int
    text: str
    is_last: bool = False


Ways = Mapping[str, tuple[Candidate, Sequence[Any]]]
"""The candidates of a case by name, with their configurations to measure."""


def find_cases(frame: Frame, known: Table) -> dict[Key, tuple[Case, Ways]]:
    """The cases of a plan that can be computed in several ways, alone or as a part of a longer pattern."""
    cases: dict[Key, tuple[Case, Ways]] = {}
    steps = [step for step in frame.program.steps if not is_computed_with_loss(frame, step)]
    fused = {op for one in CANDIDATES.all if len(one.pattern) > 1 for op in one.pattern}
    directions = (FORWARD, BACKWARD, INPUT, WEIGHT) if frame.program.training else (FORWARD,)
    for at, length, direction in product(range(len(steps)), range(1, CANDIDATES.longest + 1), directions):
        case = Case(frame, tuple(steps[at : at + length]), direction)
        if len(case.steps) < length or not _is_needed(case) or case.key in cases:
            continue
        ways = find_ways(case, known)
        several = sum(len(configurations) for _, configurations in ways.values()) > 1
        if ways and (several or length > 1 or case.step.op in fused):
            cases[case.key] = case, ways
    return cases


def _is_needed(case: Case) -> bool:
    """Whether a plan computes the case: a gradient only if a parameter needs it."""
    frame = case.frame
    wants, trains = any(map(frame.wants, case.step.inputs)), any(map(frame.trains_any, case.steps))
    return {FORWARD: True, BACKWARD: wants or trains, INPUT: wants, WEIGHT: trains}[case.direction]


def find_ways(case: Case, known: Table) -> Ways:
    """Candidates and configurations to measure, including those in use."""
    usable, _ = CANDIDATES.usable(case)
    candidates = {one.name: one for one in CANDIDATES.of(case.pattern, case.direction)}
    used, costs = known.entries.get(case.key, {}), {name: candidates[name].estimate(case) for name in usable}
    ways = {}
    for name, configurations in usable.items():
        limit = LIMIT if costs[name] <= UNLIKELY * min(costs.values()) else 1
        incumbent = [c for c in configurations[limit:] if name in used and encode(c) == used[name].configuration]
        ways[name] = candidates[name], (*configurations[:limit], *incumbent)
    return ways


def measure_case(case: Case, ways: Ways, used: Mapping[str, Measured], bench: Bench) -> dict[str, Measured]:
    """Each candidate's fastest configuration; those in use are measured as often as the fastest ones."""
    every = [
        Choice(replace(case, configuration=configuration), candidate, candidate.estimate(case))
        for candidate, configurations in ways.values() for configuration in configurations
    ]  # fmt: skip
    first = bench.times(every, ROUNDS[0])
    chosen: list[Choice] = []
    for name in ways:
        own = sorted((time, i) for i, time in enumerate(first) if time is not None and every[i].candidate.name == name)
        near = [i for time, i in own[:FINAL] if time <= CLOSE * own[0][0]]
        old = [i for _, i in own if name in used and encode(every[i].case.configuration) == used[name].configuration]
        chosen += [every[i] for i in dict.fromkeys((*near, *old))]
    best: dict[str, Measured] = {}
    for way, time in zip(chosen, bench.times(chosen, ROUNDS[1]), strict=True):
        name = way.candidate.name
        if time is not None and (name not in best or time < best[name].microseconds):
            best[name] = Measured(encode(way.case.configuration), time)
    return best


def tune_into(
    path: Path | None, target: TuningTarget, command: str, deadline: float = inf, commit: str = ""
) -> Iterator[TuningProgress]:
    """`tune` on this machine's GPU, into the table at `path`, by default the user's own."""
    device = open_device()
    path = path or make_user_path(device.identity)
    measured = resume_table(path, device.identity)

    def save(entries: Entries) -> None:
        write_table(path, device.identity, entries, command, commit)

    yield from tune(device, target, load_table(device.identity).with_entries(measured), measured, save, deadline)


def tune(
    device: Device, target: TuningTarget, before: Table, measured: Entries, save: Callable[[Entries], None],
    deadline: float,
) -> Iterator[TuningProgress]:
    """Measure the cases missing in `measured` and add them; `before` is the table in use. Saves after each case."""
    frame = _frame(device, target)
    cases = find_cases(frame, before)
    todo = {key: ways for key, ways in cases.items() if key not in measured}
    text = "kernels are compiled" if todo else "all of them are in the table"
    yield TuningProgress(target, len(cases) - len(todo), len(cases), text, not todo)
    if not todo:
        return
    _load(device, frame, todo)
    fresh: Entries = {}
    bench = Bench(device, frame)
    try:
        for key, (case, ways) in todo.items():
            if monotonic() > deadline:
                break
            fresh[key] = measured[key] = measure_case(case, ways, before.entries.get(key, {}), bench)
            save(measured)
            yield TuningProgress(target, len(cases) - len(todo) + len(fresh), len(cases), key.kind)
    finally:
        bench.close()
    if fresh:
        verdict = _check(target, before, fresh, measured, save)
        yield TuningProgress(target, len(cases) - len(todo) + len(fresh), len(cases), verdict, True)


def _frame(device: Device, target: TuningTarget) -> Frame:
    program = lower(target.graph, target.training, fused=RELU)
    return Frame(program, target.batch, target.precision, device.hardware, kept=frozenset([PHOTO]))


def _load(device: Device, frame: Frame, cases: Mapping[Key, tuple[Case, Ways]]) -> None:
    recipes: list[Recipe] = []
    for case, ways in cases.values():
        for candidate, configurations in ways.values():
            for configuration in configurations:
                one = write_choice(frame, {}, {}, Choice(replace(case, configuration=configuration), candidate, 0.0))
                recipes += [launch.recipe for launch in overlap_launches(frame, [*one, *one])]
    with suppress(DeviceError):  # `Bench` skips a kernel that cannot be loaded
        device.load(list(dict.fromkeys(recipes)))


def _check(
    target: TuningTarget, before: Table, fresh: Entries, measured: Entries, save: Callable[[Entries], None]
) -> str:
    """Drop new entries that make the whole step slower. Returns a sentence with its times."""
    accepted, (old, new) = accept(fresh, lambda some: compare_steps(target, before, before.with_entries(some)))
    for key in set(fresh) - set(accepted):
        if key in before.entries:
            measured[key] = before.entries[key]
        else:
            del measured[key]
    save(measured)
    left = f", without {len(fresh) - len(accepted)} new entries" if len(accepted) < len(fresh) else ""
    return f"the whole step takes {new:.4f} ms, before {old:.4f} ms{left}"


def accept(fresh: Entries, compare: Callable[[Entries], tuple[float, float]]) -> tuple[Entries, tuple[float, float]]:
    """The entries, or parts of them, that do not make a step slower, and its times without and with them.

    `compare` returns both times for entries that are added to the old table.
    """
    old, new = compare(fresh)
    if new <= SLOWER * old:
        return fresh, (old, new)
    accepted: Entries = {}
    times, keys = (old, old), list(fresh)
    for part in range(PARTS):
        tried = accepted | {key: fresh[key] for key in keys[part::PARTS]}
        old, new = compare(tried)
        if new <= SLOWER * old:
            accepted, times = tried, (old, new)
    return accepted, times


def compare_steps(target: TuningTarget, before: Table, after: Table) -> tuple[float, float]:
    """Milliseconds of the whole step with each table, medians of seven interleaved rounds.

    Infinite for the new table if its results differ by more than rounding: a kernel is wrong then.
    """
    (one, batch), (two, _) = (ready_plan(target, table) for table in (before, after))
    plans = one, two
    results = [_results(plan, batch) for plan in plans]
    replays = 50 if target.batch <= 2 else 5
    times = [[plan.replay_milliseconds(batch, replays) for plan in plans] for _ in range(7)]
    arithmetic = plans[0].frame.arithmetic
    for plan in plans:
        plan.close()
    old, new = (median(pair[i] for pair in times) for i in (0, 1))
    return old, new if _difference(*results) <= DIFFERENT[arithmetic] else inf


def _results(plan: CudaPlan, batch: PhotoBatch) -> Mapping[str, Array]:
    """Logits of a prediction, or the gradients of a training step."""
    if not plan.training:
        return plan.predict(batch)
    plan.gradient(batch)
    return plan.gradients()


def _difference(ours: Mapping[str, Array], theirs: Mapping[str, Array]) -> float:
    """The largest relative difference in norm; small arrays are compared with the largest one. Infinite for NaN."""
    norms = {name: float(np.linalg.norm(array)) for name, array in ours.items()}
    least = max(0.05 * max(norms.values()), 1e-12)
    differences = [float(np.linalg.norm(ours[name] - theirs[name])) / max(norms[name], least) for name in ours]
    return inf if any(map(isnan, differences)) else max(differences)


def ready_plan(
    target: TuningTarget, table: Table | None = None, algorithm: str = "auto"
) -> tuple[CudaPlan, PhotoBatch]:
    """A plan with its weights and random photos on the GPU, and the batch of them; by default with this GPU's table."""
    plan = CudaPlan(
        target.graph, batch=target.batch, training=target.training, precision=target.precision, algorithm=algorithm,
        tuning=table, optimizer=Optimizer("adam") if target.training else None,
    )  # fmt: skip
    plan.load(target.weights)
    side = target.graph.photo_shape[0]
    plan.keep_photos(np.random.default_rng(0).integers(0, 256, (target.batch, side, side, 3), np.uint8))
    index = np.arange(target.batch, dtype=np.int32)
    return plan, PhotoBatch(None, identity_augmentation(len(index), (side, side), (side, side)), index % 2, index)
