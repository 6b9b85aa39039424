"""The crop that a class name tells of: the first part of ``crop/condition``, PlantVillage's ``Crop___Condition``."""

from __future__ import annotations

import re
from typing import Final

PARTS: Final = re.compile(r"/|___")


def crop_of(name: str) -> str:
    """The crop of a class as its name writes it, empty where it names a condition only."""
    crop, *condition = PARTS.split(name, maxsplit=1)
    return crop.strip() if condition else ""
