"""Scaling over GPUs as a table, and a model of its cost beside what was measured, drawn for more GPUs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.curves import draw_curves
from benchmarks.scaling import PEERS, STRONG
from benchmarks.scaling_worker import SYNCHRONIZED
from benchmarks.tables.results import RESULTS, figure, machine, markdown_table, percent, read
from core.laboratory.plot import save_png
from core.models.architectures import build

PICTURE = Path(__file__).parents[2] / "docs" / "pictures" / "scaling.png"
CASE = re.compile(r"(?P<model>\w+) b(?P<batch>\d+) x(?P<gpus>\d+)")
CLASSES, SIDE, FLOAT = 10, 224, 4
GPUS = (2, 4, 8, 64, 512)
HOST = 8
"""GPUs of one machine, on NVLink; more are on a network."""
NETWORK_BYTES, NETWORK_SECONDS = 50e9, 5e-6
"""Assumed for each GPU: a network of 400 Gbit/s (InfiniBand NDR), and its latency for each doubling of the machines."""
SHOWN = (32, 256)
"""Photos of a GPU in the table."""
DRAWN = (("squeezenet1_0", 32), ("mobilenetv2", 256))


def read_by_gpus(name: str) -> list[dict[str, Any]]:
    """The results of a benchmark, that on the most GPUs first."""
    found = [read(path.stem) for path in RESULTS.glob(f"{name}-nvidia-*-x*.json")]
    return sorted(found, key=lambda result: -int(result["machine"]["name"].rpartition("-x")[2]))


def milliseconds(result: Mapping[str, Any]) -> dict[tuple[str, int, int], dict[str, float]]:
    """Times of all peers by network, batch of a GPU and GPUs."""
    found = ((CASE.fullmatch(row["name"]), row) for row in result["rows"])
    return {(m["model"], int(m["batch"]), int(m["gpus"])): {"ours": row["ours"], **row["peers"]}
            for m, row in found if m}  # fmt: skip


def scaling() -> str:
    result, *_ = read_by_gpus("scaling")
    times = milliseconds(result)
    peers = [peer for peer in PEERS if "DDP" in peer and any(peer in step for step in times.values())]
    rows, strong = [], dict[str, list[str]]()
    for (model, batch, gpus), step in times.items():
        if gpus == 1 or batch not in SHOWN:
            continue
        alone = times[model, batch, 1]
        shares = {peer: f"{100 * alone[peer] / step[peer]:.1f}" for peer in step if peer in alone}
        theirs = [text for peer in peers for text in (figure(step[peer]) if peer in step else "", shares.get(peer, ""))]
        formula = f"{100 * predict(result, model, batch, gpus):.1f}"
        rows.append([f"{model}, {gpus}x{batch}", figure(step["ours"]), shares["ours"], formula,
                     shares.get(SYNCHRONIZED, ""), *theirs])  # fmt: skip
    head = [f"{machine(result)}: GPUs x photos of each", "ms", "weak scaling, %", "formula, %",
            "`--sync-batch-norm`, %", *(text for peer in peers for text in (f"{peer}, ms", "weak, %"))]  # fmt: skip
    for case, found in result["efficiency"].items():
        kind, model, _, gpus = case.split()
        if kind == "strong":
            strong.setdefault(gpus[1:], []).append(f"{model} {percent(found['ours'])}")
    shown = "; ".join(f"{gpus} GPUs: {', '.join(models)}" for gpus, models in strong.items())
    reached = "; ".join(map(accuracy, read_by_gpus("scaling_accuracy")))
    return (f"{markdown_table(head, rows)}\n\nStrong scaling of a batch of {STRONG}, {shown}. "
            f"Seconds to validation accuracy: {reached}.")  # fmt: skip


def accuracy(result: Mapping[str, Any]) -> str:
    """Seconds to the highest goal that one GPU reached, and the accuracy of the last epoch."""
    seconds = {row["name"]: row["ours"] for row in result["rows"]}
    goal = max(float(name.split()[0]) for name, value in seconds.items() if "1 GPUs" in name and np.isfinite(value))
    found = [f"{figure(seconds[f'{goal:g} %, {gpus} GPUs'])} on {gpus} GPU{'s' * (gpus != '1')} (epoch {last[0]}: "
             f"{percent(last[2])})" for gpus, (*_, last) in result["curves"].items()]  # fmt: skip
    return f"{goal:g} % by `{result.get('preset', 'leaves-fast')}` ({result['photos']}): {', '.join(found)}"


def predict(result: Mapping[str, Any], model: str, batch: int, gpus: int) -> float:
    """Weak scaling: the time of a step on one GPU over that on so many, with photos on the GPUs."""
    alone = milliseconds(result)[model, batch, 1]["ours"] / 1e3
    return alone / (alone + all_reduce_seconds(result, gradient_bytes(model), gpus))


def gradient_bytes(model: str) -> int:
    parameters = build(model, CLASSES, SIDE).parameters().values()
    return FLOAT * sum(int(np.prod(p.shape)) for p in parameters if p.trained)


def all_reduce_seconds(result: Mapping[str, Any], size: int, gpus: int) -> float:
    """Latency and bandwidth fitted to the fewest GPUs measured; beyond one machine, of the assumed network."""
    if gpus == 1:
        return 0.0
    fewest, measured = min(result["all_reduce_ms"].items(), key=lambda item: int(item[0]))
    sent = 2 * (int(fewest) - 1) / int(fewest) * FLOAT * np.array([int(count) for count in measured])
    slope, latency = np.polyfit(sent, np.array(list(measured.values())) / 1e3, 1)
    latency /= np.log2(int(fewest))
    share = 2 * (gpus - 1) / gpus * size
    if gpus <= HOST:
        return float(latency * np.log2(gpus) + share * slope)
    doublings = np.log2(gpus / HOST)
    return float(latency * np.log2(HOST) + NETWORK_SECONDS * doublings + share * max(slope, 1 / NETWORK_BYTES))


def draw_scaling() -> None:
    """docs/pictures/scaling.png: weak scaling over GPUs by the formula, and where it was measured."""
    result, *fewer = read_by_gpus("scaling")
    curves: dict[str, Sequence[tuple[float, float]]] = {}
    for model, batch in DRAWN:
        curves[f"{model}, {batch}"] = [(n, 100 * predict(result, model, batch, n)) for n in (1, *GPUS)]
        shares = {n: of["efficiency"].get(f"weak {model} b{batch} x{n}") for n in GPUS for of in (result, *fewer)
                  if f"x{n}" in of["machine"]["name"]}  # fmt: skip
        curves[f"{model}, {batch}, measured"] = [(n, 100 * share["ours"]) for n, share in shares.items() if share]
    title = "Weak scaling by network and photos of a GPU: formula and measurement"
    save_png(draw_curves(title, "GPUs", "% of the photos per second of as many single GPUs", curves, range(80, 101, 5)),
             PICTURE)  # fmt: skip


def many_photos() -> str:
    """Photos per second of `leafclinic diagnose` on two cores, and without the start on GPUs."""
    results = read("many_photos-intel-xeon-processor-2"), *read_by_gpus("many_photos")
    cores, gpus, *_ = ({row["name"]: figure(row["ours"]) for row in result["rows"]} for result in results)
    alone, *dask = (cores[f"photos per second, {who}"] for who in ("one process", "Dask, 1 worker", "Dask, 2 workers"))
    found = [f"{rate} on {name.split()[0]}" for name, rate in gpus.items() if name.endswith("without")]
    return (f"Photos per second: on two cores {alone} in one process, {dask[0]} and {dask[1]} with one and two "
            f"workers; by number of H200, {', '.join(found)}.")  # fmt: skip


TABLES: dict[str, Callable[[], str]] = {"scaling": scaling, "many_photos": many_photos}
