"""Training steps and inference on the CPU: ours, PyTorch and onnxruntime interleaved in one run.

    python -m benchmarks.cpu_train_step [--rounds 7] [--only TEXT]

PyTorch is given channels_last, for inference also compiled and frozen: its default layout and compiled training were
slower. All see photos of one size; ours also turns them from uint8 to floats in its step, PyTorch gets floats.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.record import Row, write_results
from benchmarks.round_robin import Measured, Worker, by_turns, ratio, serve

CLASSES = 38
CASES = {
    "train squeezenet1_0 b32 float32": ("torch",),
    "train squeezenet1_1 b32 float32": ("torch",),
    "train squeezenet1_1_bn b32 float32 128px": ("torch",),
    "infer squeezenet1_0 b1 float32": ("torch", "torch compiled", "onnxruntime"),
    "infer squeezenet1_1 b1 float32": ("torch", "torch compiled", "onnxruntime"),
    "infer squeezenet1_0 b32 float32": ("torch", "torch compiled", "onnxruntime"),
    "infer squeezenet1_1 b32 float32": ("torch", "torch compiled", "onnxruntime"),
    "infer mobilenetv2 b1 float32": ("torch", "torch compiled", "onnxruntime"),
}


def parts(case: str) -> tuple[str, str, int, int]:
    """(kind, model, batch, photo size) of a case's name."""
    words = case.split()
    size = next((int(w[:-2]) for w in words if w.endswith("px")), 224)
    return words[0], words[1], int(words[2][1:]), size


def ours(case: str) -> Callable[[], object]:
    """Our plan, with uint8 photos that need no resizing."""
    import numpy as np

    from core.device import Optimizer, PhotoBatch
    from core.models import build
    from core.models.init import initial_weights
    from core.ops.builder import with_loss
    from core.ops.photo import identity_augmentation
    from core.plan import compile_plan
    from core.program import fold_batch_norm, fold_weights

    kind, model, batch, size = parts(case)
    graph = build(model, CLASSES, size, 0.0)
    weights = initial_weights(graph, 0)
    rng = np.random.default_rng(0)
    photos = PhotoBatch(
        rng.integers(0, 256, (batch, size, size, 3), dtype=np.uint8),
        identity_augmentation(batch, size, size),
        rng.integers(0, CLASSES, batch).astype(np.int32),
    )
    if kind == "train":
        plan = compile_plan(with_loss(graph, 0.0, ()), batch=batch, training=True, optimizer=Optimizer("adam"))
        plan.load(weights)
        return lambda: plan.train_step(photos, 1e-4)
    plan = compile_plan(fold_batch_norm(graph), batch=batch)
    plan.load(fold_weights(graph, weights))
    return lambda: plan.predict(photos)


def torch_case(case: str) -> Callable[[], object]:
    """PyTorch; the case's name ends with the peer's name after a bar."""
    from benchmarks.pytorch import torch
    from benchmarks.torch_models import make_model

    name, peer = case.split("|")
    kind, model_name, batch, size = parts(name)
    model = make_model(model_name, CLASSES)
    x = torch.randn(batch, 3, size, size)
    model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    if kind == "infer":
        return _torch_inference(model, x, compiled=peer == "torch compiled")
    labels = torch.randint(CLASSES, (batch,))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    model.train()

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        return float(loss)

    return step


def _torch_inference(model: Any, x: Any, compiled: bool) -> Callable[[], object]:
    from benchmarks.pytorch import torch

    model.eval()
    if compiled:
        import torch._inductor.config as settings

        settings.freezing = True
        model = torch.compile(model)

    def infer() -> Any:
        with torch.no_grad():
            return model(x)

    return infer


def onnx_case(case: str) -> Callable[[], object]:
    """onnxruntime on PyTorch's export of the same network."""
    import numpy as np

    from benchmarks.pytorch import torch
    from benchmarks.torch_models import make_model
    from core.onnx.runtime import open_session

    _, model_name, batch, size = parts(case)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model.onnx")
        shape = torch.randn(batch, 3, size, size)
        torch.onnx.export(make_model(model_name, CLASSES).eval(), (shape,), path, dynamo=False, opset_version=17)
        session = open_session(path, threads=os.cpu_count() or 1)
    x = {session.get_inputs()[0].name: shape.numpy().astype(np.float32)}
    return lambda: session.run(None, x)


WORKERS = {"ours": ours, "torch": torch_case, "onnxruntime": onnx_case}


def measure(case: str, workers: dict[str, Worker], rounds: int) -> tuple[Row, dict[str, Measured]]:
    """One case interleaved; the ratio is over the fastest peer."""
    entries = {"ours": (workers["ours"], case)}
    for peer in CASES[case]:
        worker = "onnxruntime" if peer == "onnxruntime" else "torch"
        entries[peer] = (workers[worker], case if worker == "onnxruntime" else f"{case}|{peer}")
    count = {1: 20, 32: 2}[parts(case)[2]]
    measured, failed = by_turns(entries, rounds, count)
    for label, reason in failed.items():
        print(f"{case}: {label} failed: {reason}", file=sys.stderr)
    mine = measured.pop("ours")
    best = min(measured, key=lambda label: measured[label].median)
    peers = {label: round(1e3 * m.median, 3) for label, m in measured.items()}
    row = Row(case, round(1e3 * mine.median, 3), peers, "ms", round(ratio(mine, measured[best]), 3))
    return row, {"ours": mine, **measured}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="turns of every program (default 7)")
    parser.add_argument("--only", default="", help="print only cases whose name contains this text")
    parser.add_argument("--serve", choices=tuple(WORKERS), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.serve:
        serve(WORKERS[chosen.serve])
        return
    import benchmarks.pytorch  # noqa: F401 - ends here where it is missing

    command = [sys.executable, "-m", "benchmarks.cpu_train_step", "--serve"]
    workers = {name: Worker([*command, name]) for name in WORKERS}
    rows, best = [], {}
    for case in CASES:
        if chosen.only in case:
            row, measured = measure(case, workers, chosen.rounds)
            rows.append(row)
            best[case] = {label: round(1e3 * m.best, 3) for label, m in measured.items()}
            print(f"{row.name}: ours {row.ours} ms, {row.peers}, {row.ratio}x, best {best[case]}", flush=True)
    for worker in workers.values():
        worker.close()
    if not chosen.only:
        write_results("cpu_train_step", rows, best_ms=best)


if __name__ == "__main__":
    main()
