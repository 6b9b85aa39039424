"""Photos a second over batch and photo sizes, ours and PyTorch's interleaved in one run.

    python -m benchmarks.sweep [--device cuda] [--training] [--seconds 60]
    python -m benchmarks.sweep --device cuda --passes train --points 32x320 32x448

On the GPU both replay one CUDA graph: ours from uint8 photos on the device, mixed precision; PyTorch's from ready
tensors, channels last, bf16 autocast, fused Adam. On the CPU both compute in float32 from photos in memory, PyTorch
in channels-last order, on all cores. Batches are swept at 224 pixels, photo sizes at batch 32. Points that a run
does not measure stay in the result's file as they were, each with the commit and date of its own run.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from itertools import product

import numpy as np

from benchmarks.pytorch import torch
from benchmarks.record import Row, write_results
from benchmarks.torch_graph import capture
from benchmarks.torch_models import make_model
from core.device import Optimizer, PhotoBatch
from core.errors import OutOfMemory
from core.models.architectures import build
from core.models.init import initial_weights
from core.ops.builder import with_loss
from core.ops.photo import identity_augmentation
from core.plan import compile_plan
from core.program import fold_batch_norm, fold_weights

BATCHES, SIZES, SIDE, BATCH, CLASSES = (1, 8, 32, 128, 512), (64, 128, 224, 320, 448), 224, 32, 10
ROUNDS, REPLAYS = 5, 5
GAP_SECONDS = 0.02
"""Threads that spin after their last call have gone to sleep after this long."""
Timed = Callable[[], float]
"""Milliseconds of one step."""


def points() -> list[tuple[int, int]]:
    """(batch, side) of both sweeps, each once."""
    return list(dict.fromkeys([*((batch, SIDE) for batch in BATCHES), *((BATCH, side) for side in SIZES)]))


def ours(model: str, device: str, training: bool, batch: int, side: int) -> tuple[Timed, Callable[[], None]]:
    """(a step's time, how to give the memory back)."""
    base = build(model, CLASSES, side, dropout=0.0)
    weights = initial_weights(base, 0)
    precision = "mixed" if device == "cuda" else "float32"
    graph = with_loss(base, 0.0, ()) if training else fold_batch_norm(base)
    plan = compile_plan(
        graph, device=device, batch=batch, training=training, precision=precision, optimizer=Optimizer("adam")
    )
    plan.load(weights if training else fold_weights(base, weights))
    draw = np.random.default_rng(1)
    photos = draw.integers(0, 256, (batch, side, side, 3), dtype=np.uint8)
    augmentation = identity_augmentation(batch, side, side)
    labels = draw.integers(0, CLASSES, batch).astype(np.int32)
    if device == "cuda":
        from core.gpu.plan import CudaPlan

        assert isinstance(plan, CudaPlan)
        plan.keep_photos(photos)
        kept = PhotoBatch(None, augmentation, labels, np.arange(batch))
        if training:
            plan.train_step(kept, 1e-5)
        return lambda: plan.replay_milliseconds(kept, REPLAYS), plan.close
    given = PhotoBatch(photos, augmentation, labels)
    if training:
        return by_clock(lambda: plan.train_step(given, 1e-5)), plan.close
    return by_clock(lambda: plan.predict(given)), plan.close


def by_clock(run: Callable[[], object]) -> Timed:
    def milliseconds() -> float:
        time.sleep(GAP_SECONDS)
        begin = time.perf_counter()
        run()
        return 1e3 * (time.perf_counter() - begin)

    return milliseconds


def theirs(model: str, device: str, training: bool, batch: int, side: int) -> Timed:
    """PyTorch's step; on the GPU captured as one graph."""
    net = make_model(model, CLASSES).to(device).to(memory_format=torch.channels_last).train(training)
    x = torch.randn(batch, 3, side, side, device=device).to(memory_format=torch.channels_last)
    y = torch.randint(0, CLASSES, (batch,), device=device)
    on_gpu = device == "cuda"
    fused = {"fused": True, "capturable": True} if on_gpu else {}
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-5, **fused)

    def step() -> None:
        with torch.set_grad_enabled(training), torch.autocast(device, dtype=torch.bfloat16, enabled=on_gpu):
            out = net(x)
            loss = torch.nn.functional.cross_entropy(out, y) if training else out
        if training:
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()

    if not on_gpu:
        return by_clock(step)
    replay = capture(step)
    return lambda: replay(REPLAYS)


def measure(model: str, device: str, training: bool, batch: int, side: int) -> Row:
    """Photos a second, and the median of the rounds' ratios. Raises OutOfMemory."""
    mine, close = ours(model, device, training, batch, side)
    other = theirs(model, device, training, batch, side)
    mine(), other()
    pairs, begin = [], time.monotonic()
    while len(pairs) < ROUNDS and (not pairs or time.monotonic() - begin < 4.0):
        pairs.append((mine(), other()))
    close()
    rates = [1e3 * batch / statistics.median(p[i] for p in pairs) for i in (0, 1)]
    name = row_name("train" if training else "infer", model, batch, side)
    return Row(name, rates[0], {"pytorch": rates[1]}, "photos/s", statistics.median(b / a for a, b in pairs))


def row_name(what: str, model: str, batch: int, side: int) -> str:
    return f"{what} {model} {side}px b{batch}"


def read_point(text: str) -> tuple[int, int]:
    """(batch, side) of a text such as 32x448. Raises ValueError."""
    batch, side = (int(part) for part in text.split("x"))
    if batch < 1 or side < 1:
        raise ValueError(text)
    return batch, side


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--model", default="squeezenet1_1")
    parser.add_argument("--training", dest="passes", action="store_const", const=("train", "infer"), default=("infer",),
                        help="training steps too, and first: --passes train infer")
    parser.add_argument("--passes", nargs="+", choices=("train", "infer"), default=("infer",))
    parser.add_argument("--points", nargs="+", type=read_point, default=points(), metavar="BATCHxSIDE",
                        help="only these, such as 32x320; the rest of the file stays")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin nothing further after so long")
    parser.add_argument("--machine", default="", help="short name of the machine, for the file")
    return parser


def main() -> None:
    options = make_parser().parse_args()
    torch.backends.cudnn.benchmark = True
    begin, rows, skipped = time.monotonic(), [], []
    for what, (batch, side) in product(options.passes, options.points):
        name = row_name(what, options.model, batch, side)
        if time.monotonic() - begin > options.seconds:
            skipped.append(f"{name}: no time left")
            continue
        try:
            rows.append(measure(options.model, options.device, what == "train", batch, side))
        except (OutOfMemory, torch.OutOfMemoryError) as error:
            skipped.append(f"{name}: {error}")
            continue
        row = rows[-1]
        print(f"{row.name:36} {row.ours:10.1f} photos/s  pytorch {row.peers['pytorch']:10.1f}  {row.ratio:.2f}x  "
              f"{time.monotonic() - begin:.0f} s", flush=True)
    asked = [*points(), *(point for point in options.points if point not in points())]
    order = [row_name(what, options.model, *point) for what in ("train", "infer") for point in asked]
    write_results(f"sweep_{options.device}", rows, options.machine, order, skipped=skipped)


if __name__ == "__main__":
    main()
