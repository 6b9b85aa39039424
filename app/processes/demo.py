"""Generates the synthetic leaves and reports progress."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from app.processes.entry import Channel
from core.data.synthetic import write_demo


def work(channel: Channel, asked: dict[str, Any]) -> None:
    each, side = int(asked["photos_per_class"]), int(asked["side"])
    channel.send(source=str(write_demo(Path(asked["folder"]), each, side, progress=channel.progress)))
