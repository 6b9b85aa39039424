"""Generates the synthetic leaves and reports progress."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from app.processes.entry import Channel
from core.data.synthetic import write_demo


def work(channel: Channel, asked: dict[str, Any]) -> None:
    def report(done: int, total: int) -> None:
        if channel.ended():
            raise SystemExit(0)
        channel.send(done=done, total=total)

    each, side = int(asked["photos_per_class"]), int(asked["side"])
    channel.send(source=str(write_demo(Path(asked["folder"]), each, side, progress=report)))
