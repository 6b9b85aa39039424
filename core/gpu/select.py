"""Which kernel computes a step: candidates as rows, why they refuse, what they cost, and the cheapest sequence.

A candidate replaces a pattern of one to a few neighbouring steps. Choosing between single and fused candidates is a
shortest path over the steps. Nothing here knows a kernel's name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Final, final

from core.errors import KernelUnavailable
from core.gpu.cost_model import estimate
from core.gpu.frame import Frame
from core.gpu.gradients import Backward
from core.gpu.tuning import Key, choose_measured
from core.graph import PHOTO
from core.ops.contract import volume
from core.ops.window import read_window
from core.program import Step

FORWARD: Final = "forward"
BACKWARD: Final = "backward"
"""All gradients of the pattern in one go; the alternative is `WEIGHT` for each step, then `INPUT` for the pattern."""
INPUT: Final = "backward_input"
WEIGHT: Final = "backward_weight"

LEVELS: Final = (
    "naive", "shared", "im2col", "winograd", "winograd_f4", "fft", "fft_tiled", "cublas", "tensor_core", "auto",
)
"""Implementation levels, simplest first. ``--algorithm NAME`` gives each step its highest level up to NAME; "auto"
takes the cheapest candidate of all, and it alone replaces several steps by one launch or uses what one GPU has."""

BY_NAME: Final = ("winograd", "winograd_f4", "fft", "fft_tiled", "cublas")
"""Levels that are used only where they are asked for by name."""

FAST: Final = ("tensor_core", "auto")
"""Levels whose kernels work on a plan's own layout and are fused with their neighbours; the others are for teaching."""

EVERY: Final = frozenset(("bf16", "tf32", "float32", "fma"))
"""All arithmetics of `Frame.arithmetic`."""
BF16: Final = frozenset(("bf16",))


@final
@dataclass(frozen=True, slots=True)
class Case:
    """Neighbouring steps in one direction, in one plan: everything a candidate may look at.

    `traversal` is the state of the backward traversal; it is None while candidates are compared. `configuration` is the
    chosen one of the candidate's, such as a tile; None while candidates are compared, or where there is no choice.
    """

    frame: Frame
    steps: tuple[Step, ...]
    direction: str
    traversal: Backward | None = None
    configuration: Any = None

    @property
    def step(self) -> Step:
        """The first step, for candidates of one step the only one."""
        return self.steps[0]

    @property
    def backward(self) -> Backward:
        """The state of the backward traversal, while launches are written."""
        assert self.traversal is not None
        return self.traversal

    @property
    def pattern(self) -> tuple[str, ...]:
        return tuple(step.op for step in self.steps)

    @property
    def key(self) -> Key:
        """The case in a tuning table: what its steps are, and pixels, channels and depth of the product."""
        frame, first, last = self.frame, self.steps[0], self.steps[-1]
        following = frame.following(last)
        kinds = [_describe(step) for step in self.steps]
        if frame.program.training and following is not None and following.op == "batch_norm":
            kinds.append("(batch_norm)")
        mode = "training" if frame.program.training else "prediction"
        pixels = frame.batch * (last.output.shape[0] * last.output.shape[1] if len(last.output.shape) == 3 else 1)
        area = max((kernel[0] * kernel[1] for step in self.steps for kernel in [_kernel(step)]), default=1)
        depth = area * (volume(first.inputs[0].shape) if first.op == "dense" else first.inputs[0].shape[-1])
        columns = sum(step.output.shape[-1] for step in self.steps if step.output.buffer == last.output.buffer)
        return Key(f"{self.direction} {mode} {frame.arithmetic}: {' + '.join(kinds)}", (pixels, columns, depth))


def _kernel(step: Step) -> tuple[int, int]:
    """Height and width of a step's window, (1, 1) without one."""
    return read_window(step.attributes).kernel if "kernel" in step.attributes else (1, 1)


def _describe(step: Step) -> str:
    """A step's op, window and groups, as a tuning table names it."""
    if "kernel" not in step.attributes:
        return step.op
    window = read_window(step.attributes)
    sizes = f"{window.kernel[0]}x{window.kernel[1]}/{window.stride[0]}"
    groups = int(step.attributes.get("groups", 1))  # type: ignore[arg-type]
    image = " of the image" if step.inputs[0].buffer == PHOTO else ""
    return f"{step.op} {sizes}{f' in {groups} groups' if groups > 1 else ''}{image}"


