"""Starts other Python processes of the program, independent of the current folder."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO, Final, TextIO

from core.errors import LeafClinicError

PACKAGES: Final = str(Path(__file__).resolve().parents[1])
"""Folder that this package was imported from."""
MODULES: Final = {
    "training": "core.training.worker", "photos": "core.data.photo_process", "leaves": "core.diagnosis.leaf_process",
    "compile": "core.cpu.precompilation",
}  # fmt: skip
"""The processes of this package by name, and their modules, which have a function `main`."""
MALLOC: Final = {"MALLOC_TRIM_THRESHOLD_": str(32 << 20), "MALLOC_MMAP_THRESHOLD_": str(32 << 20)}
"""glibc keeps freed images of up to this size for the next one, instead of mapping fresh pages (mallopt(3))."""


def module_command(module: str, *arguments: str) -> list[str]:
    """The command line that runs a module of ours; start it in `child_environment`.

    ``-P`` keeps the current folder off the search path: a folder that holds its own ``core/`` must not replace ours.
    """
    return [sys.executable, "-P", "-m", module, *arguments]


def child_environment(**more: str) -> dict[str, str]:
    """The environment of this process and `more`, with our packages first on Python's search path."""
    paths = os.pathsep.join(path for path in (PACKAGES, os.environ.get("PYTHONPATH", "")) if path)
    return {**os.environ, **more, "PYTHONPATH": paths}


def command(name: str) -> list[str]:
    """The command line of a process of `MODULES`; a frozen program (`app.processes.entry`) starts itself."""
    return [sys.executable, "--process", name] if getattr(sys, "frozen", False) else module_command(MODULES[name])


def start_child(name: str, errors: IO[bytes] | None = None) -> subprocess.Popen[bytes]:
    """Start a process (`command`) that reads requests on standard input and replies on standard output.

    It must end when its input ends; a terminal's signals do not reach it. errors: its output. Raises LeafClinicError.
    """
    try:
        return subprocess.Popen(
            command(name), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, start_new_session=True,
            env=child_environment(OPENBLAS_NUM_THREADS="1", **MALLOC),
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )  # fmt: skip
    except OSError as error:
        raise LeafClinicError(f"No helper process could be started ({error}). Close other programs and try again."
                              ) from error


def take_stdout() -> TextIO:
    """The standard output of this process, for its messages; what libraries print goes to the standard error."""
    messages = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="backslashreplace")
    os.dup2(2, 1)
    return messages


def close_child(process: subprocess.Popen[bytes]) -> None:
    """End the process immediately; it has nothing to save."""
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        with suppress(OSError):  # a request that the process never read
            pipe.close()
