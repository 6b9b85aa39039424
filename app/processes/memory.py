"""Computes the memory of a run before it starts, by making and releasing its plans."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from app.processes.entry import Channel
from core.config import from_dict
from core.data.preparation import cache_side
from core.plan import choose_device
from core.training.dry_run import forecast_memory
from core.training.transfer import first_network, read_start


def work(channel: Channel, asked: dict[str, Any]) -> None:
    """`asked`: config (settings of RunConfig), counts (photos of each class)."""
    config, origin = read_start(from_dict(asked["config"]))
    device = choose_device(config.device)
    counts = [int(count) for count in asked["counts"]]
    classes = [f"class {n}" for n in range(len(counts))]
    graph = first_network(config, origin, classes).graph
    config = replace(config, teacher=())  # teachers need class names, which are not known here
    forecast = forecast_memory(config, graph, classes, counts, device)
    cache = sum(counts) * 3 * cache_side(config) ** 2
    channel.send(bytes=forecast.peak, cache=cache, batch=forecast.batch, device=device)
