"""The records of a plan in execution order: input image, forward, backward, and copies of the outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import final

from core.cpu import elementwise as ew
from core.cpu.backward import backward_records
from core.cpu.forward import photo_record
from core.cpu.lowering import Lowering, border_records
from core.cpu.placement import group_steps, place_arrays
from core.cpu.records import Address, Record
from core.graph import PHOTO
from core.ops.contract import Array, volume
from core.program import Step, Value, wanted_buffers


@final
@dataclass(frozen=True, slots=True)
class RecordList:
    """The records of a plan and how they are grouped.

    parts: each step's forward records (step, first, last). bounds: first record of each group of one image.
    emitted: arrays that `predict` returns, by name.
    """

    records: list[Record]
    parts: list[tuple[Step, int, int]]
    bounds: list[int]
    emitted: Mapping[str, Array]


@final
@dataclass(frozen=True, slots=True)
class Stage:
    """Records `first` to `last` of every image, or `once` for the batch; threads synchronize after it."""

    first: int
    last: int
    once: bool


def list_records(lowering: Lowering, outputs: Sequence[str]) -> RecordList:
    """Assign memory to all arrays and list the records. `outputs`: values that are returned besides the logits."""
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
    emitted, last = {name: _emit(lowering, name, value) for name, value in values.items()}, len(records)
    records += [record for record, _ in emitted.values()]
    arrays = {name: array for name, (_, array) in emitted.items()}
    return RecordList(records, parts, [*bounds, last, len(records)], arrays)


def _emit(lowering: Lowering, name: str, value: Value) -> tuple[Record, Array]:
    x = lowering.x(value)
    flat = lowering.memory(lowering.batch * volume(value.shape))
    fields: dict[int, int | Address] = {
        ew.HEIGHT: x.height, ew.WIDTH: x.width, ew.CHANNELS: x.channels, ew.A: x.address, ew.A_ROW: x.row,
        ew.A_PIXEL: x.pixel, ew.OUT: flat.ctypes.data,
    }  # fmt: skip
    record = Record(ew.run_emit, fields, x.height, name, "forward", "fused")
    return record, flat.reshape(lowering.batch, *value.shape)


def split_stages(records: Sequence[Record]) -> list[Stage]:
    """Return the stages of a batch. Threads synchronize only between stages."""
    stages, first = list[Stage](), 0
    for once, group in groupby(records, key=lambda record: record.once):
        stages.append(Stage(first, first + len(list(group)), once))
        first = stages[-1].last
    return stages
