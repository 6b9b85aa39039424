"""Says how much memory a run will take, before it starts: its plans are laid out and given back."""

from __future__ import annotations

from typing import Any

from app.processes.protocol import Channel, serve
from core.config import from_dict
from core.data.preparation import cache_side
from core.errors import OutOfMemory
from core.training.setup import VALIDATION_BATCH, auto_batch, choose_device, compile_training, graph_in_use
from core.training.transfer import adopt, first_network, read_origin
from core.training.validation import compile_inference


def main() -> int:
    return serve(_work)


def _work(channel: Channel, asked: dict[str, Any]) -> None:
    """`asked`: config (settings of RunConfig), classes and photos (how many)."""
    config = from_dict(asked["config"])
    origin = read_origin(config)
    config = adopt(config, origin)
    device, _ = choose_device(config.device)
    batch = config.batch_size or auto_batch(device, int(asked["photos"]))
    graph = first_network(config, origin, [f"class {n}" for n in range(int(asked["classes"]))]).graph
    try:
        plan = compile_training(config, graph, device, batch, ())
        checking = compile_inference(graph_in_use(config, graph), device, VALIDATION_BATCH[device], config.threads)
    except OutOfMemory as error:
        channel.tell(failed=str(error))
        return
    cache = int(asked["photos"]) * 3 * cache_side(config) ** 2
    channel.tell(bytes=plan.memory.total + checking.memory.total, cache=cache, batch=batch, device=device)
