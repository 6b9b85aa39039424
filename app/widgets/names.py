"""Places names beside points of a chart so that none overlaps another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True, slots=True)
class Name:
    """A text and its height in pixels from the bottom."""

    at: float
    text: str


def place_names(wanted: Sequence[tuple[float, str]], room: float, height: float) -> list[Name]:
    """Names near the desired heights (pixels, within `room`), in ascending order, `height` pixels apart.

    If there are too many, the nearest neighbours share a line.
    """
    groups = [(at, [text]) for at, text in sorted(wanted, key=lambda name: name[0])]
    while len(groups) > max(int(room // height), 1):
        near = min(range(len(groups) - 1), key=lambda n: groups[n + 1][0] - groups[n][0])
        (low, names), (high, more) = groups[near : near + 2]
        groups[near : near + 2] = [((low * len(names) + high * len(more)) / len(names + more), names + more)]
    places: list[float] = []
    for at, _ in groups:  # upwards, without overlaps
        places.append(max(at, places[-1] + height if places else height / 2))
    ceiling = room - height / 2
    for number in reversed(range(len(places))):  # and down again from the top edge
        places[number] = ceiling = min(places[number], ceiling)
        ceiling -= height
    return [Name(at, ", ".join(reversed(names))) for at, (_, names) in zip(places, groups, strict=True)]
