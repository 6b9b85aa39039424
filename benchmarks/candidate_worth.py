"""What each GPU kernel is worth: the captured step with all candidates and without one, interleaved.

``python -m benchmarks.candidate_worth`` writes results/candidate-worth-<gpu>.json: per network and kernel the
milliseconds with and without it, and the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Collection, Iterable
from typing import Final

import core.gpu.candidates as table
from benchmarks.gpu_train_step import CASES as STEPS
from benchmarks.gpu_train_step import Case, ours
from benchmarks.record import Row, gpu_name, write_results
from core.gpu.ops.norm import fusion, pointwise_launches

ROUNDS: Final = 9
ALL: Final = table.CANDIDATES.all
GROUPS: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "fire_tma": (("fire_tma", ""),), "image_pool": (("image_pool", ""),),
    "pointwise_tma, forward": (("pointwise_tma", "forward"),),
    "pointwise_tma, backward": (("pointwise_tma", "backward"),),
    "rows_tma": (("rows_tma", ""),), "resident_wgmma": (("resident_wgmma", ""),),
    "expand and project": (("expand", ""), ("project", "")), "project": (("project", ""),), "strips": (("strips", ""),),
    "low_latency_fire": (("low_latency_fire", ""),), "low_latency_add": (("low_latency_add", ""),),
    "low_latency_expand": (("low_latency_expand", ""),),
}  # fmt: skip
"""Candidates that are excluded together: name and direction, "" for all directions."""
RULES: Final = {"expand": fusion.expands, "project": fusion.projects}
"""Whether a batch norm leaves work to the candidate."""
HOPPER: Final = ("fire_tma", "image_pool", "pointwise_tma, forward", "pointwise_tma, backward", "rows_tma",
                 "resident_wgmma")  # fmt: skip
WIDE: Final = Case("infer mobilenetv2 b256 mixed", "mobilenetv2", 256, "mixed", False)
BY_NAME: Final = {case.name: case for case in (*STEPS, WIDE)}
CASES: Final = tuple((BY_NAME[name], groups) for name, groups in {
    "train squeezenet1_0 b32 mixed": HOPPER, "train squeezenet1_0 b256 mixed": HOPPER,
    "train squeezenet1_1 b256 mixed": HOPPER, "train squeezenet1_1_bn b128 mixed": HOPPER,
    "train mobilenetv2 b256 mixed": ("expand and project", "project"),
    "infer squeezenet1_0 b256 mixed": ("image_pool", "pointwise_tma, forward", "resident_wgmma"),
    "infer mobilenetv2 b256 mixed": ("strips",),
    "infer squeezenet1_0 b1 mixed": ("low_latency_fire",),
    "infer mobilenetv2 b1 mixed": ("low_latency_add", "low_latency_expand"),
}.items())  # fmt: skip


def exclude(left_out: Collection[tuple[str, str]]) -> None:
    """Plans made from now on choose from all candidates but these, and batch norms do the work left to them."""
    for name, rule in RULES.items():
        for module in (fusion, pointwise_launches):
            setattr(module, rule.__name__, (lambda frame, step: False) if (name, "") in left_out else rule)
    table.CANDIDATES.__init__(
        row for row in ALL if not {(row.name, ""), (row.name, row.direction)} & set(left_out)
    )


def measure(cases: Iterable[tuple[Case, Collection[str]]]) -> Iterable[Row]:
    """A row for each case and kernel."""
    for case, groups in cases:
        replays = 30 if case.batch == 1 else 6
        exclude(())
        complete, plan = ours(case)
        for group in groups:
            exclude(GROUPS[group])
            reduced, other = ours(case)
            pairs = [(complete(replays), reduced(replays)) for _ in range(ROUNDS)]
            times = [statistics.median(values) for values in zip(*pairs, strict=True)]
            ratio = statistics.median(b / a for a, b in pairs)
            yield Row(f"{case.name}, {group}", times[0], {"without": times[1]}, "ms", ratio)
            other.close()
        plan.close()


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    write_results("candidate-worth", list(measure(CASES)), gpu_name())


if __name__ == "__main__":
    main()
