"""Measures programs interleaved: each is a process of its own, asked for a few timed runs at a time.

What disturbs the machine disturbs all of them alike, so that ratios of one run can be compared.
The parent leaves a gap between turns: threads that spin after their last call cost the next
process 4 to 5 ms otherwise.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

GAP_SECONDS = 0.02
"""Threads of libgomp and oneDNN have gone to sleep after this long."""


def serve(cases: Callable[[str], Callable[[], object]]) -> None:
    """The worker's side: `cases` makes a callable by name; each line asked for is answered with its times."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # stray prints go to stderr
    made: dict[str, Callable[[], object]] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            if asked["case"] not in made:
                made[asked["case"]] = cases(asked["case"])
                made[asked["case"]]()
            run = made[asked["case"]]
            run()
            seconds = []
            for _ in range(asked["count"]):
                begin = time.perf_counter()
                run()
                seconds.append(time.perf_counter() - begin)
            answer = {"seconds": seconds}
        except Exception as error:  # noqa: BLE001  the parent shows it beside the others' results
            answer = {"error": repr(error)[:300]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


class Worker:
    """A process that serves cases."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def run(self, case: str, count: int) -> list[float]:
        """Seconds of `count` runs. Raises RuntimeError with the worker's reason."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"case": case, "count": count}) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline() or '{"error": "the process ended"}')
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return list(answer["seconds"])

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


@dataclass(frozen=True)
class Measured:
    """Median and best seconds of one program, and per round its median."""

    median: float
    best: float
    rounds: tuple[float, ...]


def by_turns(
    entries: Mapping[str, tuple[Worker, str]], rounds: int, count: int
) -> tuple[dict[str, Measured], dict[str, str]]:
    """label -> (worker, case) measured in `rounds` turns of `count` runs; results, and reasons of those that failed."""
    seconds: dict[str, list[list[float]]] = {label: [] for label in entries}
    failed: dict[str, str] = {}
    for turn in range(rounds + 1):  # the first turn warms up
        for label, (worker, case) in entries.items():
            if label in failed:
                continue
            try:
                taken = worker.run(case, count if turn else 1)
            except RuntimeError as error:
                failed[label] = str(error)
                continue
            if turn:
                seconds[label].append(taken)
            time.sleep(GAP_SECONDS)
    measured = {}
    for label, turns in seconds.items():
        if label not in failed:
            flat = [s for turn in turns for s in turn]
            medians = tuple(statistics.median(turn) for turn in turns)
            measured[label] = Measured(statistics.median(flat), min(flat), medians)
    return measured, failed


def ratio(ours: Measured, peer: Measured) -> float:
    """How many times faster ours is: the median over the rounds."""
    return statistics.median(p / o for o, p in zip(ours.rounds, peer.rounds, strict=True))
