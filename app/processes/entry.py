"""Which processes there are, how the window starts one, and how such a process begins.

A process reads lines from its standard input and writes one JSON object a line to its standard output; it ends
when its input ends, so that none outlives the window.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Final

ENTRIES: Final = {
    "training": "core.training.worker",
    "scan": "app.processes.scan",
    "diagnose": "app.processes.diagnose",
    "kernels": "app.processes.kernels",
    "memory": "app.processes.memory",
    "demo": "app.processes.demo",
    "leaves": "core.diagnosis.leaf_process",
    "writing": "app.processes.writing",
}


def command(name: str, *arguments: str) -> list[str]:
    """The command line of process `name`; in a frozen program the program itself is the interpreter."""
    start = [sys.executable] if getattr(sys, "frozen", False) else [sys.executable, "-m", "app"]
    return [*start, "--process", name, *arguments]


def environment() -> dict[str, str]:
    """This process's environment, with the place the packages were imported from on the search path."""
    found = dict(os.environ, PYTHONUNBUFFERED="1", PYTHONIOENCODING="utf-8")
    place = str(Path(__file__).resolve().parents[2])
    found["PYTHONPATH"] = os.pathsep.join(p for p in (place, os.environ.get("PYTHONPATH", "")) if p)
    return found


def run(arguments: Sequence[str]) -> int:
    """Be the process named by the first argument; the rest is its command line."""
    module = import_module(ENTRIES[arguments[0]])
    sys.argv = list(arguments)
    return int(module.main() or 0)
