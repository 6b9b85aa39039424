"""Groups photos that were augmented from the same photo, by their file names.

Augmented sets (such as the "New Plant Diseases Dataset", where 61.5 % of the source photos in valid/ are also in
train/) keep the source's name and append the change: ``0ab1_RS_HL 0123_flipLR.JPG``, ``..._new30degFlipLR.JPG``.
The perceptual hash does not find rotations by 30 degrees.
"""

from __future__ import annotations

import os
import re
from typing import Final

import numpy as np

from core.data.dataset import Dataset
from core.data.string_array import StringArrayBuilder, encode
from core.ops.contract import Array

_CHANGE: Final = re.compile(
    r"[ _-]+(?:new)?(?:"
    r"\d{1,3}deg(?:rees)?(?:flip(?:lr|tb|ud))?|flip(?:ped)?[ _-]?(?:lr|tb|ud|h|v|horizontal|vertical)?|[hv]flip"
    r"|mirror(?:ed)?|rotat(?:ed?|ion)[ _-]?\d{0,3}|aug(?:mented)?[ _-]?\d*"
    r")$",
    re.IGNORECASE,
)
"""One change, at the end of a name. Plain numbers and "(2)" do not count, since cameras number photos too, nor does
"rot": black_rot_12 is a disease."""
MOST: Final = 64
"""Larger groups are ignored: they come from a naming scheme, not from one source photo."""


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
    builder = StringArrayBuilder()
    changed = np.zeros(len(dataset), bool)
    for row, path in enumerate(dataset.paths):
        name = source_name(path)
        changed[row] = name != os.path.splitext(path.rpartition("/")[2])[0]
        builder.append(f"{dataset.labels[row]}/{name}")
    codes, _ = encode(builder.finish())
    grouped = np.zeros(int(codes.max(initial=-1)) + 1, bool)
    grouped[codes[changed]] = True
    grouped &= np.bincount(codes, minlength=len(grouped)) <= MOST
    alone = np.flatnonzero(~grouped[codes])
    codes[alone] = len(grouped) + np.arange(len(alone), dtype=np.int32)
    return np.unique(codes, return_inverse=True)[1].astype(np.int32)
