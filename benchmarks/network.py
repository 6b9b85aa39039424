"""One training iteration of SqueezeNet 1.0 by every implementation: forward, backward and per module.

    python -m benchmarks.network [--devices cuda cpu] [--compiled] [--batch 32]

Ours are the plans of `leafclinic lab algorithms --modules`. "loops" are Python loops over the outputs, with one NumPy
product per window; a few outputs of each layer are timed, and the whole is extrapolated (`interpreted_loops`).
PyTorch's times include its launches from Python, as in a program. "cpu naive" runs a smaller batch (NAIVE_BATCH) and
is scaled.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.interpreted_loops import loop_times, totals
from benchmarks.record import Row, make_row, write_results
from core.errors import DeviceError, KernelUnavailable
from core.laboratory.algorithms import WAYS, ModuleTimes, algorithm_study

MODEL, CLASSES, SIZE = "squeezenet1_0", 38, 224
NAIVE_BATCH = 16
ROUNDS = 9
WHOLE = "the whole network"
FIRE = "features.3"
"""The first fire module, as in the study of the original."""

Times = dict[str, ModuleTimes]
"""Implementation to the milliseconds of its modules."""


def our_times(devices: list[str], batch: int) -> Iterator[tuple[str, ModuleTimes, float]]:
    """Name, modules and whole iteration of each plan, float32 and mixed."""
    for device, algorithm, precision in WAYS:
        if device not in devices or algorithm == "PyTorch":
            continue
        name = f"{device} plan {precision}" if algorithm == "auto" else f"{device} {algorithm}"
        part = min(batch, NAIVE_BATCH) if name == "cpu naive" else batch
        try:
            modules, milliseconds = time_ours(device, algorithm, precision, part)
        except (DeviceError, KernelUnavailable) as error:
            print(name, error)
            continue
        scale = batch / part
        print(f"{name}: {scale * milliseconds:.3f} ms", flush=True)
        yield name, {module: (scale * f, scale * b) for module, (f, b) in modules.items()}, scale * milliseconds


def time_ours(device: str, algorithm: str, precision: str, batch: int) -> tuple[ModuleTimes, float]:
    (one,) = algorithm_study(MODEL, batch, SIZE, (device,), by_module=True, ways=[(device, algorithm, precision)])
    if one.reason:
        raise DeviceError(one.reason)
    return one.modules, one.milliseconds


def torch_times(batch: int, compiled: bool) -> tuple[Times, dict[str, float]]:
    """PyTorch on the GPU, channels last: the fire module and the whole network, eager and compiled."""
    from benchmarks.pytorch import torch
    from benchmarks.torch_models import make_model

    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    model = make_model(MODEL, CLASSES).cuda().to(memory_format=torch.channels_last).train()
    x = torch.rand(batch, 3, SIZE, SIZE, device="cuda").to(memory_format=torch.channels_last)
    labels = torch.randint(0, CLASSES, (batch,), device="cuda")
    found: Times = {}
    whole = {}
    loss_of = torch.nn.CrossEntropyLoss()
    ways: dict[str, Any] = {"PyTorch eager": model}
    if compiled:
        ways["PyTorch compiled"] = torch.compile(model)
    for name, net in ways.items():
        for mixed in (False, True):
            forward, iteration = time_torch_network(net, model, loss_of, x, labels, mixed)
            key = f"{name} {'mixed' if mixed else 'float32'}"
            found[key] = {WHOLE: (forward, iteration - forward)}
            whole[key] = iteration
            print(f"{key}: {iteration:.3f} ms, forward {forward:.3f} ms", flush=True)
    with torch.no_grad():
        before = model[:2](x)  # type: ignore[index]
    fire = model[2]  # type: ignore[index]
    found["PyTorch eager float32"][FIRE] = time_module(fire, before)
    if compiled:
        found["PyTorch compiled float32"][FIRE] = time_module(torch.compile(fire), before)
    return found, whole


def time_module(module: Any, x: Any) -> tuple[float, float]:
    """Milliseconds of the forward and of the backward pass, by the GPU's clock."""
    from benchmarks.pytorch import torch

    x = x.requires_grad_()
    taken = []
    for _ in range(ROUNDS + 3):
        events = [torch.cuda.Event(enable_timing=True) for _ in range(3)]
        events[0].record()
        y = module(x * 1)  # an activation in place must not be on a leaf
        events[1].record()
        y.backward(torch.ones_like(y))
        events[2].record()
        torch.cuda.synchronize()
        taken.append((events[0].elapsed_time(events[1]), events[1].elapsed_time(events[2])))
    return tuple(statistics.median(one[i] for one in taken[3:]) for i in (0, 1))  # type: ignore[return-value]


