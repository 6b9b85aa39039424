"""One rank of one group for `benchmarks.scaling`: prepares every batch size, then times steps when asked.

A line "BATCH STEPS" on standard input asks; rank 0 answers with the milliseconds of one step. Batch 0 asks ours for the
time of one all-reduce of the gradient.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

CLASSES, SIDE = 10, 224
WARM_UP = 5
Step = Callable[[], object]


def prepare_ours(model: str, batches: Sequence[int]) -> tuple[dict[int, Step], Step]:
    """A step of ours for each batch size a GPU, through `take_step` as in training, and what ends all of them."""
    from core.distributed.place import choose_gpu, connect, find_place
    from core.gpu.driver.device import is_idle, open_device
    from core.training.step import take_step

    place = find_place()
    choose_gpu(place)
    device = open_device()
    ranks = connect(place, "cuda")
    prepared = {batch: prepare_plan(model, batch, ranks) for batch in batches}
    steps: dict[int, Step] = {
        batch: (lambda plan=plan, photos=photos: take_step(plan, photos, 1e-4, photos))
        for batch, (plan, photos) in prepared.items()
    }
    plan, stream = prepared[batches[0]][0], device.new_stream()

    def reduce() -> None:
        if ranks.size > 1:
            ranks.average_gradients([(plan._blocks["gradient"].address, plan.layout.trained)], stream)

    def finish() -> None:
        ranks.wait(lambda: is_idle(stream))
        ranks.barrier()

    steps[0] = reduce
    return steps, finish


def prepare_plan(model: str, batch: int, ranks: Any) -> tuple[Any, Any]:
    """A plan with its photos on the GPU, and this rank's share of a batch of them."""
    from core.device import Optimizer, PhotoBatch
    from core.gpu.plan import CudaPlan
    from core.models.architectures import build
    from core.models.init import initial_weights
    from core.ops.builder import with_loss
    from core.ops.photo import identity_augmentation

    graph = with_loss(build(model, CLASSES, SIDE), 0.0, ())
    plan = CudaPlan(
        graph, batch=batch, training=True, precision="mixed", optimizer=Optimizer("adamw"), communicator=ranks
    )
    plan.load(initial_weights(graph, 0))
    rng = np.random.default_rng(0)
    plan.keep_photos(rng.integers(0, 256, (batch, SIDE, SIDE, 3)).astype(np.uint8))
    labels = rng.integers(0, CLASSES, batch * ranks.size).astype(np.int32)
    first, index = batch * ranks.rank, np.arange(batch, dtype=np.int32)
    share = {"first": first, "parts": 1, "step_labels": labels} if ranks.size > 1 else {}
    augmentation = identity_augmentation(batch, (SIDE, SIDE), (SIDE, SIDE))
    return plan, PhotoBatch(None, augmentation, labels[first : first + batch], index, **share)


def prepare_torch(model: str, batches: Sequence[int], compiled: bool) -> tuple[dict[int, Step], Step]:
    """A step of DistributedDataParallel (on one GPU: of the bare network) for each batch size a GPU."""
    import torch
    from torch.distributed import barrier, init_process_group
    from torch.nn.parallel import DistributedDataParallel

    from benchmarks.torch_models import make_model

    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if size > 1:
        store = f"file://{os.environ['LEAFCLINIC_MEETING']}/store"
        init_process_group("nccl", init_method=store, rank=rank, world_size=size)
    torch.backends.cudnn.benchmark = True
    bare = make_model(model, CLASSES).cuda().to(memory_format=torch.channels_last)
    network = DistributedDataParallel(bare, gradient_as_bucket_view=True, static_graph=True) if size > 1 else bare
    run = torch.compile(network) if compiled else network
    optimizer, loss_of = torch.optim.AdamW(bare.parameters(), lr=1e-4, fused=True), torch.nn.CrossEntropyLoss()

    def step(x: torch.Tensor, y: torch.Tensor) -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = loss_of(run(x), y)
        loss.backward()
        optimizer.step()

    def finish() -> None:
        torch.cuda.synchronize()
        if size > 1:
            barrier()
            torch.cuda.synchronize()

    steps: dict[int, Step] = {}
    for batch in batches:
        x = torch.randn(batch, 3, SIDE, SIDE, device="cuda").to(memory_format=torch.channels_last)
        y = torch.randint(0, CLASSES, (batch,), device="cuda")
        steps[batch] = lambda x=x, y=y: step(x, y)
    return steps, finish


def main(peer: str, model: str, *sizes: str) -> None:
    batches = [int(size) for size in sizes]
    prepared = prepare_ours(model, batches) if peer == "ours" else prepare_torch(model, batches, "compiled" in peer)
    steps, finish = prepared
    for step in steps.values():
        for _ in range(WARM_UP):
            step()
        finish()
    if peer != "ours":
        sys.modules["torch"].cuda.empty_cache()
    print("ready", flush=True)
    for line in sys.stdin:
        batch, count = (int(word) for word in line.split())
        for _ in range(WARM_UP):
            steps[batch]()
        finish()
        begun = time.perf_counter()
        for _ in range(count):
            steps[batch]()
        finish()
        milliseconds = (time.perf_counter() - begun) / count * 1e3
        if peer != "ours":  # all groups share the GPU's memory
            sys.modules["torch"].cuda.empty_cache()
        print(json.dumps(milliseconds), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
