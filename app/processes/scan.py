"""Checks every photo: decodes it into the training cache, finds problems, splits, measures data leakage."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np

from app.processes.entry import Channel
from core.config import RunConfig, from_dict
from core.data.dataset import SPLITS
from core.data.health import KINDS, examine
from core.data.preparation import PhotoSet, prepare_photos
from core.errors import LeafClinicError
from core.training.transfer import read_start

CHUNK: Final = 200
"""Findings per message, so that the window can draw in between."""


def work(channel: Channel, asked: dict[str, Any]) -> None:
    """`asked`: settings of RunConfig that decide how photos are decoded and split."""
    last = [-1]

    def report(stage: str, done: int, total: int) -> None:
        percent = done * 100 // max(total, 1)
        if percent != last[0] or channel.ended():
            last[0] = percent
            channel.report(stage, done, total)

    photos = prepare_photos(complete(from_dict(asked)), report)
    channel.send(split=split_table(photos))
    root = photos.dataset.root
    findings = [
        {"kind": f.kind, "message": f.message,
         "paths": [] if f.kind == "lopsided" else [os.path.normpath(os.path.join(root, path)) for path in f.paths]}
        for f in examine(photos.dataset, photos.cache, partial(report, "health"))
    ]  # fmt: skip
    for first in range(0, len(findings), CHUNK):
        channel.send(findings=findings[first : first + CHUNK])
    channel.send(kinds=KINDS)


def complete(config: RunConfig) -> RunConfig:
    """The settings with the photo size of the training, which reports a pretrained model that cannot be read."""
    try:
        return read_start(config)[0]
    except LeafClinicError:
        return read_start(replace(config, start=""))[0]


def split_table(photos: PhotoSet) -> dict[str, Any]:
    """Photos per class and split, groups, and leaked photos of this split and of a random one."""
    classes = photos.dataset.classes
    counts = {
        name: np.bincount(photos.dataset.labels[photos.rows(at)], minlength=len(classes)).tolist()
        for at, name in enumerate(SPLITS)
    }
    used = photos.cache.kept
    return {
        "classes": list(classes),
        "counts": counts,
        "photos": len(used),
        "groups": len(np.unique(photos.groups[used])),
        "held_out": photos.leak.held_out,
        "leaked": photos.leak.leaked,
        "random_leaked": photos.random_leak.leaked,
    }
