"""The records of a plan in execution order: input image, forward, backward, and copies of the outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

from core.cpu import elementwise as ew
from core.cpu.backward import backward_records
from core.cpu.forward import photo_record
from core.cpu.lowering import Lowering, border_records
from core.cpu.placement import group_steps, place_arrays
from core.cpu.pool_fusion import FusedPool, find_fused_pool, find_units
from core.cpu.records import Address, Record, Words
from core.cpu.schedule import Call, as_calls
from core.graph import PHOTO
from core.ops.contract import Array, volume
from core.program import Step, Value, wanted_buffers


@final
@dataclass(frozen=True, slots=True)
class RecordList:
    """The records of a plan and how they are grouped.

    parts: each step's forward records (step, first, last). bounds: first record of each group of one image.
    fused_pools: pools that run interleaved with the steps before them. emitted: arrays that `predict` returns, by name.
    """

    records: list[Record]
    parts: list[tuple[Step, int, int]]
    bounds: list[int]
    fused_pools: list[FusedPool]
    emitted: Mapping[str, Array]


@final
@dataclass(frozen=True, slots=True)
class Stage:
    """Calls `first` to `last` of every image, or records run `once` for the batch; threads synchronize after it."""

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
    groups, bounds, fused_pools = group_steps(program), [0], list[FusedPool]()
    bordered, parts = {PHOTO}, list[tuple[Step, int, int]]()
    for i, step in enumerate(program.steps):
        start = len(records)
        begins = not i or groups[i] != groups[i - 1]
        if begins or step.op == "max_pool":  # one image's threads synchronize before a pool
            bounds.append(start)
        if begins:
            group = start
            members = [s.output.buffer for s, g in zip(program.steps, groups, strict=True) if g == groups[i]]
            for name in dict.fromkeys(members):
                if name not in bordered:
                    bordered.add(name)
                    records += border_records(lowering, name, "forward")
        records += lowering.writers[step.node].forward(lowering, step)
        if step.op == "max_pool":
            fused = find_fused_pool(records, group, len(records) - 1)
            fused_pools += [fused] if fused else []
        parts.append((step, start, len(records)))
    if training:
        return RecordList(records + backward_records(lowering, wanted), parts, bounds, fused_pools, {})
    emitted, last = {name: _emit(lowering, name, value) for name, value in values.items()}, len(records)
    records += [record for record, _ in emitted.values()]
    arrays = {name: array for name, (_, array) in emitted.items()}
    return RecordList(records, parts, [*bounds, last, len(records)], fused_pools, arrays)


def _emit(lowering: Lowering, name: str, value: Value) -> tuple[Record, Array]:
    x = lowering.x(value)
    flat = lowering.memory(lowering.batch * volume(value.shape))
    fields: dict[int, int | Address] = {
        ew.HEIGHT: x.height, ew.WIDTH: x.width, ew.CHANNELS: x.channels, ew.A: x.address, ew.A_ROW: x.row,
        ew.A_PIXEL: x.pixel, ew.OUT: flat.ctypes.data,
    }  # fmt: skip
    record = Record(ew.run_emit, fields, x.height, name, "forward", "fused")
    return record, flat.reshape(lowering.batch, *value.shape)


def stage_records(record_list: RecordList) -> tuple[Words, list[Stage]]:
    """Return the calls of one image in order, and the stages of a batch. Threads synchronize only between stages."""
    calls: list[Call] = []
    stages: list[Stage] = []
    for index, unit in find_units(record_list.records, record_list.fused_pools):
        once = record_list.records[index].once
        first, last = (index, index + 1) if once else (len(calls), len(calls) + len(unit))
        calls += [] if once else unit
        if stages and stages[-1].once == once:
            first = stages.pop().first
        stages.append(Stage(first, last, once))
    return as_calls(calls), stages
