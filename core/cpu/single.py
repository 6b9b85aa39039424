"""Runs one step alone on host arrays, with the records of a plan: for tests and the laboratory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from core.cpu import context as ctx
from core.cpu.backward import backward_records
from core.cpu.context import Context
from core.cpu.execution import execute_images, execute_schedule, share_out
from core.cpu.geometry import Buffers, View
from core.cpu.lowering import Lowering, Writers
from core.cpu.memory import aligned
from core.cpu.optimizer import sum_records
from core.cpu.record_list import place_arrays
from core.cpu.records import Record, encode_records
from core.cpu.verification import view_images
from core.ops.contract import Array, Mode, volume
from core.ops.op_table import LOSSES
from core.ops.registry import KernelCase
from core.program import NODE, lay_out_parameters, lower_case, name_parameters


def run_single(case: KernelCase, arrays: dict[str, Any], direction: str, writers: Writers, threads: int = 1) -> None:
    """Compute one direction of a case; `arrays` as in `core.ops.registry.Kernel.run`.

    The entry "mode" (`core.ops.contract.Mode`) is for dropout. New running statistics replace the old ones in place.
    """
    single = _run_before(case, arrays, direction, writers, threads)
    write = {"forward": single.write_forward, "backward_input": single.write_inputs}
    write.get(direction, single.write_parameters)(arrays)


def prepare_single(
    case: KernelCase, arrays: dict[str, Any], direction: str, writers: Writers, threads: int = 1
) -> Callable[[], None]:
    """Return a function that repeats the computation of `run_single` on arrays copied in beforehand, for timing."""
    single = _run_before(case, arrays, direction, writers, threads)
    records = [r for r in (*single.forward, *single.backward) if r.direction == direction]
    return lambda: single.run(records)


def _run_before(case: KernelCase, arrays: dict[str, Any], direction: str, writers: Writers, threads: int) -> Single:
    """Return the step after its forward records and, for a gradient, its backward records."""
    single = Single(case, writers, threads, direction=direction)
    single.read(arrays)
    single.run(single.forward)
    if direction != "forward":
        single.read_gradient(arrays["dy"])
        single.run(single.backward)
    return single


class Single:
    """A program of one step, in which every image has its own memory; with backward records for a gradient."""

    def __init__(
        self, case: KernelCase, writers: Writers, threads: int, training: bool = True, direction: str = ""
    ) -> None:
        self.case, self.threads = case, threads
        self.program = lower_case(case, training)
        layout = lay_out_parameters(self.program.graph)
        self.weights, self.gradient = aligned(layout.size), aligned(layout.trained)
        buffers = Buffers(self.program)
        self.lowering = Lowering(
            self.program, layout, case.batch, frozenset(), buffers, {NODE: writers}, self.weights, self.gradient
        )
        wanted = frozenset((*case.names, "out"))
        place_arrays(self.lowering, wanted, frozenset(), share=False)
        goes_back = training and (direction != "forward" or case.op in LOSSES)
        self.forward = writers.forward(self.lowering, self.program.steps[0])
        self.backward = backward_records(self.lowering, wanted, given=True) if goes_back else []
        self.arena = aligned(case.batch * buffers.slot_bytes // 4)
        self.private = aligned(threads * layout.trained)
        self.context = Context(case.batch)

    def read(self, arrays: dict[str, Any]) -> None:
        """Copy inputs and parameters in and fill the context."""
        for name, value in zip(self.case.names, self.program.steps[0].inputs, strict=True):
            self._copy_in(self.lowering.x(value), arrays[name])
        for name, (first, shape) in self.lowering.layout.offsets.items():
            self.weights[first : first + volume(shape)] = arrays[name.removeprefix(f"{NODE}.")].ravel()
        mode, fields = arrays.get("mode", Mode(training=True)), self.context.fields
        fields[ctx.SEED], fields[ctx.STEP], fields[ctx.PHOTO0] = mode.seed, mode.step, mode.photo0
        self.context.set_count(self.case.batch)
        if "labels" in arrays:
            self.labels = np.ascontiguousarray(arrays["labels"], np.int32)
            self.targets = np.ascontiguousarray(arrays["targets"], np.float32) if "targets" in arrays else None
            self.context.set_labels(self.labels, self.targets, self.case.attributes.get("class_weights", ()))
        self.run(self.lowering.packs)

    def run(self, records: list[Record]) -> None:
        slots = (self.arena.ctypes.data, self.lowering.buffers.slot_bytes)
        table = encode_records(records, slots, (self.private.ctypes.data, 4 * self.lowering.layout.trained))
        context, alone = self.context.address, share_out(records, range(len(records) + 1), self.threads)
        for i, record in enumerate(records):
            if record.once or record.direction == "update" or (self.case.batch == 1 and record.direction == "forward"):
                execute_schedule(table, alone, context, i, i + 1)
            else:
                execute_images(table, context, i, i + 1, self.case.batch, self.threads)

    def read_gradient(self, dy: Array) -> None:
        if self.case.op not in LOSSES:
            self._copy_in(self.lowering.d(self.program.output), dy)

    def write_forward(self, arrays: dict[str, Any]) -> None:
        if self.case.op in LOSSES:
            self.run(self.backward)
            arrays["out"][...] = self.context.losses[:, None]
            return
        self._copy_out(self.lowering.x(self.program.output), arrays["out"])
        for name, array in name_parameters(self.weights, self.lowering.layout).items():
            if (role := name.removeprefix(f"{NODE}.")).startswith("running"):
                arrays[role][...] = array

    def write_inputs(self, arrays: dict[str, Any]) -> None:
        for name, value in zip(self.case.names, self.program.steps[0].inputs, strict=True):
            self._copy_out(self.lowering.d(value), arrays[f"d{name}"])

    def write_parameters(self, arrays: dict[str, Any]) -> None:
        self.run(sum_records(self.lowering, False, self.threads))
        for name, array in name_parameters(self.gradient, self.lowering.layout).items():
            arrays[f"d{name.removeprefix(f'{NODE}.')}"][...] = array

    def _images(self, view: View) -> list[Array]:
        return view_images(view, (self.arena.ctypes.data, self.lowering.buffers.slot_bytes, self.case.batch))

    def _copy_in(self, view: View, array: Array) -> None:
        for target, image in zip(self._images(view), array, strict=True):
            target[...] = image.reshape(target.shape)

    def _copy_out(self, view: View, array: Array) -> None:
        for source, image in zip(self._images(view), array, strict=True):
            image[...] = source.reshape(image.shape)
