"""Adapts a model to the photos of a place (`core.adapt`), or counts the photos before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from app.processes.entry import Channel
from core.adapt import adapt_to_place, open_place, read_adaptable
from core.config import from_dict
from core.errors import InputError
from core.storage import inside_photos


def work(channel: Channel, asked: dict[str, Any]) -> None:
    """`asked`: model, a file; data, a folder or ""; out, the file to write, or "" to only check the model and count the
    photos; name, of the new model."""
    config = from_dict({"data": asked["data"], "name": asked["name"]})
    if not asked["out"]:
        model = read_adaptable(Path(asked["model"]))
        channel.send(classes=model.classes)
        if config.data:
            channel.send(counts=open_place(model, config, channel.report).counts())
        return
    if refusal := inside_photos(asked["out"], [config.data]):
        raise InputError(refusal)
    _, result, told = adapt_to_place(Path(asked["model"]), config, Path(asked["out"]), channel.report)
    channel.send(effect=told, path=asked["out"] if result.model is not None else "")
