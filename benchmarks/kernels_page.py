"""Fills the tables of docs/kernels.md from the results and draws its pictures; the words are written by hand.

    python -m benchmarks.kernels_page
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.kernels_pictures import draw_all, draw_single
from core.ops.registry import LADDER

PAGE = Path(__file__).parents[1] / "docs" / "kernels.md"
RESULTS = Path(__file__).parent / "results"
LAYERS = ("conv1 7x7 224px 3->96", "1x1 54px 16->64", "3x3 54px 16->64", "3x3 27px 64->256", "1x1 13px 512->64")
DIRECTIONS = ("forward", "backward_input", "backward_weight")


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [" | ".join(head), " | ".join(["---", *["--:"] * (len(head) - 1)])]
    return "\n".join(f"| {line} |" for line in (*lines, *(" | ".join(row) for row in rows)))


def read(name: str) -> dict[str, Any]:
    return json.loads((RESULTS / f"{name}.json").read_text("utf-8"))


def figure(value: float, digits: int = 3) -> str:
    """So many significant digits, never in powers of ten; thousands apart."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    places = max(digits - 1 - math.floor(math.log10(abs(value))), 0)
    whole = digits - 1 - math.floor(math.log10(abs(value)))
    return f"{round(value, whole):,.{places}f}"


def with_factors(
    rungs: dict[str, float], order: tuple[str, ...], better_low: bool, missing: str = "refuses"
) -> list[str]:
    """Each rung's figure and its factor over the rung before it."""
    cells, before = [], None
    for rung in order:
        value = rungs.get(rung)
        if value is None:
            cells.append(missing)
            continue
        factor = "" if before is None else f" ({before / value if better_low else value / before:.1f}x)"
        cells.append(f"{figure(value)}{factor}")
        before = value
    return cells


def conv_table(results: dict[str, Any]) -> str:
    order, rows = ("naive", "shared", "im2col", "tensor_core", "halo"), []
    peers = {row["name"]: row for row in results["rows"]}
    for layer in LAYERS:
        for direction in DIRECTIONS:
            name = f"conv2d {direction} {layer}"
            if name in results["rungs"]:
                cells = with_factors(results["rungs"][name], order, True)
                rows.append([f"{layer}, {direction}", *cells, figure(peers[name]["peers"]["cudnn float32"])])
    return table(["layer, pass (ms, batch 32)", *order, "cuDNN float32"], rows)


def step_table(results: dict[str, Any]) -> str:
    rungs = results["rungs"]["squeezenet1_0 step by the ladder b32"]
    order = ("naive", "shared", "im2col")
    return table(["SqueezeNet 1.0, batch 32", *order], [["one iteration, ms", *with_factors(rungs, order, True)]])


PEAKS = {"float32": 67.0, "bf16": 989.0}
"""TFLOP/s of an H200 by its data sheet (SXM, without sparsity)."""


def matmul_table(results: dict[str, Any]) -> str:
    order, rows = ("naive", "shared", "tiled", "tiled_vectorised", "double_buffered", "warp_tiled", "narrow"), []
    for row in results["rows"]:
        if row["name"].startswith("matmul float32"):
            cells = with_factors(results["rungs"][row["name"]], order, False)
            rows.append([row["name"][15:], *cells, *shares(row, "float32")])
    return table(["size (TFLOP/s)", *order, "cuBLAS float32", "best of cuBLAS", "of the peak"], rows)


def bf16_table(results: dict[str, Any]) -> str:
    rows = []
    for row in results["rows"]:
        if row["name"].startswith("matmul bf16"):
            rungs = results["rungs"][row["name"]]
            older = max(value for name, value in rungs.items() if name.startswith("tensor_core"))
            cells = with_factors({**rungs, "tensor_core": older}, ("tensor_core", "wgmma", "copy_engine"), False)
            rows.append([row["name"][12:], *cells, *shares(row, "bf16")])
    head = ["size (TFLOP/s)", "tensor_core", "wgmma", "copy_engine", "cuBLAS bf16", "best of cuBLAS", "of the peak"]
    return table(head, rows)


