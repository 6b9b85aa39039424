"""Kernels on a GPU: every algorithm checked, then timed beside PyTorch (cuDNN, cuBLAS) in one run.

    python -m benchmarks.kernels [--only matmul,dense,depthwise,separable,small,lesson,handles,step,conv,check]

Times are medians of replayed CUDA graphs, so that no launch from Python is in them. Each case's arrays stay
where they are between repeats: small ones sit in the L2 cache, for ours and the peers alike.
"""

from __future__ import annotations

import argparse
import time
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.clock import Clock
from benchmarks.gpu_lesson import time_lesson
from benchmarks.library_handles import time_handles
from benchmarks.pytorch import torch
from benchmarks.record import Row, make_row, print_table, write_results
from core.gpu.compilation.cuda import cuda
from core.gpu.kernel_entries import ROUNDED, TABLE
from core.laboratory.algorithms import algorithm_study
from core.laboratory.kernel_comparison import make_case
from core.models.architectures import build
from core.ops.registry import KernelCase

BATCH = 32

SIZES = [(512,) * 3, (1024,) * 3, (2048,) * 3, (4096,) * 3, (8192,) * 3, (32, 27, 14884)]
PARTS = "matmul,dense,depthwise,separable,small,lesson,handles,step,conv,check"

CHECKED = (
    "conv2d", "dense", "max_pool", "avg_pool", "global_avg_pool", "depthwise_conv2d", "batch_norm", "relu", "relu6",
    "sigmoid", "softmax", "softmax_cross_entropy", "add", "concat", "dropout", "matmul",
)  # fmt: skip


def check_all() -> int:
    """Hold every row against the reference on all shared cases. Raises where one is wrong; the number held."""
    from tests.helpers.single_kernels import check, run_on_gpu

    held, wrong = 0, []
    for op in CHECKED:
        for row, direction, text, error, tolerance in check(op, 10**9, run_on_gpu):
            held += 1
            if not error <= tolerance:
                wrong.append(f"{op} {direction} {row.name} on {text}: relative error {error:.2e}")
    assert not wrong, "\n".join(wrong)
    return held


def device_arrays(case: KernelCase, weight: tuple[int, ...]) -> dict[str, Any]:
    """Random arrays of a convolution-like case on the device, outputs full of NaN."""
    rng = np.random.default_rng(0)

    def made(*shape: int) -> Any:
        return cuda.to_device(rng.standard_normal(shape, np.float32))

    x, out = (case.batch, *case.inputs[0]), (case.batch, *case.output)
    empty = {name: cuda.to_device(np.full(shape, np.nan, np.float32)) for name, shape in
             (("out", out), ("dx", x), ("dweight", weight), ("dbias", weight[:1]))}
    return {"x": made(*x), "weight": made(*weight), "bias": made(weight[0]), "dy": made(*out)} | empty


def torch_view(array: Any) -> torch.Tensor:
    """The same device memory as a tensor."""
    return torch.as_tensor(array, device="cuda")


def torch_convolution(case: KernelCase, arrays: dict[str, Any], groups: int) -> dict[str, Callable[[], Any]]:
    """cuDNN in float32 on the same (channels last) memory, by direction."""
    x, dy = (torch_view(arrays[k]).permute(0, 3, 1, 2) for k in ("x", "dy"))
    weight = torch_view(arrays["weight"]).permute(0, 3, 1, 2)
    bias = torch_view(arrays["bias"])
    stride, (top, left, _, _) = list(case.attributes["stride"]), case.attributes["padding"]

    def backward(*wanted: bool) -> Callable[[], Any]:
        return lambda: torch.ops.aten.convolution_backward(
            dy, x, weight, [len(bias)], stride, [top, left], [1, 1], False, [0, 0], groups, list(wanted)
        )

    return {
        "forward": lambda: torch.nn.functional.conv2d(x, weight, bias, stride, [top, left], 1, groups),
        "backward_input": backward(True, False, False),
        "backward_weight": backward(False, True, True),
    }


def results_of(direction: str) -> str:
    return {"forward": "out", "backward_input": "dx", "backward_weight": "dweight"}[direction]


