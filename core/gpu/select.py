"""Selection of kernels: candidates of a pattern of one to a few neighbouring steps, their refusals and costs.

No kernel is named here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf, prod
from typing import Any, Final

from core.errors import KernelUnavailable
from core.gpu.compilation.generations import HOPPER
from core.gpu.cost_model import estimate
from core.gpu.frame import Frame
from core.gpu.gradients import Backward
from core.gpu.launch import PLAIN, Target, Tensor
from core.gpu.tuning import Key, choose_measured
from core.graph import PHOTO
from core.ops.contract import volume
from core.ops.window import read_window
from core.program import Step

FORWARD: Final = "forward"
BACKWARD: Final = "backward"
"""All gradients of a pattern together; the alternative is `WEIGHT` for each step, then `INPUT` for the pattern."""
INPUT: Final = "backward_input"
WEIGHT: Final = "backward_weight"

LEVELS: Final = (
    "naive", "shared", "im2col", "winograd", "winograd_f4", "fft", "fft_tiled", "cublas", "tensor_core", "auto",
)
"""Implementation levels, simplest first. ``--algorithm NAME`` gives each step its highest level up to NAME. "auto"
takes the cheapest candidate; only its candidates fuse several steps or use features of one GPU."""


def check_level(algorithm: str, precision: str) -> None:
    """Raise KernelUnavailable if there is no such level, or not in this precision."""
    if algorithm not in LEVELS:
        raise KernelUnavailable(f"There is no algorithm {algorithm!r}. Choose one of {', '.join(LEVELS)}.")
    if algorithm not in FAST and precision != "float32":
        raise KernelUnavailable(f"The algorithm {algorithm} computes in float32 only: use --precision float32.")


BY_NAME: Final = ("winograd", "winograd_f4", "fft", "fft_tiled", "cublas")
"""Levels that are used only if requested by name."""

FAST: Final = ("tensor_core", "auto")
"""Levels whose kernels work on a plan's own layout and fuse neighbouring steps; the others are for teaching."""

EVERY: Final = frozenset(("bf16", "tf32", "float32", "fma"))
"""All arithmetics of `Frame.arithmetic`."""
BF16: Final = frozenset(("bf16",))


@dataclass(frozen=True, slots=True)
class Case:
    """Neighbouring steps of a plan in one direction: everything that a candidate may read.

    `traversal` is the state of the backward traversal, `configuration` the chosen one of the candidate's, such as a
    tile. Both are None while candidates are compared.
    """

    frame: Frame
    steps: tuple[Step, ...]
    direction: str
    traversal: Backward | None = None
    configuration: Any = None

    @property
    def step(self) -> Step:
        """The first step, which for most candidates is the only one."""
        return self.steps[0]

    @property
    def backward(self) -> Backward:
        """The state of the backward traversal, while launches are written."""
        assert self.traversal is not None
        return self.traversal

    @property
    def pattern(self) -> tuple[str, ...]:
        return tuple(step.op for step in self.steps)

    def sides(self) -> tuple[Tensor, Tensor, Target]:
        """The tensors read and written, and how: input and output, or for a gradient those of output and input."""
        frame, value, output = self.frame, self.step.inputs[0], self.step.output
        if self.direction == FORWARD:
            return frame.tensor(value), frame.tensor(output), PLAIN
        return frame.tensor(output, True), frame.tensor(value, True), self.backward.target(value)

    def gradient_sides(self) -> tuple[Tensor, Tensor]:
        """What a weight gradient reads: the first step's input, and the gradient of its output."""
        return self.frame.tensor(self.step.inputs[0]), self.frame.tensor(self.step.output, True)

    @property
    def key(self) -> Key:
        """The case in a tuning table."""
        frame, first, last = self.frame, self.steps[0], self.steps[-1]
        following = frame.following(last)
        kinds = [_describe(step) for step in self.steps]
        if frame.program.training and following is not None and following.op == "batch_norm":
            kinds.append("(batch_norm)")
        mode = "training" if frame.program.training else "prediction"
        pixels = frame.batch * (last.output.shape[0] * last.output.shape[1] if len(last.output.shape) == 3 else 1)
        windows = [read_window(step.attributes) for step in self.steps if "kernel" in step.attributes]
        area = max((prod(window.kernel) for window in windows), default=1)
        depth = area * (volume(first.inputs[0].shape) if first.op == "dense" else first.inputs[0].shape[-1])
        columns = sum(step.output.shape[-1] for step in self.steps if step.output.buffer == last.output.buffer)
        return Key(f"{self.direction} {mode} {frame.arithmetic}: {' + '.join(kinds)}", (pixels, columns, depth))


