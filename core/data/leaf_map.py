"""Groups photos by PlantVillage's own list of which photo shows which leaf, if it is with the photos.

Its repository has a file ``leaf-map.json``: the end of a photo's name in lower case, to one or more
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
"""The photos' folder and two above it are searched: the repository has its photos in raw/color."""


def group_by_leaf_map(dataset: Dataset) -> Array:
    """Groups int32 ``(N,)`` of photos of the same leaf; photos that are not in the map are groups of one."""
    leaves = _read_map(dataset.root)
    if not leaves:
        return np.arange(len(dataset), dtype=np.int32)
    builder = StringArrayBuilder()
    for row, path in enumerate(dataset.paths):
        found = leaves.get(_normalize(source_name(path).rpartition("___")[2]), ())
        leaf = _choose(found, dataset.label(row))
        builder.append(leaf or f"row {row}")
    return encode(builder.finish())[0]


def _read_map(root: str) -> dict[str, tuple[str, ...]]:
    """Normalized photo names to leaves; empty if there is no valid map."""
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
        _normalize(name): tuple(str(leaf) for leaf in leaves)
        for name, leaves in raw.items() if isinstance(leaves, list)
    }


def _choose(leaves: tuple[str, ...], label: str) -> str:
    """The leaf of a photo; of several (numbers are not unique) the one of its class; "" if ambiguous."""
    if len(leaves) == 1:
        return leaves[0]
    own = [leaf for leaf in leaves if _normalize(leaf.partition(":::")[0]) == _normalize(label)]
    return own[0] if len(own) == 1 else ""


def _normalize(text: str) -> str:
    """Lower-case letters and digits, with one space for anything between them."""
    return re.sub(r"[^a-z0-9]+", " ", text.lower()).strip()
