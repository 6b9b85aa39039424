"""Lists the kernels of this computer, and verifies and times those of an op on request."""

from __future__ import annotations

from typing import Any

from app.processes.protocol import Channel, serve
from core.laboratory.kernel_comparison import CASES, KernelResult, compare_kernels, cost_of, list_kernels, source
from core.laboratory.studies import roof
from core.plan import cuda_problem


def main() -> int:
    return serve(_work)


def _work(channel: Channel, asked: dict[str, Any]) -> None:
    """First request {"list": true}; then {"op", "direction", "shape"} as often as wanted."""
    kernels = []
    for row in list_kernels():
        place, text = source(row)
        kernels.append({"op": row.op, "direction": row.direction, "device": row.device, "algorithm": row.algorithm,
                        "idea": row.idea, "place": place, "source": text})  # fmt: skip
    devices = {"cpu": "", "cuda": cuda_problem() or ""}
    channel.tell(kernels=kernels, shapes={op: list(cases) for op, cases in CASES.items()}, devices=devices)
    roofs: dict[str, list[float]] = {}
    while (request := channel.requests.get()) is not None:
        case = CASES[request["op"]][request["shape"]]
        roofs = roofs or {device: list(roof(device)) for device, problem in devices.items() if not problem}
        flops, size = cost_of(case)
        channel.tell(roofs=roofs, intensity=flops / size)
        for climbed in compare_kernels(case, request["direction"]):
            if channel.ended():
                return
            channel.tell(result=_describe(climbed))
        channel.tell(done=True)


def _describe(climbed: KernelResult) -> dict[str, Any]:
    row = climbed.kernel
    return {
        "device": row.device, "algorithm": row.algorithm, "milliseconds": climbed.milliseconds,
        "gflops": climbed.gflops, "error": climbed.error, "tolerance": row.tolerance.relative,
        "right": climbed.right, "reason": climbed.reason,
    }  # fmt: skip