@final
@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to compute a pattern of steps in one direction.

    `write` adds the launches to the frame; `refuses` gives the reason against a case as a sentence, or nothing.
    `efficiency` is the share of the roofline it reaches where nothing was measured (`core.gpu.cost_model`).
    """

    name: str
    pattern: tuple[str, ...]
    direction: str
    write: Callable[[Case], None]
    idea: str
    level: str = "tensor_core"
    efficiency: float = 0.4
    refuses: Callable[[Case], str] = lambda case: ""
    capability: tuple[int, int] = (7, 5)
    arithmetics: frozenset[str] = EVERY
    configurations: Callable[[Case], Sequence[Any]] = lambda case: (None,)
    """Ways to compute a case that it does not refuse, such as tiles, the most promising first; none refuses it, too."""
    exclusive: bool = False
    """Whether its neighbours rely on it: where it does not refuse, no other candidate computes the steps."""

    def reason_against(self, case: Case) -> str:
        """Why it cannot compute the case, or nothing."""
        frame = case.frame
        if frame.arithmetic not in self.arithmetics:
            if "float32" in self.arithmetics:
                return f"It does not compute in {frame.arithmetic}. Use --precision float32."
            return f"It does not compute in {frame.arithmetic}."
        if frame.hardware.kernels < self.capability:
            return f"It needs compute capability {self.capability[0]}.{self.capability[1]}."
        if LEVELS.index(self.level) > LEVELS.index(frame.algorithm):
            return f"--algorithm {frame.algorithm} excludes it."
        unasked = self.level in BY_NAME and self.level != frame.algorithm
        if unasked or (self.level not in FAST and frame.algorithm in FAST):
            return f"It is for teaching: --algorithm {self.level} runs it."
        try:
            return self.refuses(case) or ("" if self.configurations(case) else NO_CONFIGURATION)
        except KernelUnavailable as error:
            return str(error)


NO_CONFIGURATION: Final = "None of its tiles fits."


@final
@dataclass(frozen=True, slots=True)
class Considered:
    """One candidate of a case: the reason against it, or its cost in microseconds, where that is from, and how."""

    candidate: Candidate
    reason: str
    microseconds: float = inf
    source: str = ""
    configuration: Any = None


@final
@dataclass(frozen=True, slots=True)
class Choice:
    """A case and the candidate that writes it."""

    case: Case
    candidate: Candidate
    microseconds: float

    def write(self, traversal: Backward | None = None) -> None:
        self.candidate.write(replace(self.case, traversal=traversal))


@final
@dataclass(frozen=True, slots=True)
class Segment:
    """Steps that are written together, and the choices that write them, in order."""

    steps: tuple[Step, ...]
    choices: tuple[Choice, ...]

    @property
    def microseconds(self) -> float:
        return sum(choice.microseconds for choice in self.choices)


@final
class Candidates:
    """The one table: what the plan, the laboratory, the window and the tests read."""

    def __init__(self, rows: Iterable[Candidate]) -> None:
        self.rows = tuple(rows)
        self._by_pattern: dict[tuple[tuple[str, ...], str], list[Candidate]] = {}
        for row in self.rows:
            self._by_pattern.setdefault((row.pattern, row.direction), []).append(row)
        keys = [(row.pattern, row.direction, row.name) for row in self.rows]
        if len(set(keys)) != len(keys):
            raise ValueError(f"candidates listed twice: {sorted({k for k in keys if keys.count(k) > 1})}")
        self.longest = max(len(row.pattern) for row in self.rows)

    def of(self, pattern: tuple[str, ...], direction: str) -> Sequence[Candidate]:
        return self._by_pattern.get((pattern, direction), ())

    def usable(self, case: Case) -> tuple[dict[str, Sequence[Any]], dict[str, str]]:
        """(configurations of each candidate that can compute the case, reasons against the others), by name."""
        rows = self.of(case.pattern, case.direction)
        reasons = {row.name: row.reason_against(case) for row in rows}
        alone = next((row.name for row in rows if row.exclusive and not reasons[row.name]), "")
        found: dict[str, Sequence[Any]] = {}
        for row in rows:
            if alone and row.name != alone and not reasons[row.name]:
                reasons[row.name] = f"The neighbouring steps depend on {alone}."
            if not reasons[row.name]:
                found[row.name] = row.configurations(case)
        return found, reasons

    def consider(self, case: Case) -> list[Considered]:
        """Every candidate of the case's pattern: measured where all that can compute it were, otherwise estimated."""
        configurations, reasons = self.usable(case)
        measured, source = choose_measured(case.frame.tuning, case.key, configurations)
        found = []
        for row in self.of(case.pattern, case.direction):
            if reasons[row.name]:
                found.append(Considered(row, reasons[row.name]))
                continue
            configuration, microseconds = measured.get(row.name, (configurations[row.name][0], 0.0))
            if not source:
                microseconds = estimate(case.frame, case.steps, case.direction, row.efficiency)
            found.append(Considered(row, "", microseconds, source or "estimated", configuration))
        return found

    def choose(self, case: Case) -> Choice | None:
        """The cheapest candidate that does not refuse, of the highest level where a level was asked for."""
        usable = [c for c in self.consider(case) if not c.reason]
        if case.frame.algorithm != "auto" and usable:
            highest = max(LEVELS.index(c.candidate.level) for c in usable)
            usable = [c for c in usable if LEVELS.index(c.candidate.level) == highest]
        best = min(usable, key=lambda c: c.microseconds, default=None)
        return best and Choice(replace(case, configuration=best.configuration), best.candidate, best.microseconds)

    def require(self, case: Case) -> Choice:
        """As `choose`. Raises KernelUnavailable with every candidate's reason."""
        choice = self.choose(case)
        if choice is None:
            reasons = " ".join(f"{c.candidate.name}: {c.reason}" for c in self.consider(case))
            names = ", ".join(step.node for step in case.steps)
            raise KernelUnavailable(
                f"The GPU has no kernel for {' and '.join(case.pattern)} {case.direction} ({names}). {reasons}".strip()
            )
        return choice


