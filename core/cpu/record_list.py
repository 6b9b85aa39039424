"""The records of a plan in execution order, and the memory of its arrays by their lifetimes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from core.cpu import elementwise as ew
from core.cpu.backward import backward_records
from core.cpu.forward import photo_record
from core.cpu.geometry import Border, Buffers, gradient_border, input_border
from core.cpu.lowering import MATRIX, Lowering, border_records
from core.cpu.records import Fields, Record, address_of
from core.graph import PHOTO
from core.ops.contract import Array, volume
from core.ops.op_table import LOSSES
from core.program import Program, Step, wanted_buffers


@dataclass(frozen=True, slots=True)
class RecordList:
    """The records of a plan and their groups.

    parts: each step's forward records (step, first, last). bounds: first record of each group of one image.
    outputs: arrays that `predict` returns, by name.
    """

    records: list[Record]
    parts: list[tuple[Step, int, int]]
    bounds: list[int]
    outputs: Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Stage:
    """Records `first` to `last` of every image, or `once` for the batch; threads synchronize after it."""

    first: int
    last: int
    once: bool


def list_records(lowering: Lowering, outputs: Sequence[str]) -> RecordList:
    """Assign memory to all arrays and list the records; outputs: values that are returned besides the logits."""
    program, training = lowering.program, lowering.program.training
    wanted = wanted_buffers(program, lowering.trains) if training else frozenset[str]()
    values = {} if training else {"logits": program.output, **{name: program.values[name] for name in outputs}}
    kept = frozenset(value.buffer for value in values.values())
    place_arrays(lowering, wanted, kept, share=True)
    records = [*border_records(lowering, PHOTO, "forward"), photo_record(lowering)]
    groups, bounds = group_steps(program), [0]
    bordered, parts = {PHOTO}, list[tuple[Step, int, int]]()
    for i, step in enumerate(program.steps):
        start = len(records)
        if not i or groups[i] != groups[i - 1]:
            bounds.append(start)
            members = [s.output.buffer for s, g in zip(program.steps, groups, strict=True) if g == groups[i]]
            for name in dict.fromkeys(members):
                if name not in bordered:
                    bordered.add(name)
                    records += border_records(lowering, name, "forward")
        records += lowering.writers[step.node].forward(lowering, step)
        parts.append((step, start, len(records)))
    if training:
        return RecordList(records + backward_records(lowering, wanted), parts, bounds, {})
    bounds.append(len(records))
    arrays = {}
    for name, value in values.items():
        flat = lowering.memory(lowering.batch * volume(value.shape))
        x = lowering.x(value)
        fields: Fields = {**x.size(ew.HEIGHT), **x.place(ew.A), ew.OUT: address_of(flat)}
        records.append(Record(ew.run_output, fields, x.height, name, "forward", "fused"))
        arrays[name] = flat.reshape(lowering.batch, *value.shape)
    return RecordList(records, parts, [*bounds, len(records)], arrays)


def split_stages(records: Sequence[Record]) -> list[Stage]:
    """Return the stages of a batch. Threads synchronize only between stages."""
    stages, first = list[Stage](), 0
    for once, group in groupby(records, key=lambda record: record.once):
        stages.append(Stage(first, first + len(list(group)), once))
        first = stages[-1].last
    return stages


def place_arrays(lowering: Lowering, wanted: frozenset[str], kept: frozenset[str], share: bool) -> None:
    """Assign memory to every buffer, wanted gradient ("d name"), pool's winners ("w step") and the matrix of im2col.

    kept: buffers that are read at the end; share: arrays that are never alive together may overlap.

    Time runs over the forward steps and back: step i of S runs at its group's number plus one (`group_steps`)
    and, in backward, at ``2 S + 1 - i``. Time 0 is the input image.
    """
    buffers, program = lowering.buffers, lowering.program
    end, groups = 2 * len(program.steps) + 2, group_steps(program)
    borders, gradient_borders = _borders(buffers, program)

    def life(first: int, last: int) -> tuple[int, int]:
        return (first, last) if share else (0, end)

    for name in buffers.shapes:
        first, last = _life(program, groups, name, wanted)
        buffers.want(name, name, borders[name], *life(first, end if name in kept else last))
        if name in wanted:
            buffers.want(f"d {name}", name, gradient_borders[name], *life(*_gradient_life(program, name, wanted)))
    for i, step in enumerate(program.steps):
        if step.op == "max_pool" and program.training:
            size = 4 * volume(step.output.shape)
            buffers.want_bytes(f"w {step.node}", size, *life(groups[i] + 1, _backward_time(program, i)))
    scratch = max((lowering.writers[s.node].scratch(s, buffers.image(s.inputs[0]), buffers.image(s.output))
                   for s in program.steps), default=0)
    if scratch:
        buffers.want_bytes(MATRIX, scratch, 0, end)
    buffers.settle()


def group_steps(program: Program) -> list[int]:
    """Return the number of each step's group: at inference successive steps that do not read each other's results.

    One image's threads synchronize only after a group, so arrays of one group never share memory.
    """
    groups, written = list[int](), set[str]()
    for step in program.steps:
        if groups and (program.training or any(value.buffer in written for value in step.inputs)):
            groups.append(groups[-1] + 1)
            written = set()
        else:
            groups.append(groups[-1] if groups else 0)
        written.add(step.output.buffer)
    return groups


def _backward_time(program: Program, index: int) -> int:
    return 2 * len(program.steps) + 1 - index


def _borders(buffers: Buffers, program: Program) -> tuple[dict[str, Border], dict[str, Border]]:
    borders: dict[str, Border] = {name: (0, 0, 0, 0) for name in buffers.shapes}
    gradient_borders = dict(borders)
    for step in program.steps:
        if step.op in ("conv2d", "dense", "depthwise_conv2d"):
            source, target = (buffers.image(v) for v in (step.inputs[0], step.output))
            for known, value, needed in (
                (borders, step.inputs[0], input_border(step, source, target)),
                (gradient_borders, step.output, gradient_border(step, source, target)),
            ):
                top, left, bottom, right = map(max, zip(known[value.buffer], needed, strict=True))
                known[value.buffer] = top, left, bottom, right
    return borders, gradient_borders


def _life(program: Program, groups: Sequence[int], name: str, wanted: frozenset[str]) -> tuple[int, int]:
    """A forward array lives from its first writer to its last reader; in training backward reads it too."""
    writers, readers = _writers(program, name), _readers(program, name)
    times = [groups[i] + 1 for i in (*writers, *readers)]
    if program.training:
        learning = [i for i in (*writers, *readers) if program.steps[i].output.buffer in wanted]
        times += [_backward_time(program, i) for i in learning]
        times += [_backward_time(program, i) for i in readers if program.steps[i].op in LOSSES]
    first = 0 if name == PHOTO or not writers else groups[min(writers)] + 1
    return first, max(times, default=0)


def _gradient_life(program: Program, name: str, wanted: frozenset[str]) -> tuple[int, int]:
    steps, writers = program.steps, _writers(program, name)
    readers = [i for i in _readers(program, name) if steps[i].output.buffer in wanted or steps[i].op in LOSSES]
    last = _backward_time(program, min(writers, default=0))
    return (_backward_time(program, max(readers or writers)), last) if readers or writers else (0, last)


def _readers(program: Program, name: str) -> list[int]:
    return [i for i, step in enumerate(program.steps) if any(v.buffer == name for v in step.inputs)]


def _writers(program: Program, name: str) -> list[int]:
    return [i for i, step in enumerate(program.steps) if step.output.buffer == name]