def _describe(step: Step) -> str:
    """Name of a step in tuning tables: op, window and groups."""
    if "kernel" not in step.attributes:
        return step.op
    window = read_window(step.attributes)
    sizes = f"{window.kernel[0]}x{window.kernel[1]}/{window.stride[0]}"
    groups = int(step.attributes.get("groups", 1))  # type: ignore[arg-type]
    image = " of the image" if step.inputs[0].buffer == PHOTO else ""
    return f"{step.op} {sizes}{f' in {groups} groups' if groups > 1 else ''}{image}"


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to compute a pattern of steps in one direction.

    `write` adds the launches to the frame. An array lives from the first to the last launch before which its address
    was asked for, so `write` asks (`Frame.tensor`, `Frame.use`) before each launch for what it uses. A gradient is
    written as `Case.backward.target` says, only where `Frame.wants` it. `refuses` returns the reason against a case as
    a sentence, or ""; it must not depend on the traversal.
    `efficiency` is the share of the roofline that is assumed where nothing was measured (`core.gpu.cost_model`).
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
    """Configurations for a case, such as tiles, the most promising first; without any, the case is refused."""
    exclusive: bool = False
    """Whether neighbouring steps depend on it: if it does not refuse, no other candidate computes the steps."""

    def estimate(self, case: Case) -> float:
        """Microseconds for the case, where it was not measured."""
        return estimate(case.frame, case.steps, case.direction, self.efficiency)

    def reason_against(self, case: Case) -> str:
        """Why it cannot compute the case, or ""."""
        frame = case.frame
        computes = frame.arithmetic in self.arithmetics
        unasked = self.level in BY_NAME and self.level != frame.algorithm
        if unasked or (self.level not in FAST and frame.algorithm in FAST):
            return (f"It is for teaching: --algorithm {self.level} runs it." if computes else
                    f"It is for teaching: --precision float32 --algorithm {self.level} runs it.")  # fmt: skip
        if LEVELS.index(self.level) > LEVELS.index(frame.algorithm):
            return f"--algorithm {frame.algorithm} excludes it."
        if not computes:
            advice = " Use --precision float32." if "float32" in self.arithmetics else ""
            arithmetic = frame.arithmetic.replace("fma", "float32")
            return f"It does not compute in {arithmetic}.{advice}"
        if frame.hardware.kernel_capability < self.capability:
            needed = ".".join(map(str, self.capability))
            return (f"It runs only on compute capability {needed}." if self.capability == HOPPER else
                    f"It needs compute capability {needed}.")  # fmt: skip
        try:
            return self.refuses(case) or ("" if self.configurations(case) else "None of its tiles fits.")
        except KernelUnavailable as error:
            return str(error)


@dataclass(frozen=True, slots=True)
class Choice:
    """A case with a configuration, and a candidate: the reason against it, or its cost and where that comes from."""

    case: Case
    candidate: Candidate
    microseconds: float = inf
    source: str = ""
    reason: str = ""

    def write(self, traversal: Backward | None = None) -> None:
        self.candidate.write(replace(self.case, traversal=traversal))


class Candidates:
    """The table of all candidates, used by plan, laboratory, window and tests."""

    def __init__(self, candidates: Iterable[Candidate]) -> None:
        self.all = tuple(candidates)
        self._by_pattern: dict[tuple[tuple[str, ...], str], list[Candidate]] = {}
        for one in self.all:
            self._by_pattern.setdefault((one.pattern, one.direction), []).append(one)
        keys = [(one.pattern, one.direction, one.name) for one in self.all]
        if len(set(keys)) != len(keys):
            raise ValueError(f"candidates listed twice: {sorted({k for k in keys if keys.count(k) > 1})}")
        if unknown := [(one.name, one.level) for one in self.all if one.level not in LEVELS]:
            raise ValueError(f"candidates whose level is not in LEVELS: {unknown}")
        self.longest = max(len(one.pattern) for one in self.all)

    def of(self, pattern: tuple[str, ...], direction: str) -> Sequence[Candidate]:
        return self._by_pattern.get((pattern, direction), ())

    def usable(self, case: Case) -> tuple[dict[str, Sequence[Any]], dict[str, str]]:
        """(configurations of each usable candidate, reasons against all, empty for the usable ones), by name."""
        found = self.of(case.pattern, case.direction)
        with case.frame.comparing():
            reasons = {one.name: one.reason_against(case) for one in found}
            alone = next((one.name for one in found if one.exclusive and not reasons[one.name]), "")
            for name, reason in reasons.items():
                if alone and name != alone and not reason:
                    reasons[name] = f"The neighbouring steps depend on {alone}."
            return {one.name: one.configurations(case) for one in found if not reasons[one.name]}, reasons

    def consider(self, case: Case) -> list[Choice]:
        """Every candidate of the case's pattern, with measured costs if all usable ones were measured."""
        configurations, reasons = self.usable(case)
        measured, source = choose_measured(case.frame.tuning, case.key, configurations)
        choices = []
        for one in self.of(case.pattern, case.direction):
            if reasons[one.name]:
                choices.append(Choice(case, one, reason=reasons[one.name]))
                continue
            configuration, microseconds = measured.get(one.name, (configurations[one.name][0], 0.0))
            chosen = replace(case, configuration=configuration)
            cost = (microseconds, source) if source else (one.estimate(case), "estimated")
            choices.append(Choice(chosen, one, *cost))
        return choices

    def choose(self, case: Case) -> Choice | None:
        """The cheapest usable candidate; if a level was requested, of the highest level up to it."""
        usable = [c for c in self.consider(case) if not c.reason]
        if case.frame.algorithm != "auto" and usable:
            highest = max(LEVELS.index(c.candidate.level) for c in usable)
            usable = [c for c in usable if LEVELS.index(c.candidate.level) == highest]
        return min(usable, key=lambda c: c.microseconds, default=None)

    def require(self, case: Case) -> Choice:
        """Like `choose`, but raises KernelUnavailable with the reasons if no candidate is usable."""
        choice = self.choose(case)
        if choice is None:
            reasons = " ".join(f"{c.candidate.name}: {c.reason}" for c in self.consider(case))
            names = ", ".join(step.node for step in case.steps)
            raise KernelUnavailable(
                f"The GPU has no kernel for {' and '.join(case.pattern)} {case.direction} ({names}). {reasons}".strip()
            )
        return choice
