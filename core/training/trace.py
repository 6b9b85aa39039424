"""Writes a run as a Chrome trace, for chrome://tracing and ui.perfetto.dev.

Format: "Trace Event Format" (Google, 2016), JSON object form, complete events ("X") in microseconds. Threads: the run
(epochs, validation, checkpoints), its steps, and the steps whose kernels were timed (step > pass > layer > kernel).
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from core.device import KernelTime
from core.storage import writing
from core.training.events import CheckpointSaved, EpochDone, Event, KernelTimes, RunStarted, StepDone

RUN, STEPS, KERNELS = 0, 1, 2
THREADS: Final = {RUN: "run", STEPS: "steps", KERNELS: "kernels of timed steps"}


class TraceWriter:
    """Writes events as they come, none of a refused run; a complete file is renamed to `path`. Raises StorageError."""

    def __init__(self, path: Path) -> None:
        self._path, self._origin = path, time.perf_counter()
        self._epoch_begin = self._steps_end = 0.0
        self._epoch = -1
        self._held = ExitStack()
        self._file: io.TextIOBase = io.StringIO()

    def show(self, event: Event) -> None:
        now = 1e6 * (time.perf_counter() - self._origin)
        match event:
            case RunStarted():
                self._file = io.TextIOWrapper(self._held.enter_context(writing(self._path)), "utf-8")
                first = _named("process_name", RUN, "LeafClinic")
                self._write('{"displayTimeUnit": "ms", "traceEvents": [\n' + json.dumps(first))
                for thread, title in THREADS.items():
                    self._add(_named("thread_name", thread, title))
                self._add(_instant("run", now, model=event.model, device=event.device, folder=event.folder))
            case StepDone():
                self._add_step(event, now)
            case KernelTimes():
                for item in kernel_events(event, now):
                    self._add(item)
            case EpochDone():
                name = f"epoch {event.epoch + 1}"
                figures = {"loss": event.train_loss, "validation accuracy": event.validation_accuracy}
                self._add(_complete(RUN, "epoch", name, self._epoch_begin, now - self._epoch_begin, **figures))
                self._add(_complete(RUN, "validation", "validation", self._steps_end, now - self._steps_end))
            case CheckpointSaved():
                self._add(_instant("checkpoint", now, step=event.step, path=event.path))

    def _add_step(self, event: StepDone, now: float) -> None:
        begin = max(now - 1e6 * event.seconds, self._steps_end)
        if event.epoch != self._epoch:
            self._epoch, self._epoch_begin = event.epoch, begin
        self._steps_end = now
        self._add(_complete(
            STEPS, "step", f"step {event.step}", begin, now - begin, loss=event.loss, accuracy=event.accuracy,
            learning_rate=event.learning_rate, photos=event.photos,
            photos_per_second=event.photos / max(event.seconds, 1e-9),
        ))  # fmt: skip
        if event.wait_seconds > 0:
            length = min(1e6 * event.wait_seconds, now - begin)
            self._add(_complete(STEPS, "wait", "waiting for data", begin, length))

    def _add(self, item: dict[str, Any]) -> None:
        self._write(",\n" + json.dumps(item))

    def _write(self, text: str) -> None:
        try:
            self._file.write(text)
        except OSError:
            with self._held:  # removes the incomplete file, which also frees a full disk
                raise

    def close(self) -> None:
        """Complete the file, also of a run that was stopped or failed."""
        if self._file.closed:
            return  # an error has aborted it
        with self._held:
            self._file.write("\n]}\n")
            self._file.flush()


def kernel_events(event: KernelTimes, end: float) -> Iterator[dict[str, Any]]:
    """Events of a timed step that ended at `end` (microseconds): passes, layers and their kernels in order."""
    begin = end - _length(event.times)
    yield _complete(KERNELS, "step", f"step {event.step}, kernel by kernel", begin, end - begin)
    for direction, times in _runs(event.times, lambda t: t.direction.partition("_")[0]):
        yield _complete(KERNELS, "pass", direction, begin, _length(times))
        for layer, parts in _runs(times, lambda t: t.layer):
            yield _complete(KERNELS, "layer", layer, begin, _length(parts))
            for t in parts:
                figures = {"pass": t.direction, "flops": t.flops, "bytes": t.bytes, "floor_ms": t.floor_ms,
                           "GFLOP/s": t.gflops, "GB/s": t.gigabytes, "share of floor": t.of_peak}  # fmt: skip
                yield _complete(KERNELS, "kernel", t.kernel, begin, _length([t]), **figures)
                begin += _length([t])


def _runs(times: Sequence[KernelTime], key: Any) -> list[tuple[str, list[KernelTime]]]:
    return [(str(name), list(group)) for name, group in groupby(times, key)]


def _length(times: Sequence[KernelTime]) -> float:
    return 1e3 * sum(t.milliseconds for t in times)


def _complete(thread: int, category: str, name: str, begin: float, length: float, **figures: Any) -> dict[str, Any]:
    return {"ph": "X", "pid": 0, "tid": thread, "cat": category, "name": name, "ts": begin, "dur": length,
            "args": figures}


def _instant(name: str, now: float, **figures: Any) -> dict[str, Any]:
    return {"ph": "i", "pid": 0, "tid": RUN, "cat": "run", "name": name, "ts": now, "s": "t", "args": figures}


def _named(what: str, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": 0, "tid": thread, "name": what, "args": {"name": name}}
