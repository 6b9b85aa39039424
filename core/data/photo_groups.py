"""Groups photos of the same leaf: by file names, by PlantVillage's list of leaves, and by the time of the photo.

- Augmented sets (such as the "New Plant Diseases Dataset", where 61.5 % of the source photos in valid/ are also in
  train/) keep the source's name and append the change: ``0ab1_RS_HL 0123_flipLR.JPG``, ``..._new30degFlipLR.JPG``. The
  perceptual hash does not find rotations by 30 degrees.
- PlantVillage's repository has a file ``leaf-map.json``: the end of a photo's name in lower case, to one or more
  ``class:::leaf``, such as ``"jr_frge.s 2891": ["Apple_Frogeye Spot:::13.0"]``.
- Photos of one class taken within seconds of each other usually show the same leaf.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Final

import numpy as np

from core.data.cache import PhotoCache
from core.data.dataset import Dataset, ReportProgress, ignore
from core.data.near_duplicates import Pair, equal_files, find_near_duplicates, join_groups, join_pairs
from core.data.string_array import encode
from core.ops.contract import Array
from core.schema import parse_json

_CHANGE: Final = re.compile(
    r"[ _-]+(?:new)?(?:"
    r"\d{1,3}deg(?:rees)?(?:flip(?:lr|tb|ud))?|flip(?:ped)?[ _-]?(?:lr|tb|ud|h|v|horizontal|vertical)?|[hv]flip"
    r"|mirror(?:ed)?|rotat(?:ed?|ion)[ _-]?\d{0,3}|aug(?:mented)?[ _-]?\d*"
    r")$",
    re.IGNORECASE,
)
"""One change, at the end of a name. Plain numbers and "(2)" do not count, since cameras number photos too, nor does
"rot": black_rot_12 is a disease."""
LARGEST_NAME_GROUP: Final = 64
"""Larger groups are ignored: they come from a naming scheme, not from one source photo."""
LEAF_MAP: Final = "leaf-map.json"
LEVELS: Final = 3
"""The photos' folder and two above it are searched: the repository has its photos in raw/color."""
BURST_SECONDS: Final = 10
"""Longest pause within a burst, in seconds. A choice, not a measurement: public datasets have no EXIF metadata."""
SESSION_SECONDS: Final = 3600
"""Longest time between the first and the last photo of a session, in seconds."""
LARGEST_BURST: Final = 12
"""Larger groups are ignored if they have more than a third of their class: such as one time for all photos."""


def find_groups(
    dataset: Dataset, cache: PhotoCache, progress: ReportProgress = ignore
) -> tuple[Array, list[Pair] | None]:
    """Groups int32 ``(N,)``: those of the source, others by name, time, list of leaves and likeness; and the
    near-duplicates, None if the source names all groups. Of named groups those with identical files join."""
    groups, free, content = dataset.groups, dataset.ungrouped, cache.content
    if groups is not None and not free.any():
        same = equal_files(content)
        return (join_pairs(len(dataset), same, groups) if same else groups), None
    by_source = join_groups(group_by_name(dataset), group_by_burst(cache.facts[:, 2], dataset.labels))
    by_source = join_groups(by_source, group_by_leaf_map(dataset))
    copies = find_near_duplicates(cache, progress)
    named = by_source if groups is None else np.where(free, groups.max() + 1 + by_source, groups)
    joined = [pair for pair in copies if free[pair.first] or free[pair.second]
              or (content[pair.first] == content[pair.second]).all()]  # fmt: skip
    return join_pairs(len(dataset), joined, named), copies


def source_name(path: str) -> str:
    """The name of the source photo: without folder, extension and changes."""
    name = os.path.splitext(path.rpartition("/")[2])[0]
    while True:
        shorter = _CHANGE.sub("", name)
        if shorter == name or not shorter:
            return name
        name = shorter