def time_convolution(
    clock: Clock, name: str, case: KernelCase, weight: tuple[int, ...], rows: list[Row], **more: Callable[[], Any]
) -> None:
    """All algorithms of the three directions of one layer, each compared with PyTorch's result before it is timed."""
    arrays = device_arrays(case, weight)
    peers = torch_convolution(case, arrays, 1 if case.op == "conv2d" else case.inputs[0][-1])
    for direction, peer in peers.items():
        if direction == "backward_input" and name.startswith("conv1"):
            continue  # the photo needs no gradient
        wanted = peer()
        wanted = next(w for w in wanted if w is not None) if isinstance(wanted, tuple) else wanted
        ways: dict[str, Callable[[], Any]] = {}
        for row in TABLE.of(case.op, direction):
            if row.tolerance is ROUNDED or row.refuses(case):
                continue
            row.run(case, arrays)
            got = torch_view(arrays[results_of(direction)]).permute(0, 3, 1, 2)
            error = float((got - wanted).norm() / wanted.norm())
            assert error < 1e-3, (name, row.key, error)
            ways[row.algorithm] = partial(row.run, case, arrays)
        rivals: dict[str, Callable[[], Any]] = {"cudnn float32": peer, **(more if direction == "forward" else {})}
        times = clock.by_turns({**ways, **rivals})
        theirs, ours = ({k: times[k] for k in keys} for keys in (rivals, ways))
        rows.append(line(f"{case.op} {direction} {name}", theirs, "ms", ours))


ALGORITHMS: dict[str, dict[str, float]] = {}
"""Every algorithm's figure by row name, in the row's unit."""


def line(name: str, peers: dict[str, float], unit: str, algorithms: dict[str, float]) -> Row:
    """The row of the best algorithm; all algorithms are kept in `ALGORITHMS`."""
    ALGORITHMS[name] = algorithms
    best = (min if unit == "ms" else max)(algorithms.values())
    row = make_row(name, best, peers, unit)
    print_table([row])
    print("    " + "  ".join(f"{algorithm} {value:.4g}" for algorithm, value in algorithms.items()), flush=True)
    return row


def squeezenet_layers() -> list[tuple[str, KernelCase, tuple[int, ...]]]:
    """Every different convolution of SqueezeNet 1.0 at 224 pixels and batch 32."""
    graph, seen, layers = build("squeezenet1_0", 10), set(), []
    for node in graph.nodes:
        if node.op != "conv2d":
            continue
        inputs = (graph.node(node.inputs[0]).shape,)
        key = (inputs, node.shape, node.attributes["kernel"])
        if key in seen:
            continue
        seen.add(key)
        kh, kw = node.attributes["kernel"]
        name = f"{kh}x{kw} {inputs[0][0]}px {inputs[0][2]}->{node.shape[2]}"
        prefix = "conv1 " if inputs[0][2] == 3 else ""
        case = KernelCase("conv2d", node.attributes, inputs, node.shape, BATCH)
        layers.append((prefix + name, case, node.parameters[0].shape))
    return layers


def time_layers(clock: Clock, rows: list[Row]) -> None:
    for name, case, weight in squeezenet_layers():
        time_convolution(clock, name, case, weight, rows)


def time_products(clock: Clock, rows: list[Row], sizes: list[tuple[int, int, int]]) -> None:
    for m, k, n in sizes:
        case = KernelCase("matmul", {}, ((m, k), (k, n)), (m, n), 1)
        a, b = (torch.randn(s, device="cuda") for s in case.inputs)
        out = torch.full((m, n), float("nan"), device="cuda")
        arrays = {"x": cuda.as_cuda_array(a), "x2": cuda.as_cuda_array(b), "out": cuda.as_cuda_array(out)}
        flops, name = 2 * m * k * n, f"{m}x{k}x{n}" if len({m, k, n}) > 1 else str(m)
        wanted = a.double() @ b.double() if max(m, k, n) <= 4096 else a @ b
        ways: dict[str, Callable[[], Any]] = {}
        for row in TABLE.of("matmul", "forward"):
            if row.tolerance is ROUNDED or row.refuses(case):
                continue
            out.fill_(float("nan"))
            torch.cuda.synchronize()
            row.run(case, arrays)
            error = float((out - wanted).norm() / wanted.norm())
            assert error < 1e-5, (row.key, name, error)
            ways[row.algorithm] = partial(row.run, case, arrays)
        ways["cublas"] = partial(torch.mm, a, b, out=out)
        speeds = {key: flops / ms / 1e9 for key, ms in clock.by_turns(ways, 10 if m < 4096 else 2).items()}
        rows.append(line(f"matmul float32 {name}", {"cublas": speeds.pop("cublas")}, "TFLOP/s", speeds))
        if k % 8 == 0 and n % 8 == 0:
            rows.append(time_tensor_cores(clock, name, a, b, flops))


