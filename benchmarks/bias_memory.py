"""A bias from constant against global memory: ``python -m benchmarks.bias_memory``, ms of replayed graphs on a GPU."""

from __future__ import annotations

import argparse

from benchmarks.record import Row, gpu_name, make_row, write_results
from core.laboratory.studies import DEPTHWISE_SHAPES, bias_study


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    rows: list[Row] = []
    for shape in DEPTHWISE_SHAPES:
        for name, timings in bias_study(*shape):
            times = {t.algorithm: t.milliseconds for t in timings}
            rows.append(make_row(f"{name}, constant", times["constant"], {"global": times["global"]}, "ms"))
    write_results("bias_memory", rows, gpu_name())


if __name__ == "__main__":
    main()
