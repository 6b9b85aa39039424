"""Shares as people read them: one way in the window, in reports and in model cards."""

from __future__ import annotations

import math
import re
from typing import Final

SPACE: Final = "\u00a0"
"""No-break: a figure does not part from its sign at a line's end (ISO 80000-1, 7.2)."""
SURE: Final = 0.9995
"""Would be rounded to a hundred per cent."""


def percent(share: float, digits: int = 1) -> str:
    """A share 0..1 as "98.3 %"; a dash where there is none."""
    return f"{100 * share:.{digits}f}{SPACE}%" if math.isfinite(share) else "–"


def plain_percent(share: float, digits: int = 1) -> str:
    """The same in a sentence for a terminal, with a plain space; `keep_percents` sees to it elsewhere."""
    return percent(share, digits).replace(SPACE, " ")


def stated(probability: float) -> str:
    """A probability of a class, 0..1: never "100 %" or "0 %", which no network knows."""
    if probability >= SURE:
        return f">{SPACE}{percent(SURE - 0.0005)}"
    return f"<{SPACE}{percent(0.001)}" if probability < 1 - SURE else percent(probability)


def percents(low: float, high: float, digits: int = 1) -> str:
    """Two shares, as the bounds of an interval: "97.7–98.7 %"."""
    return f"{100 * low:.{digits}f}–{100 * high:.{digits}f}{SPACE}%"


def keep_percents(text: str) -> str:
    """Sentences for a terminal have plain spaces before their signs; where lines are broken they get no-break ones."""
    return re.sub(r" %(?<=\d %)", f"{SPACE}%", text)  # the literal first: base64 pictures are passed over
