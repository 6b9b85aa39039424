"""Borders and lifetimes of all arrays of a program, and from them their places in a image's memory.

Time runs over the forward steps and back: step i of S works at its group's number plus one (`group_steps`)
and, in backward, at ``2 S + 1 - i``. Time 0 is the input image.
"""

from __future__ import annotations

from typing import Final

from core.cpu.geometry import Border, Buffers, gradient_border, input_border
from core.cpu.lowering import MATRIX, Lowering
from core.graph import PHOTO
from core.ops.contract import volume
from core.ops.op_table import LOSSES
from core.program import Program, Step

CONVOLUTIONS: Final = ("conv2d", "dense", "depthwise_conv2d")


def place_arrays(lowering: Lowering, wanted: frozenset[str], kept: frozenset[str], share: bool) -> None:
    """Give every buffer, every wanted gradient ("d name"), every pool's winners ("w step") and the matrix of im2col a
    place.

    kept: buffers that are read at the end; share: arrays that are never alive together may overlap.
    """
    buffers, program = lowering.buffers, lowering.program
    end = 2 * len(program.steps) + 2
    borders, turned = _borders(buffers, program)
    groups = group_steps(program)
    for name in buffers.shapes:
        first, last = _life(program, name, wanted)
        last = end if name in kept else last
        buffers.want(name, name, borders[name], first if share else 0, last if share else end)
        if name in wanted:
            first, last = _gradient_life(program, name, wanted)
            buffers.want(f"d {name}", name, turned[name], first if share else 0, last if share else end)
    for i, step in enumerate(program.steps):
        if step.op == "max_pool" and program.training:
            last = _backward_time(program, i)
            size = 4 * volume(step.output.shape)
            buffers.want_bytes(f"w {step.node}", size, groups[i] + 1 if share else 0, last if share else end)
    scratch = max(
        lowering.writers[s.node].scratch(s, buffers.image(s.inputs[0]), buffers.image(s.output)) for s in program.steps
    )
    if scratch:
        buffers.want_bytes(MATRIX, scratch, 0, end)
    buffers.settle()


def group_steps(program: Program) -> list[int]:
    """Number of each step's group: at inference steps that follow each other without reading each other's results.

    One image's threads synchronize only after a group, so arrays of one group never share memory.
    """
    groups, written, read = list[int](), set[str](), set[str]()
    for step in program.steps:
        inputs = {value.buffer for value in step.inputs}
        if not groups:
            groups.append(0)
        elif program.training or inputs & written or step.output.buffer in read:
            groups.append(groups[-1] + 1)
            written, read = set(), set()
        else:
            groups.append(groups[-1])
        written.add(step.output.buffer)
        read |= inputs
    return groups


def _backward_time(program: Program, index: int) -> int:
    return 2 * len(program.steps) + 1 - index


def _borders(buffers: Buffers, program: Program) -> tuple[dict[str, Border], dict[str, Border]]:
    borders: dict[str, Border] = {name: (0, 0, 0, 0) for name in buffers.shapes}
    turned = dict(borders)
    for step in program.steps:
        if step.op in CONVOLUTIONS:
            source, target = (buffers.image(v) for v in (step.inputs[0], step.output))
            name = step.inputs[0].buffer
            borders[name] = _wider(borders[name], input_border(step, source, target))
            name = step.output.buffer
            turned[name] = _wider(turned[name], gradient_border(step, source, target))
    return borders, turned


def _wider(a: Border, b: Border) -> Border:
    return max(a[0], b[0]), max(a[1], b[1]), max(a[2], b[2]), max(a[3], b[3])


def _life(program: Program, name: str, wanted: frozenset[str]) -> tuple[int, int]:
    """A forward array lives from its first writer to its last reader; in training backward reads it too."""
    writers, readers, group = _writers(program, name), _readers(program, name), group_steps(program)
    times = [group[i] + 1 for i in (*writers, *readers)]
    if program.training:
        learning = [i for i in (*writers, *readers) if program.steps[i].output.buffer in wanted]
        times += [_backward_time(program, i) for i in learning]
        times += [_backward_time(program, i) for i in readers if _is_loss(program.steps[i])]
    first = 0 if name == PHOTO or not writers else group[min(writers)] + 1
    return first, max(times, default=0)


def _gradient_life(program: Program, name: str, wanted: frozenset[str]) -> tuple[int, int]:
    steps = program.steps
    readers = [i for i in _readers(program, name) if steps[i].output.buffer in wanted or _is_loss(steps[i])]
    writers = _writers(program, name)
    last = _backward_time(program, min(writers, default=0))
    return (_backward_time(program, max(readers or writers)), last) if readers or writers else (0, last)


def _is_loss(step: Step) -> bool:
    return step.op in LOSSES


def _readers(program: Program, name: str) -> list[int]:
    return [i for i, step in enumerate(program.steps) if any(v.buffer == name for v in step.inputs)]


def _writers(program: Program, name: str) -> list[int]:
    return [i for i, step in enumerate(program.steps) if step.output.buffer == name]
