"""The kernels in the window, from a process: times, errors and source of those of an op, and the choices of a plan."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from PySide6.QtCore import QObject, Signal

from app.translation import sentence, tr
from app.viewmodels.process_model import ProcessModel
from app.viewmodels.row_order import Column
from app.viewmodels.rows_model import RowsModel


@dataclass(frozen=True, slots=True)
class BenchmarkedKernel:
    """One kernel for an op, direction and shape. milliseconds: 0 before it ran; reason: why it cannot run."""

    op: str
    direction: str
    device: str
    algorithm: str
    idea: str
    place: str = ""
    source: str = ""
    milliseconds: float = 0.0
    gflops: float = 0.0
    error: float = 0.0
    tolerance: float = 0.0
    right: bool = False
    reason: str = ""


class KernelBenchmark(ProcessModel):
    """Signals: `listed()` ops, shapes, devices and networks are known; `changed()`; `explained()`."""

    listed = Signal()
    changed = Signal()
    explained = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.rows = RowsModel(columns(), self)
        self.kernels: list[BenchmarkedKernel] = []
        self.shapes: dict[str, list[str]] = {}
        self.devices: dict[str, str] = {}
        self.networks: Sequence[str] = ()
        self.precisions: Sequence[str] = ()
        self.gpus: Sequence[tuple[str, str]] = ()
        self.explanation: dict[str, Any] = {}
        self.roofs: dict[str, list[float]] = {}
        self.intensity = 0.0
        self.running = False

    def list(self) -> None:
        """Request the list of kernels; the process keeps running for the benchmarks."""
        if self._thread is None:
            self._start_process("kernels", {"list": True})

    def run(self, op: str, direction: str, shape: str) -> None:
        """Verify and time every kernel of an op; results arrive one by one."""
        self.show(op, direction)
        self.list()
        if self._thread is not None:
            self.running = True
            self._thread.send(json.dumps({"op": op, "direction": direction, "shape": shape}))

    def explain(self, **plan: Any) -> None:
        """Compare the candidates of every step of a network's plan; a capability of "" is the GPU of this computer."""
        self.explanation = {}
        self.list()
        if self._thread is not None:
            self._thread.send(json.dumps({"plan": plan}))

    def show(self, op: str, direction: str) -> None:
        """List the kernels of an op without running them."""
        self.rows.show_rows([k for k in self.kernels if (k.op, k.direction) == (op, direction)])
        self.changed.emit()

    def cancel(self) -> None:
        """End the process: a kernel that takes minutes cannot be interrupted."""
        self.close()
        self.ended.emit()
        self.list()

    def _end_process(self) -> None:
        super()._end_process()
        self.running = False

    def _read_answers(self, answers: Sequence[dict[str, Any]]) -> None:
        super()._read_answers(answers)
        self.changed.emit()

    def _read(self, answer: dict[str, Any]) -> None:
        if "kernels" in answer:
            self.kernels = [BenchmarkedKernel(**raw) for raw in answer["kernels"]]
            self.shapes, self.devices = answer["shapes"], answer["devices"]
            self.networks, self.precisions, self.gpus = (answer[n] for n in ("networks", "precisions", "gpus"))
            self.listed.emit()
        elif "explained" in answer:
            self.explanation = answer
            self.explained.emit()
        elif "roofs" in answer:
            self.roofs, self.intensity = answer["roofs"], answer["intensity"]
        elif "result" in answer:
            self._fill(answer["result"])
        elif "done" in answer:
            self.running = False
            self.ended.emit()

    def _fill(self, measured: dict[str, Any]) -> None:
        for at, result in enumerate(self.rows.rows):
            if all(getattr(result, name) == measured[name] for name in ("op", "direction", "device", "algorithm")):
                self.rows.replace(at, replace(result, **measured))


def columns() -> list[Column]:
    return [
        Column(tr("Device"), lambda r: r.device),
        Column(tr("Algorithm"), lambda r: tr(r.algorithm.replace("_", " ")), tip=lambda r: tr(r.idea)),
        Column("GFLOP/s", lambda r: f"{r.gflops:,.1f}" if r.milliseconds else "", lambda r: r.gflops, right=True),
        Column("ms", lambda r: f"{r.milliseconds:.3f}" if r.milliseconds else "", lambda r: r.milliseconds, right=True),
        Column(tr("Verdict"), _verdict, tip=lambda r: sentence(r.reason) or f"{r.error:.1e} / {r.tolerance:.1e}"),
        Column(tr("Idea"), lambda r: tr(r.idea), tip=lambda r: tr(r.idea)),
    ]


def _verdict(result: BenchmarkedKernel) -> str:
    if result.reason:
        return tr("not available: {reason}", reason=sentence(result.reason))
    if not result.milliseconds:
        return ""
    if result.right:
        return tr("passed (max error {error})", error=f"{result.error:.0e}")
    return tr("failed (max error {error})", error=f"{result.error:.0e}")


def summary(answer: Mapping[str, Any]) -> str:
    """The time of the whole plan: the sum of the chosen costs, and with a GPU that of the captured step."""
    cost = sum(row["microseconds"] for row in answer["explained"] if row["chosen"])
    text = tr("The chosen kernels cost {cost} µs in all.", cost=f"{cost:,.0f}")
    if answer["whole"]:
        parts, whole = f"{answer['parts']:,.0f}", f"{answer['whole']:,.0f}"
        text += " " + tr("In the captured step: {parts} µs. The whole step takes {whole} µs.", parts=parts, whole=whole)
    return text


def plan_columns() -> list[Column]:
    """One candidate a row, of one step or of neighbouring steps that one launch computes.

    "microseconds" is its cost, with "source"; "inside" is what the chosen one adds to the captured step, 0 without a
    GPU.
    """
    return [
        Column(tr("Step"), lambda r: r["steps"], tip=lambda r: r["steps"]),
        Column(tr("Direction"), lambda r: tr(r["direction"].replace("_", " "))),
        Column(tr("Chosen"), lambda r: "✓" if r["chosen"] else "", lambda r: r["chosen"]),
        Column(tr("Kernel"), lambda r: r["name"], tip=lambda r: r["configuration"] or None),
        Column(tr("Cost (µs)"), lambda r: "" if r["reason"] else f"{r['microseconds']:,.1f}",
               lambda r: r["microseconds"], right=True,
               help=tr("Measured on this GPU, or estimated from its peak rates")),
        Column(tr("Source"), lambda r: "" if r["reason"] else tr(r["source"])),
        Column(tr("In the step (µs)"), lambda r: f"{r['inside']:,.1f}" if r["inside"] else "", lambda r: r["inside"],
               right=True, help=tr("What the kernel adds to the captured step; needs a GPU")),
        Column(tr("Reason against it"), lambda r: sentence(r["reason"]) if r["reason"] else "",
               tip=lambda r: sentence(r["reason"]) if r["reason"] else None),
    ]
