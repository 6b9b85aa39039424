"""All records of a plan in the order of the walk: photo, forward, backward, and what is read at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

from core.cpu import elementwise as ew
from core.cpu.backward import backward_records
from core.cpu.forward import photo_record
from core.cpu.lowering import Frame, border_records
from core.cpu.placement import group_steps, place_arrays
from core.cpu.records import Address, Record, Words
from core.cpu.schedule import Call, as_calls
from core.cpu.strips import Strip, find_strip, find_units
from core.graph import PHOTO
from core.ops.contract import Array, volume
from core.program import Step, Value, wanted_buffers


@final
@dataclass(frozen=True, slots=True)
class Script:
    """`parts`: each step's forward records (step, first, last); `bounds`: where the groups of one photo's walk begin;
    `strips`: pools with what feeds them; `emitted`: what `predict` gives, by name."""

    records: list[Record]
    parts: list[tuple[Step, int, int]]
    bounds: list[int]
    strips: list[Strip]
    emitted: Mapping[str, Array]


@final
@dataclass(frozen=True, slots=True)
class Stage:
    """Calls `first` to `last` of every photo, or records that run `once` for the batch; threads meet after it."""

    first: int
    last: int
    once: bool


def write_script(frame: Frame, outputs: Sequence[str]) -> Script:
    """Place all arrays and write the records. `outputs`: values that are read at the end beside the logits."""
    program, training = frame.program, frame.program.training
    wanted = wanted_buffers(program, frame.trains) if training else frozenset[str]()
    values = {} if training else {"logits": program.output, **{name: program.values[name] for name in outputs}}
    kept = frozenset(value.buffer for value in values.values())
    place_arrays(frame, wanted, kept, share=True)
    records = [*border_records(frame, PHOTO, "forward"), photo_record(frame)]
    groups, bounds, strips = group_steps(program), [0], list[Strip]()
    bordered, parts = {PHOTO}, list[tuple[Step, int, int]]()
    for i, step in enumerate(program.steps):
        start = len(records)
        begins = not i or groups[i] != groups[i - 1]
        if begins or step.op == "max_pool":  # one photo's threads meet before a pool: strips would be 2 % slower
            bounds.append(start)
        if begins:
            group = start
            members = [s.output.buffer for s, g in zip(program.steps, groups, strict=True) if g == groups[i]]
            for name in dict.fromkeys(members):
                if name not in bordered:
                    bordered.add(name)
                    records += border_records(frame, name, "forward")
        records += frame.writers[step.node].forward(frame, step)
        if step.op == "max_pool":
            strip = find_strip(records, group, len(records) - 1)
            strips += [strip] if strip else []
        parts.append((step, start, len(records)))
    if training:
        return Script(records + backward_records(frame, wanted), parts, bounds, strips, {})
    emitted, last = {name: _emit(frame, name, value) for name, value in values.items()}, len(records)
    records += [record for record, _ in emitted.values()]
    arrays = {name: array for name, (_, array) in emitted.items()}
    return Script(records, parts, [*bounds, last, len(records)], strips, arrays)


def _emit(frame: Frame, name: str, value: Value) -> tuple[Record, Array]:
    x = frame.x(value)
    flat = frame.memory(frame.batch * volume(value.shape))
    fields: dict[int, int | Address] = {
        ew.HEIGHT: x.height, ew.WIDTH: x.width, ew.CHANNELS: x.channels, ew.A: x.address, ew.A_ROW: x.row,
        ew.A_PIXEL: x.pixel, ew.OUT: flat.ctypes.data,
    }  # fmt: skip
    record = Record(ew.run_emit, fields, x.height, name, "forward", "fused")
    return record, flat.reshape(frame.batch, *value.shape)


def stage_records(script: Script) -> tuple[Words, list[Stage]]:
    """The calls of one photo in order, and the stages of a batch: photos walk through a stage without meeting."""
    calls: list[Call] = []
    stages: list[Stage] = []
    for index, unit in find_units(script.records, script.strips):
        once = script.records[index].once
        first, last = (index, index + 1) if once else (len(calls), len(calls) + len(unit))
        calls += [] if once else unit
        if stages and stages[-1].once == once:
            first = stages.pop().first
        stages.append(Stage(first, last, once))
    return as_calls(calls), stages
