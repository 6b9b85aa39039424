"""The list of processes, how the window starts one, and how such a process begins.

A process reads lines from its standard input and writes one JSON object per line to its standard output. It ends when
its input ends, so that none outlives the window.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

from core.child_process import child_environment, module_command

ENTRIES: Final = {
    "training": "core.training.worker",
    "scan": "app.processes.scan",
    "diagnose": "app.processes.diagnose",
    "kernels": "app.processes.kernels",
    "memory": "app.processes.memory",
    "demo": "app.processes.demo",
    "photos": "core.data.photo_process",
    "leaves": "core.diagnosis.leaf_process",
    "writing": "app.processes.writing",
    "compile": "core.cpu.precompilation",
}


def command(name: str, *arguments: str) -> list[str]:
    """The command line of process `name`; a frozen program starts itself."""
    start = [sys.executable] if getattr(sys, "frozen", False) else module_command("app")
    return [*start, "--process", name, *arguments]


def environment() -> dict[str, str]:
    """The environment of such a process: UTF-8 and unbuffered output."""
    return child_environment(PYTHONUNBUFFERED="1", PYTHONIOENCODING="utf-8")


def run(arguments: Sequence[str]) -> int:
    """Run the process named by the first argument with the rest as its arguments."""
    module = import_module(ENTRIES[arguments[0]])
    sys.argv = list(arguments)
    return int(module.main() or 0)
