"""Training steps and predictions of two checkouts, interleaved on one GPU, and whether their losses have the same bits.

    python -m benchmarks.two_trees OLD_FOLDER [--only NAME] [--rounds 15]

Each checkout computes in a process of its own (`benchmarks/tree_worker.py`); only one of them computes at a time. The
ratio is the median over the rounds of old over new: above 1, the present checkout is faster.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.record import Row, gpu_name, write_results
from core.laboratory.gpu_plans import STANDARD

ROOT = Path(__file__).parents[1]
CASES = tuple((plan.model, plan.batch, plan.precision, plan.training) for plan in STANDARD)
"""Network, batch, precision, training."""


@dataclass
class Tree:
    """A checkout's process, which answers each question with one line of JSON."""

    process: subprocess.Popen[str]

    @staticmethod
    def start(folder: Path, case: tuple[Any, ...]) -> Tree:
        command = [sys.executable, "-P", str(ROOT / "benchmarks" / "tree_worker.py"), json.dumps(case)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}
        return Tree(subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder, env=environment
        ))  # fmt: skip

    def ask(self, question: str) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(question + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def compare(old: Path, case: tuple[Any, ...], rounds: int) -> tuple[Row, dict[str, Any]]:
    """Interleaved times of one case, and both checkouts' losses and kernels."""
    trees = [Tree.start(old, case), Tree.start(ROOT, case)]
    try:
        first = [tree.ask("check") for tree in trees]
        pairs = [[tree.ask("time") for tree in trees] for _ in range(rounds)]
    finally:
        for tree in trees:
            tree.end()
    times = [statistics.median(pair[i] for pair in pairs) for i in (0, 1)]
    model, batch, precision, training = case
    name = f"{'train' if training else 'infer'} {model} b{batch} {precision}"
    same = first[0]["values"] == first[1]["values"]
    differing = sorted(set(map(tuple, first[0]["kernels"])) ^ set(map(tuple, first[1]["kernels"])))
    row = Row(name, times[1], {"old checkout": times[0]}, "ms", statistics.median(a / b for a, b in pairs))
    return row, {"same bits": same, "values": first[1]["values"][:3], "kernels that differ": len(differing)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    rows, notes = [], {}
    for case in CASES:
        if options.only and options.only not in f"{case[0]} b{case[1]}":
            continue
        try:
            row, notes[f"{case}"] = compare(options.old.resolve(), case, options.rounds)
        except (json.JSONDecodeError, OSError) as error:  # a process that ended has said why on its error output
            print(f"{case}: {error}", flush=True)
            continue
        rows.append(row)
        print(f"{row.name:36} old {row.peers['old checkout']:.4f}  new {row.ours:.4f} ms  {row.ratio:.3f}  "
              f"{notes[f'{case}']}", flush=True)
    write_results("two_trees", rows, gpu_name(), notes=notes)


if __name__ == "__main__":
    main()
