"""One rank of one group for `benchmarks.scaling`: prepares every batch size, then times steps when asked.

A line "BATCH STEPS alone" or "BATCH STEPS together" on standard input asks; rank 0 answers with the milliseconds of one
step. Alone, every rank computes at the same time without the others. A batch below 0 means an all-reduce of so many
numbers of the gradient, which only ours has.
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
ALONE, TOGETHER = "alone", "together"
SYNCHRONIZED = "ours, synchronized batch norm"
WARM = "warm"
"""In front of a peer: compile what it computes of these sizes, and end."""
Step = Callable[[], object]


Prepared = tuple[dict[tuple[int, str], Step], Step, Step]
"""A step for each size, alone and together, and two functions: wait for the own GPU, and wait for all ranks."""


def prepare_ours(model: str, sizes: Sequence[int], synchronized: bool) -> Prepared:
    """Ours, through `start_step` as in training."""
    from core.communicator import SingleProcess
    from core.distributed.rank_environment import choose_gpu, connect, find_rank
    from core.gpu.driver.device import is_idle, open_device
    from core.training.step import start_step

    rank = find_rank()
    choose_gpu(rank)
    device = open_device()
    ranks = connect(rank, "cuda")
    prepared = {(batch, kind): prepare_plan(model, batch, communicator, synchronized) for batch in sizes if batch > 0
                for kind, communicator in ((ALONE, SingleProcess()), (TOGETHER, ranks))}  # fmt: skip
    steps: dict[tuple[int, str], Step] = {
        case: (lambda plan=plan, photos=photos: start_step(plan, photos, 1e-4, photos)())
        for case, (plan, photos) in prepared.items()
    }
    plan, stream = prepared[sizes[0], TOGETHER][0], device.new_stream()

    def reduce(count: int) -> None:
        ranks.average_gradients([(plan._blocks["gradient"].address, min(count, plan.layout.trained))], stream)

    steps |= {(size, TOGETHER): partial(reduce, -size) for size in sizes if size < 0}
    return steps, lambda: ranks.wait(lambda: is_idle(stream)), ranks.barrier


def compile_kernels(model: str, sizes: Sequence[int]) -> None:
    """Make every plan once, as one of two ranks would."""
    from core.communicator import SingleProcess

    ranks = SingleProcess(size=2)  # compiles what ranks run, and exchanges nothing
    for batch in sizes:
        for synchronized in (False, True):
            prepare_plan(model, batch, ranks, synchronized)[0].close()


def prepare_plan(model: str, batch: int, ranks: Any, synchronized: bool) -> tuple[Any, Any]:
    """A plan with its photos on the GPU, and this rank's share of a batch of them."""
    from core.device import Optimizer, PhotoBatch
    from core.gpu.plan import CudaPlan
    from core.models.architectures import build
    from core.models.init import initial_weights
    from core.ops.builder import with_loss
    from core.ops.photo import identity_augmentation

    graph = with_loss(build(model, CLASSES, SIDE), 0.0, ())
    plan = CudaPlan(
        graph, batch=batch, training=True, precision="mixed", optimizer=Optimizer("adamw"), communicator=ranks,
        sync_batch_norm=synchronized and ranks.size > 1,
    )  # fmt: skip
    plan.load(initial_weights(graph, 0))
    rng = np.random.default_rng(0)
    plan.keep_photos(rng.integers(0, 256, (batch, SIDE, SIDE, 3)).astype(np.uint8))
    labels = rng.integers(0, CLASSES, batch * ranks.size).astype(np.int32)
    first, index = batch * ranks.rank, np.arange(batch, dtype=np.int32)
    share = {"first": first, "parts": 1, "step_labels": labels} if ranks.size > 1 else {}
    augmentation = identity_augmentation(batch, SIDE, SIDE)
    return plan, PhotoBatch(None, augmentation, labels[first : first + batch], index, **share)


def prepare_torch(model: str, batches: Sequence[int], compiled: bool) -> Prepared:
    """DistributedDataParallel; alone, the bare network."""
    import torch
    from torch.distributed import barrier, init_process_group
    from torch.nn.parallel import DistributedDataParallel

    from benchmarks.torch_models import make_model

    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "0"))
    if size:
        store = f"file://{os.environ['LEAFCLINIC_RENDEZVOUS']}/store"
        init_process_group("nccl", init_method=store, rank=rank, world_size=size)
    torch.backends.cudnn.benchmark = True
    loss_of = torch.nn.CrossEntropyLoss()

    def make_step(kind: str, batch: int) -> Step:
        bare = make_model(model, CLASSES).cuda().to(memory_format=torch.channels_last)
        network = torch.compile(bare, dynamic=False) if compiled else bare
        share = {"gradient_as_bucket_view": True, "static_graph": True}
        run = DistributedDataParallel(network, **share) if kind == TOGETHER else network
        optimizer = torch.optim.AdamW(bare.parameters(), lr=1e-4, fused=True)
        x = torch.randn(batch, 3, SIDE, SIDE, device="cuda").to(memory_format=torch.channels_last)
        y = torch.randint(0, CLASSES, (batch,), device="cuda")

        def step() -> None:
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = loss_of(run(x), y)
            loss.backward()
            optimizer.step()

        return step

    def meet() -> None:
        barrier()
        torch.cuda.synchronize()

    kinds = (ALONE, TOGETHER) if size else (ALONE,)
    steps = {(batch, kind): make_step(kind, batch) for batch in batches for kind in kinds}
    return steps, torch.cuda.synchronize, meet


def main(peer: str, model: str, *sizes: str) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    numbers = [int(size) for size in sizes]
    if peer == f"{WARM} ours":
        compile_kernels(model, numbers)
        return
    if "ours" in peer:
        steps, synchronize, meet = prepare_ours(model, numbers, peer == SYNCHRONIZED)
    else:
        steps, synchronize, meet = prepare_torch(model, numbers, "compiled" in peer)
    for step in steps.values():
        run(step, WARM_UP, synchronize)
    if peer.startswith(WARM):
        return
    meet()
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        size, count, kind = line.split()
        step = steps[int(size), kind]
        run(step, WARM_UP, synchronize)
        meet()
        begun = time.perf_counter()
        run(step, int(count), synchronize)
        milliseconds = (time.perf_counter() - begun) / int(count) * 1e3
        print(json.dumps(milliseconds), file=answers, flush=True)


def run(step: Step, count: int, synchronize: Step) -> None:
    for _ in range(count):
        step()
    synchronize()


if __name__ == "__main__":
    main(*sys.argv[1:])