def time_torch_network(
    net: Any, model: Any, loss_of: Any, x: Any, labels: Any, mixed: bool
) -> tuple[float, float]:
    """Milliseconds of the forward pass and of forward and backward pass."""
    from benchmarks.pytorch import torch

    taken = []
    for _ in range(ROUNDS + 3):
        model.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        begin = time.perf_counter()
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=mixed):
            loss = loss_of(net(x), labels)
        torch.cuda.synchronize()
        forward = time.perf_counter() - begin
        loss.backward()
        torch.cuda.synchronize()
        taken.append((1e3 * forward, 1e3 * (time.perf_counter() - begin)))
    return tuple(statistics.median(one[i] for one in taken[3:]) for i in (0, 1))  # type: ignore[return-value]


def rows_of(times: Times, whole: dict[str, float]) -> tuple[list[Row], dict[str, dict[str, float]]]:
    """Rows of the iteration, its passes and every module, and the figures of all implementations by row."""
    algorithms: dict[str, dict[str, float]] = {"iteration": whole}
    for name, modules in times.items():
        forward, backward = totals({m: t for m, t in modules.items() if WHOLE not in modules or m == WHOLE})
        algorithms.setdefault("forward", {})[name] = forward
        algorithms.setdefault("backward", {})[name] = backward
        for module, (f, b) in modules.items():
            if module != WHOLE:
                algorithms.setdefault(f"{module} forward", {})[name] = f
                algorithms.setdefault(f"{module} backward", {})[name] = b
    rows, named = [], {}
    for part, found in algorithms.items():
        ours = {k: v for k, v in found.items() if not k.startswith(("PyTorch", "loops"))}
        theirs = {k: v for k, v in found.items() if k.startswith("PyTorch")}
        full = {k: v for k, v in ours.items() if "mixed" not in k}
        if full and min(full.values()) > 0:  # a module may have no kernel of its own
            peers = {k: v for k, v in theirs.items() if "mixed" not in k}
            rows.append(make_row(f"{MODEL} {part}", min(full.values()), peers, "ms"))
            named[f"{MODEL} {part}"] = found
    return rows, named


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", nargs="+", default=["cuda"])
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--compiled", action="store_true", help="also time PyTorch compiled (a minute)")
    parser.add_argument("--machine", default="")
    options = parser.parse_args()
    loops = loop_times(MODEL, CLASSES, SIZE, options.batch)
    times: Times = {"loops": loops}
    whole = {"loops": sum(totals(loops))}
    blocks: dict[str, float] = {}

    def save() -> None:
        rows, algorithms = rows_of(times, whole)
        rows += [Row(name, ms, {}, "ms") for name, ms in blocks.items()]
        write_results("network", rows, options.machine, batch=options.batch, algorithms=algorithms)

    on_gpu = "cuda" in options.devices
    for compiled in (False, True)[: 1 + options.compiled] if on_gpu else ():
        found, iterations = torch_times(options.batch, compiled)
        times, whole = times | found, whole | iterations
    for name, modules, milliseconds in our_times(options.devices, options.batch):
        times[name], whole[name] = modules, milliseconds
        save()  # what is interrupted has its figures
    if on_gpu:
        from benchmarks.block_sizes import block_sizes  # needs numba-cuda

        blocks |= block_sizes(options.batch)
        save()


if __name__ == "__main__":
    main()
