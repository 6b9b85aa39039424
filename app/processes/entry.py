"""How the window starts a process, and how such a process begins.

A process reads lines from its standard input and writes one JSON object per line to its standard output. It ends when
its input ends, so that none outlives the window.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any, BinaryIO, Final

from core.child_process import MODULES, child_environment, module_command, take_stdout
from core.errors import LeafClinicError, StorageError

SMALL_MATRICES: Final = ("adapt", "diagnose")
"""Processes and commands that multiply only small matrices: more threads of OpenBLAS would busy-wait on cores that
other processes need."""
NICE: Final = 10
"""Niceness of the process: the window is scheduled first where both need a core."""


@dataclass(frozen=True, slots=True)
class Child:
    """A running process with pipes to its input and output; `errors` is the file of its error output."""

    process: subprocess.Popen[bytes]
    errors: BinaryIO

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        self.errors.close()


started_ahead: Final[list[Child]] = []
"""The process that diagnoses, where `start_ahead` started it and nothing asked for it yet."""


def open_child(arguments: Sequence[str]) -> Child:
    """Start a process that `command` names, or take the one that runs already. Raises OSError."""
    if started_ahead and arguments == command("diagnose"):
        return started_ahead.pop()
    flags = getattr(subprocess, "CREATE_NO_WINDOW", 0) | getattr(subprocess, "BELOW_NORMAL_PRIORITY_CLASS", 0)
    with ExitStack() as opened:
        errors = opened.enter_context(tempfile.TemporaryFile())
        process = subprocess.Popen(
            arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
            env=child_environment(PYTHONIOENCODING="utf-8"), creationflags=flags,
            start_new_session=True,  # a terminal that is closed ends the window alone
        )  # fmt: skip
        opened.pop_all()
    if hasattr(os, "setpriority"):
        os.setpriority(os.PRIO_PROCESS, process.pid, NICE)
    return Child(process, errors)


def command(name: str) -> list[str]:
    """The command line of process `name`; a frozen program starts itself."""
    asked = ("--process", name)
    return [sys.executable, *asked] if getattr(sys, "frozen", False) else module_command("app", *asked)


def run(arguments: Sequence[str]) -> int:
    """Run the process that the first argument names: of core, or a module of this package with a function `work`."""
    name, sys.argv = arguments[0], list(arguments)
    limit_threads(name)
    if name in MODULES:
        return int(import_module(MODULES[name]).main() or 0)
    module = import_module(f"app.processes.{name}")
    return serve(module.work, getattr(module, "load_ahead", None))


def limit_threads(name: str) -> None:
    """Set the number of OpenBLAS threads of a process or command, before NumPy is imported."""
    if name in SMALL_MATRICES:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


class Channel:
    """The process's end. `requests` yields dicts in order, and None when the window is gone or cancels."""

    def __init__(self) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the window handles Ctrl-C in the terminal
        self._out = take_stdout()
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self.requests: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def send(self, **answer: Any) -> None:
        with self._lock:
            self._out.write(json.dumps(answer, ensure_ascii=True) + "\n")
            self._out.flush()

    def report(self, stage: str, done: int, total: int) -> None:
        """Report the progress of a stage, or end the process if the work is no longer wanted."""
        self.progress(done, total, stage=stage)

    def progress(self, done: int, total: int, **more: str) -> None:
        if self.ended():
            raise SystemExit(0)
        self.send(done=done, total=total, **more)

    def ended(self) -> bool:
        """Whether the work is no longer wanted."""
        return self._ended.is_set()

    def _listen(self) -> None:
        for line in sys.stdin:
            if line.strip() == "stop":
                break
            self.requests.put(json.loads(line))
        self._ended.set()
        self.requests.put(None)


def serve(work: Callable[[Channel, dict[str, Any]], None], ahead: Callable[[], object] | None) -> int:
    """Take the first request and run the work; errors become a result `failed`. Returns the exit code.

    `ahead` prepares what every request needs, while none has arrived yet.
    """
    channel = Channel()
    try:
        if ahead is not None:
            ahead()
        first = channel.requests.get()
        if first is None:
            return 0
        work(channel, first)
    except LeafClinicError as error:
        if channel.ended():  # it was cancelled, or the window is gone
            return 0
        channel.send(failed=str(error))
        return error.exit_code
    return 0


def start_ahead() -> None:
    """Start the process that diagnoses, unless the window will open on another page than Diagnose."""
    with suppress(OSError, StorageError):  # the window will report it
        started_ahead.append(open_child(command("diagnose")))
        from app.paths import FIRST_PAGE, Settings, settings_store  # imports Qt, while the process starts

        if (Settings(settings_store()).text("page") or FIRST_PAGE) != "diagnose":
            end_ahead()


def end_ahead() -> None:
    while started_ahead:
        started_ahead.pop().close()
