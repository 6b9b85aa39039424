"""Formats shares as percentages, the same in the window, reports and model cards."""

from __future__ import annotations

import math
import re
from typing import Final

SPACE: Final = "\u00a0"
"""No-break space between number and sign (ISO 80000-1, 7.2)."""
SURE: Final = 0.9995
"""From here a share would be rounded to 100 %."""


def rounded(share: float, digits: int = 1) -> str:
    """A share 0..1 in percents, "100.0" only if it is all."""
    return f"{min(100 * share, 100 - 0.1**digits) if share < 1 else 100 * share:.{digits}f}"


def percent(share: float | None, digits: int = 1) -> str:
    """A share 0..1 as "98.3 %"; a dash for NaN and None."""
    return "–" if share is None or not math.isfinite(share) else f"{rounded(share, digits)}{SPACE}%"


def whole_percent(share: float) -> str:
    """A share 0..1 in whole percents; one that is not 0 is never "0 %"."""
    return f"<{SPACE}{percent(0.01, 0)}" if 0 < share <= 0.005 else percent(share, 0)


def stated(probability: float) -> str:
    """A class probability, 0..1, never as "100 %" or "0 %"."""
    if probability >= SURE:
        return f">{SPACE}{percent(SURE - 0.0005)}"
    return f"<{SPACE}{percent(0.001)}" if probability < 1 - SURE else percent(probability)


def percents(low: float, high: float, digits: int = 1) -> str:
    """The bounds of an interval: "97.7–98.7 %"."""
    return f"{rounded(low, digits)}–{100 * high:.{digits}f}{SPACE}%"


def keep_percents(text: str) -> str:
    """Replace the plain spaces before percent signs by no-break spaces, for text that is wrapped."""
    return re.sub(r" %(?<=\d %)", f"{SPACE}%", text)  # the literal first: base64 pictures are passed over
