"""Where the time of a training step goes: every kernel of the plan, timed, under this machine's measured roof.

    python -m benchmarks.roofline [--device cuda] [--models squeezenet1_1,mobilenetv2] [--batch 32]

The kernels go into the results; `python -m benchmarks.tables` draws them.
"""

from __future__ import annotations

import argparse

from benchmarks.record import Row, write_results
from core.laboratory import studies
from core.plan import DEVICES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=DEVICES[1:])
    parser.add_argument("--models", default="squeezenet1_1,mobilenetv2")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--machine", default="", help="short name of the machine, for the file")
    options = parser.parse_args()
    gflops, gigabytes = studies.roof(options.device)
    rows = [
        Row("product", gflops, {}, "GFLOP/s"),
        Row("copy, read and written", gigabytes, {}, "GB/s"),
    ]
    kernels = {}
    for model in options.models.split(","):
        times = studies.roofline_study(model, options.device, options.batch, 224)
        total, floor = sum(t.milliseconds for t in times), sum(t.floor_ms for t in times)
        rows.append(Row(f"kernels of a step of {model} b{options.batch}", total, {}, "ms", floor=floor))
        kernels[model] = [
            [p.label, p.group, round(p.intensity, 3), round(p.gflops, 2)] for p in studies.points(times)
        ]
    write_results(f"roofline_{options.device}", rows, options.machine, batch=options.batch, kernels=kernels)


if __name__ == "__main__":
    main()
