"""Records that sum the gradients of all threads into one."""

from __future__ import annotations

from core.cpu import packing
from core.cpu.lowering import Lowering
from core.cpu.records import Address, Record, Space


def sum_records(lowering: Lowering, add: bool, threads: int) -> list[Record]:
    """Records that sum the threads' gradients into the flat one, in the parameters' own order of axes."""
    records = []
    for step in lowering.program.steps:
        for parameter in step.parameters:
            if lowering.is_together(step) or not lowering.trains(step, parameter.role):
                continue
            groups, columns = 1, parameter.shape[0]
            if step.op == "conv2d" and parameter.role == "weight":
                groups = int(step.attributes["groups"])  # type: ignore[arg-type]
            columns //= groups
            rows = parameter.size // parameter.shape[0]
            start = lowering.layout.offsets[f"{step.node}.{parameter.role}"][0]
            for group in range(groups):
                offset = 4 * (start + group * rows * columns)
                fields: dict[int, int | Address] = {
                    packing.PRIVATE: Address(Space.PRIVATE, offset),
                    packing.FILTER: Address(Space.SHARED, lowering.gradient.ctypes.data + offset),
                    packing.SUM_ROWS: rows, packing.SUM_N: columns, packing.ADD_TO: int(add),
                    packing.PRIVATE_STRIDE: 4 * lowering.layout.trained, packing.THREADS: threads,
                }  # fmt: skip
                tasks = -(-columns // packing.BLOCK)
                records.append(Record(packing.run_sum, fields, tasks, step.node, "update", "sum"))
    return records
