"""One rank of one group for `benchmarks.scaling`: prepares every batch size, then times steps when asked.

A line "BATCH STEPS" on standard input asks; rank 0 answers with the milliseconds of one step. A batch below 0 means an
all-reduce of so many numbers of the gradient, which only ours has.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

CLASSES, SIDE = 10, 224
WARM_UP = 5
Step = Callable[[], object]


Prepared = tuple[dict[int, Step], Step, Step]
"""A step for each size, and two functions: wait for the own GPU, and wait for all ranks."""


def prepare_ours(model: str, sizes: Sequence[int]) -> Prepared:
    """Ours, through `take_step` as in training."""
    from core.distributed.place import choose_gpu, connect, find_place
    from core.gpu.driver.device import is_idle, open_device
    from core.training.step import take_step

    place = find_place()
    choose_gpu(place)
    device = open_device()
    ranks = connect(place, "cuda")
    prepared = {batch: prepare_plan(model, batch, ranks) for batch in sizes if batch > 0}
    steps: dict[int, Step] = {
        batch: (lambda plan=plan, photos=photos: take_step(plan, photos, 1e-4, photos))
        for batch, (plan, photos) in prepared.items()
    }
    plan, stream = prepared[sizes[0]][0], device.new_stream()

    def reduce(count: int) -> None:
        ranks.average_gradients([(plan._blocks["gradient"].address, min(count, plan.layout.trained))], stream)

    steps |= {size: partial(reduce, -size) for size in sizes if size < 0}
    return steps, lambda: ranks.wait(lambda: is_idle(stream)), ranks.barrier


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


def prepare_torch(model: str, batches: Sequence[int], compiled: bool) -> Prepared:
    """DistributedDataParallel; on one GPU the bare network."""
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
    network = torch.compile(bare, dynamic=False) if compiled else bare
    run = DistributedDataParallel(network, gradient_as_bucket_view=True, static_graph=True) if size > 1 else network
    optimizer, loss_of = torch.optim.AdamW(bare.parameters(), lr=1e-4, fused=True), torch.nn.CrossEntropyLoss()

    def step(x: torch.Tensor, y: torch.Tensor) -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = loss_of(run(x), y)
        loss.backward()
        optimizer.step()

    def meet() -> None:
        if size > 1:
            barrier()
            torch.cuda.synchronize()

    steps: dict[int, Step] = {}
    for batch in batches:
        x = torch.randn(batch, 3, SIDE, SIDE, device="cuda").to(memory_format=torch.channels_last)
        y = torch.randint(0, CLASSES, (batch,), device="cuda")
        steps[batch] = lambda x=x, y=y: step(x, y)
    return steps, torch.cuda.synchronize, meet


def main(peer: str, model: str, *sizes: str) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    numbers = [int(size) for size in sizes]
    prepared = prepare_ours(model, numbers) if peer == "ours" else prepare_torch(model, numbers, "compiled" in peer)
    steps, synchronize, meet = prepared
    for size in numbers:
        run(steps[size], WARM_UP, synchronize)
    meet()
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        size, count = (int(word) for word in line.split())
        run(steps[size], WARM_UP, synchronize)
        meet()
        begun = time.perf_counter()
        run(steps[size], count, synchronize)
        milliseconds = (time.perf_counter() - begun) / count * 1e3
        if peer != "ours":  # all groups share the GPU's memory
            sys.modules["torch"].cuda.empty_cache()
        print(json.dumps(milliseconds), file=answers, flush=True)


def run(step: Step, count: int, synchronize: Step) -> None:
    for _ in range(count):
        step()
    synchronize()


if __name__ == "__main__":
    main(*sys.argv[1:])