def group_by_name(dataset: Dataset) -> Array:
    """Groups int32 ``(N,)`` of photos with the same source, within each class; all others are groups of one.

    Equal names in different folders are a group only if one of them has a change: cameras reuse numbers.
    """
    names = []
    changed = np.zeros(len(dataset), bool)
    for row, path in enumerate(dataset.paths):
        name = source_name(path)
        changed[row] = name != os.path.splitext(path.rpartition("/")[2])[0]
        names.append(f"{dataset.labels[row]}/{name}")
    codes, _ = encode(names)
    grouped = np.zeros(codes.max() + 1, bool)
    grouped[codes[changed]] = True
    grouped &= np.bincount(codes) <= LARGEST_NAME_GROUP
    alone = np.flatnonzero(~grouped[codes])
    codes[alone] = len(grouped) + np.arange(len(alone), dtype=np.int32)
    return np.unique(codes, return_inverse=True)[1].astype(np.int32)


def group_by_leaf_map(dataset: Dataset) -> Array:
    """Groups int32 ``(N,)`` of photos of the same leaf; photos that are not in the map are groups of one."""
    leaves = _read_map(dataset.root)
    if not leaves:
        return np.arange(len(dataset), dtype=np.int32)
    names = []
    for row, path in enumerate(dataset.paths):
        found = leaves.get(_normalize(source_name(path).rpartition("___")[2]), ())
        names.append(_choose(found, dataset.label(row)) or f"row {row}")
    return encode(names)[0]


def _read_map(root: str) -> dict[str, tuple[str, ...]]:
    """Normalized photo names to leaves; empty if there is no valid map."""
    folder = Path(root)
    files = [place / LEAF_MAP for place in (folder, *folder.parents[: LEVELS - 1])]
    try:
        raw: Any = parse_json(next(file for file in files if os.path.isfile(file)).read_bytes())
    except (StopIteration, OSError, ValueError):
        return {}
    leaves = raw.items() if isinstance(raw, dict) else ()
    return {_normalize(name): tuple(map(str, found)) for name, found in leaves if isinstance(found, list)}


def _choose(leaves: tuple[str, ...], label: str) -> str:
    """The leaf of a photo; of several (numbers are not unique) the one of its class; "" if ambiguous."""
    if len(leaves) == 1:
        return leaves[0]
    own = [leaf for leaf in leaves if _normalize(leaf.partition(":::")[0]) == _normalize(label)]
    return own[0] if len(own) == 1 else ""


def _normalize(text: str) -> str:
    """Lower-case letters and digits, with one space for anything between them."""
    return re.sub(r"[^a-z0-9]+", " ", text.lower()).strip()


def group_by_burst(taken: Array, labels: Array) -> Array:
    """Groups int32 ``(N,)`` from times in seconds (0: unknown) and classes; all others are groups of one."""
    count = len(taken)
    order = np.lexsort((taken, labels))
    time, label = taken[order], labels[order]
    starts = np.ones(count, bool)
    starts[1:] = (label[1:] != label[:-1]) | (time[1:] - time[:-1] > BURST_SECONDS)
    starts |= time == 0
    burst = np.cumsum(starts) - 1
    believed = np.bincount(burst)[burst] <= np.maximum(LARGEST_BURST, np.bincount(label)[label] // 3)
    groups = np.empty(count, np.int64)
    groups[order] = np.where(believed, burst, count + np.arange(count))
    return np.unique(groups, return_inverse=True)[1].astype(np.int32)


def describe_sessions(dataset: Dataset, cache: PhotoCache) -> str:
    """A sentence on classes whose photos are all of one session, so that no split separates sessions; "" without."""
    taken, labels = cache.facts[cache.kept, 2], dataset.labels[cache.kept]
    times = [taken[labels == label] for label in range(len(dataset.classes))]
    named = ", ".join(name for name, own in zip(dataset.classes, times, strict=True)
                      if len(own) > 1 and own.all() and np.ptp(own) <= SESSION_SECONDS)  # fmt: skip
    return named and (f"All photos of {named} were taken within an hour: their test photos are of the same session as "
                      "the others, so the accuracy may not hold on other days. Add photos of other days.")  # fmt: skip