def time_tensor_cores(clock: Clock, name: str, a: torch.Tensor, b: torch.Tensor, flops: int) -> Row:
    a, b = a.bfloat16(), b.bfloat16()
    out = torch.full((a.shape[0], b.shape[1]), float("nan"), device="cuda", dtype=torch.bfloat16)
    bits = [cuda.as_cuda_array(t.view(torch.int16)).view(np.uint16) for t in (a, b, out)]
    wanted = torch.mm(a, b).float()
    (m, k), n = a.shape, b.shape[1]
    case = KernelCase("matmul", {}, ((m, k), (k, n)), (m, n), 1)
    arrays = dict(zip(("x", "x2", "out"), bits, strict=True))
    ways = {
        row.algorithm: partial(row.run, case, arrays)
        for row in TABLE.of("matmul", "forward") if row.tolerance is ROUNDED and not row.refuses(case)
    }  # fmt: skip
    for way, run in ways.items():
        out.fill_(float("nan"))
        torch.cuda.synchronize()
        run()
        torch.cuda.synchronize()
        error = float((out.float() - wanted).norm() / wanted.norm())
        assert error < 1e-2, (way, name, error)
    times = clock.by_turns({**ways, "cublas": partial(torch.mm, a, b, out=out)})
    speeds = {way: flops / ms / 1e9 for way, ms in times.items()}
    return line(f"matmul bf16 {name}", {"cublas": speeds.pop("cublas")}, "TFLOP/s", speeds)


def time_dense(clock: Clock, rows: list[Row]) -> None:
    """The multilayer perceptron's layer (784 to 500) and a wide one, beside cuBLAS as a row of the same table."""
    for batch, inputs, units in ((256, 784, 500), (1024, 2048, 1024)):
        case = KernelCase("dense", {"units": units, "bias": True, "init": "he_uniform"}, ((inputs,),), (units,), batch)
        arrays = device_arrays(case, (units, inputs))
        x, weight, bias, dy = (torch_view(arrays[name]).double() for name in ("x", "weight", "bias", "dy"))
        wanted = {"forward": x @ weight.T + bias, "backward_input": dy @ weight, "backward_weight": dy.T @ x}
        for direction, exact in wanted.items():
            ways: dict[str, Callable[[], Any]] = {}
            for row in TABLE.of("dense", direction):
                if not row.refuses(case):
                    torch_view(arrays[results_of(direction)]).fill_(float("nan"))
                    torch.cuda.synchronize()
                    row.run(case, arrays)
                    error = float((torch_view(arrays[results_of(direction)]) - exact).norm() / exact.norm())
                    assert error < 1e-4, (row.key, error)
                    ways[row.algorithm] = partial(row.run, case, arrays)
            times = clock.by_turns(ways)
            peers = {name: times.pop(name) for name in ("cublas",) if name in times}
            rows.append(line(f"dense {direction} {batch}x{inputs}x{units}", peers, "ms", times))


def time_depthwise(clock: Clock, rows: list[Row]) -> None:
    for batch, channels, side in ((128, 512, 32), (1, 32, 122)):
        name = f"{batch}x{channels}x{side}x{side}"
        case = make_case("depthwise_conv2d", (side, side, channels), batch, kernel=(3, 3), padding=(1,) * 4, bias=True)
        x = torch.randn(batch, channels, side, side, device="cuda")
        weight, bias = torch.randn(channels, 1, 3, 3, device="cuda"), torch.randn(channels, device="cuda")
        nchw = partial(torch.nn.functional.conv2d, x, weight, bias, 1, 1, 1, channels)
        time_convolution(clock, name, case, (channels, 3, 3, 1), rows, **{"cudnn float32 NCHW": nchw})


