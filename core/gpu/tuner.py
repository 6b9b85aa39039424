"""Tunes a plan on this GPU: measures every candidate and configuration of each of its cases and keeps the fastest.

Each measured case is saved at once, so an interrupted tuning resumes. The present choice is measured in the same
rounds. At the end the whole step runs with the old table and the new one, interleaved; entries that make it slower are
dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, product
from math import inf, isnan
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Final

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
from core.gpu.select import BACKWARD, FORWARD, INPUT, WEIGHT, Case, Choice
from core.gpu.timing import Bench, write_choice
from core.gpu.tuning import Entries, Key, Measured, Table, encode, load_table, make_user_path, resume_table, write_table
from core.graph import Graph
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


def find_cases(frame: Frame, known: Table) -> dict[Key, list[Choice]]:
    """The choices to measure of each case of a plan that can be computed in several ways, alone or as a part of a
    longer pattern."""
    cases: dict[Key, list[Choice]] = {}
    steps = [step for step in frame.program.steps if not is_computed_with_loss(frame, step)]
    fused = {op for one in CANDIDATES.all if len(one.pattern) > 1 for op in one.pattern}
    directions = (FORWARD, BACKWARD, INPUT, WEIGHT) if frame.program.training else (FORWARD,)
    for at, length, direction in product(range(len(steps)), range(1, CANDIDATES.longest + 1), directions):
        case = Case(frame, tuple(steps[at : at + length]), direction)
        if len(case.steps) < length or not _is_needed(case) or case.key in cases:
            continue
        choices = find_choices(case, known.entries.get(case.key, {}))
        if len(choices) > 1 or (choices and (length > 1 or case.step.op in fused)):
            cases[case.key] = choices
    return cases


def _is_needed(case: Case) -> bool:
    """Whether a plan computes the case: a gradient only if a parameter needs it."""
    frame = case.frame
    wants, trains = any(map(frame.wants, case.step.inputs)), any(map(frame.trains_any, case.steps))
    return {FORWARD: True, BACKWARD: wants or trains, INPUT: wants, WEIGHT: trains}[case.direction]


def find_choices(case: Case, used: Mapping[str, Measured]) -> list[Choice]:
    """Candidates and configurations to measure, including those in use."""
    usable, _ = CANDIDATES.usable(case)
    costs = {one: one.estimate(case) for one in CANDIDATES.of(case.pattern, case.direction) if one.name in usable}
    choices = []
    for one, cost in costs.items():
        limit = LIMIT if cost <= UNLIKELY * min(costs.values()) else 1
        every = [Choice(replace(case, configuration=c), one, cost) for c in usable[one.name]]
        choices += [choice for i, choice in enumerate(every) if i < limit or _is_in(used, choice)]
    return choices


def _is_in(used: Mapping[str, Measured], choice: Choice) -> bool:
    """Whether a choice is its candidate's configuration in use."""
    name = choice.candidate.name
    return name in used and encode(choice.case.configuration) == used[name].configuration


def measure_case(choices: Sequence[Choice], used: Mapping[str, Measured], bench: Bench) -> dict[str, Measured]:
    """Each candidate's fastest configuration; those in use are measured as often as the fastest ones."""
    times = zip(bench.times(choices, ROUNDS[0]), choices, strict=True)
    timed = sorted(((time, one) for time, one in times if time is not None), key=lambda pair: pair[0])
    again: list[Choice] = []
    for name in dict.fromkeys(one.candidate.name for one in choices):
        own = [(time, one) for time, one in timed if one.candidate.name == name]
        near = [one for time, one in own[:FINAL] if time <= CLOSE * own[0][0]]
        again += [one for _, one in own if one in near or _is_in(used, one)]
    best: dict[str, Measured] = {}
    for one, time in zip(again, bench.times(again, ROUNDS[1]), strict=True):
        name = one.candidate.name
        if time is not None and (name not in best or time < best[name].microseconds):
            best[name] = Measured(encode(one.case.configuration), time)
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
    todo = {key: choices for key, choices in cases.items() if key not in measured}
    known, total = len(cases) - len(todo), len(cases)
    text = "kernels are compiled" if todo else "all of them are in the table"
    yield TuningProgress(target, known, total, text, not todo)
    if not todo:
        return
    _load(device, frame, chain.from_iterable(todo.values()))
    fresh: Entries = {}
    bench = Bench(device, frame)
    try:
        for key, choices in todo.items():
            if monotonic() > deadline:
                break
            fresh[key] = measured[key] = measure_case(choices, before.entries.get(key, {}), bench)
            save(measured)
            yield TuningProgress(target, known + len(fresh), total, key.kind)
    finally:
        bench.close()
    if fresh:
        verdict = _check(target, before, fresh, measured, save)
        yield TuningProgress(target, known + len(fresh), total, verdict, True)


def _frame(device: Device, target: TuningTarget) -> Frame:
    program = lower(target.graph, target.training, fused=RELU)
    return Frame(program, target.batch, target.precision, device.hardware)


def _load(device: Device, frame: Frame, choices: Iterable[Choice]) -> None:
    recipes: list[Recipe] = []
    for choice in choices:
        one = write_choice(frame, {}, {}, choice)
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