def shares(row: dict[str, Any], kind: str) -> list[str]:
    """cuBLAS's rate, and the best of ours over it and over the chip's peak."""
    peer = row["peers"]["cublas"]
    return [figure(peer), f"{100 * row['ours'] / peer:.0f} %", f"{100 * row['ours'] / PEAKS[kind]:.0f} %"]


def plain_table(prefix: str, unit: str) -> Callable[[dict[str, Any]], str]:
    """A column for every rung, each with its factor over the one to its left, and for every peer."""
    def make(results: dict[str, Any]) -> str:
        chosen = [row for row in results["rows"] if row["name"].startswith(prefix)]
        known = {rung for row in chosen for rung in results["rungs"][row["name"]]}
        rungs = sorted(known, key=(*LADDER, "plan").index)
        peers = list(dict.fromkeys(peer for row in chosen for peer in row["peers"]))
        rows = []
        for row in chosen:
            ours = with_factors(results["rungs"][row["name"]], tuple(rungs), unit == "ms", "–")
            theirs = [figure(row["peers"][peer]) if peer in row["peers"] else "–" for peer in peers]
            rows.append([row["name"], *ours, *theirs, f"{row['ratio']:.2f}"])
        return table([f"({unit})", *rungs, *peers, "best over peer"], rows)

    return make


def separable_table(results: dict[str, Any]) -> str:
    chosen = {**results, "rows": [row for row in results["rows"] if row["name"].endswith(" 1x32x122x122")]}
    return plain_table("conv2d", "ms")(chosen)


def tiles_table(results: dict[str, Any]) -> str:
    """A column for every tile that is the fastest somewhere, as shares of cuBLAS."""
    best = {row["name"].split()[2]: row["name"].split()[3] for row in results["rows"]}
    tiles = list(dict.fromkeys(best.values()))
    rows = []
    for row in results["rows"]:
        side, peer = row["name"].split()[2], row["peers"]["cublas"]
        found = {tile: f"{100 * results['rates'][side][tile] / peer:.0f} %" for tile in tiles}
        found[best[side]] = f"**{found[best[side]]}**"
        rows.append([side, *found.values(), figure(peer)])
    return table(["of cuBLAS", *(tile.split("/")[0].replace("x", " x ") for tile in tiles), "cuBLAS, TFLOP/s"], rows)


def small_table(results: dict[str, Any]) -> str:
    wanted = ("relu ", "sigmoid ", "add ", "max_pool ", "global_avg_pool ")
    chosen = {**results, "rows": [row for row in results["rows"] if row["name"].startswith(wanted)]}
    return plain_table("", "GB/s")(chosen)


def ways_table(results: dict[str, Any]) -> str:
    """A line for every way, PyTorch last; a column for every batch."""
    found: dict[str, dict[str, str]] = {}
    for row in results["rows"]:
        batch, way = row["name"].removeprefix("lesson cnn iteration b").split()
        found.setdefault(way, {})[batch] = figure(row["ours"])
        found.setdefault("PyTorch", {})[batch] = figure(row["peers"]["torch"])
    found["PyTorch"] = found.pop("PyTorch")
    batches = list(found["PyTorch"])
    rows = [[way, *(times.get(batch, "") for batch in batches)] for way, times in found.items()]
    return table(["way (ms an iteration)", *(f"batch {batch}" for batch in batches)], rows)


def single_table(results: dict[str, Any]) -> str:
    """A line for every way, PyTorch last; a column for every layer. The reference in float64 is no way."""
    peers = {row["name"]: row["peers"]["pytorch"] for row in results["rows"]}
    layers = {name: {**rungs, "PyTorch": peers[name]} for name, rungs in results["rungs"].items()}
    ways = [way for way in (*LADDER[1:], "PyTorch") if any(way in rungs for rungs in layers.values())]
    rows = [[way, *(figure(rungs[way]) if way in rungs else "refuses" for rungs in layers.values())] for way in ways]
    return table(["one layer forward (ms)", *layers], rows)


