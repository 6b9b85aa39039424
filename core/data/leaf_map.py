"""PlantVillage's own list of which photo shows which leaf, where it lies beside the photos.

Its repository has a file ``leaf-map.json``: the end of a photo's name in small letters, to one or more
``class:::leaf``, such as ``"jr_frge.s 2891": ["Apple_Frogeye Spot:::13.0"]``.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any, Final

import numpy as np

from core.data.dataset import Dataset
from core.data.name_groups import source_name
from core.data.string_array import StringArrayBuilder, encode
from core.ops.contract import Array

NAME: Final = "leaf-map.json"
LEVELS: Final = 3
"""Looked for in the photos' folder and in two above it: the repository keeps its photos in raw/color."""


def group_by_leaf_map(dataset: Dataset) -> Array:
    """Groups int32 ``(N,)`` of photos of one leaf, by the map; all others, and all without a map, are each alone."""
    leaves = _read_map(dataset.root)
    if not leaves:
        return np.arange(len(dataset), dtype=np.int32)
    builder = StringArrayBuilder()
    for row, path in enumerate(dataset.paths):
        found = leaves.get(_plain(source_name(path).rpartition("___")[2]), ())
        leaf = _choose(found, dataset.label(row))
        builder.append(leaf or f"row {row}")
    return encode(builder.finish())[0]


def _read_map(root: str) -> dict[str, tuple[str, ...]]:
    """Plain photo names to leaves; empty where there is no map of this form."""
    folder = Path(root)
    for place in (folder, *folder.parents[: LEVELS - 1]):
        if os.path.isfile(place / NAME):
            break
    else:
        return {}
    try:
        raw: Any = json.loads((place / NAME).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(raw, dict):
        return {}
    return {
        _plain(name): tuple(str(leaf) for leaf in leaves) for name, leaves in raw.items() if isinstance(leaves, list)
    }


def _choose(leaves: tuple[str, ...], label: str) -> str:
    """The leaf, or of several (photo numbers were used twice) the one of this class; empty if that is unclear."""
    if len(leaves) == 1:
        return leaves[0]
    own = [leaf for leaf in leaves if _plain(leaf.partition(":::")[0]) == _plain(label)]
    return own[0] if len(own) == 1 else ""


def _plain(text: str) -> str:
    """Small letters and digits, whatever stands between them as one space."""
    return re.sub(r"[^a-z0-9]+", " ", text.lower()).strip()
