"""Draws the pictures of docs/kernels.md from the results, with the laboratory's own plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.curves import draw_curves
from benchmarks.tables.results import RESULTS, read
from core.laboratory.plot import Point, draw_bars, draw_roofline, save_png

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
LAYER = "3x3 27px 64->256"
DIRECTIONS = ("forward", "backward_input", "backward_weight")


def draw_all() -> None:
    """Write every picture."""
    gpu, digits, cpu = read("kernels-h200"), read("mnist-h200"), read("core_scaling-intel-xeon-processor-2")
    algorithms, peers = gpu["algorithms"], {row["name"]: row["peers"] for row in gpu["rows"]}
    conv = {f"{way}, {direction}": ms for direction in DIRECTIONS for way, ms in
            {**algorithms[f"conv2d {direction} {LAYER}"], **peers[f"conv2d {direction} {LAYER}"]}.items()}
    bars("convolution", f"convolution {LAYER}, batch 32", "ms", conv)
    for kind in ("float32", "bf16"):
        curves(f"matmul-{kind}", f"matrix product, {kind}", "rows, columns and depth", "TFLOP/s",
               products(gpu["rows"], algorithms, f"matmul {kind} "))
    small = [row for row in gpu["rows"] if row["unit"] == "GB/s"]
    bars("bytes", "bound by bytes, 256 x 54 x 54 x 128", "GB/s", {
        f"{way}, {row['name'].split()[0]}": rate for row in small
        for way, rate in {**algorithms[row["name"]], **row["peers"]}.items()})
    bars("lesson-gpu", "the small CNN, one iteration on a GPU", "ms", {
        f"{way}, batch {batch}": ms for batch in (32, 64) for way, ms in
        {**algorithms[f"lesson cnn iteration b{batch}"], **peers[f"lesson cnn iteration b{batch}"]}.items()})
    bars("digits", "digits wrong of 10,000", "digits", {
        row["name"].split()[1]: round(1e4 * (1 - row["ours"] / 100)) for row in digits["rows"] if row["unit"] == "%"})
    bars("lesson-cpu", "the small CNN, one iteration on the CPU", "ms", {
        f"{way}, batch {batch}": ms for batch in (32, 64)
        for way, ms in cpu["algorithms"][f"lesson cnn iteration b{batch}, 2 cores"].items()})
    draw_single()
    for device in ("cpu", "cuda"):
        draw_sweep(device)
        draw_rooflines(device)
    draw_paper()


def draw_single() -> None:
    """Every way to convolve one layer on the CPU, PyTorch beside."""
    results = read("single_convolutions-amd-epyc-2")
    peers = {row["name"]: row["peers"]["pytorch"] for row in results["rows"]}
    chosen = ("5x5 28px 8->8 b32", "3x3 28px 32->128 b8")
    bars("single-cpu", "one convolution on the CPU, forward", "ms", {
        f"{way}, {name}": ms for name in chosen
        for way, ms in {**results["algorithms"][name], "PyTorch": peers[name]}.items() if way != "reference"})


def products(
    rows: Sequence[Mapping[str, Any]], algorithms: Mapping[str, Mapping[str, float]], prefix: str
) -> dict[str, list[tuple[float, float]]]:
    """Speed over size by algorithm; of the tensor_core tiles the best."""
    found: dict[str, dict[int, float]] = {}
    for row in rows:
        size = row["name"].removeprefix(prefix)
        if row["name"].startswith(prefix) and size.isdigit():
            for way, speed in {**algorithms[row["name"]], **row["peers"]}.items():
                best = found.setdefault(way.split()[0], {})
                best[int(size)] = max(speed, best.get(int(size), 0.0))
    return {way: sorted(speeds.items()) for way, speeds in found.items()}


def draw_sweep(device: str) -> None:
    """Throughput over batch and over photo size, where there is a result."""
    for path in sorted(RESULTS.glob(f"sweep_{device}-*.json")):
        rows = read(path.stem)["rows"]
        for over, title, unit in (("batch", "224 pixels", "photos a batch"), ("side", "batch 32", "pixels a side")):
            lines: dict[str, list[tuple[float, float]]] = {}
            for row in rows:
                what, model, side, batch = row["name"].split()
                if (side if over == "batch" else batch) in ("224px", "b32"):
                    x = float(batch[1:] if over == "batch" else side[:-2])
                    lines.setdefault(f"ours, {what}", []).append((x, row["ours"]))
                    lines.setdefault(f"PyTorch, {what}", []).append((x, row["peers"]["pytorch"]))
            curves(f"sweep-{device}-{over}", f"{model}, {title}, {device}", unit, "photos per second", lines)


def draw_rooflines(device: str) -> None:
    """One picture a model, where there is a result."""
    for path in sorted(RESULTS.glob(f"roofline_{device}-*.json")):
        results = read(path.stem)
        gflops, gigabytes = (row["ours"] for row in results["rows"][:2])
        for model, kernels in results["kernels"].items():
            title = f"{model}, one training step of {results['batch']}, {device}"
            picture = draw_roofline(title, [Point(*kernel) for kernel in kernels], gflops, gigabytes)
            save_png(picture, PICTURES / f"roofline-{device}-{model}.png")


def draw_paper() -> None:
    """Validation accuracy over the epochs of `benchmarks.paper`, at epochs that are legible on a logarithmic axis."""
    for path in RESULTS.glob("paper*.json"):
        result = read(path.stem)
        lines = {name: [(float(epoch), 100 * one["validation"][epoch - 1]) for epoch in (1, 2, 3, 5, 8, 13, 21, 32, 45)]
                 for name, one in result["curves"].items()}  # fmt: skip
        photos = result["where"].partition("=")[2] or "the whole pack"
        picture = draw_curves(f"SqueezeNet 1.0 from scratch, {photos}", "epochs", "% correct, validation", lines,
                              range(0, 101, 20))  # fmt: skip
        save_png(picture, PICTURES / f"{result['benchmark']}.png")


def bars(name: str, title: str, unit: str, values: Mapping[str, float]) -> None:
    save_png(draw_bars(title, unit, list(values.items())), PICTURES / f"{name}.png")


def curves(name: str, title: str, x_unit: str, unit: str, lines: Mapping[str, Sequence[tuple[float, float]]]) -> None:
    save_png(draw_curves(title, x_unit, unit, lines), PICTURES / f"{name}.png")
