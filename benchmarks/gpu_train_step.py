"""Training steps and inference on one GPU, ours and PyTorch's best, interleaved in one run.

Ours is the whole step as one CUDA graph: from uint8 photos on the device (sampled, normalised) through forward,
backward and the optimizer. PyTorch's is `torch.compile` and a CUDA graph, channels last, bf16 autocast where
ours is mixed, fused Adam, from ready float tensors. Median of the rounds' times; the ratio is the median of the
rounds' ratios. ``python -m benchmarks.gpu_train_step [--only NAME]`` writes results/gpu-train-step-<gpu>.json.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.pytorch import torch
from benchmarks.record import Row, gpu_name, write_results
from benchmarks.torch_graph import capture
from benchmarks.torch_models import make_model
from core.device import Optimizer, PhotoBatch
from core.gpu.driver.device import open_device
from core.gpu.plan import CudaPlan
from core.models.architectures import build
from core.models.init import initial_weights
from core.ops.builder import with_loss
from core.ops.photo import identity_augmentation
from core.program import fold_batch_norm, fold_weights

ROUNDS, CLASSES, SIZE = 15, 10, 224


@dataclass(frozen=True)
class Case:
    """One line of the table; `must` and `aim` in milliseconds, from the engine's goals."""

    name: str
    model: str
    batch: int
    precision: str
    training: bool
    must: float = 0.0
    aim: float = 0.0


CASES = (
    Case("train squeezenet1_0 b32 mixed", "squeezenet1_0", 32, "mixed", True, 2.3, 1.3),
    Case("train squeezenet1_0 b256 mixed", "squeezenet1_0", 256, "mixed", True, 12, 6.5),
    Case("train squeezenet1_0 b32 float32", "squeezenet1_0", 32, "float32", True, 7.5, 5),
    Case("train squeezenet1_1 b256 mixed", "squeezenet1_1", 256, "mixed", True, 7, 3.8),
    Case("infer squeezenet1_0 b1 mixed", "squeezenet1_0", 1, "mixed", False, 0.14, 0.08),
    Case("infer squeezenet1_0 b256 mixed", "squeezenet1_0", 256, "mixed", False, 4, 2.2),
    Case("train squeezenet1_1_bn b128 mixed", "squeezenet1_1_bn", 128, "mixed", True),
    Case("train mobilenetv2 b256 mixed", "mobilenetv2", 256, "mixed", True, 24, 14),
    Case("infer mobilenetv2 b1 mixed", "mobilenetv2", 1, "mixed", False, 0.62, 0.2),
)


def ours(case: Case) -> tuple[Callable[[int], float], CudaPlan]:
    """(milliseconds of so many replays, the plan)."""
    base = build(case.model, CLASSES, SIZE, dropout=0.0)
    weights = initial_weights(base, 0)
    if case.training:
        plan = CudaPlan(
            with_loss(base, 0.0, ()), batch=case.batch, training=True, precision=case.precision,
            optimizer=Optimizer("adam"),
        )  # fmt: skip
        plan.load(weights)
    else:
        plan = CudaPlan(fold_batch_norm(base), batch=case.batch, training=False, precision=case.precision)
        plan.load(fold_weights(base, weights))
    draw = np.random.default_rng(1)
    photos = draw.integers(0, 256, (case.batch, SIZE, SIZE, 3), dtype=np.uint8)
    plan.keep_photos(photos)
    labels = draw.integers(0, CLASSES, case.batch).astype(np.int32)
    plain = identity_augmentation(case.batch, SIZE, SIZE)
    batch = PhotoBatch(None, plain, labels, np.arange(case.batch))
    if case.training:
        plan.train_step(batch, 1e-5)
    return lambda replays: plan.replay_milliseconds(batch, replays), plan


def theirs(case: Case) -> Callable[[int], float]:
    """PyTorch compiled, captured as one graph."""
    full = case.precision == "float32"
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = not full
    model = make_model(case.model, CLASSES).cuda().to(memory_format=torch.channels_last)
    x = torch.randn(case.batch, 3, SIZE, SIZE, device="cuda").to(memory_format=torch.channels_last)
    y = torch.randint(0, CLASSES, (case.batch,), device="cuda")
    return capture(_torch_step(model, x, y, full) if case.training else _torch_inference(model, x, full))


def _torch_step(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor, full: bool) -> Callable[[], None]:
    optimizer = torch.optim.Adam(model.train().parameters(), lr=1e-5, fused=True, capturable=True)
    loss_of = torch.nn.CrossEntropyLoss()

    def forward(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=not full):
            return loss_of(model(a), b)

    compiled = torch.compile(forward)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        compiled(x, y).backward()
        optimizer.step()

    return step


def _torch_inference(model: torch.nn.Module, x: torch.Tensor, full: bool) -> Callable[[], None]:
    kind = torch.float32 if full else torch.float16 if len(x) == 1 else torch.bfloat16
    compiled, ready = torch.compile(model.eval().to(kind)), x.to(kind)

    def infer() -> None:
        with torch.inference_mode():
            compiled(ready)

    return infer


def measure(case: Case) -> tuple[Row, list[list[object]]]:
    """Interleaved; and the plan's slowest kernels."""
    run, plan = ours(case)
    peer = theirs(case)
    replays = 20 if case.batch == 1 else 5
    run(replays)
    pairs = [(run(replays), peer(replays)) for _ in range(ROUNDS)]
    mine, other = (statistics.median(p[i] for p in pairs) for i in (0, 1))
    ratio = statistics.median(b / a for a, b in pairs)
    labels = np.zeros(case.batch, np.int32)
    augmentation = identity_augmentation(case.batch, SIZE, SIZE)
    kernels = plan.time_kernels(PhotoBatch(None, augmentation, labels, np.arange(case.batch)))
    floor = sum(k.floor_ms for k in kernels)
    slow = [
        [k.layer, k.direction, k.kernel, round(k.milliseconds, 4), round(k.floor_ms, 4)]
        for k in sorted(kernels, key=lambda k: -k.milliseconds)[:8]
    ]
    plan.close()
    torch._dynamo.reset()
    torch.cuda.empty_cache()
    return Row(case.name, mine, {"pytorch compile+graph": other}, "ms", ratio, floor), slow


def main() -> None:
    """Measure all cases, or those whose name contains --only; other rows of the file are kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no further case after so long")
    options = parser.parse_args()
    begun = time.monotonic()
    torch.zeros(1, device="cuda")
    rows, slow = [], {}
    for case in CASES:
        if options.only in case.name and time.monotonic() - begun < options.seconds:
            row, slow[case.name] = measure(case)
            rows.append(row)
            goal = f"must {case.must:g} aim {case.aim:g}" if case.must else ""
            print(f"{case.name:36} ours {row.ours:.4f} ms  pytorch {next(iter(row.peers.values())):.4f}  "
                  f"{row.ratio:.2f}x  {goal}", flush=True)
    goals = {c.name: {"must": c.must, "aim": c.aim} for c in CASES if c.must}
    device = open_device()
    about = {"name": device.name, "processors": device.hardware.processors, "capability": list(device.capability)}
    order = [case.name for case in CASES]
    write_results("gpu-train-step", rows, gpu_name(), order, gpu=about, goals=goals, slowest_kernels=slow)


if __name__ == "__main__":
    main()
