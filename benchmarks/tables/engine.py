"""Tables of the engine: training and prediction beside the fastest peer, on CPUs and GPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.tables.results import RESULTS, figure, machine, markdown_table, read

WORK = {"train": "training", "infer": "prediction"}


def described(name: str) -> str:
    """``train squeezenet1_0 b32 mixed`` in words."""
    kind, network, batch, *rest = name.split()
    return " ".join((f"{network}, {WORK[kind]}, batch {batch[1:]}", *rest))


def compared(row: dict[str, Any]) -> list[str]:
    """Ours, the best peer with its name, and the ratio of a row in milliseconds."""
    peer, value = min(row["peers"].items(), key=lambda item: item[1])
    return [figure(row["ours"]), f"{peer} {figure(value)}", f"{row['ratio']:.2f}"]


def cpu_steps() -> str:
    """Every measured CPU in one table: the ratio to the fastest peer, and our time."""
    results = [read(path.stem) for path in sorted(RESULTS.glob("cpu_train_step-*.json"))]
    names = list(dict.fromkeys(row["name"] for result in results for row in result["rows"]))
    rows = []
    for name in names:
        found = [{row["name"]: row for row in result["rows"]}.get(name) for result in results]
        cells = [f"{figure(row['ours'])} ({row['ratio']:.2f})" if row else "" for row in found]
        rows.append([described(name), *cells])
    head = ["ms (peer's time over ours)", *(machine(result) for result in results)]
    return f"{markdown_table(head, rows)}\n\nRatios to the fastest peer are medians over rounds."


def gpu_steps() -> str:
    result = read("gpu-train-step-nvidia-h200")
    rows = [[described(row["name"]), *compared(row), figure(row["floor"])] for row in result["rows"]]
    head = [f"{machine(result)}, ms", "ours", "best peer", "ratio", "floor"]
    floor = "the floor is the sum over the kernels of the time that their bytes or operations need at the GPU's peak."
    return f"{markdown_table(head, rows)}\n\nOf {result['date'][:10]}; {floor}"


SUMMARY: Sequence[tuple[str, str]] = (
    ("cpu_train_step-intel-xeon-processor-2", "train squeezenet1_1 b32 float32"),
    ("cpu_train_step-intel-xeon-processor-2", "infer squeezenet1_1 b1 float32"),
    ("gpu-train-step-nvidia-h200", "train squeezenet1_0 b32 mixed"),
    ("gpu-train-step-nvidia-h200", "train mobilenetv2 b256 mixed"),
    ("gpu-train-step-nvidia-h200", "infer squeezenet1_0 b1 mixed"),
    ("gpu-train-step-nvidia-h200", "infer mobilenetv2 b1 mixed"),
)  # fmt: skip


def summary() -> str:
    """The README's choice of rows."""
    rows = []
    for name, row_name in SUMMARY:
        result = read(name)
        row = next(row for row in result["rows"] if row["name"] == row_name)
        rows.append([described(row_name), machine(result), *compared(row)])
    return markdown_table(["step or prediction", "machine", "ours, ms", "best peer, ms", "ratio"], rows)


LEVELS: Mapping[str, str] = {
    **{f"cuda {level}": f"`{level}`, float32" for level in ("naive", "shared", "im2col", "tensor_core")},
    **{f"cuda plan {precision}": f"`auto`, {precision}" for precision in ("float32", "tf32", "mixed")},
    **{f"PyTorch compiled {precision}": f"PyTorch compiled, {precision}" for precision in ("float32", "mixed")},
}
"""Implementations of `benchmarks.network` in the table of implementation levels, by their name there."""


def algorithms() -> str:
    """One training iteration by each implementation level."""
    result, name = read("network-nvidia-h200"), "squeezenet1_0"
    times = result["algorithms"][f"{name} iteration"]
    cells = [[shown, figure(times[way]), figure(times["cuda naive"] / times[way])] for way, shown in LEVELS.items()]
    table = markdown_table([f"{name}, forward and backward, batch {result['batch']}", "ms", "speed-up"], cells)
    return f"{table}\n\nOf {result['date'][:10]}."


def candidate_worth() -> str:
    """For each kernel the step that becomes slowest without it."""
    result = read("candidate-worth-nvidia-h200")
    best: dict[str, dict[str, Any]] = {}
    for row in sorted(result["rows"], key=lambda row: -row["ratio"]):
        best.setdefault(row["name"].split(", ", 1)[1], row)
    rows = [
        [f"`{kernel}`", described(row["name"].split(", ")[0]), f"{100 * (row['ratio'] - 1):.0f}"]
        for kernel, row in best.items()
    ]  # fmt: skip
    return markdown_table(["without", f"step or prediction, {machine(result)}", "% slower"], rows)


TABLES: dict[str, Callable[[], str]] = {
    "cpu steps": cpu_steps, "gpu steps": gpu_steps, "engine summary": summary, "algorithms": algorithms,
    "candidate worth": candidate_worth,
}
