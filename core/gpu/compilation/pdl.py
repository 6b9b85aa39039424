"""Programmatic dependent launch (PDL): the wait that a kernel needs, written into its PTX.

On compute capability 9.0 a launch may begin while the previous one runs: its blocks are scheduled and its code and
arguments fetched, and they wait inside the kernel. A kernel that has no wait of its own (`core.gpu.latency.block`) gets
one in front of its first access to memory, so the result is that of launches one after another.
"""

from __future__ import annotations

import re
from typing import Final

CAPABILITY: Final = (9, 0)
"""The first compute capability that knows `griddepcontrol`."""

WAIT: Final = "griddepcontrol.wait;"
LAUNCH_DEPENDENTS: Final = "griddepcontrol.launch_dependents;"

_PLAIN: Final = re.compile(r"\s*(//|(ld\.param|mov|cvta?|add|sub|mul|mad|sh[lr]|and|or|xor|setp|selp|min|max)\b)")
"""A comment, or an instruction that only computes."""


def with_wait(ptx: str) -> str:
    """The kernel with a wait for the previous one, as late as its first lines allow; then the next one may begin.

    Loads through the read-only path become ordinary ones: the assembler could move them in front of the wait.
    """
    if WAIT in ptx:
        return ptx
    head, body = ptx.split(".visible .entry", 1)
    lines = body.split("\n")
    begin = lines.index("{") + 1
    at = next(i for i, line in enumerate(lines) if i >= begin and not _harmless(line))
    lines[at:at] = [f"\t{WAIT}", f"\t{LAUNCH_DEPENDENTS}"]
    return head + ".visible .entry" + "\n".join(lines).replace("ld.global.nc.", "ld.global.")


def without_wait(ptx: str) -> str:
    """The kernel for a GPU without programmatic dependent launch, where it has nothing to wait for."""
    return ptx.replace(WAIT, "").replace(LAUNCH_DEPENDENTS, "")


def _harmless(line: str) -> bool:
    """Whether a line of PTX declares something or computes from arguments and registers alone."""
    stripped = line.strip()
    return not stripped or stripped.startswith(".") or _PLAIN.match(line) is not None
