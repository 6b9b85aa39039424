"""Lists the kernels of this computer, and verifies and times those of an op on request."""

from __future__ import annotations

from typing import Any

from app.processes.entry import Channel
from core.errors import LeafClinicError
from core.laboratory.gpu_plans import Planned, explain_plan, list_gpus
from core.laboratory.kernel_comparison import CASES, KernelResult, compare_kernels, cost_of, list_kernels, source
from core.laboratory.studies import roof
from core.models.architectures import MODELS
from core.plan import PRECISIONS, cuda_problem


def work(channel: Channel, asked: dict[str, Any]) -> None:
    """First request {"list": true}; then {"op", "direction", "shape"} or {"plan"} as often as wanted."""
    kernels = []
    for kernel in list_kernels():
        place, text = source(kernel)
        names = _values_of(kernel, "op", "direction", "device", "algorithm", "idea")
        kernels.append({**names, "place": place, "source": text})
    devices = {"cpu": "", "cuda": cuda_problem() or ""}
    channel.send(
        kernels=kernels, shapes={op: list(cases) for op, cases in CASES.items()}, devices=devices,
        networks=list(MODELS), precisions=list(reversed(PRECISIONS)), gpus=list_gpus(),
    )  # fmt: skip
    roofs: dict[str, list[float]] = {}
    while (request := channel.requests.get()) is not None:
        if "plan" in request:
            channel.send(**_explain(request["plan"]))
            continue
        case = CASES[request["op"]][request["shape"]]
        roofs = roofs or {device: list(roof(device)) for device, problem in devices.items() if not problem}
        flops, size = cost_of(case)
        channel.send(roofs=roofs, intensity=flops / size)
        for result in compare_kernels(case, request["direction"]):
            if channel.ended():
                return
            channel.send(result=_describe(result))
        channel.send(done=True)


def _describe(result: KernelResult) -> dict[str, Any]:
    values = _values_of(result, "milliseconds", "gflops", "error", "right", "reason")
    return {**_values_of(result.kernel, "op", "direction", "device", "algorithm", "tolerance"), **values}


def _values_of(record: object, *names: str) -> dict[str, Any]:
    return {name: getattr(record, name) for name in names}


def _explain(plan: dict[str, Any]) -> dict[str, Any]:
    """Every candidate of a plan as a row, and the sums; or why it cannot be made."""
    major, _, minor = plan["capability"].partition(".")
    planned = Planned(plan["model"], plan["batch"], plan["precision"], plan["training"])
    try:
        found = explain_plan(planned, (int(major), int(minor)) if major else None)
    except LeafClinicError as error:
        return {"failed": str(error)}
    rows = [
        {"steps": " + ".join(one.steps), "direction": one.direction, "name": row.candidate.name,
         "chosen": row.candidate.name == one.chosen, "microseconds": 0.0 if row.reason else row.microseconds,
         "source": row.source, "configuration": "" if row.case.configuration is None else str(row.case.configuration),
         "inside": (found.measured or {}).get(one, 0.0) if row.candidate.name == one.chosen else 0.0,
         "reason": row.reason}
        for one in found.choices for row in one.considered
    ]  # fmt: skip
    return {"explained": rows, "parts": found.parts, "whole": found.whole}
