"""Tables of the kernels course: implementations side by side, and NVIDIA's libraries or PyTorch as peers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.tables.results import figure, markdown_table, read
from core.ops.registry import rank

ALIKE = ("conv2d backward_input 1x1 13px 512->64", "conv2d backward_weight 1x1 13px 512->64")
"""Rows that show nothing that the others do not."""
LAYERS = ("conv1 7x7 224px 3->96", "3x3 54px 16->64", "1x1 13px 512->64")
DIRECTIONS = ("forward", "backward_input", "backward_weight")


def cells_of(algorithms: dict[str, float], order: tuple[str, ...], missing: str = "refuses") -> list[str]:
    return [figure(algorithms[algorithm]) if algorithm in algorithms else missing for algorithm in order]


def conv_table(results: dict[str, Any]) -> str:
    order, rows = ("naive", "shared", "im2col"), []
    peers = {row["name"]: row for row in results["rows"]}
    for layer in LAYERS:
        for direction in DIRECTIONS:
            name = f"conv2d {direction} {layer}"
            if name in results["algorithms"] and name not in ALIKE:
                cells = [*cells_of(results["algorithms"][name], order), figure(peers[name]["ours"])]
                rows.append([f"{layer}, {direction}", *cells, figure(peers[name]["peers"]["cudnn float32"])])
    return markdown_table(["layer, pass (ms, batch 32)", *order, "tensor cores", "cuDNN float32"], rows)


BETWEEN = ("2048", "8192")
"""Sides that show nothing that the others do not."""
PEAKS = {"float32": 67.0, "bf16": 989.0}
"""TFLOP/s of an H200 by its data sheet (SXM, without sparsity)."""


def matmul_table(results: dict[str, Any]) -> str:
    order, rows = ("naive", "shared", "tiled", "tiled_vectorised", "double_buffered", "warp_tiled", "narrow"), []
    for row in results["rows"]:
        if row["name"].startswith("matmul float32") and row["name"][15:] not in BETWEEN:
            cells = cells_of(results["algorithms"][row["name"]], order)
            rows.append([row["name"][15:], *cells, *shares(row, "float32")])
    return markdown_table(["size (TFLOP/s)", *order, "cuBLAS float32", "best of cuBLAS, %", "of the peak, %"], rows)


def bf16_table(results: dict[str, Any]) -> str:
    rows = []
    for row in results["rows"]:
        if row["name"].startswith("matmul bf16") and row["name"][12:] not in BETWEEN:
            cells = cells_of(results["algorithms"][row["name"]], ("tensor_core", "tma"))
            rows.append([row["name"][12:], *cells, *shares(row, "bf16")])
    head = ["size (TFLOP/s)", "tensor_core", "tma", "cuBLAS bf16", "best of cuBLAS, %", "of the peak, %"]
    return markdown_table(head, rows)


def shares(row: dict[str, Any], kind: str) -> list[str]:
    """cuBLAS's rate, and the best of ours over it and over the chip's peak."""
    peer = row["peers"]["cublas"]
    return [figure(peer), f"{100 * row['ours'] / peer:.0f}", f"{100 * row['ours'] / PEAKS[kind]:.0f}"]


def depthwise_table(results: dict[str, Any]) -> str:
    """A column for every algorithm and for the peer."""
    chosen = [row for row in results["rows"] if row["name"].startswith("depthwise")]
    known = dict.fromkeys(name for row in chosen for name in results["algorithms"][row["name"]])
    algorithms = tuple(sorted(known, key=rank))
    rows = [[row["name"], *cells_of(results["algorithms"][row["name"]], algorithms, "–"),
             figure(row["peers"]["cudnn float32"]), f"{row['ratio']:.2f}"] for row in chosen]  # fmt: skip
    return markdown_table(["(ms)", *algorithms, "cuDNN float32", "best over cuDNN"], rows)


def tiles_table(results: dict[str, Any]) -> str:
    """The fastest tile of each side, and it and the largest tile as shares of cuBLAS."""
    rows = []
    for row in results["rows"]:
        (side, tile), peer = row["name"].split()[2:], row["peers"]["cublas"]
        if side not in ("512", "1024", "1536", "2048", "4096"):
            continue
        shares = (f"{100 * results['rates'][side][t] / peer:.0f}" for t in (tile, "128x256/4"))
        rows.append([side, tile.split("/")[0], *shares])
    return markdown_table(["side", "best tile", "of cuBLAS, %", "tile of 128x256, %"], rows)


def bias_table(results: dict[str, Any]) -> str:
    rows = [[row["name"].removesuffix(", constant"), figure(row["ours"]), figure(row["peers"]["global"]),
             f"{row['ours'] / row['peers']['global']:.2f}"] for row in results["rows"][:2]]  # fmt: skip
    return markdown_table(["(ms)", "constant memory", "global memory", "constant over global"], rows)


def digits_table(results: dict[str, Any]) -> str:
    rows = [[row["name"], f"{row['ours']:.4g} {row['unit']}", ", ".join(f"{v:g}" for v in row["peers"].values())]
            for row in results["rows"] if row["unit"] != "s" and "classic" not in row["name"]]
    return markdown_table(["digits", "reached", "wanted"], rows)


def of(name: str, make: Callable[[dict[str, Any]], str]) -> Callable[[], str]:
    return lambda: make(read(name))


GPU = "kernels-h200"
TABLES: dict[str, Callable[[], str]] = {
    "conv": of(GPU, conv_table),
    "matmul": of(GPU, matmul_table),
    "bf16": of(GPU, bf16_table),
    "depthwise": of(GPU, depthwise_table),
    "tiles": of("product_tiles-h200", tiles_table),
    "digits": of("mnist-h200", digits_table),
    "bias": of("bias_memory-nvidia-h200", bias_table),
}