def forward_segment(table: Candidates, frame: Frame, steps: tuple[Step, ...]) -> Segment | None:
    """The choice for a pattern of steps; None where a pattern of several has no candidate."""
    case = Case(frame, steps, FORWARD)
    choice = table.require(case) if len(steps) == 1 else table.choose(case)
    return Segment(steps, (choice,)) if choice else None


def backward_segment(table: Candidates, frame: Frame, steps: tuple[Step, ...]) -> Segment | None:
    """One candidate for all gradients, or the steps' weight gradients, last step first, then the input's gradient."""
    wants = any(frame.wants(value) for value in steps[0].inputs)
    trained = [step for step in reversed(steps) if frame.trains_any(step)]
    if not wants and not trained:
        return Segment(steps, ()) if len(steps) == 1 else None
    whole = table.choose(Case(frame, steps, BACKWARD))
    together = Segment(steps, (whole,)) if whole else None
    if whole is not None and whole.candidate.exclusive:
        return together
    last = Case(frame, steps, INPUT)
    if len(steps) > 1 and table.choose(last) is None:
        return together
    cases = [*(Case(frame, (step,), WEIGHT) for step in trained), *([last] if wants else [])]
    parts = [table.choose(case) for case in cases]
    if together is None and len(steps) == 1:
        parts = [table.require(case) for case in cases]
    if None in parts:
        return together
    apart = Segment(steps, tuple(part for part in parts if part is not None))
    return together if together is not None and together.microseconds <= apart.microseconds else apart


def cheapest(
    table: Candidates, frame: Frame, steps: Sequence[Step],
    segment: Callable[[Candidates, Frame, tuple[Step, ...]], Segment | None],
) -> list[Segment]:  # fmt: skip
    """The cheapest sequence of segments that covers the steps: a shortest path."""
    best: list[tuple[float, list[Segment]]] = [(0.0, [])]
    for end in range(1, len(steps) + 1):
        found = []
        for first in range(end - 1, max(-1, end - 1 - table.longest), -1):
            one = segment(table, frame, tuple(steps[first:end]))
            if one is not None:
                found.append((best[first][0] + one.microseconds, [*best[first][1], one]))
        best.append(min(found, key=lambda path: path[0]))
    return best[-1][1]
