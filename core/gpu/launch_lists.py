"""The lists of launches a plan captures: a prediction, or a step's gradient and update, apart and in one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from core.gpu.frame import Addresses, Frame
from core.gpu.launch import Launch
from core.gpu.lowering import write_launches
from core.gpu.ops.update.launches import (
    UpdateArrays,
    average_launches,
    pack_launch,
    result_launch,
    result_launches,
    update_launch,
)
from core.optim.optimizer import Optimizer

PDL_IMAGES: Final = 2
"""Images of a prediction up to which launches are dependent ones: more images gain nothing, training loses time."""


def write_lists(
    frame: Frame, where: Addresses, at: Mapping[str, int], optimizer: Optimizer, averages: bool = False
) -> dict[str, list[Launch]]:
    """Every list by name, with real addresses: `where` for the frame's arrays, `at` for the optimizer's.

    averages: the gradient is averaged over ranks in the lists "step" and "average".
    """
    training = frame.program.training
    frame.restart(where)
    write_launches(frame, training, False)
    lists = {"pack": [pack_launch(frame)]}
    if not training:
        return {**lists, "predict": chain(frame, frame.launches)}
    first = frame.launches
    frame.restart(where)
    write_launches(frame, True, True)
    arrays = UpdateArrays(at["first"], at.get("second", 0), at.get("average", 0), at["roles"], at["sums"], at["answer"])
    count = frame.layout.trained
    end = result_launches(where, count, frame.batch, arrays)
    update = [update_launch(where, count, frame.processors, optimizer, arrays), pack_launch(frame)]
    lists |= {"gradient": [*first, *end], "accumulate": [*frame.launches, *end], "update": update}
    if not averages:
        return {**lists, "step": [*first, *end, *update]}
    average = average_launches(where, count, arrays)
    score = result_launch(where, frame.batch, arrays)  # the norm that it writes is replaced
    return {**lists, "average": average, "step": [*first, score, *average, *update]}


def chain(frame: Frame, launches: list[Launch]) -> list[Launch]:
    """Launches as a plan runs them one after another: dependent ones in small predictions."""
    few = frame.hardware.is_hopper and frame.batch <= PDL_IMAGES and not frame.program.training
    return dependent_launches(launches) if few else launches


def dependent_launches(launches: Sequence[Launch]) -> list[Launch]:
    """The launches, each of which may begin while the previous one runs (`core.gpu.compilation.pdl`).

    The first waits for what is in front of the graph. Launches on two streams are left as they are.
    """
    if any(launch.stream for launch in launches):
        return list(launches)
    waiting = [replace(launch, recipe=replace(launch.recipe, dependent=True)) for launch in launches]
    return [waiting[0], *(replace(launch, dependent=True) for launch in waiting[1:])]
