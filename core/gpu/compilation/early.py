"""Kernels that start before the one in front has ended: the wait that they need, written into their PTX.

On Hopper a launch may be let in while the one before it still runs ("programmatic dependent launch"): its blocks are
placed, its code and arguments fetched, and they wait in the kernel itself instead of in front of it. A kernel not
written for it (`kernels.early_start`) gets the wait in front of the first thing that it asks of memory. Weights apart
nothing is loaded before, so whatever the kernels in front read and wrote is as if they had run one after another.
"""

from __future__ import annotations

import re
from typing import Final

CAPABILITY: Final = (9, 0)
"""The first that knows `griddepcontrol`."""

WAIT: Final = "griddepcontrol.wait;"
LET_NEXT_START: Final = "griddepcontrol.launch_dependents;"

_PLAIN: Final = re.compile(r"\s*(//|(ld\.param|mov|cvta?|add|sub|mul|mad|sh[lr]|and|or|xor|setp|selp|min|max)\b)")
"""A comment, or an instruction that only computes."""


def waiting(ptx: str) -> str:
    """The same kernel waiting for the one in front, as late as its first lines allow; then it lets the next one start.

    Loads through the read-only path become ordinary ones: the assembler could move them in front of the wait.
    """
    if WAIT in ptx:
        return ptx
    head, body = ptx.split(".visible .entry", 1)
    lines = body.split("\n")
    begin = lines.index("{") + 1
    at = next(i for i, line in enumerate(lines) if i >= begin and not _harmless(line))
    lines[at:at] = [f"\t{WAIT}", f"\t{LET_NEXT_START}"]
    return head + ".visible .entry" + "\n".join(lines).replace("ld.global.nc.", "ld.global.")


def without_waits(ptx: str) -> str:
    """The same kernel for a generation that knows no early starts, where nothing has to be waited for."""
    return ptx.replace(WAIT, "").replace(LET_NEXT_START, "")


def _harmless(line: str) -> bool:
    """Whether a line of PTX declares something or computes from arguments and registers alone."""
    stripped = line.strip()
    return not stripped or stripped.startswith(".") or _PLAIN.match(line) is not None
