"""Teaching kernels as candidates: ``launch(problem, arrays)`` adds the launches of one step on float32 arrays.

For most kernels `by_names` makes the launcher from the names of the kernel's parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

from core.gpu.select import Candidate, Case
from core.gpu.teaching.kernel import DeviceArray, TeachingKernel, Where, as_matrix, flat, over
from core.gpu.teaching.step_arrays import StepArrays
from core.ops.contract import volume
from core.ops.dropout import threshold
from core.ops.registry import KernelCase, Refusal
from core.ops.window import POINT, Window, read_window

Launcher: TypeAlias = Callable[[KernelCase, StepArrays], None]


def window_of(problem: KernelCase) -> Window:
    """The window of a pool or convolution; for a global average, all pixels, for a dense layer, one."""
    if problem.op == "dense":
        return POINT
    if problem.op == "global_avg_pool":
        height, width, _ = problem.inputs[0]
        return Window((height, width), (1, 1), (0, 0, 0, 0))
    return read_window(problem.attributes)


def geometry(problem: KernelCase) -> tuple[tuple[int, int], tuple[int, int]]:
    """(stride, padding at the top and left)."""
    window = read_window(problem.attributes)
    return window.stride, (window.padding[0], window.padding[1])


def groups(problem: KernelCase) -> int:
    return int(str(problem.attributes.get("groups", 1)))


SCALARS: Final[dict[str, Callable[[KernelCase, StepArrays], Any]]] = {
    "kernel": lambda problem, arrays: window_of(problem).kernel,
    "stride": lambda problem, arrays: window_of(problem).stride,
    "pad": lambda problem, arrays: window_of(problem).padding[:2],
    "after": lambda problem, arrays: window_of(problem).padding[2:],
    "include": lambda problem, arrays: int(bool(problem.attributes.get("count_include_pad"))),
    "groups": lambda problem, arrays: problem.inputs[0][-1] // arrays["weight"].shape[-1],
    "smoothing": lambda problem, arrays: float(str(problem.attributes["label_smoothing"])),
    "volume": lambda problem, arrays: volume(problem.inputs[0]),
    "key": lambda problem, arrays: problem.attributes["key"],
    "limit": lambda problem, arrays: threshold(float(str(problem.attributes["rate"]))),
    "scale": lambda problem, arrays: 1 / (1 - float(str(problem.attributes["rate"]))),
    "rows": lambda problem, arrays: problem.output[0],
    "columns": lambda problem, arrays: problem.output[1],
    "depth": lambda problem, arrays: problem.inputs[0][1],
}
"""Numbers and pairs that a kernel of `by_names` may take, by the name of its parameter."""


def as_images(array: DeviceArray) -> DeviceArray:
    """The same memory as (images, pixels, channels)."""
    images, channels = array.shape[0], array.shape[-1]
    return array.reshape(images, array.size // (images * channels), channels)


def as_pixels(array: DeviceArray) -> DeviceArray:
    """The same memory as (images, rows, columns, channels), or filters; a vector is one pixel."""
    images, *sides, channels = array.shape
    return array.reshape(images, *(sides or (1, 1)), channels)


SHAPED: Final = {"Vector": flat, "Matrix": as_matrix, "Cube": as_images, "Batch": as_pixels, "Filters": as_pixels}
"""Reshapes an array for a kernel's annotation."""


def per_element(result: DeviceArray) -> Where:
    return over(result.size)


def by_names(kernel: TeachingKernel, where: Callable[[DeviceArray], Where] = per_element, **roles: str) -> Launcher:
    """The launcher of a kernel whose parameters are named after roles of arrays, renamed by `roles`, and `SCALARS`.

    The last array of floats is the result; `where` returns blocks and threads for it. The gradient of a bias is
    computed only if it is needed.
    """
    return partial(_launch, where, roles, kernel)


def _launch(
    where: Callable[[DeviceArray], Where], roles: Mapping[str, str], kernel: TeachingKernel, problem: KernelCase,
    arrays: StepArrays,
) -> None:  # fmt: skip
    named = [(roles.get(name, name), kind) for name, kind in kernel.parameters]
    result = [role for role, kind in named if role not in SCALARS and kind != "Integers"][-1]
    if result == "dbias" and result not in arrays:
        return
    given = []
    for role, kind in named:
        if role in SCALARS:
            given.append(SCALARS[role](problem, arrays))
        else:
            given.append(SHAPED[kind](arrays[role]) if kind in SHAPED else arrays[role])
    kernel[where(arrays[result])](*given)


def in_order(*launchers: Launcher) -> Launcher:
    return partial(_launch_all, launchers)


def _launch_all(launchers: Sequence[Launcher], problem: KernelCase, arrays: StepArrays) -> None:
    for launch in launchers:
        launch(problem, arrays)


FLOAT32: Final = frozenset(("float32", "fma"))


def teach(
    name: str, op: str, direction: str, launch: Launcher, idea: str,
    refuses: Refusal = lambda problem: "", level: str = "",
) -> Candidate:  # fmt: skip
    """The candidate of a launcher; its implementation level is its name, unless `level` says otherwise."""
    return Candidate(
        name, (op,), direction, partial(_write, launch), idea, level or name, 0.02,
        lambda case: refuses(problem_of(case)), arithmetics=FLOAT32,
    )  # fmt: skip


def problem_of(case: Case) -> KernelCase:
    """The step as launchers take it."""
    step = case.step
    shapes = tuple(value.shape for value in step.inputs)
    return KernelCase(step.op, step.attributes, shapes, step.output.shape, case.frame.batch)


def _write(launch: Launcher, case: Case) -> None:
    arrays = StepArrays(case)
    launch(problem_of(case), arrays)
    arrays.finish()
