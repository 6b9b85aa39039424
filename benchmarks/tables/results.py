"""Reading result files, and formatting their figures as Markdown."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

RESULTS = Path(__file__).parents[1] / "results"


def read(name: str) -> dict[str, Any]:
    """The result file ``NAME.json``."""
    return json.loads((RESULTS / f"{name}.json").read_text("utf-8"))


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose first column is aligned left and the others right."""
    first, *others = (f"| {' | '.join(row)} |" for row in (head, *rows))
    return "\n".join((first, f"|---|{'--:|' * (len(head) - 1)}", *others))


def figure(value: float) -> str:
    """A number with three significant digits, without an exponent, thousands separated."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    places = 2 - math.floor(math.log10(abs(value)))
    return f"{round(value, places):,.{max(places, 0)}f}"


def percent(share: float, places: int = 1) -> str:
    return f"{100 * share:.{places}f} %"


T95 = 4.303
"""Quantile of Student's t for a 95 % interval of the mean of three seeds."""


def of_seeds(values: Sequence[float], places: int = 3) -> str:
    """The mean of three seeds with half the width of its 95 % interval."""
    assert len(values) == 3
    return f"{mean(values):.{places}f} ± {T95 * stdev(values) / len(values) ** 0.5:.{places}f}"


def machine(result: dict[str, Any]) -> str:
    """The GPU's name if one was measured, otherwise the processor's with its cores."""
    gpu = result.get("gpu")
    if gpu:
        return gpu["name"] if isinstance(gpu, dict) else str(gpu)
    place = result["machine"]
    if "h200" in (place if isinstance(place, str) else place["name"]):
        return "NVIDIA H200"
    if isinstance(place, str):
        return place
    avx2 = " with AVX2 only" if "avx2" in place["name"] else ""
    return f"{place['processor'].replace('(R)', '')}{avx2}, {place['cores']} cores"
