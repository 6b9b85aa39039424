"""Shows the events of a run in a terminal: a progress bar, plain lines where the output is no terminal, or JSON."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Sequence
from typing import Final, TextIO

import numpy as np

from core.ops.contract import Array
from core.percent import rounded
from core.text import printable
from core.training import events
from core.training.kernel_timing import KernelTable

LOGGED_STAGES: Final = ("demo", "scan", "cache", "copies", "leaves", "compile", "tune")
"""Stages whose end is always printed."""
SMOOTHING: Final = 0.95
"""Loss, accuracy and rate in the bar are running means over about 20 steps."""
REDRAW_SECONDS: Final = 0.1
PLAIN_SECONDS: Final = 10.0
"""Intervals of the progress bar, and of lines where the output is no terminal."""


def print_json(event: events.Event) -> None:
    sys.stdout.write(events.to_line(event) + "\n")
    sys.stdout.flush()


class TerminalReader:
    def __init__(self, stream: TextIO, moving: bool) -> None:
        self._stream = stream
        self._moving = moving
        self._drawn = False
        self._last = 0.0
        self._started: events.RunStarted | None = None
        self._evaluation: events.RunEvaluated | None = None
        self._begin = 0.0
        self._ended = ""
        self._means: Array | None = None
        self._kernels = KernelTable()

    def show(self, event: events.Event) -> None:
        match event:
            case events.Progress():
                text, ended = describe_progress(event), event.total > 0 and event.done >= event.total
                # kernels are prepared for each network of a run: the same line is printed once
                self._passing(text, ended and event.stage in LOGGED_STAGES and text != self._ended)
                self._ended = text if ended else self._ended
            case events.RunStarted():
                self._started, self._begin = event, time.monotonic()
                self._line(describe_start(event))
            case events.StepDone():
                self._step(event)
            case events.EpochDone():
                self._line(describe_epoch(event, self._started.epochs if self._started else 0))
            case events.KernelTimes():
                self._kernels.add(event.times)
            case events.RunEvaluated():
                self._evaluation = event
            case events.RunFinished():
                if kernels := self._kernels.describe():
                    self._line(kernels)
                self._line(describe_end(event, self._evaluation.words if self._evaluation else ()))
            case events.Warned():
                self._line(f"{'Warning' if event.urgent else 'Note'}: {event.message}")
            case events.RunFailed():
                self._line(event.message)

    def _step(self, event: events.StepDone) -> None:
        now = np.array((event.loss, event.accuracy, event.photos / max(event.seconds, 1e-9)))
        self._means = now if self._means is None else SMOOTHING * self._means + (1 - SMOOTHING) * now
        if self._started is not None:
            self._passing(self._bar(event, self._started, *self._means), False)

    def _bar(self, event: events.StepDone, run: events.RunStarted, loss: float, accuracy: float, rate: float) -> str:
        total = run.epochs * run.steps_per_epoch
        here = event.step - event.epoch * run.steps_per_epoch
        left = (time.monotonic() - self._begin) / max(event.step - run.step, 1) * (total - event.step)
        filled = round(20 * here / max(run.steps_per_epoch, 1))
        return (
            f"epoch {event.epoch + 1}/{run.epochs} [{'#' * filled}{'.' * (20 - filled)}] "
            f"{here}/{run.steps_per_epoch} loss {loss:.3f} accuracy {100 * accuracy:.1f} % "
            f"{rate:.0f} photos/s {describe_seconds(left)} left"
        )

    def _passing(self, text: str, final: bool) -> None:
        """Print text that the next one replaces in a terminal; elsewhere it is printed at longer intervals."""
        now = time.monotonic()
        if not final and now - self._last < (REDRAW_SECONDS if self._moving else PLAIN_SECONDS):
            return
        self._last = now
        if self._moving:
            width = shutil.get_terminal_size().columns - 1
            self._stream.write("\r\x1b[2K" + printable(text)[:width])
            self._stream.flush()
            self._drawn = True
        else:
            self._line(text)

    def _line(self, text: str) -> None:
        if self._drawn:
            self._stream.write("\r\x1b[2K")
            self._drawn = False
        self._stream.write(printable(text, "\n") + "\n")
        self._stream.flush()


def describe_progress(event: events.Progress) -> str:
    stage = events.STAGES.get(event.stage, event.stage)
    return f"{stage}: {event.done}" + (f" of {event.total}" if event.total else "")


def print_progress(stage: str, done: int, total: int) -> None:
    """Print the progress of a stage on the error stream, if it is a terminal."""
    if sys.stderr.isatty():
        text = describe_progress(events.Progress(stage, done, total))
        sys.stderr.write(f"\r\x1b[2K{text}" + ("\n" if done == total else ""))


def describe_start(event: events.RunStarted) -> str:
    return (
        f"{event.model} on {event.device}, {len(event.classes)} classes, {event.train_photos} training, "
        f"{event.validation_photos} validation and {event.test_photos} test photos. "
        f"A training step needs {event.memory_bytes / 2**20:.0f} MB. Run folder: {event.folder}"
        + (f". Resuming after step {event.step}." if event.step else "")
    )


def describe_epoch(event: events.EpochDone, epochs: int) -> str:
    more = ""
    if event.mean_f1 is not None:
        more = f" at threshold 0.5, mean F1 {event.mean_f1:.3f}, mean average precision {event.average_precision:.3f}"
    return (
        f"epoch {event.epoch + 1}/{epochs}: loss {event.train_loss:.3f}, accuracy {rounded(event.train_accuracy)} %, "
        f"validation loss {event.validation_loss:.3f}, accuracy {rounded(event.validation_accuracy)} %{more}"
        f"{' (best so far)' if event.best else ''}, {event.photos_per_second:.0f} photos/s"
    )


def describe_end(event: events.RunFinished, evaluation: Sequence[str]) -> str:
    """Describe the end of a run; evaluation: its sentences."""
    ends = {"completed": "Done", "early": "Stopped early: no further improvement", "stopped": "Stopped and saved"}
    if event.reason == "stopped" and not event.step:
        return "Stopped before the first step. Nothing was changed."  # of a resumed run, its folder is as it was
    steps = "1 step" if event.step == 1 else f"{event.step} steps"
    lines = [f"{ends[event.reason]} after {describe_seconds(event.seconds)} of training, {steps}."]
    if event.best_epoch >= 0:
        lines.append(f"Best epoch {event.best_epoch + 1}: validation accuracy {rounded(event.best_accuracy)} %.")
    lines += evaluation
    if event.model_path:
        lines.append(f"Model saved to {event.model_path}")
    if event.report_path:
        lines.append(f"Report: {event.report_path}")
    return "\n".join(lines)


def describe_seconds(seconds: float) -> str:
    """1:05 or 2:03:09."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