def time_separable(clock: Clock, rows: list[Row]) -> None:
    """What a depthwise separable convolution puts in the place of what: pointwise and standard at (1,32,122,122)."""
    shape = (122, 122, 32)
    for name, kernel in (("pointwise 1x1", 1), ("standard 3x3", 3)):
        attributes = {"kernel": (kernel,) * 2, "stride": (1, 1), "padding": (kernel // 2,) * 4, "bias": True,
                      "filters": 32, "groups": 1, "init": "he_uniform"}  # fmt: skip
        case = KernelCase("conv2d", attributes, (shape,), shape, 1)
        time_convolution(clock, f"{name} 1x32x122x122", case, (32, kernel, kernel, 32), rows)


def time_small(clock: Clock, rows: list[Row]) -> None:
    """Bytes-bound ops at the size of fire2's output, batch 256: GB/s of reads and writes."""
    shape = (54, 54, 128)
    for op, passes in (("relu", 2), ("sigmoid", 2), ("add", 3), ("max_pool", 1.25), ("global_avg_pool", 1)):
        attributes = {"kernel": (3, 3), "stride": (2, 2), "padding": (0, 0, 0, 0), "ceil_mode": False}
        inputs = (shape,) * (2 if op == "add" else 1)
        output = {"max_pool": (26, 26, 128), "global_avg_pool": (128,)}.get(op, shape)
        case = KernelCase(op, attributes, inputs, output, 256)
        x, x2 = (torch.randn(256, *shape, device="cuda") for _ in range(2))
        out = torch.empty((256, *output), device="cuda")
        arrays = {"x": cuda.as_cuda_array(x), "x2": cuda.as_cuda_array(x2), "out": cuda.as_cuda_array(out)}
        size = x.numel() * 4 * passes / 1e6
        ways: dict[str, Callable[[], Any]] = {}
        for row in TABLE.of(op, "forward"):
            if not row.refuses(case):
                ways[row.algorithm] = partial(row.run, case, arrays)
        nchw = x.permute(0, 3, 1, 2)
        peer = {
            "relu": partial(torch.relu, x), "sigmoid": partial(torch.sigmoid, x), "add": partial(torch.add, x, x2),
            "max_pool": partial(torch.nn.functional.max_pool2d, nchw, 3, 2),
            "global_avg_pool": partial(torch.mean, nchw, (2, 3)),
        }[op]  # fmt: skip
        speeds = {way: size / ms for way, ms in clock.by_turns({**ways, "torch": peer}).items()}
        rows.append(line(f"{op} forward 256x54x54x128", {"torch": speeds.pop("torch")}, "GB/s", speeds))


def time_steps(clock: Clock, rows: list[Row]) -> None:
    """One training iteration of SqueezeNet 1.0, batch 32, by every algorithm."""
    found = [one for one in algorithm_study("squeezenet1_0", BATCH, 224, ("cuda",)) if not one.reason]
    losses = [one.loss for one in found if one.precision == "float32"]
    assert max(losses) - min(losses) < 1e-3, losses
    times = {f"{one.algorithm} {one.precision}": one.milliseconds for one in found}
    peers = {name: times.pop(name) for name in list(times) if name.startswith("PyTorch")}
    rows.append(line("squeezenet1_0 iteration b32", peers, "ms", times))


def add_lesson(rows: list[Row]) -> None:
    for batch in (32, 64):
        times, peer = time_lesson(batch)
        rows.append(line(f"lesson cnn iteration b{batch}", {"torch eager": peer}, "ms", times))


def add_handles(rows: list[Row]) -> None:
    """The vendor's handles, beside one whole small depthwise convolution of ours."""
    rows.extend(make_row(f"create {name}", ms, {}, "ms") for name, ms in time_handles().items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machine", default="h200", help="short name of the machine, for the file")
    parser.add_argument("--only", default=PARTS, help="parts to run, by commas")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no further part after so long")
    options = parser.parse_args()
    parts = options.only.split(",")
    torch.backends.cudnn.benchmark = True
    rows: list[Row] = []
    clock, failed, begin = Clock(), [], time.perf_counter()
    runs: dict[str, Callable[[], Any]] = {
        "check": lambda: print(check_all(), "comparisons with the reference hold"),
        "step": partial(time_steps, clock, rows),
        "matmul": partial(time_products, clock, rows, SIZES),
        "dense": partial(time_dense, clock, rows),
        "depthwise": partial(time_depthwise, clock, rows),
        "separable": partial(time_separable, clock, rows),
        "small": partial(time_small, clock, rows),
        "lesson": partial(add_lesson, rows),
        "handles": partial(add_handles, rows),
        "conv": partial(time_layers, clock, rows),
    }
    for part in parts:
        if time.perf_counter() - begin > options.seconds:
            failed.append(f"{part} (no time left)")
            continue
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False  # the part "step" sets them
        try:
            runs[part]()
        except Exception:  # noqa: BLE001  # what the other parts measure is kept
            traceback.print_exc()
            failed.append(part)
        print(f"{part}: {time.perf_counter() - begin:.0f} s since the start", flush=True)
    versions = {"cudnn": torch.backends.cudnn.version(), "cuda": torch.version.cuda}
    gpu = torch.cuda.get_device_name()
    write_results("kernels", rows, options.machine, gpu=gpu, peers=versions, algorithms=ALGORITHMS)
    if failed:
        raise SystemExit(f"failed: {failed}")


if __name__ == "__main__":
    main()
