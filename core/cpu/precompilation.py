"""Compiles kernels before they are needed, in two processes, so that the wait at the first use is short and reported.

Numba compiles on only one thread of a process. A second process compiles the slowest kernels into the cache, from which
this one loads them.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Final

from core.child_process import child_environment, command
from core.cores import usable_cores
from core.cpu import tile_code
from core.cpu.execution import runner
from core.cpu.instruction_set import cache_folder, current_isa, kernel_home
from core.cpu.records import entry
from core.graph import Graph

MODULES: Final = (
    "execution", "tiled", "photo", "depthwise", "pooling", "elementwise", "loss", "convolution", "optimizer",
    "batch_norm",
)  # fmt: skip
COSTLY: Final = ("photo.run_photo", "elementwise.run_map_gradient", tile_code.NAME, "tiled.run_tiled",
                "execution.run_groups", "execution.run_images")  # fmt: skip
"""The slowest, which the second process compiles first."""
TURN: Final = 0.2
"""Seconds between reports while only the second process compiles."""
OF_EVERY_PREDICTION: Final = (
    "photo.run_plain_photo", "elementwise.run_border", "elementwise.run_output", "execution.run_sequence",
)  # fmt: skip
OF_OP: Final = {
    "conv2d": (tile_code.NAME, "tiled.run_tiled", "convolution.run_pack"),
    "dense": (tile_code.NAME, "tiled.run_tiled", "convolution.run_pack"),
    "depthwise_conv2d": ("depthwise.run_depthwise", "convolution.run_pack"),
    "max_pool": ("pooling.run_max_pool",),
    "avg_pool": ("pooling.run_avg_pool",),
    "global_avg_pool": ("pooling.run_avg_pool",),
    "add": ("elementwise.run_add",),
    "multiply": ("elementwise.run_multiply",),
}


def all_kernels() -> tuple[str, ...]:
    """Return the names of all kernels that a training may run."""
    named = (f"{m}.{name}" for m in MODULES for name in vars(import_module(f"core.cpu.{m}")) if name[:4] == "run_")
    return (tile_code.NAME, *named)


def prediction_kernels(graph: Graph) -> tuple[str, ...]:
    """Return the names of the kernels that predict one image on one thread."""
    of_ops = (name for node in graph.nodes for name in OF_OP.get(node.op, ()))
    return tuple(dict.fromkeys((*OF_EVERY_PREDICTION, *of_ops)))


def are_compiled(names: Sequence[str]) -> bool:
    """Return whether the cache has all of these."""
    return all(map(_is_compiled, names))


def _is_compiled(name: str) -> bool:
    if name == tile_code.NAME:
        return tile_code.code_file(current_isa().name).exists()
    return any(cache_folder().glob(f"*/{name}-*.nbi"))


def compile_kernels(names: Sequence[str], report: Callable[[int, int], None]) -> None:
    """Compile kernels, or load them from the cache; call `report(done, total)` before the first and after each.

    May run in a thread. An exception of `report` ends it.
    """
    waiting = deque(sorted(names, key=lambda name: COSTLY.index(name) if name in COSTLY else len(COSTLY)))
    given, answered, total = list[str](), list[str](), len(waiting)
    report(0, total)
    helper = threading.Thread(target=_let_compile, args=(waiting, given, answered), daemon=True)
    if usable_cores() > 1 and kernel_home() is not None and not are_compiled(names):
        helper.start()
    try:
        done = 0
        while (name := _take_last(waiting)) is not None:
            compile_kernel(name)
            done += 1
            report(done + len(answered), total)
        while helper.is_alive():
            helper.join(TURN)
            report(done + len(answered), total)
    finally:
        waiting.clear()
    for name in given:
        compile_kernel(name)
    report(total, total)


def _take_last(waiting: deque[str]) -> str | None:
    with contextlib.suppress(IndexError):
        return waiting.pop()
    return None


def compile_kernel(name: str) -> None:
    """Compile one kernel by its name ``module.function``, or load it from the cache."""
    module, function = name.split(".")
    if name == tile_code.NAME:
        tile_code.tile_table(current_isa().name)
    else:
        (runner if module == "execution" else entry)(getattr(import_module(f"core.cpu.{module}"), function))


def _let_compile(waiting: deque[str], given: list[str], answered: list[str]) -> None:
    """Have a second process compile from the front of `waiting`; `given` and `answered` list its jobs and results.

    If it ends early, this process compiles the rest.
    """
    with contextlib.suppress(OSError, IndexError), subprocess.Popen(
        command("compile"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=child_environment(),
        creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        while True:
            given.append(waiting.popleft())
            process.stdin.write(given[-1] + "\n")
            process.stdin.flush()
            if not process.stdout.readline():
                return
            answered.append(given[-1])


def main() -> int:
    """Run as the second process: compile the kernels named on standard input, one reply a line, until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles Ctrl-C
    with contextlib.suppress(BrokenPipeError), open(1, "wb", buffering=0) as answers:  # the parent may be killed
        for line in sys.stdin:
            compile_kernel(line.strip())
            answers.write(b"done\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
