"""The list of processes, how the window starts one, and how such a process begins.

A process reads lines from its standard input and writes one JSON object per line to its standard output. It ends when
its input ends, so that none outlives the window.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from typing import BinaryIO, Final, final

from core.child_process import child_environment, module_command

ENTRIES: Final = {
    "training": "core.training.worker",
    "scan": "app.processes.scan",
    "review": "app.processes.review",
    "diagnose": "app.processes.diagnose",
    "kernels": "app.processes.kernels",
    "memory": "app.processes.memory",
    "demo": "app.processes.demo",
    "photos": "core.data.photo_process",
    "leaves": "core.diagnosis.leaf_process",
    "writing": "app.processes.writing",
    "compile": "core.cpu.precompilation",
}

QUIET: Final = {"diagnose": {"OPENBLAS_NUM_THREADS": "1"}}
"""Environment of processes that multiply only small matrices: more threads of OpenBLAS would wait actively on cores
that the window needs."""
NICE: Final = 10
"""The process gives way to the window where both want a core; where nobody wants it, it has it as before."""


@final
@dataclass(frozen=True, slots=True)
class Child:
    """A running process with pipes to its input and output; `errors` is the file of its error output."""

    process: subprocess.Popen[bytes]
    errors: BinaryIO

    def close(self) -> None:
        """End the process at once."""
        self.process.kill()
        self.process.communicate()
        self.errors.close()


def open_child(arguments: Sequence[str]) -> Child:
    """Start a process that `command` names. Raises OSError."""
    flags = getattr(subprocess, "CREATE_NO_WINDOW", 0) | getattr(subprocess, "BELOW_NORMAL_PRIORITY_CLASS", 0)
    with ExitStack() as opened:
        errors = opened.enter_context(tempfile.TemporaryFile())
        process = subprocess.Popen(
            arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=environment(),
            creationflags=flags,
        )  # fmt: skip
        opened.pop_all()
    if hasattr(os, "setpriority"):
        os.setpriority(os.PRIO_PROCESS, process.pid, NICE)
    return Child(process, errors)


def command(name: str, *arguments: str) -> list[str]:
    """The command line of process `name`; a frozen program starts itself."""
    start = [sys.executable] if getattr(sys, "frozen", False) else module_command("app")
    return [*start, "--process", name, *arguments]


def environment() -> dict[str, str]:
    """The environment of such a process: UTF-8 and unbuffered output."""
    return child_environment(PYTHONUNBUFFERED="1", PYTHONIOENCODING="utf-8")


def run(arguments: Sequence[str]) -> int:
    """Run the process named by the first argument with the rest as its arguments."""
    os.environ.update(QUIET.get(arguments[0], {}))
    module = import_module(ENTRIES[arguments[0]])
    sys.argv = list(arguments)
    return int(module.main() or 0)
