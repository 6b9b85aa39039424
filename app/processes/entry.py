"""Which processes there are, how the window starts one, and how such a process begins.

A process reads lines from its standard input and writes one JSON object a line to its standard output; it ends
when its input ends, so that none outlives the window.
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
    """The command line of process `name`; in a frozen program the program itself is the interpreter."""
    start = [sys.executable] if getattr(sys, "frozen", False) else module_command("app")
    return [*start, "--process", name, *arguments]


def environment() -> dict[str, str]:
    """The environment of such a process: what it writes is UTF-8 and arrives at once."""
    return child_environment(PYTHONUNBUFFERED="1", PYTHONIOENCODING="utf-8")


def run(arguments: Sequence[str]) -> int:
    """Be the process named by the first argument; the rest is its command line."""
    module = import_module(ENTRIES[arguments[0]])
    sys.argv = list(arguments)
    return int(module.main() or 0)
