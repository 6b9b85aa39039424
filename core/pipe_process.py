"""Starts a process of the program that reads requests on standard input and replies on standard output."""

from __future__ import annotations

import subprocess
import sys
from typing import IO, Final

from core.child_process import child_environment, module_command
from core.errors import LeafClinicError

KEPT_MEMORY: Final = {"MALLOC_TRIM_THRESHOLD_": str(32 << 20), "MALLOC_MMAP_THRESHOLD_": str(32 << 20)}
"""glibc keeps freed images of up to this size for the next one, instead of mapping fresh pages (mallopt(3))."""


def start_child(name: str, module: str, errors: IO[bytes] | None = None) -> subprocess.Popen[bytes]:
    """Start `module`, with pipes to its standard input and output; it must end when its input ends.

    `name` is the process's entry in `app.processes.entry`, for a frozen program, which is its own interpreter.
    `errors` becomes its error output. Raises LeafClinicError.
    """
    try:
        return subprocess.Popen(
            command(name, module), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
            env=child_environment(OPENBLAS_NUM_THREADS="1", **KEPT_MEMORY),
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )  # fmt: skip
    except OSError as error:
        raise LeafClinicError(f"No helper process could be started ({error}). Close other programs and try again."
                              ) from error


def close_child(process: subprocess.Popen[bytes]) -> None:
    """End the process at once; it has nothing to save."""
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        try:
            pipe.close()
        except OSError:
            continue  # a request that the process never read


def command(name: str, module: str) -> list[str]:
    """The command line; in a frozen program the program itself is the interpreter."""
    return [sys.executable, "--process", name] if getattr(sys, "frozen", False) else module_command(module)