def handles_table(results: dict[str, Any]) -> str:
    rows = [[row["name"].removeprefix("create "), figure(row["ours"])] for row in results["rows"]
            if row["name"].startswith("create ")]
    return table(["creating one (ms)", "median of ten"], rows)


def sweep_table(device: str) -> str:
    """Ours, PyTorch's and the ratio over batch and photo sizes; says how to make them where there are none."""
    path = next(RESULTS.glob(f"sweep_{device}-*.json"), None)
    if path is None:
        return f"No figures are recorded yet: `python -m benchmarks.sweep --device {device}` makes them."
    results = json.loads(path.read_text("utf-8"))
    head = ["(photos a second)", "ours", "PyTorch", "ours over PyTorch"]
    rows = [[row["name"], figure(row["ours"], 4), figure(row["peers"]["pytorch"], 4), f"{row['ratio']:.2f}"]
            for row in results["rows"]]
    if any("commit" in row for row in results["rows"]):  # of several runs: each row says which
        head.append("commit")
        rows = [[*cells, row.get("commit", results["commit"])[:10]]
                for cells, row in zip(rows, results["rows"], strict=True)]
    return table(head, rows) + "\n\n" + made_with(results)


def digits_table(results: dict[str, Any]) -> str:
    rows = [[row["name"], f"{row['ours']:.4g} {row['unit']}", ", ".join(f"{v:g}" for v in row["peers"].values())]
            for row in results["rows"]]
    return table(["digits", "reached", "wanted"], rows)


def made_with(results: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    processor = f"{results['machine']['processor']}, {results['machine']['cores']} cores"
    machine = results.get("gpu") or ("NVIDIA H200" if "h200" in results["machine"]["name"] else processor)
    again = results.get("amended", ())
    renewed = "".join(f"\n\nMeasured again at {part['commit'][:10]}: {', '.join(part['rows'])}." for part in again)
    return f"{machine}; {versions}; commit {results['commit'][:10]}; {results['date'][:10]}.{renewed}"


def main() -> None:
    text = PAGE.read_text("utf-8")
    cpu = next(RESULTS.glob("convolutions-*.json"), None)
    gpu, digits, ways = read("kernels-h200"), read("mnist-h200"), None
    tables = {
        "step": step_table(gpu), "conv": conv_table(gpu), "matmul": matmul_table(gpu), "bf16": bf16_table(gpu),
        "dense": plain_table("dense", "ms")(gpu), "depthwise": plain_table("depthwise", "ms")(gpu),
        "separable": separable_table(gpu), "tiles": tiles_table(read("product_tiles-h200")),
        "small": small_table(gpu), "lesson": plain_table("lesson", "ms")(gpu), "digits": digits_table(digits),
        "gpu": made_with(gpu),
        "handles": handles_table(gpu), "sweep cpu": sweep_table("cpu"), "sweep cuda": sweep_table("cuda"),
    }  # fmt: skip
    if cpu is not None:
        ways = json.loads(cpu.read_text("utf-8"))
        tables |= {"ways": ways_table(ways), "cpu": made_with(ways)}
    single = next(RESULTS.glob("single_convolutions-*.json"), None)
    if single is not None:
        layers = json.loads(single.read_text("utf-8"))
        tables |= {"single": single_table(layers), "single made": made_with(layers)}
        draw_single(layers)
    for name, made in tables.items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)"
        text = re.sub(pattern, lambda found, made=made: f"{found[1]}{made}\n{found[2]}", text, flags=re.DOTALL)
    PAGE.write_text(text, "utf-8")
    draw_all(gpu, digits, ways)


if __name__ == "__main__":
    main()
