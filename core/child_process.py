"""How this program starts other Python processes of its own, whatever folder it runs in."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_PLACE = str(Path(__file__).resolve().parents[1])
"""Folder that this package was imported from."""


def module_command(module: str, *arguments: str) -> list[str]:
    """The command line that runs a module of ours; start it in `child_environment`.

    ``-P`` keeps the current folder off the search path: a folder that holds its own ``core/`` must not replace ours.
    """
    return [sys.executable, "-P", "-m", module, *arguments]


def child_environment(**more: str) -> dict[str, str]:
    """This process's environment and `more`, with the folder of our packages first on Python's search path."""
    paths = os.pathsep.join(path for path in (_PLACE, os.environ.get("PYTHONPATH", "")) if path)
    return {**os.environ, **more, "PYTHONPATH": paths}
